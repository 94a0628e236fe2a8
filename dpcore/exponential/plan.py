"""The plan of quantiles by the exponential mechanism: the cost and rank error of each choice.

The middle quantile is chosen first among all rows; lower and upper ones among those on their side
(Kaplan, Schnapp, Stemmer 2022, algorithm 1). A row takes part in the choices of one path, so by
adaptive and parallel composition the plan spends the budget if one with h choices on the longest
path from it spends 1 / h of what is left:

    epsilon   a choice whose ranges add up to L1 over all parts costs at most (rate + SLACK) L1,
              by permute-and-flip as well: the rate is epsilon / L1 - SLACK
    rho       a choice of range e is e^2 / 8-zCDP, so over all parts (rate + SLACK)^2 L2^2 / 8
              (Cesar and Rogers, ALT 2021, lemma 3.4): the rate is sqrt(8 rho / L2^2) - SLACK
    interval  a choice among all rows for each quantile; they share a part of the
              budget equally, and the choices of quantiles have the rest
    a unit    with v rows in a part, v_c of them in the parts below it: sums of v_c are at most
              v, sums of squares at most v^2. So what it loses along all paths is at most what all
              its rows would lose along the costliest
    SLACK     weights of places are off by 2 ERROR, and six of them enter a choice (quotients of
              its cell, its run and itself), as many of the neighbor's: 24 ERROR (1 + 2^-20) <
              32 ERROR, in each part that a unit has rows in, whose range is 1 or more

A *margin* bounds the ranks between the requested rank and the chosen cell. With n rows, K cells
and rate g: P(d >= x) <= K exp(-g x) for a cell, K PLACES exp(-g x) for a place, whose middle is
off by n / (2 PLACES) and half a row more. Between chosen places off by e and e' a q-quantile is
off by (1 - q) e + q e' more, and by `Rank.missed`. The margins of a path each hold with their
part of the probability. The model takes a deviation of sqrt(2) / g for each choice. When these
quantiles beat a planned tree's was measured, not derived (docs/quantiles.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arithmetic.sums import root_below
from dptrees.dpcore.exponential.choice import FLOOR, PLACES
from dptrees.dpcore.privacy.sensitivity import rank_sensitivity
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, Refusal, coded
from dptrees.dpcore.trees.shapes import UniformTree

# The largest denominators of parts. Of last ones 2^40 rows times them fit in 64 bits; of places
# distances do up to where they weigh nothing.
LARGEST_LAST, LARGEST_OF_PLACES = 2**22, 2**16


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A quantile, to be chosen among the rows between two others.

    Attributes:
        place: of the quantile among all, in rising order.
        part: of the rows between that lie below it, as near to the exact one as denominators allow.
        missed: the share of all rows by which its rank is thus off.
        lower, upper: what is chosen among the rows below it, and above it.
        height: how many choices the longest path down from here has, this one with it.
    """

    place: int
    part: Fraction
    missed: Fraction
    lower: Rank | None
    upper: Rank | None
    height: int

    @property
    def is_last(self) -> bool:
        """Whether nothing is chosen on either side of it."""
        return self.lower is None and self.upper is None

    def paths(self, above: tuple[Rank, ...] = ()) -> Iterator[tuple[Rank, ...]]:
        """Every rank with those on its path, from the first one down."""
        path = (*above, self)
        yield path
        for side in (self.lower, self.upper):
            if side is not None:
                yield from side.paths(path)


def rank_tree(quantiles: Sequence[Fraction]) -> Rank:
    """The tree of some quantiles.

    Args:
        quantiles: at least one, rising, each above 0 and below 1.

    >>> first = rank_tree([Fraction(1, 4), Fraction(1, 2), Fraction(3, 4)])
    >>> first.place, str(first.part), str(first.lower.part), first.height
    (1, '1/2', '1/2', 2)
    """
    result = _between(quantiles, 0, len(quantiles), Fraction(0), Fraction(1))
    assert result is not None
    return result


