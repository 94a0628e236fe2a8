"""The keys of a group-by that are in a table: many, private, or of several columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.codec import coded
from dptrees.dpcore.rows.key_table import KeyTable
from dptrees.dpcore.rows.keys import KEY_POLICIES, OTHER, Keys, not_listed
from dptrees.dpcore.rows.policies import DROPPED, check_policy
from dptrees.dpcore.rows.row_outcomes import MISSING, RowOutcome, missing_flags


@dataclass(frozen=True, kw_only=True)
class TableKeys(Keys):
    """The keys of a group-by that are in a table, which travels and is written by itself.

    Args:
        table: the keys.
        unknown: what happens to null and to a key that is not listed: "drop", or "other".

    Raises:
        ValueError: another policy; or "other" beside a listed key of that label.

    >>> table = KeyTable(pa.table({"shop": pa.array(["a", "b"], pa.large_string())}))
    >>> keys = TableKeys(table=table, unknown="other")
    >>> keys.row_codes({"shop": pa.array(["b", "c", None])}).tolist()
    [1, 2, 2]
    >>> keys.labels_between(1, 3).to_pylist(), keys.find_code("other")
    (['b', 'other'], 2)
    """

    written = ("map_version", "columns", "table", "unknown")

    table: KeyTable = field(metadata=coded(write=lambda keys: keys.table.digest))
    unknown: str = "drop"

    def __post_init__(self) -> None:
        check_policy(", ".join(self.table.columns), "unknown", self.unknown, KEY_POLICIES)
        if self.unknown == OTHER and self.table.find_position(OTHER) is not None:
            raise ValueError(f"keys: must not hold {OTHER!r} when unknown is {OTHER!r}")

    def with_table(self, table: object) -> TableKeys:
        """The same keys, whose table lies elsewhere."""
        assert isinstance(table, KeyTable)
        return TableKeys(table=table, unknown=self.unknown)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.table.columns

    @property
    def size(self) -> int:
        return len(self.table) + (self.unknown == OTHER)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return self.table.value_types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self.table.check_types(types)

    def row_codes(self, columns: Mapping[str, pa.Array]) -> Integers:
        codes = self.table.positions(columns)
        if self.unknown == OTHER:
            codes[codes == DROPPED] = len(self.table)
        return codes

    def labels_between(self, start: int, stop: int) -> pa.StringArray:
        listed = self.table.labels_between(start, min(stop, len(self.table)))
        if stop <= len(self.table):
            return listed
        return pa.concat_arrays([listed, pa.array([OTHER], pa.string())])

    def find_code(self, value: object) -> int:
        if self.unknown == OTHER and value == OTHER:
            return len(self.table)
        if isinstance(value, np.generic):
            value = value.item()
        position = self.table.find_position(value)
        if position is None:
            keys = self.labels_between(0, len(self.table)).to_pylist()
            raise ValueError(not_listed(", ".join(self.columns), "key", value, keys))
        return position


class UnlistedKeys(TableKeys):
    """Placeholder for keys that are yet to be selected, where a tree is planned: for one key."""

    is_listed = False

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        missing = np.logical_or.reduce([missing_flags(columns[name]) for name in self.columns])
        return [RowOutcome(", ".join(self.columns), MISSING, self.unknown, missing)]
