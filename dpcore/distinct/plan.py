"""The plan of counting different values: how many of a unit count, and the noise of each number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from dptrees.dpcore.codec import CONTEXT, INLINE, Coded
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.sensitivity import distinct_sensitivity, noise_law
from dptrees.dpcore.privacy.spending import Spending, moved_of_levels
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.selection.plan import counted_once


def most_values(unit: PrivacyUnit) -> int:
    """The most values of a unit that may count: as many as its bounds of rows and of keys let.

    >>> from dptrees.dpcore.privacy.budget import Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10, keys=3)
    >>> most_values(person)
    3
    """
    return counted_once(unit).rows


@dataclass(frozen=True, kw_only=True)
class DistinctPlan(Coded):
    """The plan of one number of different values, or of one for each key.

    Args:
        release_unit: what neighbors differ in, with the bounds of the release.
        budget: of all numbers together.
        max_values: m, the most pairs of a key and a value of a unit that count.
        keyed: whether there is a number for each key.

    Raises:
        Refusal: a bound out of range, or a budget whose noise is out of range.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Neighbors
    >>> person = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=10)
    >>> plan = DistinctPlan(release_unit=person, max_values=4, keyed=False,
    ...                     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> plan.law
    DiscreteLaplace(scale=Fraction(4, 1))
    """

    written = ("budget", "max_values", "keyed")

    release_unit: PrivacyUnit = field(metadata=CONTEXT)
    budget: Budget = field(metadata=INLINE)
    max_values: int
    keyed: bool

    def __post_init__(self) -> None:
        most = most_values(self.release_unit)
        if not 1 <= self.max_values <= most:
            raise Refusal(
                "max_values",
                f"{self.max_values} is not from 1 to {most}, the bounds of the privacy unit",
            )
        try:
            _ = self.law
        except ValueError as error:
            raise Refusal("budget", f"no noise fits it, as the {error}") from None

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
        """The L1 and the squared L2 sensitivity of all numbers together."""
        return distinct_sensitivity(self.release_unit, self.max_values, keyed=self.keyed)

    @cached_property
    def law(self) -> NoiseLaw:
        """The noise of each number."""
        return noise_law(self.budget, *self.sensitivity)

    @property
    def spending(self) -> Spending:
        """Budget that the numbers spend."""
        if self.budget.measure is Measure.EPSILON:
            return Spending(epsilon=self.budget.amount)
        moved = moved_of_levels([(self.law, self.sensitivity)])
        return Spending(rho=self.budget.amount, moved=moved)
