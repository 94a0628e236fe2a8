"""Group privacy: what a guarantee for one row says of several.

Source: Dwork, Roth 2014, section 2.3; Ghazi, Kamath, Kumar, Manurangsi, Wu, Theorem A.1, corrected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from dptrees.dpcore.noise.exponential_bounds import exp_bounds
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import PrivacyUnit

# Budgets are rounded down to so many bits, so that scales stay short fractions.
BUDGET_BITS = 40
FACTOR_BITS = 128
# A row's delta is below a unit's by e^-epsilon or so, and must be a number that floats hold.
_MOST_EPSILON = 500


@dataclass(frozen=True, kw_only=True)
class GroupPrivacy:
    """Budget of one row such that a unit of several rows keeps (epsilon, delta).

    A mechanism that is (row_epsilon, row_delta)-DP for one row added or removed is (epsilon, delta)
    -DP for units of at most c rows. Such a unit, added or removed, is a path of k = c steps of one
    row each; substituted, of k = 2 c steps. Along it epsilon is the sum of k row_epsilon,
    and delta = row_delta (1 + e^row_epsilon + ... + e^((k - 1) row_epsilon)).

    Args:
        epsilon, delta: the claim for a unit; positive, delta below 1.
        unit: what neighbors differ in, with c, the most of its rows in the tree.

    Raises:
        ValueError: an argument out of range.

    Source: Ghazi et al., Fact 2.2.

    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> unit = GroupPrivacy(epsilon=Fraction(1), delta=Fraction(1, 1000), unit=SUBSTITUTE_ROW)
    >>> unit.row_epsilon, round(float(unit.row_delta), 9)
    (Fraction(1, 2), 0.000377541)
    """

    epsilon: Fraction
    delta: Fraction
    unit: PrivacyUnit

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)

    @property
    def steps(self) -> int:
        """k = ||x - x'||_1 at most: c, or twice as many under substitution."""
        return level_sensitivity(self.unit, single_node=False)[0]

    @property
    def row_epsilon(self) -> Fraction:
        """epsilon / k."""
        return Fraction(self.epsilon) / self.steps

    @cached_property
    def row_delta(self) -> Fraction:
        """delta (e^row_epsilon - 1) / (e^epsilon - 1), rounded down; delta itself where k is 1."""
        if self.steps == 1:
            return Fraction(self.delta)
        if self.epsilon > _MOST_EPSILON:
            raise ValueError(
                f"epsilon: it is {float(self.epsilon):g}, and must be at most {_MOST_EPSILON} "
                f"where a unit moves {self.steps} rows: the delta of each would be next to 0"
            )
        # (e^a - 1) / (e^b - 1) = e^(a - b) (1 - e^-a) / (1 - e^-b).
        bits = FACTOR_BITS + 2 * math.ceil(self.epsilon)
        one = 1 << bits
        shrink = exp_bounds(self.epsilon - self.row_epsilon, bits)[0]
        above = one - exp_bounds(self.row_epsilon, bits)[1]
        below = one - exp_bounds(Fraction(self.epsilon), bits)[0]
        return rounded_down(Fraction(self.delta) * Fraction(shrink * above, one * below))


def check_budget(epsilon: Fraction, delta: Fraction) -> None:
    if not epsilon > 0:
        raise ValueError(f"epsilon is {epsilon}; it must be positive")
    if not 0 < delta < 1:
        raise ValueError(f"delta is {delta}; it must be above 0 and below 1")


def rounded_down(value: Fraction, bits: int = BUDGET_BITS) -> Fraction:
    """The largest rational of so many bits over or times a power of 2 that is not above.

    >>> value = Fraction(1, 3)
    >>> rounded_down(value) <= value < rounded_down(value) * (1 + Fraction(1, 2**39))
    True
    """
    places = bits - value.numerator.bit_length() + value.denominator.bit_length()
    unit = Fraction(1, 2**places) if places >= 0 else Fraction(2**-places)
    return value // unit * unit
