"""What a release claims, and what an event proves of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from scipy import stats


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What a release claims.

    Args:
        measure: "epsilon" or "rho".
        amount: of it.
        delta: beside an epsilon; 0 without.
    """

    measure: str
    amount: Fraction
    delta: Fraction = Fraction(0)

    def lower_bound(self, likelier: float, unlikelier: float) -> float:
        """What is lost at least, if an event has at least the one probability on one data set and
        at most the other on its neighbor.

        An epsilon from P <= exp(epsilon) Q + delta. A rho as of Gaussian noise: if some event has P
        and Q under two normal laws, these are mu = z(P) - z(Q) apart or more, and rho = mu^2 / 2
        (Dong, Roth, Su 2022, Section 2).

        >>> round(Claim(measure="epsilon", amount=Fraction(1)).lower_bound(0.6, 0.2), 3)
        1.099
        >>> round(Claim(measure="rho", amount=Fraction(1)).lower_bound(0.8413, 0.1587), 2)
        2.0
        """
        if self.measure == "rho":
            apart = float(stats.norm.ppf(likelier) - stats.norm.ppf(unlikelier))
            return max(0.0, apart) ** 2 / 2
        gained = likelier - float(self.delta)
        return max(0.0, math.log(gained / unlikelier)) if gained > 0 else 0.0

    def __str__(self) -> str:
        beside = f", delta {float(self.delta):g}" if self.delta else ""
        return f"{self.measure} {float(self.amount):g}{beside}"
