"""The plan of quantiles by the exponential mechanism: what each choice spends, and its rate.

Along every path down the tree of quantiles the choices share the budget in equal parts of what is
left: one with h choices on the longest path from it spends 1 / h of it. A row takes part in the
choices of one path, so the plan spends the budget, of pure epsilon as of rho, by adaptive and
parallel composition.

    epsilon   a choice whose ranges add up to L1 over all parts (`rank_sensitivity`) costs at most
              (rate + SLACK) L1: the rate is epsilon / L1 - SLACK. By permute-and-flip it costs as
              much: its loss is rate times twice the largest change of a distance, which is no more
              than the range stated, since that is twice a bound of changes of either sign.
    rho       a choice whose range is e is e^2 / 8-zCDP, so over all parts (rate + SLACK)^2 L2^2 / 8
              (Cesar and Rogers; permute-and-flip has no such bound): the rate is
              sqrt(8 rho / L2^2) - SLACK.
    interval  a choice among all rows for each quantile, each paid for: they divide a share of the
              budget equally, and the choices of quantiles have the rest.
    a unit    with v rows in a part, v_c of them in the parts below it: sums of v_c are at most
              v, sums of squares at most v^2. So what it loses along all paths is at most what all
              its rows would lose along the costliest.

Weights are off by `weights.ERROR` of themselves. Weights of places with `FLOOR` are off by as much
again where distances are clipped (`_LEAST_RATE`): by 2 ERROR. A choice of a cell is one quotient of
a weight and a sum of weights, one of a place three: of its cell, its run, and itself. A mean is
taken anew in the turn below it, so nothing cancels: six numbers are off, by 12 ERROR together, and
as many of the neighbor. Losses rise by at most 24 ERROR (1 + 2^-20) < 32 ERROR = SLACK, in each
part that a unit has rows in; each part has a range of 1 or more.

Source: McSherry and Talwar 2007; McKenna and Sheldon 2020, theorem 1; Cesar and Rogers, "Bounding,
Concentrating, and Truncating", ALT 2021, lemma 3.4; Kaplan, Schnapp, Stemmer 2022.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from dptrees.dpcore.codec import CONTEXT, INLINE, Coded, coded
from dptrees.dpcore.exponential.ranks import LARGEST_LAST, Rank, rank_tree
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.sensitivity import rank_sensitivity
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.trees.uniform import UniformTree

# What a choice costs more, because weights are rounded.
SLACK = Fraction(1, 2**27)
# The least rate. Distances are clipped at 2^62 (`places.LARGEST`) units, and at most 2^16
# (the largest scale of a place) times 2^24 (`places.PLACES`) units are a row: at 2^22 rows. By this
# rate what lies beyond weighs less than exp(-2^6) < 2^-92 = ERROR FLOOR: FLOOR plus it is off by
# ERROR.
_LEAST_RATE = Fraction(1, 2**16)
_ROOT_BITS = 64


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
    >>> round(float(plan.rate(plan.first)), 6)
    1.0
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
        return _root_below(8 * amount / l2_squared) - SLACK

    @property
    def flips(self) -> bool:
        """Whether cells are chosen by permute-and-flip: under a pure epsilon."""
        return self.budget.measure is Measure.EPSILON


def _spent(rank: Rank, left: Fraction) -> dict[int, Fraction]:
    own = left / rank.height
    result = {rank.place: own}
    for side in (rank.lower, rank.upper):
        if side is not None:
            result |= _spent(side, left - own)
    return result


def _root_below(square: Fraction) -> Fraction:
    """A rational that is no more than the square root, and less by at most 2^-64."""
    scaled = (square.numerator << 2 * _ROOT_BITS) // square.denominator
    return Fraction(math.isqrt(scaled), 1 << _ROOT_BITS)
