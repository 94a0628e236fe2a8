"""The mean of a column alone, one for each key: counting, noise, plan and answers.

Let the domain have K cells, with middles from a to b. A row in cell i (of 0 to K - 1) adds K - 1
- i to the sum at a and i to the sum at b, so K - 1 in all, wherever it lies. With A and B the
noisy sums, divided by K - 1: rows N = A + B, total T = a A + b B, mean M = T / N. A number of
rows and a sum of values, each with half of an epsilon, would have sqrt(2) times the error: there
a row moves both measurements fully, here what it adds to one sum it does not add to the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.composition import Spending, moved_of_levels
from dptrees.dpcore.privacy.sensitivity import noise_law, split_sensitivity
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.answer_errors import (
    BlockedValues,
    Statistic,
    StatisticKind,
    half_width,
)
from dptrees.dpcore.questions.column_questions import ColumnQuestion
from dptrees.dpcore.questions.messages import (
    ChunkCounts,
    Counter,
    DenseCounter,
    Drawn,
    Gathered,
    Increments,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
    merged_chunk,
    pack_dense,
)
from dptrees.dpcore.questions.planning import ReleaseTerms, Share, Workload
from dptrees.dpcore.questions.released import (
    NODES,
    NODES_SCHEMA,
    Answer,
    ReadPart,
    Released,
    tree_and_key,
)
from dptrees.dpcore.questions.tree_question import budget_entry
from dptrees.dpcore.rows.columns import pack, unpack
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, Refusal
from dptrees.dpcore.trees.chunks import UniformChunking, split_words, words_total
from dptrees.dpcore.trees.shapes import UniformTree

# Cells of numbers whose number nobody states: the middle of a cell is within a two-millionth of the
# bounds' distance of every value in it.
FINEST = 2**20
_MOST_CELLS = 2**31


@dataclass(frozen=True, kw_only=True)
class MeanPlan(Coded):
    """The plan of one mean, or of one for each key.

    Args:
        unit: what neighbors differ in.
        budget: of both sums of all keys together.
        cells: K, of the domain.
        keyed: whether there is a mean for each key.

    Raises:
        Refusal: a number of cells out of range, or a budget whose noise is out of range.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = MeanPlan(unit=ADD_REMOVE_ROW, cells=101, keyed=False,
    ...                 budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan.law
    DiscreteLaplace(scale=Fraction(100, 1))
    """

    written = ("budget", "cells", "keyed")

    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    cells: int
    keyed: bool

    def __post_init__(self) -> None:
        if not 2 <= self.cells <= _MOST_CELLS:
            raise Refusal("domain", f"{self.cells} cells are not from 2 to 2^31, as a mean needs")
        try:
            _ = self.law
        except ValueError as error:
            raise Refusal("budget", f"no noise fits it, as the {error}") from None

    @property
    def parts(self) -> int:
        """K - 1: into how many parts a row is split."""
        return self.cells - 1

    @cached_property
    def sensitivity(self) -> tuple[int, int]:
        """The L1 and the squared L2 sensitivity of all sums together."""
        return split_sensitivity(self.unit, self.parts, keyed=self.keyed)

    @cached_property
    def law(self) -> NoiseLaw:
        """The noise of each sum, in parts of a row."""
        return noise_law(self.budget, *self.sensitivity)

    @property
    def spending(self) -> Spending:
        """Budget that the sums spend."""
        if self.budget.measure is Measure.EPSILON:
            return Spending(epsilon=self.budget.amount)
        moved = moved_of_levels([(self.law, self.sensitivity)])
        return Spending(rho=self.budget.amount, moved=moved)


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
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
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


@dataclass(frozen=True, kw_only=True)
class MeanWorkload(Workload[MeanQuestion]):
    """The mean of a column, for each key.

    Args:
        domain: the map from rows to cells.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> ages = MeanWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 101}))
    >>> one = Share(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan = ages.planned(one, ReleaseTerms(unit=ADD_REMOVE_ROW))
    >>> round(ages.predicted(plan), 3)  # of the mean, times the number of rows
    100.0
    """

    domain: OrderedDomain

    @property
    def error_unit(self) -> str:
        return f"{self.domain.column} times rows"

    def planned(self, share: Share, terms: ReleaseTerms) -> MeanQuestion:
        plan = MeanPlan(
            unit=self.domain.counted(terms.unit),
            budget=share.budget,
            cells=self.domain.cells,
            keyed=self.keys is not None,
        )
        return MeanQuestion(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            plan=plan,
            confidence=terms.confidence,
            weight=self.weight,
        )

    def predicted(self, question: MeanQuestion) -> float:
        """The standard error of a mean in the middle of the bounds, times the number of rows; near
        a bound up to the square root of 2 times that."""
        lower, upper = question.ends
        return float(upper - lower) * question.share_error / math.sqrt(2)


_NAMES = ("label", "estimate", "std_error", "count")


class ReleasedMean(Released):
    """The means of one tree.

    Args:
        question: the tree.
        read: gives the rows of its one part.
    """

    unordered = "has a mean alone (objective: mean), which gives no CDF"
    only_statistics = (StatisticKind.MEAN, StatisticKind.TOTAL)
    question: MeanQuestion

    def __init__(
        self, question: MeanQuestion, read: ReadPart, confidence: float | None = None
    ) -> None:
        self.question, self._read = question, read
        self.confidence = question.confidence if confidence is None else confidence

    @property
    def height(self) -> int:
        """0: the parts at both ends are for the mean, and are no counts of rows."""
        return 0

    @property
    def rows(self) -> pa.Table:
        """The number of rows of each key, rows of the table of nodes."""
        return self._level(0)

    def _level(self, level: int) -> pa.Table:
        table = self._read(NODES, self.question.name, 0, 0)
        return table.filter(pc.equal(table["level"], level))

    def at_confidence(self, confidence: float) -> ReleasedMean:
        if not 0 < confidence <= 0.9999:
            raise ValueError(f"confidence: {confidence} is not above 0 and at most 0.9999")
        return ReleasedMean(self.question, self._read, confidence)

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        """The number of rows of a key, the only node.

        Raises:
            ValueError: there is no such level or key.
        """
        if level != 0:
            raise ValueError(f"level: {level} is not 0; tree {self._name} has a mean alone")
        return [self.at_path("", key)][:count]

    def at_path(self, path: str, key: object = None) -> Answer:
        """The number of rows of a key.

        Raises:
            ValueError: a path, or no such key.
        """
        if path:
            raise ValueError(f"path: tree {self._name} has a mean alone; use --path ''")
        row: dict[str, Any] = self.rows.slice(self._code(key), 1).to_pylist()[0]
        found = {name: row[name] for name in _NAMES}
        reach = half_width(self.confidence) * row["std_error"]
        found["ci_low"] = max(0.0, row["estimate"] - reach)
        found["ci_high"] = max(0.0, row["estimate"] + reach)
        return Answer(**found, fraction=None)

    def statistic(
        self,
        kind: StatisticKind,
        lower: object = None,
        upper: object = None,
        key: object = None,
    ) -> Statistic:
        """Return the mean or the total of the values.

        Raises:
            ValueError: a range, another statistic, no such key, or too few rows to divide by.
        """
        if kind not in self.only_statistics:
            raise ValueError(
                f"{kind.value}: tree {self._name} has a mean alone; a tree without objective: mean "
                f"has a {kind.value} too"
            )
        if lower is not None or upper is not None:
            raise ValueError(
                f"{kind.value}: tree {self._name} has a mean of all its rows alone; a tree without "
                "objective: mean has means of ranges too"
            )
        try:
            return self._values(self._code(key)).statistic(kind)
        except ValueError as error:
            raise ValueError(f"{kind.value}: {error}") from None

    def _values(self, code: int) -> BlockedValues:
        question, domain = self.question, self.question.domain
        estimates = self._level(1)["estimate"].to_numpy()[2 * code : 2 * code + 2]
        variance = question.share_error * question.share_error
        label = domain.range_labels(np.array([0]), np.array([domain.cells]))[0].as_py()
        return BlockedValues(
            label=domain.clamped_label(0, domain.cells) or label,
            estimates=estimates,
            middles=question.ends,
            halves=np.full(2, domain.half_width),
            spreads=np.zeros(2),
            variance=lambda weights: variance * dot(weights, weights),
            confidence=self.confidence,
        )

    def _code(self, key: object) -> int:
        keys = self.question.keys
        if (keys is None) != (key is None):
            needed = "has no keys" if keys is None else "needs a key"
            raise ValueError(f"key: tree {self._name} {needed}")
        return 0 if keys is None else keys.find_code(key)
