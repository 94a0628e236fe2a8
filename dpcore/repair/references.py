"""Public histograms on which the error of counts is simulated: smooth, skewed, heavy-tailed, spiky.

The error of nonnegative counts depends on the data, above all on how many nodes hold next to no
rows. A plan is made before any row is read, so what it will be off by is simulated on shapes that
everybody knows, at a public guess of the number of rows.

Source: derived here; gamma and Zipf as in Rameshwar, Tandon, Sharma, Section VI.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp, log1p
from dptrees.dpcore.arrays import Floats, Integers

# A distribution on [0, 1): the part of the rows below x.
Distribution = Callable[[Floats], Floats]

# Fractional parts of its multiples are spread evenly, and hit no edge of a tree.
_GOLDEN = (math.sqrt(5) - 1) / 2
_GAMMA_RATE = 12.0
_ZIPF_RANGE = 1000.0
_SPIKES, _SPIKED_PART = 12, 0.8
_HEAPS = 50


def _gamma(x: Floats) -> Floats:
    """Return the distribution function of a gamma law of shape 2, cut off where one row in 10^4 is
    left."""
    below: Floats = 1 - exp(-_GAMMA_RATE * x) * (1 + _GAMMA_RATE * x)
    return below / (1 - exp(-_GAMMA_RATE) * (1 + _GAMMA_RATE))


def _zipf(x: Floats) -> Floats:
    """Density as 1 / (1 + 1,000 x)."""
    below: Floats = log1p(_ZIPF_RANGE * x) / log1p(_ZIPF_RANGE)
    return below


def _steps(places: Floats, weights: Floats, x: Floats) -> Floats:
    order = np.argsort(places, kind="stable")
    summed = np.concatenate([[0.0], np.cumsum(weights[order] / weights.sum())])
    below: Floats = summed[np.searchsorted(places[order], x, side="left")]
    return below


def _spiky(x: Floats) -> Floats:
    """Four fifths of the rows at 12 points, of weights 1, 1/2, 1/3, ...; the rest everywhere."""
    ranks = np.arange(1.0, _SPIKES + 1)
    spikes = _steps(ranks * _GOLDEN % 1, 1 / ranks, x)
    return _SPIKED_PART * spikes + (1 - _SPIKED_PART) * x


def _heaped(x: Floats) -> Floats:
    """All rows at the middles of 50 equal parts, as round numbers are; bell-shaped weights."""
    places = (np.arange(_HEAPS) + 0.5) / _HEAPS
    return _steps(places, exp(-18 * np.square(places - 0.5)), x)


def _uniform(x: Floats) -> Floats:
    return x


REFERENCES: tuple[Distribution, ...] = (_uniform, _gamma, _zipf, _spiky, _heaped)


def rows_below(reference: Distribution, rows: int, parts: Floats) -> Integers:
    """Number of a distribution's rows below points.

    Row i is at the quantile (i + v_i) / rows, where v_i, the fractional part of i times the
    golden ratio, is as good as uniform; so counts of cells differ as samples' do, if by less.

    Args:
        reference: the distribution.
        rows: at least 0.
        parts: points, in [0, 1].

    >>> rows_below(REFERENCES[0], 1000, np.array([0.0, 0.25, 1.0])).tolist()
    [0, 250, 1000]
    """
    ranks = rows * np.clip(reference(parts), 0.0, 1.0)
    rounded = np.floor(ranks)
    below: Integers = (rounded + (ranks - rounded > rounded * _GOLDEN % 1)).astype(np.int64)
    return below