def _between(
    quantiles: Sequence[Fraction], start: int, stop: int, low: Fraction, high: Fraction
) -> Rank | None:
    if start == stop:
        return None
    middle = (start + stop) // 2
    own = quantiles[middle]
    lower = _between(quantiles, start, middle, low, own)
    upper = _between(quantiles, middle + 1, stop, own, high)
    sides = [side.height for side in (lower, upper) if side is not None]
    largest = LARGEST_OF_PLACES if sides else LARGEST_LAST
    part = ((own - low) / (high - low)).limit_denominator(largest)
    return Rank(
        place=middle,
        part=part,
        missed=abs(low + part * (high - low) - own),
        lower=lower,
        upper=upper,
        height=1 + max(sides, default=0),
    )


# What a choice costs more, because weights are rounded.
SLACK = Fraction(1, 2**27)
# The least rate. Distances are clipped at 2^62 (`places.LARGEST`) units, and at most 2^16
# (the largest scale of a place) times 2^24 (`places.PLACES`) units are a row: at 2^22 rows. By this
# rate what lies beyond weighs less than exp(-2^6) < 2^-92 = ERROR FLOOR: FLOOR plus it is off by
# ERROR.
_LEAST_RATE = Fraction(1, 2**16)


@dataclass(frozen=True, kw_only=True)
class ExponentialPlan(Coded):
    """The plan of quantiles by the exponential mechanism: how they are chosen.

    Args:
        cells: K, of each tree.
        unit: what neighbors differ in.
        budget: of all choices together.
        quantiles: each above 0 and below 1, rising.
        keyed: whether there is one tree per key.
        interval_share: of the budget, for intervals of all quantiles; 0: there are none.
        confidence: of each interval, at most .9999.

    Raises:
        Refusal: quantiles that are none, or not in order; a budget that is too small; intervals of
            no share, or of quantiles of too many decimals.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = ExponentialPlan(
    ...     cells=100, unit=ADD_REMOVE_ROW, quantiles=(Fraction(1, 2),),
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(float(plan.rate(plan.first)), 6), round(plan.least_rows, 1)
    (1.0, 6.9)
    """

    cells: int = field(metadata=CONTEXT)
    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    quantiles: tuple[Fraction, ...] = field(metadata=CONTEXT)
    keyed: bool = field(default=False, metadata=CONTEXT)
    interval_share: Fraction = field(default=Fraction(0), metadata=coded(omit=Fraction(0)))
    confidence: float = field(default=0.95, metadata=CONTEXT)

    def __post_init__(self) -> None:
        if not self.quantiles:
            raise Refusal("quantiles", "the exponential mechanism needs some")
        for quantile in self.quantiles:
            if not 0 < quantile < 1:
                raise Refusal(
                    "quantiles",
                    f"{float(quantile):g} is not above 0 and below 1, where the exponential "
                    "mechanism finds quantiles: all empty cells beyond the rows would be as near",
                )
        if not 0 <= self.interval_share < 1:
            raise Refusal("intervals", "their share of the budget is at least 0 and below 1")
        if self.interval_share and max(each.denominator for each in self.quantiles) > LARGEST_LAST:
            raise Refusal("intervals", "are for quantiles of at most six decimals")
        if list(self.quantiles) != sorted(set(self.quantiles)):
            raise Refusal("quantiles", "they must rise")
        if min(self.rates.values()) < _LEAST_RATE:
            raise Refusal("quantiles", "the budget is too small for the exponential mechanism")
        of_intervals = map(self.interval_rate, range(len(self.quantiles)))
        if self.interval_share and min(of_intervals) < _LEAST_RATE:
            raise Refusal("intervals", "their share of the budget is too small")

    @cached_property
    def tree(self) -> UniformTree:
        """The cells below one root: a key's are chosen from together."""
        return UniformTree(leaves=self.cells, fanouts=(self.cells,) if self.cells > 1 else ())

    @cached_property
    def first(self) -> Rank:
        """The quantile that is chosen first, with those below it."""
        return rank_tree(self.quantiles)

    @cached_property
    def amounts(self) -> Mapping[int, Fraction]:
        """Amount that the choice of each quantile spends, by its place."""
        return _spent(self.first, self.budget.amount * (1 - self.interval_share))

    @cached_property
    def rates(self) -> Mapping[int, Fraction]:
        """The rate of the weights of each choice in distances of ranks, by the quantile's place."""
        return {
            rank.place: self._rate(self.amounts[rank.place], rank.part, whole=rank is self.first)
            for *_, rank in self.first.paths()
        }

    def rate(self, rank: Rank) -> Fraction:
        """Rate of one choice."""
        return self.rates[rank.place]

    @property
    def interval_amount(self) -> Fraction:
        """Amount that the interval of one quantile spends."""
        return self.budget.amount * self.interval_share / len(self.quantiles)

    def interval_rate(self, place: int) -> Fraction:
        """The rate of the choice of a quantile's interval, by its place."""
        return self._rate(self.interval_amount, self.quantiles[place], whole=True)

    def _rate(self, amount: Fraction, part: Fraction, *, whole: bool) -> Fraction:
        l1, l2_squared = rank_sensitivity(self.unit, part, whole=whole, keyed=self.keyed)
        if self.budget.measure is Measure.EPSILON:
            return amount / l1 - SLACK
        return root_below(8 * amount / l2_squared) - SLACK

    @property
    def flips(self) -> bool:
        """Whether cells are chosen by permute-and-flip: under a pure epsilon."""
        return self.budget.measure is Measure.EPSILON

    @property
    def narrowest(self) -> Fraction:
        """The narrowest part of the rows beside a quantile, times the rate of its choice."""
        ends = (Fraction(0), *self.quantiles, Fraction(1))
        sides = zip(ends, self.quantiles, ends[2:], strict=False)
        return min(
            min(own - below, above - own) * self.rates[place]
            for place, (below, own, above) in enumerate(sides)
        )

    @property
    def fewest_in_narrowest(self) -> float:
        """The rows of the narrowest part, times the rate, from which on ranks are expected to be
        nearer than a tree's (`is_better`): measured, not derived."""
        times = (each for most, each in _TIMES.items() if len(self.quantiles) <= most)
        return next(times, math.inf) * log(self.cells)

    @property
    def least_rows(self) -> float:
        """The rows of a tree from which on `is_better` expects ranks to be nearer, with a guess."""
        return self.fewest_in_narrowest / float(self.narrowest)


