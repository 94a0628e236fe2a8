"""Reduction: every node is estimated, each round's budget is spent once, the bounds hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.papers import ghazi
from dptrees.dpcore.papers.ghazi import Classification, Reduction, reduce_to_classification
from dptrees.dpcore.trees.shapes import UniformTree

ALPHA, BETA, RATIO = Fraction(1, 2), Fraction(1, 17), Fraction(4, 3)
TREE = UniformTree(leaves=22, fanouts=(3, 2, 4))


def rounds(least: int, number: int, epsilon: int, eta: Fraction = Fraction(1, 10**9)) -> Reduction:
    """The geometric thresholds of Theorem A.1 with the same budget for all rounds."""
    return Reduction(
        least=Fraction(least),
        steps=tuple(
            Classification(
                depth=4,
                root_bound=least * RATIO**i,
                eta=eta,
                alpha=BETA,
                tau=least * RATIO ** (i - 1) / (1 + BETA),
                epsilon=Fraction(epsilon),
                delta=Fraction(1, 10**6),
            )
            for i in range(1, number + 1)
        ),
    )


PRECISE = rounds(400, 16, 100)


def draw_counts(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (400 * np.exp(rng.normal(0, 2, TREE.leaves)) * rng.integers(0, 2, TREE.leaves)).astype(
        np.int64
    )


def test_every_estimate_is_within_the_relative_error() -> None:
    tau_min, eta = Fraction(400) / ALPHA, Fraction(1, 10**6)
    for seed in range(8):
        counts = np.minimum(draw_counts(seed), 1500)
        bound = Fraction(int(counts.sum()))
        PRECISE.check_accuracy(alpha=ALPHA, eta=eta, tau_min=tau_min, root_bound=bound)
        estimates = reduce_to_classification(TREE, counts, PRECISE, public_stream("reduce", seed))
        for estimate, weight in zip(estimates, TREE.level_counts(counts), strict=True):
            assert estimate.dtype == np.int64
            allowed = float(ALPHA) * np.maximum(weight, float(tau_min))
            assert np.all(np.abs(estimate - weight) <= allowed)


def test_a_tree_below_the_largest_threshold_is_handed_on() -> None:
    """Check a tree without any TOP: as printed, it would get no estimate and no further round."""
    counts = np.zeros(TREE.leaves, dtype=np.int64)
    counts[5] = 1000
    estimates = reduce_to_classification(TREE, counts, PRECISE, public_stream("small"))
    levels = [level.tolist() for level in estimates]
    assert 1000 <= levels[0][0] == levels[1][0] == levels[3][5] <= 1500
    # A BOTTOM sibling of a TOP node too.
    assert levels[1][1:] == [400, 400] and levels[3][4] == 400


def test_each_round_classifies_once_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proof of privacy supposes: every budget once, on disjoint trees not yet found."""
    requested: list[Classification] = []
    found = [np.zeros(n, dtype=bool) for n in TREE.level_sizes]
    original: Callable[..., Any] = ghazi.classify

    def spy(
        tree: UniformTree, weights: Any, step: Classification, stream: Any, forest: Sequence
    ) -> Any:
        requested.append(step)
        for owners, before in zip(forest, found, strict=True):
            np.testing.assert_array_equal(owners >= 0, ~before)
        top = original(tree, weights, step, stream, forest)
        for before, now in zip(found, top, strict=True):
            assert not np.any(before & now)
            before |= now
        return top

    monkeypatch.setattr(ghazi, "classify", spy)
    reduce_to_classification(TREE, draw_counts(3), PRECISE, public_stream("spy"))
    assert requested == list(reversed(PRECISE.steps))
    assert PRECISE.epsilon == 16 * 100
    assert PRECISE.delta == Fraction(16, 10**6)
