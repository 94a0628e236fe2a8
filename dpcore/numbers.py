"""Numbers of a column, one for each key: how many distinct values it has, or its mean alone.

**Distinct values.** A cell is a number of 64 bits: the code of the row's key, then a hash of the
value (7, 7.0 and the decimal 7 are one value; strings and bytes alike are one). The hash is keyed
by the release key, so nothing in flight tests whether a value is in the data. Each cell counts
once, whatever rows and units have it. Two values with one cell count once, which moves no
sensitivity and happens to about n^2 / 2^(b + 1) of n values under one key with b bits of hash.

**Mean.** Let the domain have K cells, with middles from a to b. A row in cell i (of 0 to K - 1)
adds K - 1 - i to the sum at a and i to the sum at b, so K - 1 in all, wherever it lies. With A and
B the noisy sums, divided by K - 1: rows N = A + B, total T = a A + b B, mean M = T / N. A number of
rows and a sum of values, each with half of an epsilon, would have sqrt(2) times the error: there
a row moves both measurements fully, here what it adds to one sum it does not add to the other.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.sums import dot
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.bounding.unit_ids import has_ids, value_ids
from dptrees.dpcore.choices.key_selection import counted_once
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.noise.randomness import KeyedBlocks
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.ordered.question import OrderedRows
from dptrees.dpcore.privacy.composition import Spending, moved_of_levels
from dptrees.dpcore.privacy.sensitivity import distinct_sensitivity, noise_law, split_sensitivity
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.answer_errors import BlockedValues, half_width
from dptrees.dpcore.questions.messages import Drawn, Gathered, Increments, Place, RowIncrements
from dptrees.dpcore.questions.one_part import (
    ONE_PLACE,
    KnownCells,
    OnePart,
    ReleasedNumbers,
    ShardedKeys,
    nodes_table,
)
from dptrees.dpcore.questions.planning import Setting, Workload
from dptrees.dpcore.questions.released import Answer, Statistic, StatisticKind, Total
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.questions.tree_question import KeyedQuestion, budget_entry, column_policies
from dptrees.dpcore.rows.columns import fixed_width_values, pack, unpack
from dptrees.dpcore.rows.keys import KEY_BITS, counts_by_key, keys_from_spec
from dptrees.dpcore.rows.policies import MISSING_VALUE, RowOutcome, check_column, missing_flags
from dptrees.dpcore.specification import CONTEXT, Coded, Refusal, coded

# Cells of numbers whose number nobody states: the middle of a cell is within a two-millionth of the
# bounds' distance of every value in it.
FINEST = 2**20
_MOST_CELLS = 2**31
_MOST_KEYS = 2**20


@dataclass(frozen=True, kw_only=True)
class NumberQuestion(KeyedQuestion, OnePart):
    """A number of the values of one column, once for each key.

    Args:
        domain: the column.
        release_unit: what neighbors differ in, with the bounds of the release.
        spent: the budget of the numbers of all keys together.

    Raises:
        Refusal: too many keys, or a budget whose noise is out of range.
    """

    # Name of the mechanism in manifests.
    mechanism: ClassVar[str]
    is_ordered: ClassVar[bool] = False  # there are no cells to have an order

    release_unit: PrivacyUnit = field(metadata=CONTEXT)
    spent: Budget

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_count > _MOST_KEYS:
            raise Refusal("group_by", f"{self.key_count} keys are more than 2^20")
        try:
            _ = self.law
        except ValueError as error:
            raise Refusal("budget", f"no noise fits it, as the {error}") from None

    @property
    @abstractmethod
    def bound(self) -> dict[str, int]:
        """The whole number that the sensitivity follows from, by its name in specifications."""

    @property
    def plan(self) -> dict[str, Any]:
        """The plan, as specifications have it."""
        return {**self.spent.spec(), **self.bound, "keyed": self.keys is not None}

    @property
    def unit(self) -> PrivacyUnit:
        return self.release_unit

    @property
    def budget(self) -> Budget:
        return self.spent

    @cached_property
    @abstractmethod
    def sensitivity(self) -> tuple[int, int]:
        """The L1 and the squared L2 sensitivity of all numbers together."""

    @cached_property
    def law(self) -> NoiseLaw:
        """The noise of each number."""
        return noise_law(self.spent, *self.sensitivity)

    @property
    def spending(self) -> Spending:
        if self.spent.measure is Measure.EPSILON:
            return Spending(epsilon=self.spent.amount)
        moved = moved_of_levels([(self.law, self.sensitivity)])
        return Spending(rho=self.spent.amount, moved=moved)

    @property
    @abstractmethod
    def std_error(self) -> float:
        """Standard error of the number at the root of a key."""

    @property
    def error(self) -> float:
        """The predicted error."""
        return self.std_error

    @abstractmethod
    def facts(self, noise: dict[str, object]) -> dict[str, object]:
        """Return the noise with the bound that it follows from, as manifests name them."""

    def entry(self) -> dict[str, object]:
        """The bound, the noise and the policies."""
        l1, l2_squared = self.sensitivity
        sensitivity = {"L1": l1, "L2_squared": l2_squared}
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": self.mechanism,
            **self.facts({"sensitivity": sensitivity, "noise": exact_scale(self.law)}),
            "policies": column_policies(self),
        }


def number_question_from_spec(
    spec: Mapping[str, Any], unit: PrivacyUnit, measure: Measure
) -> NumberQuestion:
    """The question of a specification, as `NumberQuestion.spec` writes it."""
    plan, keys = dict(spec["plan"]), keys_from_spec(spec["keys"])
    for name, type_ in (("keyed", bool), ("max_values", int)):
        if type(plan.get(name, type_())) is not type_:
            raise ValueError(f"plan: {name} is {plan[name]!r}")
    spent = Budget.from_entries(plan, measure=measure)
    kind = MeanQuestion if spec["kind"] == MeanQuestion.kind else DistinctQuestion
    return kind.from_spec(spec, **plan, keys=keys, release_unit=unit, spent=spent)


@dataclass(frozen=True, kw_only=True)
class NumberWorkload(Workload[Any]):
    """A number of the values of a column, for each key.

    Args:
        domain: the column.
    """

    question: ClassVar[type[NumberQuestion]]
    domain: Any

    def bound(self, unit: PrivacyUnit) -> dict[str, int]:
        """Return the bound of the question that this workload states, by its name."""
        return {}

    def planned(self, setting: Setting) -> Any:
        return self.question(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            release_unit=setting.unit,
            spent=setting.budget,
            confidence=setting.confidence,
            weight=self.weight,
            **self.bound(setting.unit),
        )

    def predicted(self, question: NumberQuestion) -> float:
        """The standard error that the question reports as its `error`."""
        return question.error


_TYPES = {"text": pa.string(), "integer": pa.int64(), "number": pa.float64()}
NEEDED = "strings, numbers, truth values, dates or times"


@dataclass(frozen=True, kw_only=True)
class DistinctDomain(Coded):
    """A column whose different values are counted.

    Args:
        column: its name.
        type: how a CSV file's values are read: "text", "integer" or "number".

    Raises:
        Refusal: no name, or another type.
    """

    kind: ClassVar[str] = "distinct"
    cells: ClassVar[int] = 1  # one number of each key
    written = ("kind", "column", "type")

    column: str
    type: str = "text"

    def __post_init__(self) -> None:
        check_column(self.column)
        if self.type not in _TYPES:
            raise Refusal("type", f"{self.type!r} must be one of {', '.join(_TYPES)}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """The type of the column where a file does not give one."""
        return {self.column: _TYPES[self.type]}

    def check_column_type(self, column: str, type: pa.DataType) -> None:
        """Refuse a column whose values cannot be compared.

        Raises:
            ValueError: naming the column, the type and what is needed.
        """
        if not has_ids(type):
            raise ValueError(
                f"column {column!r} has type {type}, but different values are counted of {NEEDED}."
            )

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        """Rows without a value."""
        missing = missing_flags(columns[self.column])
        return [RowOutcome(self.column, MISSING_VALUE, "drop", missing)]


@dataclass(frozen=True, kw_only=True)
class DistinctQuestion(NumberQuestion, ShardedKeys):
    """How many different values a column has, for each key.

    Args:
        domain: the column.
        max_values: m, the most pairs of a key and a value of a unit that count.
        shards: in how many parts the values are handled.
        blocks: what values are hashed with, where rows are read: `with_choices`.

    Raises:
        Refusal: a bound out of range, or a budget whose noise is out of range.
        ValueError: no shard.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10)
    >>> one = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    >>> cities = DistinctQuestion(name="cities", domain=DistinctDomain(column="city"),
    ...                           release_unit=person, spent=one, max_values=4)
    >>> cities.law, len(cities.places)
    (DiscreteLaplace(scale=Fraction(4, 1)), 32)
    >>> rows = {"city": pa.array(["Bern", None, "Rome", "Bern"])}
    >>> cells, kept = replace(cities, blocks=KeyedBlocks(bytes(32))).row_increments(rows)
    >>> len(cells.cells.unique()), kept.tolist()
    (2, [0, 2, 3])
    """

    kind = "distinct"
    written = ("kind", "name", "domain", "keys", "plan", "shards", "confidence", "weight")
    mechanism = "count of different values"
    key_type = pa.uint64()

    domain: DistinctDomain
    max_values: int
    blocks: KeyedBlocks | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        most = counted_once(self.release_unit).rows
        if not 1 <= self.max_values <= most:
            raise Refusal(
                "max_values",
                f"{self.max_values} is not from 1 to {most}, the bounds of the privacy unit",
            )
        super().__post_init__()

    @property
    def counts_units(self) -> bool:
        return self.domain.columns == self.unit.columns

    @property
    def bound(self) -> dict[str, int]:
        return {"max_values": self.max_values}

    @cached_property
    def unit(self) -> PrivacyUnit:
        """The unit with m values, one row of each: those with the smallest keyed hashes of the unit
        and the value, so that each of its values is as likely to count."""
        unit = self.release_unit
        if unit.is_row:
            return unit
        return replace(unit, rows=self.max_values, keys=self.max_values, rows_per_key=1)

    @cached_property
    def sensitivity(self) -> tuple[int, int]:
        return distinct_sensitivity(self.release_unit, self.max_values, keyed=self.keys is not None)

    @property
    def noun(self) -> str:
        """What is counted, in words."""
        return f"different values of {self.domain.column}"

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """The cell of each row that has a value and a key."""
        if self.blocks is None:
            raise RuntimeError(f"tree {self.name}: rows are read with a release key alone")
        ids, missing = value_ids(columns[self.domain.column], self.blocks)
        cells = ids[:, 0].copy()
        dropped = np.zeros(len(cells), np.bool_) if missing is None else missing
        if self.keys is not None:
            codes = self.keys.row_codes(columns)
            if bits := (self.key_count - 1).bit_length():
                cells >>= np.uint64(bits)
                cells |= codes.astype(np.uint64) << np.uint64(KEY_BITS - bits)
            dropped = dropped | (codes < 0)
        if not dropped.any():
            return RowIncrements(Increments(pa.array(cells)))
        kept = np.flatnonzero(~dropped)
        return RowIncrements(Increments(pa.array(cells[kept])), kept)

    @property
    def value_policies(self) -> dict[str, object]:
        return {"missing": "drop"}

    def with_choices(self, choices: KeyedChoices) -> DistinctQuestion:
        return replace(self, blocks=choices.key.blocks("value", choices.release, self.name))

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        cells = fixed_width_values(NodeCounts.from_bytes(counts).keys)
        return Drawn(sent=pack(counts_by_key(cells, self.key_count)), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The noisy number of each key."""
        exact = np.zeros(self.key_count, np.int64)
        for counts in sent.values():
            exact += unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        noisy = add_noise(self.law, exact, stream).astype(np.float64)[:, np.newaxis]
        reach = self.law.bound(1 - self.confidence)
        return self.released(nodes_table(self, 0, noisy, self.std_error, reach, [""]))

    @property
    def std_error(self) -> float:
        return math.sqrt(self.law.variance)

    def facts(self, noise: dict[str, object]) -> dict[str, object]:
        return self.bound | noise


