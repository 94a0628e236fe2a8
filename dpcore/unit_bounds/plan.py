"""The plan of the choice of a bound: which bounds there are, and how likely each of them is.

Let N(t) be the number of units that have more than t rows. A bound of t leaves out

    B(t) = N(t) + N(t + 1) + ... rows,

and a tree whose error is c where a unit has one row is off by c t where it has t. What a prefix or
a range loses is on average about half of B(t), so the sum of both errors is least where half the
slope of B, N(t) / 2, is c: where m = 2 c units exceed t. Among the sizes t one is chosen with

    P(t) proportional to t^-a exp(-rate D(t)),    D(t) = max(0, N(t) - m).

D is 0 from the wanted bound on, and t^-a is a public weight: it makes larger bounds, which D does
not distinguish, unlikely in proportion to what they cost, and it adds ln of it to the distance
below. The more the choice can see (rate m), the steeper it may be: a is the whole number nearest to
4 (rate m)^(1/3), from 2 to 8. That is the exponential mechanism with a public base measure, and it
is exact: D is computed in whole numbers, and the choice follows the weights to the bit
(`dpcore.exponential.choice`).

    sensitivity   `excess_sensitivity`: all D(t) move by 0 to 1 in one direction.
    epsilon       the loss is the rate times the range of the moves, 1: rate = epsilon - ROUNDING.
    rho           a choice of range e is e^2 / 8-zCDP: rate = sqrt(8 rho) - ROUNDING.
    floor         weights are relative to the largest, and none is below `FLOOR` of it: the larger
                  of two weights moves by a factor in [exp(-rate), 1], as each of them does.
    rounding      weights are off by `weights.ERROR` of themselves. A probability is a weight by a
                  sum of weights, so its quotient to that of a neighbor is off by 4 ERROR, which is
                  below ROUNDING.

Source: McSherry and Talwar, "Mechanism Design via Differential Privacy", FOCS 2007 (section 3, with
a base measure); Cesar and Rogers, "Bounding, Concentrating, and Truncating", ALT 2021, lemma 3.4;
the score, its rule m = 2 c and the public weight are derived here (benchmarks/auto_bounds.py).
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
from dptrees.dpcore.privacy.sensitivity import excess_sensitivity
from dptrees.dpcore.privacy.unit import MOST_ROWS, PrivacyUnit
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.unit_bounds.sizes import MOST_SIZES

# Of the public weight of a size.
_LEAST_EXPONENT, _LARGEST_EXPONENT, _EXPONENT_AT_ONE = 2, 8, 4
# Distances are whole numbers of this part of a unit.
_PART = 2**16
# The least rate: distances of 2^40 units and logarithms of sizes then stay below 2^62.
_LEAST_RATE = Fraction(1, 2**20)


@dataclass(frozen=True, kw_only=True)
class BoundPlan(Coded):
    """The plan of the choice of a bound among public sizes.

    Args:
        unit: whose rows, or keys, are bounded; each counts once.
        budget: of the choice.
        sizes: the bounds that there are, rising, at least two.
        tolerated: m, how many units may exceed a bound before it becomes less likely; a multiple of
            2^-16.

    Raises:
        Refusal: sizes that do not rise or are out of range; a budget that is too small.

    >>> from dptrees.dpcore.privacy.budget import Measure, Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",))
    >>> plan = BoundPlan(unit=person, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                  sizes=(1, 2, 4, 8), tolerated=Fraction(10))
    >>> [round(float(each), 4) for each in plan.probabilities(np.array([500, 40, 2, 8, 2]))]
    [0.0, 0.9718, 0.0281, 0.0001]
    """

    written = ("budget", "sizes", "tolerated", "exponent")

    unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
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
    def cells(self) -> int:
        """Number of counts that the choice needs: of units up to each size, and of those above."""
        return len(self.sizes) + 1

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
        weights = cached_weights(self.rate / _PART).at(self.distances(counts))
        result: Floats = np.maximum(weights, FLOOR)
        return result

    def probabilities(self, counts: Integers) -> list[Fraction]:
        """The exact probability with which each size is chosen.

        Args:
            counts: (cells,) exact, of units.
        """
        weights = [Fraction(each) for each in self.weights(counts).tolist()]
        total = sum(weights)
        return [each / total for each in weights]

    def chosen(self, counts: Integers, stream: RandomStream) -> int:
        """The size that is chosen.

        Args:
            counts: (cells,) exact, of units.
            stream: of this choice, not read before.
        """
        return self.sizes[weighed(self.weights(counts), stream).number]


def _cube(number: int) -> int:
    return number * number * number
