"""Released quantiles, looked up in their table: the specification of the tree says enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.ordered.domain_kinds import make_domain


class QuantileLookup:
    """The released quantiles of one tree.

    Attributes:
        tree: the name.
        column: of the values.
        key_columns: of the keys; empty: the tree has none; None: a table names them.
        has_keys: whether each key has all quantiles.
        confidence: of the intervals.
        quantiles: in the order of their rows.

    Args:
        spec: of the tree, as its question writes it.
        table: of the quantiles of all trees, as a release holds it.

    >>> spec = {"name": "age", "keys": None, "confidence": 0.95, "quantiles": [0.25, 0.5]}
    >>> spec["domain"] = {"type": "integer", "column": "age", "lower": 0, "upper": 9}
    >>> texts = {f"{name}_text": ["2", "8"] for name in ("value", "ci_low", "ci_high")}
    >>> table = pa.table({"tree": ["age", "age"], "key": pa.nulls(2), "q": [0.25, 0.5]} | texts)
    >>> lookup = QuantileLookup(spec, table)
    >>> [row["in_words"] for row in lookup.rows([0.5], None)], lookup.rows([0.1], None)
    (['8 and above'], None)
    """

    def __init__(self, spec: Mapping[str, Any], table: pa.Table) -> None:
        keys, self._domain = spec["keys"], spec["domain"]
        self.tree, self.column, self.has_keys = spec["name"], self._domain["column"], bool(keys)
        listed = [keys["column"]] if keys and "column" in keys else None
        self.key_columns = listed if keys else []
        self.confidence = float(spec["confidence"])
        self.quantiles = tuple(map(float, spec["quantiles"]))
        self._table = table.filter(pc.equal(table["tree"].cast(pa.string()), spec["name"]))

    def rows(self, quantiles: Sequence[float | str], key: object) -> list[dict[str, Any]] | None:
        """Return rows of the table, with names of cells that count values outside the bounds.

        Args:
            quantiles: numbers, or as they are written.
            key: the label of a key; None: all keys, or the tree has none.

        Returns:
            the rows, in the order of keys and then of quantiles; None: one of them was not
            released, or there is no such label.
        """
        table, wanted = self._table, [float(each) for each in quantiles]
        if key is not None:
            place = pc.index(table["key"].cast(pa.string()), key).as_py()
            table = table.slice(place, len(self.quantiles)) if place >= 0 else table.slice(0, 0)
        if not (table.num_rows and set(wanted) <= set(self.quantiles)):
            return None
        rows = table.to_pylist()
        labels = [row["key"] for row in rows[:: len(self.quantiles)]]
        every = [(label, each) for label in dict.fromkeys(labels) for each in self.quantiles]
        if [(row["key"], row["q"]) for row in rows] != every:
            return None
        places = [self.quantiles.index(each) for each in wanted]
        starts = range(0, len(rows), len(self.quantiles))
        found = [rows[start + place] for start in starts for place in places]
        # Other domains count no values outside their bounds.
        clamps = self._domain.get("outside", "clamp") == "clamp"
        return make_domain(self._domain).quantiles_in_words(found) if clamps else found
