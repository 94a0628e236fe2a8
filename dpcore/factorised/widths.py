"""Confidence intervals of what a strategy estimates: normal, from the variances of a plan.

An error mixes the discrete Gaussian noise of many sums, each of hundreds of units or more, so its
law is normal to a part in a million (`dpcore.factorised.errors`); of a lattice nothing is seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dptrees.dpcore.arithmetic.elementary import power
from dptrees.dpcore.arithmetic.normal import normal_quantile
from dptrees.dpcore.codec import coded
from dptrees.dpcore.errors.intervals import QuantileMargin, QuantileWidths, one_sided


@dataclass(frozen=True, kw_only=True)
class NormalWidths(QuantileWidths):
    """Half-widths of intervals on either side, in standard errors.

    Args:
        confidence: the coverage.
        closer: whether quantiles have margins of their own; not for widths that were stored
            without.

    >>> round(NormalWidths(confidence=0.95).width, 2)
    1.96
    """

    later = "closer"

    confidence: float
    closer: bool = field(default=False, metadata=coded(omit=False))

    @property
    def quantile(self) -> QuantileMargin | None:
        """The margins that decide a quantile; None: the margins of prefixes do."""
        if not self.closer:
            return None
        one = NormalWidths(confidence=one_sided(self.confidence)).width
        return QuantileMargin(both=(self.width, 0.0), one=(one, 0.0))

    @property
    def width(self) -> float:
        """Half-width of the interval of a node, a prefix or a range."""
        return normal_quantile((1.0 + self.confidence) / 2.0)

    def band(self, prefixes: int) -> float:
        """Return the half-width of a simultaneous band over all prefixes. Normal errors are all
        within their limits at least as often as if they were independent.

        Source: Sidak 1967.

        >>> round(NormalWidths(confidence=0.95).band(1000), 2)
        4.05
        """
        return normal_quantile((1.0 + power(self.confidence, 1.0 / prefixes)) / 2.0)
