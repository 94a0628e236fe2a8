"""A question about the mean of a column, one for each key; see `dpcore.mean.plan`.

All sums are in one place: two for each key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.mean.plan import MeanPlan
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.ordered.make import OrderedDomain, make_domain
from dptrees.dpcore.privacy.budget import Measure
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.questions.column_question import ColumnQuestion
from dptrees.dpcore.questions.entry import budget_entry
from dptrees.dpcore.questions.leaf_counts import ChunkCounts, DenseCounter, merged_chunk, pack_dense
from dptrees.dpcore.questions.place import (
    Counter,
    Drawn,
    Gathered,
    Increments,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.statistics import half_width
from dptrees.dpcore.questions.tables import NODES_SCHEMA, tree_and_key
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.trees.chunks import UniformChunking
from dptrees.dpcore.trees.exact_sums import split_words, words_total
from dptrees.dpcore.trees.uniform import UniformTree

ONE_PLACE = Place(0, 0)
_ENDS = 2


@dataclass(frozen=True, kw_only=True)
class MeanQuestion(ColumnQuestion):
    """The mean, the total and the number of values of a column, for each key.

    Args:
        domain: the map from rows to cells.
        plan: the noise.

    Raises:
        Refusal: a domain whose values have no mean, or too many keys.
        ValueError: a plan for another domain or other keys.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> age = make_domain({"column": "age", "type": "integer", "lower": 0, "upper": 101})
    >>> plan = MeanPlan(unit=ADD_REMOVE_ROW, cells=101, keyed=False,
    ...                 budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> ages = MeanQuestion(name="age", domain=age, plan=plan)
    >>> found = ages.increments({"age": pa.array([30, None, 250])})
    >>> found.cells.tolist(), found.values.tolist()
    ([0, 0, 1, 1], [70, 0, 30, 100])
    """

    kind = "mean"
    written = ("kind", "name", "domain", "keys", "plan", "confidence", "weight")

    domain: OrderedDomain
    plan: MeanPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan.cells != self.domain.cells:
            raise ValueError(f"plan: it is for {self.plan.cells} cells, not {self.domain.cells}")
        if self.domain.counts_units:
            raise Refusal("domain", "a mean is of the values of rows, not of units by their rows")
        if (missing := self.domain.spec()["missing"]) != "drop":
            raise Refusal(
                "missing",
                f"{missing} would count missing values at a bound, and so move the mean; say drop",
            )
        _ = self.ends

    @cached_property
    def ends(self) -> Floats:
        """(2,) a and b, the middles of the first and the last cell."""
        try:
            last = self.domain.cells - 1
            ends = [self.domain.middles(at, at + 1) for at in (0, last)]
        except ValueError as error:
            raise Refusal("domain", str(error).rstrip(".")) from None
        return np.concatenate(ends)

    @property
    def places(self) -> list[Place]:
        """One."""
        return [ONE_PLACE]

    @property
    def dense_cells(self) -> int:
        return _ENDS * self.key_count

    @cached_property
    def _chunking(self) -> UniformChunking:
        cells = self.dense_cells
        return UniformChunking(
            tree=UniformTree(leaves=cells, fanouts=(cells,)), keys=1, chunk_leaves=cells
        )

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.regrouped(self.row_increments(columns).increments)

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """The key of each row, and its cell as what it adds at b."""
        values = self.domain.leaf_ids(columns)
        codes = np.zeros(len(values), np.int64)
        if self.keys is not None:
            codes = self.keys.row_codes(columns)
        kept = (values >= 0) & (codes >= 0)
        if kept.all():
            return RowIncrements(Increments(codes, values))
        return RowIncrements(Increments(codes[kept], values[kept]), np.flatnonzero(kept))

    def regrouped(self, increments: Increments) -> Increments:
        """What rows add to both sums of their keys."""
        codes, above = increments
        assert above is not None and not isinstance(codes, pa.Array)
        cells = np.concatenate([_ENDS * codes, _ENDS * codes + 1])
        return Increments(cells, np.concatenate([self.plan.parts - above, above]))

    @property
    def is_keyed(self) -> bool:
        return self.keys is not None

    def cell_keys(self, cells: Integers) -> Integers | None:
        """Each cell of a row is the code of its key."""
        return cells if self.is_keyed else None

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return DenseCounter(self._chunking)

    def merge(self, place: Place, partials: Iterable[bytes]) -> ChunkCounts:
        return merged_chunk(self.dense_cells, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact sums, in parts of a row, into partial counts.

        Raises:
            ValueError: they are not (2 keys,) whole numbers.
        """
        given = np.asarray(counts)
        if given.shape != (self.dense_cells,) or given.dtype.kind not in "iu":
            raise ValueError(f"counts: tree {self.name} needs {self.dense_cells} whole numbers")
        numbers = given.astype(np.int64)
        yield Partial(ONE_PLACE, pack_dense(numbers), words_total(split_words(numbers)))

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        noisy = add_noise(self.plan.law, exact, stream, largest=LARGEST_DIVIDED)
        return Drawn(sent=pack(noisy), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The noisy rows of each key, and their parts at both ends."""
        (part,) = self.parts()
        shares = unpack(sent[ONE_PLACE]).reshape(-1, _ENDS) / self.plan.parts
        roots = self._rows(0, shares.sum(axis=1)[:, np.newaxis], self.rows_error)
        ends = self._rows(1, shares, self.share_error)
        return Gathered({}, [ReleasedPart(part, pa.concat_tables([roots, ends]))])

    @property
    def share_error(self) -> float:
        """Standard error of the rows at one end."""
        return math.sqrt(self.plan.law.variance) / self.plan.parts

    @property
    def rows_error(self) -> float:
        """Standard error of the rows of a key."""
        return math.sqrt(2) * self.share_error

    def _rows(self, level: int, estimates: Floats, error: float) -> pa.Table:
        """The rows of the table of nodes of one level, (keys, nodes)."""
        keys, wide = estimates.shape
        flat = estimates.reshape(-1)
        reach = half_width(self.confidence) * error
        last = self.domain.cells - 1
        labels = [""]
        if level:
            labels = [self.domain.labels(at, at + 1)[0].as_py() for at in (0, last)]
        return pa.Table.from_arrays(
            [
                *tree_and_key(self, 0, keys, wide),
                pa.array(np.full(keys * wide, level, np.int32)),
                pa.array(np.tile(np.arange(wide, dtype=np.int64), keys)),
                pa.array(labels * keys, pa.string()),
                pa.array(flat),
                pa.array(np.full(keys * wide, error)),
                pa.array(np.maximum(flat - reach, 0.0)),
                pa.array(np.maximum(flat + reach, 0.0)),
                pa.array(np.maximum(np.rint(flat), 0).astype(np.int64)),
            ],
            schema=NODES_SCHEMA,
        )

    def entry(self) -> dict[str, object]:
        """The noise of the sums, and the policies."""
        spec = self.domain.spec()
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": "mean of split rows",
            "sensitivity": {"L1": self.plan.sensitivity[0], "L2_squared": self.plan.sensitivity[1]},
            "noise": exact_scale(self.plan.law),
            "parts_of_a_row": self.plan.parts,
            "policies": self.policies(outside=spec["outside"], missing=spec["missing"]),
        }


def mean_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> MeanQuestion:
    """The question of a specification, as `MeanQuestion.spec` writes it."""
    return MeanQuestion.from_spec(
        spec,
        domain=make_domain(spec["domain"]),
        keys=keys_from_spec(spec["keys"]),
        unit=unit,
        measure=measure,
    )
