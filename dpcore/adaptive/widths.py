"""Margins of intervals in adaptive trees, which hold whatever tree comes out.

Given the drawn tree an error is a sum of independent noises with coefficients that follow from it.
So the widths are taken from the widest laws that such sums have: one variable of the noise, several
alike, and one beside a normal rest. They are in standard errors of the error blurred by half a row,
as `dpcore.errors.intervals.prefix_margin` takes them.

Where measurements decide, noise that splits a node stays in its estimate. Intervals are then wider
by a fifth: that is measured, not proved. Data put all nodes of a level near their thresholds at
once. Without it the least coverage that was found of 95 % was 90 %, of nodes above such a level and
of prefixes. With it, on 1,024 cells and 400 releases for each of 24 such data, it was 95.2 % for
the root and 96.7 % for prefixes; on 512 cells 94.5 % (docs/decisions/0025). A node that is hardly
ever split is far too large where it is: of the few children of such nodes 89 % were covered.
Intervals of quantiles are not widened: on public shapes they hold as often as stated without
(docs/quantiles.md).

Source: `dpcore.errors.law`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.codec import coded
from dptrees.dpcore.errors.intervals import QuantileMargin, QuantileWidths, one_sided, prefix_margin
from dptrees.dpcore.errors.law import ErrorLaw
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.budget import Measure

# Noise so wide that its lattice does not show.
_WIDE = Fraction(2**12)
# Of intervals where measurements decide.
WIDENED = 1.2
_ALIKE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_RESTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True, kw_only=True)
class AdaptiveWidths(QuantileWidths):
    """Half-widths of the intervals on either side, at one confidence.

    Args:
        confidence: the coverage.
        slope, offset: a margin is slope sd + offset rows, sd of the error blurred by half a row.
        quantile: the margins that decide a quantile. None: as the others, as for widths that were
            stored without.
    """

    later = "quantile"

    confidence: float
    slope: float
    offset: float = 0.5
    quantile: QuantileMargin | None = field(default=None, metadata=coded(omit=None))

    def margin(self, variance: Floats) -> Floats:
        """The half-widths of intervals in rows, for estimates of these variances."""
        return prefix_margin((self.slope, self.offset), variance)

    @property
    def sloped(self) -> tuple[float, float]:
        """The argument of `prefix_margin`."""
        return self.slope, self.offset


def adaptive_widths(measure: Measure, confidence: float, *, counts: bool = False) -> AdaptiveWidths:
    """The widths of noise that pays in a measure: Laplace noise under epsilon, Gaussian under rho.

    Args:
        measure: of the budget.
        confidence: of the intervals.
        counts: measurements decide (`AdaptivePlan.decision_part` is 0): see the module.

    Raises:
        ValueError: the confidence is not above 0 and at most 0.9999.
    """
    slope, one = (_widest_slope(measure, each) for each in (confidence, one_sided(confidence)))
    return AdaptiveWidths(
        confidence=confidence,
        slope=slope * (WIDENED if counts else 1.0),
        quantile=QuantileMargin(both=(slope, 0.5), one=(one, 0.5)),
    )


@lru_cache(maxsize=16)
def _widest_slope(measure: Measure, confidence: float) -> float:
    """The widest half-width of all laws, in standard errors."""
    normal = DiscreteGaussian(sigma_squared=_WIDE**2)
    widths = [_standard_width([(normal, 1.0, 1)], confidence)]
    if measure is Measure.EPSILON:
        laplace = DiscreteLaplace(scale=_WIDE)
        widths += [_standard_width([(laplace, 1.0, each)], confidence) for each in _ALIKE]
        share = math.sqrt(laplace.variance / normal.variance)
        widths += [
            _standard_width(
                [
                    (laplace, math.sqrt(1.0 - rest), 1),
                    (normal, share * math.sqrt(rest), 1),
                ],
                confidence,
            )
            for rest in _RESTS
        ]
    return float(np.max(widths))


def _standard_width(terms: list[tuple[NoiseLaw, float, int]], confidence: float) -> float:
    law = ErrorLaw(terms=tuple(terms))
    return law.half_width(confidence) / math.sqrt(law.variance)
