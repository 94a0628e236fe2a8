"""Privacy budget that one or more trees of a release spend: a value, and how it adds up.

Pure and approximate losses add up (basic composition), and so do zCDP losses. Trees that share a
rho are composed under one certificate: the laws of all their noise, and how many counts of each a
row moves, say more than their rho (`dpcore.privacy.loss`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.loss import Moved, MovedTogether, keeps, moved_by

MovedCounts = tuple[tuple[Moved, int], ...]


def moved_of_levels(levels: Iterable[tuple[NoiseLaw, tuple[int, int]]]) -> MovedCounts | None:
    """`Spending.moved` of measured levels; None where a level has noise that is too small to say.

    Args:
        levels: the law and the (L1, L2^2) sensitivity of each.
    """
    laws = [moved_by(law, *sensitivity) for law, sensitivity in levels]
    known = tuple(each for each in laws if each is not None)
    return known if len(known) == len(laws) else None


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Budget spent on one privacy unit.

    Args:
        epsilon, delta: of approximate differential privacy; of a pure mechanism delta is 0.
        rho: of zCDP, beside them.
        moved: the noise laws behind the rho, and how many counts of each a unit moves by one; None
            where that is not known (`dpcore.privacy.loss.moved_by`).

    Raises:
        ValueError: an amount below 0.

    >>> half = Spending(epsilon=Fraction(1, 2))
    >>> (half + half + Spending(delta=Fraction(1, 10))).own
    (Fraction(1, 1), Fraction(1, 10))
    """

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    moved: MovedCounts | None = ()

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta", "rho"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is below 0")

    @property
    def own(self) -> tuple[Fraction, Fraction]:
        """The epsilon and the delta, without what a rho represents."""
        return self.epsilon, self.delta

    def __add__(self, other: Spending) -> Spending:
        known = self.moved is not None and other.moved is not None
        return Spending(
            epsilon=self.epsilon + other.epsilon,
            delta=self.delta + other.delta,
            rho=self.rho + other.rho,
            moved=(*(self.moved or ()), *(other.moved or ())) if known else None,
        )

    def for_periods(self, l1: int, l2_squared: int) -> Spending:
        """The same on a unit that is counted in several periods.

        The losses of noise are proportional to L1 (Laplace: epsilon) and to L2^2 (Gaussian: rho),
        where the scale stays. A delta beside an epsilon is of a release of one period alone: both
        add up over the periods (basic composition).

        Args:
            l1, l2_squared: by which its sensitivities grow (`periods_sensitivity`).

        Raises:
            ValueError: a delta beside an epsilon, over nodes of several periods.

        >>> Spending(epsilon=Fraction(1, 10)).for_periods(5, 9).epsilon
        Fraction(1, 2)
        """
        if self.delta and l1 != l2_squared:
            raise ValueError("delta: a tree that spends one is not counted over several periods")
        return Spending(
            epsilon=l1 * self.epsilon,
            delta=l1 * self.delta,
            rho=l2_squared * self.rho,
            moved=None if self.moved is None else _moved_over_periods(self.moved, l1, l2_squared),
        )

    def keeps(self, epsilon: Fraction, delta: Fraction, *, rho: Fraction = Fraction(0)) -> bool:
        """Whether all of it together is (epsilon, delta)-DP: what has an epsilon and a delta of its
        own adds up, and what shares a rho keeps what these leave, by certificate or conversion.

        Args:
            epsilon, delta: the claim.
            rho: the whole budget, where it exceeds the `rho` that is spent.

        >>> Spending(epsilon=Fraction(1)).keeps(Fraction(1), Fraction(0))
        True
        """
        left = epsilon - self.epsilon, delta - self.delta
        if not self.rho:
            return min(left) >= 0
        if min(left) <= 0:
            return False
        whole = max(self.rho, rho)
        return whole <= zcdp_rho(*left) if self.moved is None else keeps(self.moved, whole, *left)


def _moved_over_periods(moved: MovedCounts, l1: int, l2_squared: int) -> MovedCounts | None:
    """What moves over several periods: more counts by one each, or the same ones by more."""
    found: list[tuple[Moved, int]] = []
    for law, number in moved:
        if isinstance(law, MovedTogether):
            found.append((law, l2_squared * number))
        else:
            entry = moved_by(law, l1 * number, l2_squared * number)
            if entry is None:
                return None
            found.append(entry)
    return tuple(found)
