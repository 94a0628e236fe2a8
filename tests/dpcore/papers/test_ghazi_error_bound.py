"""The conversion of Lemma 3.3: never worse, never far off, its noise and its budget."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.papers.ghazi import ErrorBound, bound_error
from dptrees.dpcore.trees.relative_errors import alpha_rmse
from dptrees.dpcore.trees.shapes import UniformTree

FALSE_ALARM = 1e-6
TREE = UniformTree(leaves=4, fanouts=(2, 2))
BOUND = ErrorBound(depth=3, epsilon=Fraction(3), delta=Fraction(3, 100))


def test_estimates_get_no_worse_and_stay_within_two_radii() -> None:
    rng = np.random.default_rng(2)
    counts = np.array([5, 0, 70, 3])
    for trial in range(50):
        guesses = [rng.integers(-100, 200, n) for n in TREE.level_sizes]
        clipped = bound_error(TREE, counts, guesses, BOUND, public_stream("clip", trial))
        for got, guess, weight in zip(clipped, guesses, TREE.level_counts(counts), strict=True):
            error = np.abs(got - weight)
            assert np.all(error <= np.abs(guess - weight))
            assert np.all(error <= 2 * BOUND.noise.radius)


def test_every_level_spends_its_part() -> None:
    assert BOUND.noise.delta(BOUND.epsilon / 3) * 3 <= BOUND.delta
    assert BOUND.noise.scale == 1


@pytest.mark.parametrize(("factor", "is_right"), [(1.0, True), (0.7, False)])
def test_an_audit_of_the_noise(factor: float, is_right: bool) -> None:
    """A guess far below everything comes out as the noisy count - R."""
    leaves = 200_000
    tree, radius = UniformTree(leaves=leaves, fanouts=(leaves,)), BOUND.noise.radius
    guesses = [np.full(n, -(10**6)) for n in tree.level_sizes]
    counts = np.arange(leaves) % 7
    clipped = bound_error(tree, counts, guesses, BOUND, public_stream("audit"))
    observed = np.bincount(clipped[1] - counts + 2 * radius, minlength=2 * radius + 1)
    x = np.arange(-radius, radius + 1)
    expected = np.exp(-np.abs(x) / (factor * float(BOUND.noise.scale)))
    expected *= leaves / expected.sum()
    assert (stats.chisquare(observed, expected).pvalue > FALSE_ALARM) == is_right


def test_the_bound_of_the_error_holds() -> None:
    """An estimate that is within alpha max(w, tau) but for one time in ten, and then far off."""
    leaves, tau, alpha, eta = 20_000, 40.0, 0.25, 0.1
    tree = UniformTree(leaves=leaves, fanouts=(leaves,))
    bound = ErrorBound(depth=2, epsilon=Fraction(2), delta=Fraction(1, 100))
    counts = np.full(leaves, 60)
    far = np.arange(leaves) % 10 == 0
    guesses = [np.zeros(1, dtype=np.int64), np.where(far, 10**5, 60 + 15)]
    clipped = bound_error(tree, counts, guesses, bound, public_stream("mrmse"))
    measured = float(alpha_rmse(clipped[1][:, np.newaxis], [60.0], alpha)[0])
    assert measured <= bound.alpha_mrmse(alpha=alpha, tau_max=tau, eta=eta)
    assert float(alpha_rmse(guesses[1][:, np.newaxis], [60.0], alpha)[0]) > 10**4
    assert bound.alpha_mrmse(alpha=0.0, tau_max=tau, eta=eta) == pytest.approx(
        2 * bound.noise.radius * math.sqrt(eta)
    )
