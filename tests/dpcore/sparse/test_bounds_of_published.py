"""Intervals given publication: their coverage by enumeration, for every count."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.sparse.pruning import published_bounds
from tests.dpcore.refusals import check_refusals

LAWS = [
    (TruncatedLaplace(scale=Fraction(2), radius=25), 25),
    (TruncatedLaplace(scale=Fraction(1, 3), radius=3), 3),
    (TruncatedLaplace(scale=Fraction(40), radius=60), 60),
    (TruncatedLaplace(scale=Fraction(3), radius=10), 17),
]


def coverage(
    law: TruncatedLaplace, threshold: int, low: np.ndarray, high: np.ndarray, n: int
) -> float:
    """P(low <= n <= high | published) for ends given at the noisy counts threshold + 1, ..."""
    noisy = threshold + 1 + np.arange(low.size)
    p = law.pmf(noisy - n)
    return float(p[(low <= n) & (n <= high)].sum() / p.sum())


@pytest.mark.parametrize(("law", "threshold"), LAWS)
def test_whatever_the_count_it_is_covered_given_publication(
    law: TruncatedLaplace, threshold: int
) -> None:
    counts = range(threshold - law.radius + 1, threshold + 4 * law.radius)
    noisy = np.arange(threshold + 1, threshold + 5 * law.radius + 1)
    for confidence in (0.5, 0.9, 0.95, 0.999):
        low, high = published_bounds(law, threshold, noisy, confidence)
        found = [coverage(law, threshold, low, high, n) for n in counts]
        assert min(found) >= confidence - 1e-12
        assert (low >= noisy - law.radius).all() and (high <= noisy + law.radius).all()
        # An interval that leaves the selection out misses small counts; one that is 30 % narrower
        # misses large ones.
        width = law.bound(1 - confidence)
        if width < law.radius - 1:
            naive = [coverage(law, threshold, noisy - width, noisy + width, n) for n in counts]
            assert min(naive) < confidence - 0.1
        if confidence < 0.99 and law.scale > 1:
            middle, half = (low + high) // 2, (high - low) // 2
            narrow = np.floor(0.7 * half).astype(np.int64)
            assert (
                coverage(law, threshold, middle - narrow, middle + narrow, counts[-1]) < confidence
            )


def test_the_certain_interval_always_covers() -> None:
    for law, threshold in LAWS:
        noisy = np.arange(threshold + 1, threshold + 5 * law.radius + 1)
        low, high = published_bounds(law, threshold, noisy, 1)
        for n in range(threshold - law.radius + 1, threshold + 4 * law.radius):
            assert coverage(law, threshold, low, high, n) == pytest.approx(1)


def test_without_a_threshold_the_interval_is_that_of_the_noise() -> None:
    law = LAWS[0][0]
    low, high = published_bounds(law, None, np.array([-4, 0]), 0.95)
    width = law.bound(0.05)
    assert low.tolist() == [-4 - width, -width] and high.tolist() == [width - 4, width]


def test_order_and_repetition_do_not_matter() -> None:
    law, threshold = LAWS[0]
    noisy = np.array([500, 26, 101, 26, 10**12, 102])
    low, high = published_bounds(law, threshold, noisy, 0.9)
    for place, y in enumerate(noisy):
        own = published_bounds(law, threshold, np.array([y]), 0.9)
        assert (low[place], high[place]) == (own[0][0], own[1][0])
    assert published_bounds(law, threshold, np.empty(0, np.int64), 0.9)[0].size == 0


def test_bad_arguments_are_named() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"noisy": np.array([30]), "confidence": 0.0}, "confidence is 0.0"),
        ({"noisy": np.array([30]), "confidence": 0.99999}, "confidence is"),
        ({"noisy": np.array([25]), "confidence": 0.9}, "noisy"),
    ]
    check_refusals(partial(published_bounds, LAWS[0][0], 25), rows)
