"""Private choice of the bounds of a column's values, a first stage of a release.

Let N(u) be the number of units whose value lies beyond a candidate u. A tolerated number m of
them changes counts by about as much as noise does. With u' for the next narrower candidate, u is
chosen with

    P(u) proportional to exp(-rate D(u)),    D(u) = max(0, N(u) - m, m - N(u')).

The narrowest candidate has no third term. Candidates beyond the first one that no value lies
beyond have D = m: less than K exp(-rate m) of the choice together, and m is at least (ln K + 3) /
rate. Each unit counts once, by one of its rows that a keyed choice retains; a row without a value
counts nowhere. The lower bound is chosen first, then the upper one among the candidates above it,
from one histogram: sequential composition.

    sensitivity   the moves of all D(u) lie in a range of 2.
    rate          that of each part of the budget, which includes the rounding of weights.
    floor         weights are relative to the largest, and none is below `FLOOR` of it: a clamped
                  weight moves by no larger a factor than the weight itself.

Source: McSherry and Talwar 2007; the score of a quantile over public candidates: Smith 2011; the
rule for m is derived here (docs/bounding.md). The choice comes from a keystream that is
bound to the release, the global digest and the exact counts, as noise does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.choices.unit_bounds import BoundsQuestion, ChoicePlan
from dptrees.dpcore.exponential.choice import choice_rate, weighed
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.sensitivity import tail_sensitivity
from dptrees.dpcore.privacy.unit import Budget, PrivacyUnit
from dptrees.dpcore.questions.messages import (
    Increments,
    RowIncrements,
)
from dptrees.dpcore.rows.columns import (
    AnyArray,
    decimal_values,
    fixed_width_values,
    map_chunks,
    missing_rows,
)
from dptrees.dpcore.specification import Refusal

# Each is 1.2 to 1.5 times the one before.
_DIGITS = ("1", "1.5", "2", "3", "4", "5", "6", "8")
LARGEST_NUMBER, LARGEST_INTEGER = 10**12, 10**9
_SMALLEST_POWER, _LARGEST_POWER = -6, 12
MOST_CANDIDATES = 512


def candidate_bounds(
    lowest: float, highest: float, *, integers: bool = False
) -> tuple[float, ...] | tuple[int, ...]:
    """The decimals 0 and +-(1, 1.5, 2, 3, 4, 5, 6, 8) 10^k from a lowest to a highest one.

    Both ends are candidates too. Numbers go down to 10^-6 in absolute value, integers to 1; a
    candidate of numbers is the float64 nearest to its decimal, as the bounds of
    `dpcore.ordered.numbers.NumberDomain` are.

    Args:
        lowest: the first candidate.
        highest: the last candidate, above the first.
        integers: whether candidates are whole numbers.

    Returns:
        (candidates,) rising, at least two.

    Raises:
        Refusal: the ends are not in order, or too far from 0.

    >>> candidate_bounds(-2, 15, integers=True)
    (-2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 15)
    >>> len(candidate_bounds(-1e12, 1e12)), len(candidate_bounds(-10**6, 10**6, integers=True))
    (291, 97)
    """
    largest = LARGEST_INTEGER if integers else LARGEST_NUMBER
    if not lowest < highest:
        raise Refusal("upper", f"no candidate lies between {lowest:,} and {highest:,}")
    for name, end in (("lower", lowest), ("upper", highest)):
        if not abs(end) <= largest:
            raise Refusal(name, f"{end:,} is farther from 0 than {largest:,}")
    sizes = [
        Fraction(digits) * Fraction(10) ** power
        for power in range(_SMALLEST_POWER, _LARGEST_POWER + 1)
        for digits in _DIGITS
    ]
    if integers:
        whole = {int(size) for size in sizes if size.denominator == 1} | {0}
        inner: set[int] = {sign * each for each in whole for sign in (-1, 1)}
        inside = {each for each in inner if lowest < each < highest}
        return tuple(sorted({int(lowest), int(highest)} | inside))
    floats = {sign * float(size) for size in sizes for sign in (-1, 1)} | {0.0}
    return tuple(
        sorted({float(lowest), float(highest)} | {x for x in floats if lowest < x < highest})
    )


# The least rate: distances of 2^40 units then stay within the range of the weights' table.
_LEAST_RATE = Fraction(1, 2**20)
_MOST_TOLERATED = 2**40
# Beyond ln K: exp(-3) is what candidates beyond all values may have in all.
_SURE = 3
LOWER, UPPER = "lower", "upper"


@dataclass(frozen=True, kw_only=True)
class ValueBoundsPlan(ChoicePlan):
    """The plan of the choice of one bound, or both bounds, of a column.

    Args:
        lower_amount: the part of the budget's amount that the lower bound spends; 0: it is given,
            and all candidates lie above it; all: the upper bound is given.
        candidates: the values that there are, rising, at least two; three where both are chosen.
        tolerated: m, how many units may lie beyond a bound.

    Raises:
        Refusal: a unit that counts more than once; candidates that do not rise; a number of units
            that is out of range; a budget that is too small.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> plan = ValueBoundsPlan(unit=ADD_REMOVE_ROW, lower_amount=Fraction(0), tolerated=5,
    ...                        budget=Budget(measure=Measure.EPSILON, amount=Fraction(2)),
    ...                        candidates=(1, 2, 4, 8))
    >>> counts = np.array([300, 200, 80, 1, 0])
    >>> [round(float(each), 4) for each in plan.probabilities("upper", counts)]
    [0.0, 0.0, 0.982, 0.018]
    """

    written = ("budget", "lower_amount", "candidates", "tolerated")

    lower_amount: Fraction
    candidates: tuple[float, ...]
    tolerated: int

    def __post_init__(self) -> None:
        if self.unit != self.unit.once:
            raise Refusal("unit", "counts once where bounds of its values are chosen")
        if not 0 <= self.lower_amount <= self.budget.amount:
            raise Refusal("fraction", "the lower bound spends more than the budget")
        given, least = list(self.candidates), 1 + len(self.sides)
        if not least <= len(given) <= MOST_CANDIDATES or given != sorted(set(given)):
            raise Refusal("candidates", f"there must be {least} to {MOST_CANDIDATES}, which rise")
        if not all(map(math.isfinite, given)):
            raise Refusal("candidates", "they must be finite")
        if not 0 <= self.tolerated <= _MOST_TOLERATED:
            raise Refusal("tolerated", f"{self.tolerated} is not from 0 to 2^40")
        if any(self.rate(side) < _LEAST_RATE for side in self.sides):
            raise Refusal("fraction", "the budget is too small to choose a bound with")

    @property
    def sides(self) -> tuple[str, ...]:
        """The bounds that are chosen, "lower" first."""
        chosen = {LOWER: self.lower_amount > 0, UPPER: self.lower_amount < self.budget.amount}
        return tuple(side for side, is_chosen in chosen.items() if is_chosen)

    def side_budget(self, side: str) -> Budget:
        """The part of the budget that the choice of one bound spends.

        Args:
            side: "lower" or "upper".
        """
        amount = self.lower_amount if side == LOWER else self.budget.amount - self.lower_amount
        return Budget(measure=self.budget.measure, amount=amount)

    def rate(self, side: str) -> Fraction:
        """The rate of the weights of one choice, in units.

        Args:
            side: "lower" or "upper", which is chosen.
        """
        return choice_rate(self.side_budget(side), tail_sensitivity(self.unit))

    @cached_property
    def _table(self) -> AnyArray:
        return np.array(self.candidates)

    def cell_ids(self, values: AnyArray) -> Integers:
        """The count that each unit belongs to.

        Args:
            values: (units,) numbers, none of them NaN.

        Returns:
            (units,) the number of candidates at or below each value.
        """
        cells: Integers = np.searchsorted(self._table, values, side="right").astype(np.int64)
        return cells

    def distances(self, side: str, counts: Integers, first: int = 0) -> Integers:
        """The distance of each candidate from the narrowest one that no more than the tolerated
        units lie beyond, in units.

        Args:
            side: "lower" or "upper".
            counts: (cells,) exact, of units.
            first: the number of candidates that are left out, from the lowest on.

        Returns:
            (n,) of the candidates from the first on; the last one is no lower bound where both are
            chosen, so that an upper one remains.
        """
        below = counts.cumsum()[:-1]
        both = len(self.sides) == len((LOWER, UPPER))
        stop = len(below) - (1 if both and side == LOWER else 0)
        beyond = (below if side == LOWER else counts.sum() - below)[first:stop]
        result: Integers = np.maximum(beyond - self.tolerated, 0)
        if side == LOWER:
            result[:-1] = np.maximum(result[:-1], self.tolerated - beyond[1:])
        else:
            result[1:] = np.maximum(result[1:], self.tolerated - beyond[:-1])
        return result

    def weights(self, side: str, counts: Integers, first: int = 0) -> Floats:
        """The weight of each candidate, beside 1 for the likeliest.

        Args:
            side, counts, first: as of `distances`.

        Returns:
            (n,) as of `distances`.
        """
        distances = self.distances(side, counts, first)
        return self._weights(self.rate(side), distances - distances.min())

    def chosen(self, counts: Integers, stream: RandomStream) -> tuple[float, ...]:
        """The bounds that are chosen, in the order of `sides`.

        Args:
            counts: (cells,) exact, of units.
            stream: of these choices, not read before.
        """
        result, first = [], 0
        for side in self.sides:
            place = first + weighed(self.weights(side, counts, first), stream).number
            result.append(self.candidates[place])
            first = place + 1
        return tuple(result)


def least_tolerated(budget: Budget, unit: PrivacyUnit, candidates: int) -> int:
    """The least tolerated number of units at which candidates beyond all values are unlikely.

    They are at most K, each has a weight of exp(-rate m), and one has a weight near 1: m =
    (ln K + 3) / rate leaves them e^-3 in all.

    Args:
        budget: of the choice of one bound.
        unit: counted once.
        candidates: K.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> twentieth = Budget(measure=Measure.EPSILON, amount=Fraction(1, 20))
    >>> least_tolerated(twentieth, ADD_REMOVE_ROW, 291)
    347
    """
    rate = max(choice_rate(budget, tail_sensitivity(unit)), _LEAST_RATE)
    return math.ceil((log(candidates) + _SURE) / float(rate))


_NO_VALUE = -1
WORDS = (
    "Each bound is one of the listed candidates, drawn with a probability that falls by a factor "
    "of exp(-rate) for each unit beyond it that is above the tolerated number, and for each unit "
    "by which the number beyond the next narrower candidate is below it; the upper bound is drawn "
    "among the candidates above the lower bound. How many units lie beyond a candidate is not "
    "released."
)


@dataclass(frozen=True, kw_only=True)
class ValueBoundsQuestion(BoundsQuestion):
    """The choice of one bound, or both bounds, of a column's values.

    Args:
        column: of integers, floats or decimals.
        integers: the trees count integers, not numbers.
        trees: the names of the trees that are counted with the bounds.
        plan: of the choice.

    Raises:
        ValueError: keys, or candidates that are not whole although integers are counted.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> plan = ValueBoundsPlan(unit=ADD_REMOVE_ROW, lower_amount=Fraction(0), tolerated=5,
    ...                        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                        candidates=(1, 2, 4))
    >>> question = ValueBoundsQuestion(name="b", column="x", integers=True, trees=("x",), plan=plan)
    >>> question.increments({"x": pa.array([0, 1, None, 9])}).cells.tolist()
    [0, 1, 3]
    >>> question.bound_names
    ('b.upper',)
    """

    kind = "value_bounds"
    written = ("kind", "name", "column", "integers", "trees", "plan", "confidence", "weight")

    column: str
    integers: bool
    trees: tuple[str, ...]
    plan: ValueBoundsPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.integers and not all(isinstance(each, int) for each in self.plan.candidates):
            raise ValueError("candidates: they must be whole where integers are counted")

    @property
    def bound_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{side}" for side in self.plan.sides)

    @property
    def bounds_in_words(self) -> str:
        return f"{' and '.join(self.plan.sides)} of {self.column}"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        return {self.column: pa.int64() if self.integers else pa.float64()}

    @cached_property
    def _domain(self) -> OrderedDomain:
        """A domain of the column, which says what types it reads."""
        kind = "integer" if self.integers else "number"
        return make_domain(
            {"type": kind, "column": self.column, "lower": 0, "upper": 1, "cells": 1}
        )

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        self._domain.check_type(types[self.column])

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        self.check_types({self.column: columns[self.column].type})
        cells = map_chunks(columns[self.column], self._value_cells, _NO_VALUE)
        kept = np.flatnonzero(cells != _NO_VALUE)
        return RowIncrements(Increments(cells[kept]), None if len(kept) == len(cells) else kept)

    def _value_cells(self, values: pa.Array) -> Integers:
        """The cells of values, (rows,); -1 for null and NaN. An integer and a float are compared
        with candidates exactly: these are float64 numbers below 2^53 in absolute value."""
        is_decimal = pa.types.is_decimal(values.type)
        cells = self.plan.cell_ids(
            decimal_values(values) if is_decimal else fixed_width_values(values)
        )
        missing = missing_rows(values)
        if missing is not None:
            cells[missing] = _NO_VALUE
        return cells

    def facts(self) -> dict[str, object]:
        return {
            "mechanism": "exponential mechanism over bounds of values",
            "column": self.column,
            "trees": list(self.trees),
            "bounds": {
                side: {
                    self.plan.budget.measure.value: str(self.plan.side_budget(side).amount),
                    "rate": float(self.plan.rate(side)),
                }
                for side in self.plan.sides
            },
            "candidates": list(self.plan.candidates),
            "tolerated_units": self.plan.tolerated,
            "sensitivity": tail_sensitivity(self.unit),
            "words": WORDS,
        }
