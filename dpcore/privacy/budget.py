"""Privacy units, neighboring relations, budgets and sensitivities.

Everything here is exact: budgets are rationals, so that parts of a budget are seen to sum to no
more than the whole. The privacy unit is the row: a guarantee speaks of data sets that differ in
one row (``add_remove``: one has a row more; ``substitute``: one row has other values, so that the
number of rows N is public).

Source: Rameshwar, Tandon, Sharma, Section II (substitute-one neighbors, N public); Bun, Steinke
2016, Propositions 1.4 and 1.6 (zCDP, Gaussian noise); Canonne, Kamath, Steinke 2020 (the discrete
Gaussian has the same guarantee).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import CONTEXT, Coded, coded

_SHARE_UNITS = 2**20


class Neighbors(Enum):
    """Neighboring relation: the pairs of data sets that the guarantee makes hard to distinguish."""

    ADD_REMOVE = "add_remove"
    SUBSTITUTE = "substitute"


class Measure(Enum):
    """The measure of privacy loss in which a budget is stated."""

    EPSILON = "epsilon"  # pure differential privacy, discrete Laplace noise
    RHO = "rho"  # zero-concentrated differential privacy, discrete Gaussian noise


def amount_text(amount: Fraction) -> str:
    """An amount of a budget for a person: six digits, or as many as it takes to be exact.

    >>> amount_text(Fraction("0.3")), amount_text(Fraction("0.30000000000000004"))
    ('0.3', '0.30000000000000004')
    """
    short = f"{float(amount):g}"
    return short if Fraction(short) == amount else repr(float(amount)).removesuffix(".0")


@dataclass(frozen=True, kw_only=True)
class Budget(Coded):
    """An amount of privacy loss; amounts of one measure add up under composition.

    Args:
        measure: epsilon (pure differential privacy) or rho (zCDP).
        amount: the loss, positive.

    Raises:
        ValueError: the amount is not positive.

    >>> Budget(measure=Measure.EPSILON, amount=Fraction(1)).share(Fraction(1, 3)).amount
    Fraction(1, 3)
    """

    measure: Measure = field(metadata=CONTEXT)
    amount: Fraction = field(metadata=coded(name="budget"))

    def __post_init__(self) -> None:
        # Plans are kept by the budgets that they are made for: equal ones must be the same value.
        object.__setattr__(self, "amount", Fraction(self.amount))
        if not self.amount > 0:
            raise ValueError(f"{self.measure.value}: {self.amount} is not above 0")

    def split(self, shares: Sequence[float] | Floats) -> tuple[Fraction, ...]:
        """The amounts of levels by their shares of sum 1: multiples of 2^-20 of the whole, rounded
        down, so that rounding errors cannot change them. The last one gets the remainder.

        >>> Budget(measure=Measure.RHO, amount=Fraction(2)).split([0.25, 0.75])
        (Fraction(1, 2), Fraction(3, 2))
        """
        # Rounded first, so that a share of just a quarter is one on every machine.
        units = [math.floor(round(share * _SHARE_UNITS, 3)) for share in shares[:-1]]
        units.append(_SHARE_UNITS - sum(units))
        return tuple(self.amount * Fraction(each, _SHARE_UNITS) for each in units)

    def share(self, fraction: Fraction) -> Budget:
        """The budget of a part, 0 < fraction <= 1."""
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: {fraction} is not above 0 and at most 1")
        return Budget(measure=self.measure, amount=self.amount * fraction)