@dataclass(frozen=True, kw_only=True)
class DistinctWorkload(NumberWorkload):
    """How many different values a column has, for each key.

    Args:
        domain: the column.
        max_values: the most values of a unit that count; more than its bounds let count as these.
            None: as many as these let, and one where the units themselves are counted.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> cities = DistinctWorkload(name="cities", domain=DistinctDomain(column="city"))
    >>> one = Setting(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(cities.predicted(cities.planned(one)), 3)  # standard deviation, in different values
    1.357
    """

    question = DistinctQuestion
    error_unit = "different values"
    domain: DistinctDomain
    max_values: int | None = None

    def bound(self, unit: PrivacyUnit) -> dict[str, int]:
        most = counted_once(unit).rows
        counts_units = self.keys is None and unit.columns == (self.domain.column,)
        requested = (1 if counts_units else most) if self.max_values is None else self.max_values
        return {"max_values": min(requested, most)}


class ReleasedDistinct(ReleasedNumbers):
    """The numbers of different values of one tree."""

    unordered = "has numbers of different values alone, which have no order"
    only = "one number for a key"
    question: DistinctQuestion

    def rows_in_all(self) -> Total | None:
        """Rows are not counted."""
        return None


_ENDS = 2


@dataclass(frozen=True, kw_only=True)
class MeanQuestion(OrderedRows, NumberQuestion, KnownCells):
    """The mean, the total and the number of values of a column, for each key.

    Args:
        domain: the map from rows to cells.

    Raises:
        Refusal: a domain whose values have no mean, too many keys, or a budget whose noise is out
            of range.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> age = make_domain({"column": "age", "type": "integer", "lower": 0, "upper": 101})
    >>> one = Budget(measure=Measure.EPSILON, amount=Fraction(1))
    >>> ages = MeanQuestion(name="age", domain=age, release_unit=ADD_REMOVE_ROW, spent=one)
    >>> ages.law  # of each sum, in parts of a row
    DiscreteLaplace(scale=Fraction(100, 1))
    >>> found = ages.increments({"age": pa.array([30, None, 250])})
    >>> found.cells.tolist(), found.values.tolist()
    ([0, 0, 1, 1], [70, 0, 30, 100])
    """

    kind = "mean"
    written = ("kind", "name", "domain", "keys", "plan", "confidence", "weight")
    mechanism = "mean of split rows"

    domain: OrderedDomain = field(metadata=coded(read=make_domain))

    def __post_init__(self) -> None:
        if not 2 <= self.domain.cells <= _MOST_CELLS:
            raise Refusal(
                "domain", f"{self.domain.cells} cells are not from 2 to 2^31, as a mean needs"
            )
        _ = self.unit
        super().__post_init__()
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
    def bound(self) -> dict[str, int]:
        return {"cells": self.domain.cells}

    @property
    def unit(self) -> PrivacyUnit:
        return self.domain.counted(self.release_unit, keyed=self.keys is not None)

    @property
    def row_parts(self) -> int:
        """K - 1: into how many parts a row is split."""
        return self.domain.cells - 1

    @cached_property
    def sensitivity(self) -> tuple[int, int]:
        return split_sensitivity(self.unit, self.row_parts, keyed=self.keys is not None)

    @property
    def dense_cells(self) -> int:
        return _ENDS * self.key_count

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        """The key of each row, and its cell as what it adds at b."""
        if self.unit_value is not None:
            return self.amount_increments(columns)
        values = self.domain.leaf_ids(columns)
        codes = np.zeros(len(values), np.int64)
        if self.keys is not None:
            codes = self.keys.row_codes(columns)
        kept = (values >= 0) & (codes >= 0)
        if kept.all():
            return RowIncrements(Increments(codes, values))
        return RowIncrements(Increments(codes[kept], values[kept]), np.flatnonzero(kept))

    def regrouped(self, increments: Increments) -> Increments:
        """What rows, or units, add to both sums of their keys."""
        values = self.unit_value
        codes, above = increments if values is None else self.amount_cells(increments)
        assert above is not None and not isinstance(codes, pa.Array)
        cells = np.concatenate([_ENDS * codes, _ENDS * codes + 1])
        return Increments(cells, np.concatenate([self.row_parts - above, above]))

    def cell_keys(self, cells: Integers) -> Integers | None:
        """Each cell of a row is the code of its key."""
        return cells if self.is_keyed else None

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        noisy = add_noise(self.law, exact, stream, largest=LARGEST_DIVIDED)
        return Drawn(sent=pack(noisy), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The noisy rows of each key, and their parts at both ends."""
        shares = unpack(sent[ONE_PLACE]).reshape(-1, _ENDS) / self.row_parts
        rows = shares.sum(axis=1)[:, np.newaxis]
        last = self.domain.cells - 1
        ends = [self.domain.labels(at, at + 1)[0].as_py() for at in (0, last)]
        width = half_width(self.confidence)
        root = nodes_table(self, 0, rows, self.std_error, width * self.std_error, [""])
        leaves = nodes_table(self, 1, shares, self.share_error, width * self.share_error, ends)
        return self.released(pa.concat_tables([root, leaves]))

    @property
    def share_error(self) -> float:
        """Standard error of the rows at one end."""
        return math.sqrt(self.law.variance) / self.row_parts

    @property
    def std_error(self) -> float:
        """Standard error of the rows of a key."""
        return math.sqrt(2) * self.share_error

    @property
    def error(self) -> float:
        """The standard error of a mean in the middle of the bounds, times the number of rows; near
        a bound up to the square root of 2 times that."""
        lower, upper = self.ends
        return float(upper - lower) * self.share_error / math.sqrt(2)

    def facts(self, noise: dict[str, object]) -> dict[str, object]:
        return noise | {"parts_of_a_row": self.row_parts}


@dataclass(frozen=True, kw_only=True)
class MeanWorkload(NumberWorkload):
    """The mean of a column, for each key.

    Args:
        domain: the map from rows to cells.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> ages = MeanWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 101}))
    >>> one = Setting(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(ages.predicted(ages.planned(one)), 3)  # of the mean, times the number of rows
    100.0
    """

    question = MeanQuestion
    domain: OrderedDomain

    @property
    def error_unit(self) -> str:
        return f"{self.domain.column} times {'rows' if self.domain.per_unit is None else 'units'}"


class ReleasedMean(ReleasedNumbers):
    """The means of one tree."""

    unordered = "has a mean alone (objective: mean), which gives no CDF"
    only_statistics = (StatisticKind.MEAN, StatisticKind.TOTAL)
    only = "a mean alone"
    question: MeanQuestion

    def at_confidence(self, confidence: float) -> ReleasedMean:
        return ReleasedMean(self.question, self._read, confidence)

    def _answer(self, row: dict[str, Any]) -> Answer:
        reach = half_width(self.confidence) * row["std_error"]
        low, high = (max(0.0, row["estimate"] + each) for each in (-reach, reach))
        return super()._answer(row | {"ci_low": low, "ci_high": high})

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
            in_words=domain.counted_as(0, domain.cells),
            estimates=estimates,
            middles=question.ends,
            halves=np.full(2, domain.half_width),
            spreads=np.zeros(2),
            variance=lambda weights: variance * dot(weights, weights),
            confidence=self.confidence,
        )
