"""Shares of levels: Lemma 5 against a search for the least bound."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dptrees.dpcore.boxes.planner import falling_shares, lemma_5_shares
from dptrees.dpcore.privacy.unit import Measure


def terms(depths: tuple[int, ...], most: int) -> list[float]:
    """What a level's noise moves: all diameters above it, or k of them; of the root 1."""
    found = [1.0]
    for above, depth in pairwise(depths):
        nodes = 2**above if 2**depth <= most else min(2**above, most)
        found.append(nodes * 2.0**-above)
    return found


def bound(shares: np.ndarray, weights: np.ndarray, measure: Measure) -> float:
    power = 1.0 if measure is Measure.EPSILON else 0.5
    return float((weights / shares**power).sum())


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("depths, most", [((0, 1, 2, 3, 4), 2), ((0, 4, 8, 12), 16), ((0, 3), 1)])
def test_lemma_5_is_the_least_of_its_bound(
    depths: tuple[int, ...], most: int, measure: Measure
) -> None:
    shares = lemma_5_shares(depths, lambda depth: 2.0**-depth, most, measure)
    weights = np.array(terms(depths, most))
    assert shares.sum() == pytest.approx(1.0)
    least, rng = bound(shares, weights, measure), np.random.default_rng(0)
    for _ in range(300):
        other = shares * np.exp(rng.normal(0, 0.3, len(shares)))
        assert bound(other / other.sum(), weights, measure) >= least - 1e-12


def test_lemma_5_of_the_paper_in_one_dimension() -> None:
    """gamma_l = 2^-l: Gamma is 1 down to L_k + 1, then k gamma_{l-1} falls by halves."""
    shares = lemma_5_shares((0, 1, 2, 3, 4, 5), lambda depth: 2.0**-depth, 4, Measure.EPSILON)
    assert (shares / shares[0]) ** 2 == pytest.approx([1, 1, 1, 1, 1 / 2, 1 / 4])


def test_falling_shares() -> None:
    assert falling_shares(4, 0.0).tolist() == [0.25] * 4
    assert np.diff(np.log2(falling_shares(5, 1.5))) == pytest.approx([-1.5] * 4)
