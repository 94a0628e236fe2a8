"""The plan of the choice of bounds of a column: which there are, and how likely each of them is.

Let N(u) be the number of units whose value lies beyond a candidate u: at or above it for an upper
bound, below it for a lower bound. A tree clamps or drops these. A tolerated number m of them
changes its counts by about as much as its noise does, so the bound is chosen near the narrowest
candidate that no more than m units lie beyond. With u' for the next narrower candidate:

    P(u) proportional to exp(-rate D(u)),    D(u) = max(0, N(u) - m, m - N(u')).

D is 0 for that candidate, even where many units have one value. The narrowest candidate has no u',
and so no third term. All candidates beyond the first one that no value lies beyond have D = m. They
are at most K, so they have less than K exp(-rate m) of the choice, and m is at least
(ln K + 3) / rate (`least_tolerated`).

Both bounds are chosen from one histogram of units over the K + 1 cells between the candidates, with
a part of the budget each: the lower bound first, then the upper bound among the candidates above
it. The second choice depends on the first one, so this is sequential composition.

    sensitivity   `tail_sensitivity`: the moves of all D(u) lie in a range of 2.
    rate          `choice_rate` of each part of the budget, which includes the rounding of weights.
    floor         weights are relative to the largest, and none is below `FLOOR` of it: a clamped
                  weight moves by no larger a factor than the weight itself.

Source: McSherry and Talwar, "Mechanism Design via Differential Privacy", FOCS 2007; the score is
that of a quantile, of the rank m, over public candidates (Smith, "Privacy-preserving statistical
estimation with optimal convergence rates", STOC 2011); the rule for m is derived here
(benchmarks/value_bounds.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import CONTEXT, INLINE, Coded
from dptrees.dpcore.exponential.choice import weighed
from dptrees.dpcore.exponential.rate import choice_rate
from dptrees.dpcore.exponential.weights import FLOOR, cached_weights
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.sensitivity import tail_sensitivity
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.column import AnyArray
from dptrees.dpcore.value_bounds.candidates import MOST_CANDIDATES

# The least rate: distances of 2^40 units then stay within the range of the weights' table.
_LEAST_RATE = Fraction(1, 2**20)
_MOST_TOLERATED = 2**40
# Beyond ln K: exp(-3) is what candidates beyond all values may have in all.
_SURE = 3
LOWER, UPPER = "lower", "upper"


@dataclass(frozen=True, kw_only=True)
class ValueBoundsPlan(Coded):
    """The plan of the choice of one bound, or both bounds, of a column.

    Args:
        unit: each counts once, by one of its rows.
        budget: of both choices together.
        lower_amount: the part of the budget's amount that the lower bound spends; 0: it is given,
            and all candidates lie above it; all: the upper bound is given.
        candidates: the values that there are, rising, at least two; three where both are chosen.
        tolerated: m, how many units may lie beyond a bound.

    Raises:
        Refusal: a unit that counts more than once; candidates that do not rise; a number of units
            that is out of range; a budget that is too small.

    >>> from dptrees.dpcore.privacy.budget import Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = ValueBoundsPlan(unit=ADD_REMOVE_ROW, lower_amount=Fraction(0), tolerated=5,
    ...                        budget=Budget(measure=Measure.EPSILON, amount=Fraction(2)),
    ...                        candidates=(1, 2, 4, 8))
    >>> counts = np.array([300, 200, 80, 1, 0])
    >>> [round(float(each), 4) for each in plan.probabilities("upper", counts)]
    [0.0, 0.0, 0.982, 0.018]
    """

    written = ("budget", "lower_amount", "candidates", "tolerated")

    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
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

    @property
    def cells(self) -> int:
        """Number of counts that the choices need: of units below, between and beyond candidates."""
        return len(self.candidates) + 1

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
        weights = cached_weights(self.rate(side)).at(distances - distances.min())
        result: Floats = np.maximum(weights, FLOOR)
        return result

    def probabilities(self, side: str, counts: Integers, first: int = 0) -> list[Fraction]:
        """The exact probability with which each candidate is chosen.

        Args:
            side, counts, first: as of `distances`.
        """
        weights = [Fraction(each) for each in self.weights(side, counts, first).tolist()]
        total = sum(weights)
        return [each / total for each in weights]

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

    >>> from dptrees.dpcore.privacy.budget import Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> twentieth = Budget(measure=Measure.EPSILON, amount=Fraction(1, 20))
    >>> least_tolerated(twentieth, ADD_REMOVE_ROW, 291)
    347
    """
    rate = max(choice_rate(budget, tail_sensitivity(unit)), _LEAST_RATE)
    return math.ceil((log(candidates) + _SURE) / float(rate))
