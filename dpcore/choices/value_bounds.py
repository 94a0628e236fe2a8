"""Private choice of the bounds of a column's values, a first stage of a release.

One noisy histogram gives both bounds. Its bins lie between public edges of both signs, 0 and
+-(1, 2, 5) 10^k: a value x > 0 is in the bin (a, b] of two edges with a < x <= b, a value below 0
in [a, b), and 0, if it is an edge, in a bin of its own. Each unit counts once, by one of its rows
that a keyed choice retains; a row without a value counts nowhere. So a unit is in at most one bin,
and the sensitivity is that of one level of a tree
(`dpcore.privacy.sensitivity.level_sensitivity`): one more unit changes one bin by 1, a substituted
one changes two bins by 1 each. The noise is bound to the release, the global digest and the exact
counts, as all noise is.

The bounds follow from the noisy counts alone. The size of a bin is the larger absolute value of its
ends. A bin counts if its noisy number is above a threshold b with P(|X| > b) <= p, where X is the
noise. For K bins,

    clear     p = 2 c / K for any bin, c = 1 / 50,000. The largest size of these is the scale.
    far       p = 1 / (300 f^2) for a bin f times as large as the scale, by rising size; a bin that
              counts becomes the scale.
    inside    p = 1 / (5 K) for a bin that is no larger than the scale.
    near      p = 1 / 5 for the bin outside of the last one that counts, on each side of 0.

If no bin is clear, no bound is chosen. Otherwise let the outermost bin lie between b and its outer
end d, and the next inner one between a and b, with noisy counts n_b and n_a. If values fell off as
exp(-t / s) from a on, s would be (b - a) / ln((n_a + n_b) / n_b), and as many as t units would lie
beyond b + s ln(n_b / t). The bound is the first candidate (tenths of decades) from there on, at
most d; t is a typical error, P(|X| > t) <= 2 / 5. So a bound is never beyond its bin.

A bound of more than ten times all values needs a false bin beyond the clear ones, since three bins
span a factor of 10. Its probability is below c + 2 sum_{f >= 10} 1 / (600 f^2) + 2 / (600 16) / 10
< 1e-4: a false clear bin, a false far one, or a false one of f = 4 or 5 and its next one.

Bounds of dates follow from bins between starts of calendar units. A date is in the bin [a, b) of
two of them; beyond the outer ones it counts nowhere. Dates have no scale and no center, so sums of
m neighboring bins show where they are. With v the variance of the noise, P(|X| > b) <= p and
P(|Z| > z) = p for a standard normal Z, a sum is above noise if it exceeds
sqrt(b^2 + (m - 1) v z^2):

    clear     p = 2 c / K for bins m i to m i + m - 1. The first m of 1, 2, 4, ... counts for which
              there is a clear sum; the bounds are around all of these.
    beyond    p = 1 / (10 L) for the next m bins outside of a bound, for each of L such m. The bound
              moves beyond the fewest bins that are above noise, as long as there are any.

Noise alone makes a sum clear with a probability below 1 / 10,000: the tests convolve the noise.

Source: derived here; measured in docs/bounding.md, compared with enumeration in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arithmetic.normal import normal_quantile
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.choices.unit_bounds import NOT_CHOSEN, BoundsQuestion, ChoicePlan
from dptrees.dpcore.exponential.choice import choice_rate
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.sensitivity import level_law, level_sensitivity
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.messages import (
    Drawn,
    Increments,
    Place,
    RowIncrements,
)
from dptrees.dpcore.rows.columns import (
    AnyArray,
    decimal_values,
    fixed_width_values,
    map_chunks,
    missing_rows,
    pack,
    unpack,
)
from dptrees.dpcore.specification import Refusal

# Of bounds, and of the edges of bins.
_TENTHS = tuple(Fraction(each, 10) for each in (10, 12, 15, 20, 25, 30, 40, 50, 60, 80))
_DIGITS = (Fraction(1), Fraction(2), Fraction(5))
LARGEST_NUMBER, LARGEST_INTEGER = 10**12, 10**9
_SMALLEST_POWER, _LARGEST_POWER = -6, 12
MOST_CANDIDATES = 512


def candidate_bounds(
    lowest: float,
    highest: float,
    *,
    integers: bool = False,
    digits: tuple[Fraction, ...] = _TENTHS,
) -> tuple[float, ...] | tuple[int, ...]:
    """The decimals 0 and +-d 10^k with digits d, from a lowest to a highest one.

    Both ends are candidates too. Numbers go down to 10^-6 in absolute value, integers to 1; a
    candidate of numbers is the float64 nearest to its decimal, as the bounds of
    `dpcore.ordered.numbers.NumberDomain` are.

    Args:
        lowest: the first candidate.
        highest: the last candidate, above the first.
        integers: whether candidates are whole numbers.
        digits: from 1 to below 10.

    Returns:
        (candidates,) rising, at least two.

    Raises:
        Refusal: the ends are not in order, or too far from 0.

    >>> candidate_bounds(-2, 15, integers=True)
    (-2, -1, 0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15)
    >>> len(candidate_bounds(-1e12, 1e12)), len(candidate_bounds(-10**6, 10**6, integers=True))
    (363, 117)
    """
    largest = LARGEST_INTEGER if integers else LARGEST_NUMBER
    if not lowest < highest:
        raise Refusal("upper", f"no candidate lies between {lowest:,} and {highest:,}")
    for name, end in (("lower", lowest), ("upper", highest)):
        if not abs(end) <= largest:
            raise Refusal(name, f"{end:,} is farther from 0 than {largest:,}")
    number = int if integers else float
    powers = range(_SMALLEST_POWER, _LARGEST_POWER + 1)
    sizes = {digit * Fraction(10) ** power for power in powers for digit in digits} | {Fraction(0)}
    whole = [size for size in sizes if size.denominator == 1 or not integers]
    every = {number(sign * size) for size in whole for sign in (-1, 1)}
    inside = {each for each in every if lowest < each < highest}
    return tuple(sorted({number(lowest), number(highest)} | inside))


# Calendar units, the finest first; dates have units from the third on.
_UNITS = ("m", "h", "D", "M", "Y", "10Y")


def candidate_dates(lowest: date, highest: date) -> tuple[date, ...]:
    """The starts of minutes, hours, days, months, years or decades from a lowest to a highest date:
    of the finest of these units that has at most 512. Both ends are candidates too.

    Args:
        lowest: the first candidate, a date or a timestamp.
        highest: the last candidate, of the same type, above the first.

    Returns:
        (candidates,) rising, at least two; in UTC if they have a zone.

    Raises:
        Refusal: the ends are not in order, too far apart, or only one of them has a zone.

    >>> len(candidate_dates(date(1800, 1, 1), date(2200, 1, 1)))
    401
    >>> [str(each) for each in candidate_dates(date(1990, 5, 3), date(2041, 1, 1))][:2]
    ['1990-05-03', '1991-01-01']
    """
    zones = [getattr(each, "tzinfo", None) is not None for each in (lowest, highest)]
    if zones[0] != zones[1]:
        raise Refusal("lower", f"{lowest} and {highest} must both have a time zone, or neither")
    if not lowest < highest:
        raise Refusal("upper", f"no candidate lies between {lowest} and {highest}")
    ends = pa.array([lowest, highest])
    type = pa.timestamp("us", "UTC") if zones[0] else ends.type
    first, last = ends.to_numpy(zero_copy_only=False)
    for unit in _UNITS if isinstance(lowest, datetime) else _UNITS[2:]:
        low, high = first.astype(f"M8[{unit}]"), last.astype(f"M8[{unit}]")
        if (high - low).astype(int) <= MOST_CANDIDATES - 2:
            starts = np.arange(low, high + 2).astype(first.dtype).clip(first, last)
            return tuple(pa.array(np.unique(starts)).cast(type).to_pylist())
    raise Refusal("lower", f"{lowest} and {highest} are more than 5,100 years apart")


def common_step(candidates: Sequence[date]) -> int:
    """The largest number of microseconds that divides all bins between candidates.

    >>> common_step(candidate_dates(date(2020, 1, 1), date(2300, 1, 1))) // 10**6
    86400
    """
    return math.gcd(*((b - a) // timedelta(microseconds=1) for a, b in pairwise(candidates)))


LOWER, UPPER = "lower", "upper"
SIDES = ((LOWER, UPPER), (LOWER,), (UPPER,))
# The probability that noise makes any bin clear, and any bin inside or next to dates count.
_CLEAR, _INSIDE = 1 / 50_000, 1 / 10
# Of a bin as large as the scale, and of the next bin: that noise is beyond a threshold, on both
# sides of 0.
_FAR, _NEAR = 1 / 300, 1 / 5
# Of sizes that are further apart than a probability can say.
_LEAST = 1e-300
# The probability that noise is larger than a typical error.
_TYPICAL = 2 / 5
# More rows than a bin of any data has.
_MOST_CLEAR = 10**9


@dataclass(frozen=True, kw_only=True)
class _HistogramPlan(ChoicePlan):
    """The plan of a choice from one noisy histogram: its noise, and when a bin is clear."""

    written = ("budget", "sides", "candidates")

    sides: tuple[str, ...]
    candidates: tuple[Any, ...]

    def __post_init__(self) -> None:
        if self.unit != self.unit.once:
            raise Refusal("unit", "counts once where bounds of its values are chosen")
        if self.sides not in SIDES:
            raise Refusal("sides", f"{self.sides} are not lower, upper or both")
        given, least = list(self.candidates), 1 + len(self.sides)
        if not least <= len(given) <= MOST_CANDIDATES or given != sorted(set(given)):
            raise Refusal("candidates", f"there must be {least} to {MOST_CANDIDATES}, which rise")
        if not all(isinstance(each, date) or math.isfinite(each) for each in given):
            raise Refusal("candidates", "they must be finite")
        if self.clear > _MOST_CLEAR:
            raise Refusal("fraction", "the budget is too small to choose a bound with")

    @property
    def cells(self) -> int:
        """The number of bins, here between candidates."""
        return len(self.candidates) - 1

    @cached_property
    def law(self) -> NoiseLaw:
        """The noise of each bin."""
        return level_law(self.unit, self.budget, single_node=False)

    @cached_property
    def clear(self) -> int:
        """The number of units that a bin must exceed to be clear."""
        return self.law.bound(2 * _CLEAR / self.cells)


@dataclass(frozen=True, kw_only=True)
class ValueBoundsPlan(_HistogramPlan):
    """The plan of the choice of one bound, or both bounds, of a column of numbers.

    Args:
        sides: the bounds that are chosen, "lower" first; at least one.
        candidates: the values that there are, rising, at least two; three where both are chosen.

    Raises:
        Refusal: a unit that counts more than once; candidates that do not rise; a budget that is
            too small for any number of rows.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> plan = ValueBoundsPlan(unit=ADD_REMOVE_ROW, sides=("upper",), candidates=(1, 2, 5, 10),
    ...                        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan.clear, plan.inside, plan.near, plan.chosen(np.array([300, 200, 80, 1, 0]))
    (12, 3, 1, (5,))
    """

    candidates: tuple[float, ...]

    @cached_property
    def inside(self) -> int:
        """The number of units that a bin no larger than the scale must exceed."""
        return self.law.bound(2 * _INSIDE / self.cells)

    @cached_property
    def near(self) -> int:
        """The number of units that the bin outside of the outermost one must exceed."""
        return self.law.bound(_NEAR)

    def far(self, factor: float) -> int:
        """The number of units that a bin beyond the scale must exceed.

        Args:
            factor: of its size to the scale, above 1.
        """
        return self.law.bound(max(_FAR / (factor * factor), _LEAST))

    @cached_property
    def _edges(self) -> tuple[float, ...]:
        """The ends of the bins: candidates, with 0 twice."""
        coarse = set(candidate_bounds(self.candidates[0], self.candidates[-1], digits=_DIGITS))
        edges = (each for each in self.candidates if each in coarse)
        return tuple(each for each in edges for _ in range(1 if each else 2))

    @property
    def cells(self) -> int:
        """The number of bins; the outermost ones have no end."""
        return len(self._edges) + 1

    def cell_ids(self, values: AnyArray) -> Integers:
        """The bin of each unit.

        Args:
            values: (units,) numbers, none of them NaN.

        Returns:
            (units,) from 0 for the lowest bin on.
        """
        edges = np.array(self._edges)
        left, right = (np.searchsorted(edges, values, side=side) for side in ("left", "right"))
        cells: Integers = np.where(
            values > 0, left, np.where(values < 0, right, (left + right + 1) // 2)
        ).astype(np.int64)
        return cells

    def chosen(self, noisy: Integers) -> tuple[float, ...]:
        """The bounds that follow from noisy counts, in the order of `sides`; none if no bin is
        clear.

        Args:
            noisy: (cells,) the noisy counts of the bins.
        """
        edges = self._edges
        ends = [edges[0], *edges, edges[-1]]
        sizes = [max(abs(low), abs(high)) for low, high in pairwise(ends)]
        counts = noisy > self.clear
        if not counts.any():
            return ()
        scale = max(size for size, clear in zip(sizes, counts, strict=True) if clear)
        least = min(size for size in sizes if size)
        for cell in sorted(range(self.cells), key=sizes.__getitem__):
            if sizes[cell] > scale and noisy[cell] > self.near:
                factor = sizes[cell] / max(scale, least)
                if noisy[cell] > self.far(factor):
                    counts[cell], scale = True, sizes[cell]
        counts |= (np.array(sizes) <= scale) & (noisy > self.inside)
        first, last = np.flatnonzero(counts)[[0, -1]].tolist()
        if ends[last + 1] > 0 and last + 1 < self.cells and noisy[last + 1] > self.near:
            last += 1
        if ends[first] < 0 < first and noisy[first - 1] > self.near:
            first -= 1
        low, high = max(first - 1, 0), min(last, len(edges) - 1)
        found = {LOWER: edges[low], UPPER: edges[high]}
        if first < last:
            units = noisy.tolist()
            found = {
                LOWER: self._within(ends[first : first + 3], units[first : first + 2]),
                UPPER: self._within(
                    ends[last - 1 : last + 2][::-1], units[last - 1 : last + 1][::-1]
                ),
            }
        if len(self.sides) > 1 and found[LOWER] >= found[UPPER]:
            # All units in an outermost bin, or in that of 0.
            above = [each for each in edges if each > found[LOWER]]
            below = [each for each in edges if each < found[UPPER]]
            found |= {UPPER: above[0]} if above else {LOWER: below[-1]}
        return tuple(found[side] for side in self.sides)

    def _within(self, ends: Sequence[float], counts: Sequence[int]) -> float:
        """The bound in an outermost bin, by the fall of noisy counts.

        Args:
            ends: the outer and inner ends of the bin, and the inner end of the next one.
            counts: in the bin, and in the next one.
        """
        (outer, inner, next), (units, before) = ends, counts
        typical = max(self.law.bound(_TYPICAL), 1)
        units = max(units, typical + 1)
        if before <= 0 or inner in (outer, next):
            return outer
        fall = abs(inner - next) / log((before + units) / units)
        low, high = sorted((outer, inner))
        inside = [each for each in self.candidates if low <= each <= high]
        least = fall * log(units / typical)
        beyond = [each for each in inside if abs(each - inner) >= least]
        return min(beyond, key=lambda each: abs(each - inner), default=outer)


@dataclass(frozen=True, kw_only=True)
class DateBoundsPlan(_HistogramPlan):
    """The plan of the choice of one bound, or both bounds, of dates or timestamps.

    Args:
        candidates: of `candidate_dates`. A given bound is one of them.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> years = candidate_dates(date(1980, 1, 1), date(2030, 1, 1))
    >>> plan = DateBoundsPlan(unit=ADD_REMOVE_ROW, sides=("lower", "upper"), candidates=years,
    ...                       budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> [each.year for each in plan.chosen(np.array([0] * 20 + [9] * 20 + [0] * 10))]
    [2000, 2020]
    """

    candidates: tuple[date, ...] | tuple[datetime, ...]

    def chosen(self, noisy: Integers) -> tuple[date, ...]:
        """The bounds that follow from noisy counts, as of `ValueBoundsPlan`."""
        for bins, least, _ in self._sums:
            starts = np.arange(0, self.cells, bins)
            clear = starts[np.add.reduceat(noisy, starts) > least].tolist()
            if clear:
                low = self._reach(noisy[::-1], self.cells - clear[0])
                high = self._reach(noisy, min(clear[-1] + bins, self.cells))
                found = {LOWER: self.candidates[-1 - low], UPPER: self.candidates[high]}
                return tuple(found[side] for side in self.sides)
        return ()

    @cached_property
    def _sums(self) -> list[tuple[int, float, float]]:
        """Numbers of neighboring bins, the last one of all; and the units that their sum must
        exceed to be clear, and for a bound to move beyond them."""
        sizes = [1 << power for power in range((self.cells - 1).bit_length() + 1)]
        clear, beyond = 2 * _CLEAR / self.cells, _INSIDE / len(sizes)
        return [(bins, self._least(clear, bins), self._least(beyond, bins)) for bins in sizes]

    def _least(self, probability: float, bins: int) -> float:
        one, normal = self.law.bound(probability), normal_quantile(probability / 2)
        return math.sqrt(one * one + (bins - 1) * self.law.variance * normal * normal)

    def _reach(self, noisy: Integers, end: int) -> int:
        """The number of bins up to a bound, if it moves beyond bins that are above noise."""
        for bins, _, least in self._sums:
            units = noisy[end : end + bins]
            if len(units) == bins and units.sum() > least:
                return self._reach(noisy, end + bins)
        return end


_NO_VALUE = -1
WORDS = (
    "One noisy histogram, in which each unit counts once, gives the bounds, which are listed "
    "candidates: from the bins that stand clear above noise outwards. The histogram itself is not "
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
    >>> plan = ValueBoundsPlan(unit=ADD_REMOVE_ROW, sides=("upper",), candidates=(1, 2, 5),
    ...                        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> question = ValueBoundsQuestion(name="b", column="x", integers=True, trees=("x",), plan=plan)
    >>> question.increments({"x": pa.array([0, 1, 2, None, 9])}).cells.tolist()
    [0, 0, 1, 3]
    >>> question.bound_names
    ('b.upper',)
    """

    kind = "value_histogram"
    chosen_by = "from a noisy histogram"
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
        return self._domain.value_types

    @property
    def dense_cells(self) -> int:
        return self.plan.cells

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

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        own = noise.for_counts(exact)
        stream = own.stream(self.name, 0, 0, 0)
        chosen = self.plan.chosen(add_noise(self.plan.law, exact, stream, largest=own.largest))
        places = list(map(self.plan.candidates.index, chosen)) or [NOT_CHOSEN] * len(
            self.plan.sides
        )
        return Drawn(sent=pack(np.array(places)), kept=None)

    def facts(self) -> dict[str, object]:
        l1, _ = level_sensitivity(self.unit, single_node=False)
        return {
            "mechanism": "noisy histogram of values",
            "column": self.column,
            "trees": list(self.trees),
            "bounds": list(self.plan.sides),
            "candidates": self.plan.spec()["candidates"],
            "clear_units": self.plan.clear,
            "sensitivity": l1,
            "words": WORDS,
        }


@dataclass(frozen=True, kw_only=True)
class DateBoundsQuestion(ValueBoundsQuestion):
    """The choice of one bound, or both bounds, of a column of dates or timestamps.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> plan = DateBoundsPlan(unit=ADD_REMOVE_ROW, sides=("lower", "upper"),
    ...                       candidates=candidate_dates(date(1800, 1, 1), date(2200, 1, 1)),
    ...                       budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> question = DateBoundsQuestion(name="b", column="day", integers=False, trees=(), plan=plan)
    >>> days = pa.array([date(1, 1, 1), date(1970, 1, 1), date(2026, 11, 30), None])
    >>> question.increments({"day": days}).cells.tolist()
    [170, 226]
    """

    kind = "date_histogram"

    plan: DateBoundsPlan  # type: ignore[assignment]

    @cached_property
    def _domain(self) -> OrderedDomain:
        first, last = self.plan.candidates[0], self.plan.candidates[-1]
        kind = "timestamp" if isinstance(first, datetime) else "date"
        cells = (last - first) // timedelta(microseconds=common_step(self.plan.candidates))
        bounds = {"lower": first, "upper": last, "cells": cells, "outside": "drop"}
        return make_domain({"type": kind, "column": self.column, **bounds})

    def _value_cells(self, values: pa.Array) -> Integers:
        """The cells of values, (rows,); -1 for null and beyond the candidates."""
        edges = [self._domain.find_boundary(each) for each in self.plan.candidates]
        # -1 is before the first edge.
        return np.searchsorted(edges, self._domain.cell_ids(values), side="right") - 1


@dataclass(frozen=True, kw_only=True)
class EarlierBoundsPlan(ChoicePlan):
    """The plan of a choice by the exponential mechanism, as releases before
    docs/decisions/0055 have it: it is read, and not made again.

    Args:
        lower_amount: the part of the budget's amount that the lower bound spent.
        candidates: as of `ValueBoundsPlan`.
        tolerated: how many units might lie beyond a bound.
    """

    written = ("budget", "lower_amount", "candidates", "tolerated")

    lower_amount: Fraction
    candidates: tuple[float, ...]
    tolerated: int

    @property
    def amounts(self) -> dict[str, Fraction]:
        """What each bound spent, "lower" first."""
        upper = self.budget.amount - self.lower_amount
        return {side: each for side, each in ((LOWER, self.lower_amount), (UPPER, upper)) if each}

    @property
    def sides(self) -> tuple[str, ...]:
        """The bounds that were chosen, "lower" first."""
        return tuple(self.amounts)


_EARLIER_WORDS = (
    "Each bound is one of the listed candidates, drawn with a probability that falls by a factor "
    "of exp(-rate) for each unit beyond it that is above the tolerated number, and for each unit "
    "by which the number beyond the next narrower candidate is below it; the upper bound is drawn "
    "among the candidates above the lower bound. How many units lie beyond a candidate is not "
    "released."
)
_NOT_MADE = "the choice is planned as in an earlier version, which makes it; use another output"


@dataclass(frozen=True, kw_only=True)
class EarlierBoundsQuestion(ValueBoundsQuestion):
    """A choice by the exponential mechanism: it is read, and not made again."""

    kind = "value_bounds"
    chosen_by = BoundsQuestion.chosen_by

    plan: EarlierBoundsPlan  # type: ignore[assignment]

    @property
    def dense_cells(self) -> int:
        raise Refusal("bounds", _NOT_MADE)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        raise Refusal("bounds", _NOT_MADE)

    def facts(self) -> dict[str, object]:
        measure, sensitivity = self.plan.budget.measure, 2
        spent = {side: Budget(measure=measure, amount=x) for side, x in self.plan.amounts.items()}
        rates = {side: float(choice_rate(each, sensitivity)) for side, each in spent.items()}
        return {
            "mechanism": "exponential mechanism over bounds of values",
            "column": self.column,
            "trees": list(self.trees),
            "bounds": {
                side: {measure.value: str(each.amount), "rate": rates[side]}
                for side, each in spent.items()
            },
            "candidates": list(self.plan.candidates),
            "tolerated_units": self.plan.tolerated,
            "sensitivity": sensitivity,
            "words": _EARLIER_WORDS,
        }