def _spent(rank: Rank, left: Fraction) -> dict[int, Fraction]:
    own = left / rank.height
    result = {rank.place: own}
    for side in (rank.lower, rank.upper):
        if side is not None:
            result |= _spent(side, left - own)
    return result


class Margin(NamedTuple):
    """So many rows, and such a share of all rows."""

    rows: float
    share: float = 0.0


def margins(plan: ExponentialPlan, confidence: float) -> list[Margin]:
    """Bounds on the errors in rank, each with the confidence; one for each quantile, in order.

    Args:
        plan: of the quantiles.
        confidence: above 0 and below 1.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> plan = ExponentialPlan(
    ...     cells=1000, unit=ADD_REMOVE_ROW, quantiles=(Fraction(1, 2),),
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(margins(plan, 0.95)[0].rows, 1)  # ln(1000 / .05)
    9.9
    """
    result = [Margin(0.0)] * len(plan.quantiles)
    for path in plan.first.paths():
        failure = (1 - confidence) / len(path)
        result[path[-1].place] = _along(plan, path, failure)
    return result


def _along(plan: ExponentialPlan, path: tuple[Rank, ...], failure: float) -> Margin:
    low = high = wanted = Margin(0.0)
    for rank in path:
        part = float(rank.part)
        shifted = Margin(*((1 - part) * a + part * b for a, b in zip(low, high, strict=True)))
        own, missed = _own(plan, rank, failure), float(rank.missed)
        wanted = Margin(shifted.rows + own, shifted.share + missed)
        bound = Margin(wanted.rows + 0.5, wanted.share + 1 / (2 * PLACES))
        low, high = _beside(rank, path, bound, (low, high))
    return wanted


