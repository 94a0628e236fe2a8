"""Draws against the law that they are said to have, and laws of other scales."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from scipy import stats

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw


def p_value(noise: np.ndarray[Any, Any], law: NoiseLaw) -> float:
    """Return that of a chi-squared test, in cells of at least 20 expected draws."""
    reach = law.bound(40 / noise.size)
    tail = law.survival(reach)
    expected = np.concatenate([[tail], law.pmf(np.arange(-reach, reach + 1)), [tail]])
    places = np.clip(noise, -reach - 1, reach + 1) + reach + 1
    observed = np.bincount(places, minlength=2 * reach + 3)
    return float(stats.chisquare(observed, expected / expected.sum() * noise.size).pvalue)


def scaled(law: NoiseLaw, factor: Fraction) -> NoiseLaw:
    """Return the law with its scale multiplied."""
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(scale=law.scale * factor)
    assert isinstance(law, DiscreteGaussian)
    return DiscreteGaussian(sigma_squared=law.sigma_squared * factor**2)
