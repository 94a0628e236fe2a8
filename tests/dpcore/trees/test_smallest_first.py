"""Counts that take what there is too much of off the smallest nodes first."""

from __future__ import annotations

from typing import Any

import numpy as np

from dptrees.dpcore.trees.consistency import split_among_children
from tests.dpcore.cases import for_each


def smallest_first(
    fanouts: list[int], estimates: Any, totals: list[int], below: Any = None
) -> np.ndarray[Any, Any]:
    values = np.asarray(estimates, float)
    return split_among_children(
        np.array(fanouts),
        values,
        np.ones(len(values)) if below is None else np.asarray(below, float),
        np.array(totals),
        smallest_first=True,
    )


@for_each(
    ("estimates", "total", "counts"),
    [
        ([4.0, 3.0, 2.0], 9, [4, 3, 2]),
        ([50.0, 3.0, -3.0], 50, [50, 0, 0]),  # top down: 49, 1, 0
        ([50.0, 3.0, -2.0], 51, [50, 1, 0]),
        ([-5.0, -5.0], 3, [2, 1]),  # adjusted first to sum to the total: 1.5 each
        ([7.0], 4, [4]),
        ([9.0, 1.0, -4.0], 0, [0, 0, 0]),
    ],
)
def test_examples(estimates: list[float], total: int, counts: list[int]) -> None:
    assert smallest_first([len(estimates)], estimates, [total]).tolist() == counts


@for_each("seed", range(40))
def test_sums_hold_and_no_other_integers_change_the_largest_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fanouts = rng.integers(1, 30, 50)
    estimates = rng.laplace(0, 4, fanouts.sum()) + rng.choice([0, 0, 30], fanouts.sum())
    below = rng.uniform(1, 3, fanouts.sum())
    starts = np.cumsum(fanouts) - fanouts
    totals = np.maximum(0, np.rint(np.add.reduceat(estimates, starts))).astype(np.int64)
    counts = smallest_first(fanouts.tolist(), estimates, totals.tolist(), below)
    assert counts.min() >= 0 and np.array_equal(np.add.reduceat(counts, starts), totals)
    top_down = split_among_children(fanouts, estimates, below, totals)
    # As close in absolute differences, but for the rounding of each child.
    ours, theirs = (
        np.add.reduceat(np.abs(each - estimates), starts) for each in (counts, top_down)
    )
    assert (ours <= theirs + 2 * fanouts).all()


def test_nodes_are_split_each_by_itself() -> None:
    """Any cut into chunks gives the same integers."""
    rng = np.random.default_rng(1)
    fanouts = rng.integers(1, 9, 100)
    estimates = rng.laplace(3, 5, fanouts.sum())
    totals = rng.integers(0, 40, 100)
    whole = smallest_first(fanouts.tolist(), estimates, totals.tolist())
    for cut in (1, 37, 99):
        children = fanouts[:cut].sum()
        parts = [
            smallest_first(fanouts[:cut].tolist(), estimates[:children], totals[:cut].tolist()),
            smallest_first(fanouts[cut:].tolist(), estimates[children:], totals[cut:].tolist()),
        ]
        assert np.array_equal(np.concatenate(parts), whole)


def test_empty_nodes_get_half_and_large_ones_lose_nothing() -> None:
    """The bias that it is for, on 3,000 nodes of 30 children: two in three empty, one of 50."""
    rng = np.random.default_rng(2)
    truth = np.where(np.arange(30) % 3 == 0, 50, 0)
    estimates = truth + rng.laplace(0, 4, (3000, 30))
    arguments = np.full(3000, 30), estimates.ravel(), np.ones(90_000), np.full(3000, truth.sum())
    bias = {}
    for kind in (False, True):
        counts = split_among_children(*arguments, smallest_first=kind).reshape(3000, 30)
        bias[kind] = (counts - truth)[:, truth == 0].mean(), (counts - truth)[:, truth > 0].mean()
    # The standard error of a mean of 60,000 errors of 5.7 is 0.023.
    assert bias[False][0] > 1 and bias[False][1] < -2
    assert bias[True][0] < 0.6 * bias[False][0] and bias[True][1] > 0.6 * bias[False][1]