def _beside(
    rank: Rank, path: tuple[Rank, ...], bound: Margin, ends: tuple[Margin, Margin]
) -> tuple[Margin, Margin]:
    """The margins of the ends of the part below a choice on a path."""
    return (bound, ends[1]) if path[-1].place > rank.place else (ends[0], bound)


def _own(plan: ExponentialPlan, rank: Rank, failure: float) -> float:
    """Error of one choice in rows, exceeded with a probability of at most `failure`."""
    candidates = plan.cells * (1 if rank.is_last else PLACES)
    # What the floor of the weights adds.
    left = failure - candidates * FLOOR
    return log(candidates / left) / float(plan.rate(rank)) if left > 0 else math.inf


def rank_errors(plan: ExponentialPlan) -> list[float]:
    """The predicted standard deviations of the ranks of what is chosen, in rows, where rows lie
    densely; one for each quantile, in order."""
    result = [0.0] * len(plan.quantiles)
    for path in plan.first.paths():
        low = high = own = 0.0
        for rank in path:
            part, rate = float(rank.part), float(plan.rate(rank))
            own = (1 - part) * (1 - part) * low + part * part * high + 2 / (rate * rate)
            low, high = (own, high) if path[-1].place > rank.place else (low, own)
        result[path[-1].place] = math.sqrt(own)
    return result


def root_mean_square(errors: list[float]) -> float:
    """Return the root of the mean square of the errors of all quantiles."""
    return math.sqrt(math.fsum(error * error for error in errors) / len(errors))


# Up to 7 are chosen along paths of 3, up to 15 along paths of 4. Without a guess up to nine are
# chosen: nine have 2 times the error of a tree for counts at 100 rows times epsilon, about as much
# at 1,000, half of it at 10,000 and a third at 100,000. Beyond 15, and of more than nine under rho,
# too little was measured (decision 0057).
_FEW_QUANTILES, _NOT_GUESSED, _MOST_QUANTILES = 7, 9, 15
# Of more cells than a chunk has nothing was measured; who wants rounds names the mechanism.
_MOST_CELLS = 2**17
# By the number of quantiles: so many times the rows by which a choice may be off are in a part. Of
# more than seven a tree for counts is what they compete with.
_TIMES = {3: 0.75, _FEW_QUANTILES: 1.5, _MOST_QUANTILES: 4.0}


def is_better(plan: ExponentialPlan, rows: Fraction | None) -> bool:
    """Whether the plan's quantiles are expected to be nearer than a tree's of the same budget.

    Args:
        plan: of the quantiles.
        rows: a public guess of how many there are, of each key. None: there is no guess. The ranks
            of few quantiles are then nearer by up to ten times where rows are many, and of more
            than three up to twice as far off where they are few.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> seven = ExponentialPlan(
    ...     cells=4096, unit=ADD_REMOVE_ROW, quantiles=tuple(Fraction(n, 8) for n in range(1, 8)),
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> is_better(seven, Fraction(100)), is_better(seven, Fraction(1000))
    (False, True)
    """
    guessed = rows is not None and plan.budget.measure is Measure.EPSILON
    most = _MOST_QUANTILES if guessed else _NOT_GUESSED
    if len(plan.quantiles) > most or plan.cells > _MOST_CELLS:
        return False
    if rows is None:
        return True
    return float(plan.narrowest * rows) >= plan.fewest_in_narrowest
