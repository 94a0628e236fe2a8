"""The plan of a mean: the noise of the two sums that it is the quotient of.

Let the domain have K cells, with middles from a to b. A row in cell i (of 0 to K - 1) adds
K - 1 - i to the sum at a and i to the sum at b, so it adds K - 1 in all, wherever it lies. With A
and B the noisy sums, divided by K - 1,

    rows   N = A + B
    total  T = a A + b B
    mean   M = T / N

A number of rows and a sum of values, each with half of an epsilon, would have the square root of 2
times the error of this mean, whatever the values: there a row moves both measurements fully, here
what it adds to one sum it does not add to the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from dptrees.dpcore.codec import CONTEXT, INLINE, Coded
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.sensitivity import noise_law, split_sensitivity
from dptrees.dpcore.privacy.spending import Spending, moved_of_levels
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.refusal import Refusal

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
