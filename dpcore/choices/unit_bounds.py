"""Private choice of how many rows or keys of a privacy unit to count, a first stage of a release.

Let N(t) be the number of units that have more than t rows. A bound of t leaves out B(t) = N(t) +
N(t + 1) + ... rows, and a tree whose error is c where a unit has one row is off by c t. A prefix
loses about half of B(t), so both errors together are least where N(t) / 2 is c: where m = 2 c
units exceed t. The size t is chosen with

    P(t) proportional to t^-a exp(-rate D(t)),    D(t) = max(0, N(t) - m),

with a public weight t^-a, a the whole number nearest to 4 (rate m)^(1/3), from 2 to 8: the
exponential mechanism with a public base measure, followed to the bit.

    sensitivity   all D(t) move by 0 to 1 in one direction.
    epsilon       the loss is the rate times the range of the moves, 1: rate = epsilon - ROUNDING.
    rho           a choice of range e is e^2 / 8-zCDP: rate = sqrt(8 rho) - ROUNDING.
    floor         weights are relative to the largest, and none is below `FLOOR` of it: the larger
                  of two weights moves by a factor in [exp(-rate), 1], as each of them does.
    rounding      a probability is a weight by a sum of weights, so its quotient to that of a
                  neighbor is off by 4 ERROR, which is below ROUNDING.

Source: McSherry and Talwar 2007, section 3; Cesar and Rogers 2021, lemma 3.4; the score, m = 2 c
and the public weight are derived here (docs/bounding.md). The choice comes from a
keystream that is bound to the release, the global digest and the exact counts, as noise does.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.choices.key_selection import KeyColumns
from dptrees.dpcore.exponential.choice import FLOOR, cached_weights, choice_rate, weighed
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.sensitivity import excess_sensitivity
from dptrees.dpcore.privacy.unit import MOST_ROWS, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.messages import (
    Drawn,
    Gathered,
    Increments,
    Place,
    RowIncrements,
)
from dptrees.dpcore.questions.one_part import ONE_PLACE, KnownCells, ReleasedTable, key_increments
from dptrees.dpcore.questions.released import Answer
from dptrees.dpcore.questions.tree_question import budget_entry
from dptrees.dpcore.rows.columns import pack, unpack
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, Refusal

# Each is about 2^(1/3) times the one before: the best of them is within 15 % of any bound.
_STEPS = 3
MOST_SIZES = 64


def candidate_sizes(largest: int) -> tuple[int, ...]:
    """The whole numbers nearest to 2^(k/3), from 1 up to the largest, which is the last one.

    Args:
        largest: from 2 to 2^20.

    Raises:
        Refusal: it is not.

    >>> candidate_sizes(10)
    (1, 2, 3, 4, 5, 6, 8, 10)
    >>> len(candidate_sizes(500)), len(candidate_sizes(2**20))
    (25, 58)
    """
    if not 2 <= largest <= MOST_ROWS:
        raise Refusal("at_most", f"{largest} is not from 2 to {MOST_ROWS}")
    sizes = {_nearest_power(power) for power in range(_STEPS * largest.bit_length() + 1)}
    return (*sorted(size for size in sizes if size < largest), largest)


def _nearest_power(power: int) -> int:
    """The whole number nearest to 2^(power/3), without rounding errors: x with
    (2 x - 1)^3 < 2^(power + 3) < (2 x + 1)^3."""
    low, high = 1, 2 << power // _STEPS
    while low < high:
        middle = (low + high) // 2
        odd = 2 * middle + 1
        if odd * odd * odd > 1 << (power + _STEPS):
            high = middle
        else:
            low = middle + 1
    return low


# Of the public weight of a size.
_LEAST_EXPONENT, _LARGEST_EXPONENT, _EXPONENT_AT_ONE = 2, 8, 4
# Distances are whole numbers of this part of a unit.
_PART = 2**16
# The least rate: distances of 2^40 units and logarithms of sizes then stay below 2^62.
_LEAST_RATE = Fraction(1, 2**20)


@dataclass(frozen=True, kw_only=True)
class ChoicePlan(Coded):
    """The plan of a choice among public candidates, by counts of units between them.

    Args:
        unit: the privacy unit, which counts once.
        budget: of the choice.
    """

    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)


@dataclass(frozen=True, kw_only=True)
class BoundPlan(ChoicePlan):
    """The plan of the choice of a bound among public sizes.

    Args:
        sizes: the bounds that there are, rising, at least two.
        tolerated: m, how many units may exceed a bound before it becomes less likely; a multiple of
            2^-16.

    Raises:
        Refusal: sizes that do not rise or are out of range; a budget that is too small.

    >>> from dptrees.dpcore.privacy.unit import Measure, Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",))
    >>> plan = BoundPlan(unit=person, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                  sizes=(1, 2, 4, 8), tolerated=Fraction(10))
    >>> [round(float(each), 4) for each in plan.probabilities(np.array([500, 40, 2, 8, 2]))]
    [0.0, 0.9718, 0.0281, 0.0001]
    """

    written = ("budget", "sizes", "tolerated", "exponent")

    sizes: tuple[int, ...]
    tolerated: Fraction

    def __post_init__(self) -> None:
        if self.unit != self.unit.once or self.unit.is_row:
            raise Refusal("unit", "counts once where its bounds are chosen, and is not the row")
        if not 2 <= len(self.sizes) <= MOST_SIZES or list(self.sizes) != sorted(set(self.sizes)):
            raise Refusal("sizes", f"there must be 2 to {MOST_SIZES}, which rise")
        if not 1 <= self.sizes[0] <= self.sizes[-1] <= MOST_ROWS:
            raise Refusal("sizes", f"they must be from 1 to {MOST_ROWS}")
        if not 0 <= self.tolerated <= 2**40 or _PART % self.tolerated.denominator:
            raise Refusal("tolerated", f"{self.tolerated} is no multiple of 2^-16 up to 2^40")
        if self.rate < _LEAST_RATE:
            raise Refusal("fraction", "the budget is too small to choose a bound with")

    @property
    def candidates(self) -> tuple[int, ...]:
        """The sizes."""
        return self.sizes

    @cached_property
    def rate(self) -> Fraction:
        """The rate of the weights in units."""
        return choice_rate(self.budget, excess_sensitivity(self.unit))

    @cached_property
    def exponent(self) -> int:
        """The exponent a of the public weights."""
        cube = 8 * _cube(_EXPONENT_AT_ONE) * self.rate * self.tolerated
        result = _LEAST_EXPONENT
        while result < _LARGEST_EXPONENT and _cube(2 * result + 1) <= cube:
            result += 1
        return result

    @cached_property
    def handicaps(self) -> Integers:
        """(sizes,) the logarithms of the public weights, as distances; 0 for the first size."""
        part = float(self.rate / _PART)
        numbers = [self.exponent * log(size / self.sizes[0]) / part for size in self.sizes]
        return np.array([math.floor(each + 0.5) for each in numbers], np.int64)

    def cell_ids(self, numbers: Integers) -> Integers:
        """The count that each unit belongs to.

        Args:
            numbers: (units,) of the rows, or keys, of each, at least 1.

        Returns:
            (units,) the first size that is no smaller; beyond the last size their number.
        """
        cells: Integers = np.searchsorted(np.array(self.sizes), numbers).astype(np.int64)
        return cells

    def distances(self, counts: Integers) -> Integers:
        """The distance of each size from the wanted bound, public weights included, less the
        smallest; in 2^-16 units.

        Args:
            counts: (cells,) exact, of units.
        """
        above = counts[::-1].cumsum()[::-1][1:]
        excess = np.maximum(above * _PART - int(self.tolerated * _PART), 0)
        result: Integers = excess + self.handicaps
        result -= result.min()
        return result

    def weights(self, counts: Integers) -> Floats:
        """The weight of each size, beside 1 for the likeliest.

        Args:
            counts: (cells,) exact, of units.
        """
        found = cached_weights(self.rate / _PART).at(self.distances(counts))
        result: Floats = np.maximum(found, FLOOR)
        return result

    def probabilities(self, counts: Integers) -> list[Fraction]:
        """The exact probability with which each size is chosen.

        Args:
            counts: (cells,) exact, of units.
        """
        weights = [Fraction(each) for each in self.weights(counts).tolist()]
        total = sum(weights)
        return [each / total for each in weights]

    def chosen(self, counts: Integers, stream: RandomStream) -> tuple[int]:
        """The size that is chosen.

        Args:
            counts: (cells,) exact, of units.
            stream: of this choice, not read before.
        """
        return (self.sizes[weighed(self.weights(counts), stream).number],)


def _cube(number: int) -> int:
    return number * number * number


WORDS = (
    "The bound is one of the listed sizes, drawn with a probability that falls as size^-exponent "
    "and, for each unit beyond the tolerated ones that has more than the size, by a factor of "
    "exp(-rate). "
    "How many units have more is not released."
)


class BoundOf(Enum):
    """What is bounded: the rows of a unit, or its keys."""

    ROWS = "rows"
    KEYS = "keys"

    @property
    def key(self) -> str:
        """The key of the bound in configurations."""
        return f"max_{self.value}"


# The place of a candidate where no bound is chosen.
NOT_CHOSEN = -1


@dataclass(frozen=True, kw_only=True)
class BoundsQuestion(KnownCells):
    """The choice of one bound or two bounds: a first stage of a release, in which units count once.

    Args:
        plan: of the choice.

    Raises:
        ValueError: keys.
    """

    chosen_by: ClassVar[str] = "by the exponential mechanism"
    plan: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None:
            raise ValueError("keys: a choice of bounds has none of its own")

    @property
    def counts_rows(self) -> bool:
        return False

    @property
    def unit(self) -> PrivacyUnit:
        """Privacy unit, which counts once."""
        unit: PrivacyUnit = self.plan.unit
        return unit

    @property
    def budget(self) -> Budget:
        budget: Budget = self.plan.budget
        return budget

    @property
    def spending(self) -> Spending:
        if self.budget.measure is Measure.EPSILON:
            return Spending(epsilon=self.budget.amount)
        return Spending(rho=self.budget.amount, moved=None)

    @property
    def dense_cells(self) -> int:
        """Cells of units up to each candidate, and of those above."""
        return len(self.plan.candidates) + 1

    @property
    @abstractmethod
    def bound_names(self) -> tuple[str, ...]:
        """The names of the bounds that it chooses, as ("max_rows",) or ("range-0.upper",); after
        the last full stop they are columns of the released table."""

    @property
    @abstractmethod
    def bounds_in_words(self) -> str:
        """The bounds that it chooses, for a person."""

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        stream = noise.for_counts(exact).stream(self.name, 0, 0, 0)
        places = [self.plan.candidates.index(each) for each in self.plan.chosen(exact, stream)]
        return Drawn(sent=pack(np.array(places)), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        """The chosen bounds; null where none was chosen."""
        columns = [name.rpartition(".")[2] for name in self.bound_names]
        values = [*self.plan.candidates, None]  # NOT_CHOSEN is the last
        type = pa.array(self.plan.candidates).type
        chosen = [pa.array([values[each]], type) for each in unpack(sent[ONE_PLACE]).tolist()]
        return self.released(pa.table(chosen, columns))

    @abstractmethod
    def facts(self) -> dict[str, object]:
        """Return the mechanism and the candidates, as manifests name them."""

    def entry(self) -> dict[str, object]:
        """The law of the choice."""
        return {"name": self.name, **budget_entry(self), **self.facts()}


class ReleasedBounds(ReleasedTable):
    """The bounds that were chosen."""

    question: BoundsQuestion

    @property
    def bounds(self) -> dict[str, float | str]:
        """The chosen bounds, by `BoundsQuestion.bound_names`; dates in ISO 8601."""
        (row,) = self.table.to_pylist()
        values = [each.isoformat() if isinstance(each, date) else each for each in row.values()]
        return dict(zip(self.question.bound_names, values, strict=True))

    def top(self, count: int, level: int, key: object = None) -> list[Answer]:
        raise ValueError(f"top: {self._name} is a choice of bounds, which releases no counts")


@dataclass(frozen=True, kw_only=True)
class BoundQuestion(BoundsQuestion):
    """The choice of a bound of a privacy unit.

    Args:
        of: what is bounded.
        domain: the columns of keys, whose different values are counted; None where rows are.
        plan: of the choice.

    Raises:
        ValueError: keys without columns, or rows with some.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",))
    >>> plan = BoundPlan(unit=person, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                  sizes=(1, 2, 4), tolerated=Fraction(10))
    >>> question = BoundQuestion(name="max_rows", of=BoundOf.ROWS, plan=plan)
    >>> question.unit_increments(np.array([1, 3, 9])).cells.tolist()
    [0, 2, 3]
    """

    kind = "bound"
    written = ("kind", "name", "of", "domain", "plan", "confidence", "weight")

    of: BoundOf
    plan: BoundPlan
    domain: KeyColumns | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.domain is not None) != (self.of is BoundOf.KEYS):
            raise ValueError("domain: it has the columns of keys, where keys are bounded")

    @property
    def bound_names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def bounds_in_words(self) -> str:
        return self.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.unit.columns if self.domain is None else self.domain.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {} if self.domain is None else self.domain.value_types  # a unit may be of any type

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        if self.domain is not None:
            self.domain.check_types(types)

    @property
    def is_keyed(self) -> bool:
        return self.domain is not None

    @property
    def counts_unit_cells(self) -> bool:
        return self.domain is not None

    def cell_keys(self, cells: Integers) -> Integers | None:
        """Each cell is a key, where keys are counted."""
        return None if self.domain is None else cells

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        if self.domain is None:
            rows = len(next(iter(columns.values())))
            return RowIncrements(Increments(np.zeros(rows, np.int64)))
        return key_increments(self.domain.row_keys(columns))

    def regrouped(self, increments: Increments) -> Increments:
        """Rows that are units of their own: each has one row, and one key."""
        return Increments(np.zeros(len(increments.cells), np.int64))

    def unit_increments(self, rows: Integers) -> Increments:
        return Increments(self.plan.cell_ids(rows))

    def facts(self) -> dict[str, object]:
        return {
            "mechanism": "exponential mechanism over bounds",
            "bound": self.of.key,
            "sizes": list(self.plan.sizes),
            "exponent": self.plan.exponent,
            "tolerated_units": float(self.plan.tolerated),
            "rate": float(self.plan.rate),
            "sensitivity": 1,
            "words": WORDS,
        }
