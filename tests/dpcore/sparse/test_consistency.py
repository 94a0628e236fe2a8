"""Consistent counts of sparse trees: the projections against brute force, and no worse than noisy.

Limits of random checks have false alarms below 1e-6; the keys are fixed.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.sparse import pruning as sparse_consistency
from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.plan import plan_sparse, publish_shard
from dptrees.dpcore.sparse.pruning import KnownLevel, PrunedLevel, _lowered, _met, solve_levels
from tests.dpcore.sparse.counts import counts_by_key, exact_levels, node_counts

NOISE = NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"", global_digest=b"")
# Widths, and the rows of leaves.
TREES: dict[str, tuple[tuple[int, ...], dict[int, int]]] = {
    "three heavy children": ((2,), {0: 3000, 1: 2000, 2: 2500}),
    "three children with three each": ((2, 2), {n: 1000 + 100 * n for n in (0, 1, 2, 4, 5, 9)}),
    "one line": ((1, 1, 1), {0: 3000}),
    "heavy and light": ((2, 2, 2), {0: 3000, 1: 90, 2: 60, 17: 80, 33: 900}),
}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 20),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=3),
)
def test_lowered_counts_are_the_nearest(
    children: list[tuple[int, int]], extra: int, others: list[tuple[int, int]]
) -> None:
    """Against all integers, with the children of another node in between."""
    least = np.array([low for low, _ in children])
    target = least + np.array([slack for _, slack in children])
    total = int(least.sum()) + extra
    rest_least = np.array([low for low, _ in others], np.int64)
    rest = rest_least + np.array([slack for _, slack in others], np.int64)
    found = _lowered(
        np.concatenate([rest, target]),
        np.concatenate([rest_least, least]),
        np.repeat([2, 0], [len(others), len(children)]),
        np.array([total, 7, int(rest.sum())]),
    )
    assert found[: len(others)].tolist() == rest.tolist()
    own = found[len(others) :]
    assert (own >= least).all() and (own <= target).all() and own.sum() <= total
    ranges = [range(low, high + 1) for low, high in zip(least, target, strict=True)]
    best = min(
        sum((x - w) ** 2 for x, w in zip(each, target, strict=True))
        for each in itertools.product(*ranges)
        if sum(each) <= total
    )
    assert int(((own - target) ** 2).sum()) == best


@settings(deadline=None)
@given(st.integers(0, 900), st.floats(0.1, 50), st.integers(0, 900), st.floats(0.1, 50))
def test_a_node_meets_its_children_at_the_least_weighted_squares(
    noisy: int, variance: float, children: int, below: float
) -> None:
    level = KnownLevel(
        keys=pa.array([1, 2], pa.uint64()),
        noisy=np.array([noisy, 0]),
        measured=np.array([True, False]),
        parents=np.zeros(2, np.int64),
    )
    found, variances = _met(level, np.full(2, variance), np.full(2, children), np.full(2, below))
    best = minimize_scalar(
        lambda p: (p - noisy) ** 2 / variance + max(children - p, 0) ** 2 / below,
        bounds=(-1, 901),
        method="bounded",
        options={"xatol": 1e-6},
    ).x
    assert abs(found[0] - best) <= 0.5 + 1e-3
    # One that was not measured has nothing of its own to say.
    assert (found[1], variances[1]) == (children, below)
    meets = 1 / (1 / variance + 1 / below)
    assert variances[0] == pytest.approx(meets if children > noisy else variance)


def test_a_public_root_does_not_move() -> None:
    root = KnownLevel(
        keys=pa.array([0], pa.uint64()),
        noisy=np.array([10]),
        measured=np.array([True]),
        parents=np.zeros(1, np.int64),
    )
    for below in (0.0, 4.0):
        found, variances = _met(root, np.zeros(1), np.array([15]), np.array([below]))
        assert found.tolist() == [10] and variances.tolist() == [0.0]


def released(tree: str, runs: int) -> tuple[list[NodeCounts], list[list[PrunedLevel]]]:
    """The exact counts of each level, and as many releases of them."""
    widths, rows = TREES[tree]
    domain = CodeDomain(column="c", widths=widths, notation="hex")
    plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**4), ADD_REMOVE_ROW)
    truth = exact_levels(domain, node_counts(rows))
    settled = []
    for run in range(runs):
        noise = replace(NOISE, global_digest=run.to_bytes(4, "big"))
        parts = [publish_shard(plan, domain, "t", n, 0, own, noise) for n, own in enumerate(truth)]
        settled.append(solve_levels(plan, domain, parts))
    return truth, settled


# The releases that two tests look at.
SHARED = cache(released)
RUNS = 300


def margins(truth: list[NodeCounts], settled: list[list[PrunedLevel]]) -> list[float]:
    """For each level, by how many standard errors the mean of 1.21 times the squared error of the
    estimate less that of the count is above 0."""
    found = []
    for number, exact in enumerate(truth):
        known = counts_by_key(exact)
        sums = []
        for levels in settled:
            level = levels[number]
            own = np.array([known[key] for key in level.keys.to_pylist()], np.int64)
            seen = ~np.isnan(level.estimate)
            gained = 1.21 * (level.estimate - own) ** 2 - (level.count - own) ** 2
            sums.append(float(gained[seen].sum()))
        found.append(float(np.mean(sums) / (np.std(sums) / np.sqrt(len(settled)))))
    return found


@pytest.mark.parametrize("tree", TREES)
def test_counts_are_no_worse_than_estimates(tree: str) -> None:
    """Root mean square errors of at most 1.1 times the estimates', on every level."""
    assert min(margins(*SHARED(tree, RUNS))) > 0


def test_the_check_finds_children_that_only_follow_their_parents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planted error: a root with little budget pushes its noise onto its children."""

    def stays(level: KnownLevel, spread: np.ndarray, *_: np.ndarray) -> tuple[np.ndarray, ...]:
        return level.noisy, spread

    monkeypatch.setattr(sparse_consistency, "_met", stays)
    assert min(margins(*released("one line", 150))) < 0


@pytest.mark.parametrize("tree", TREES)
def test_counts_are_within_the_certain_bounds_and_below_their_parents(tree: str) -> None:
    domain = CodeDomain(column="c", widths=TREES[tree][0], notation="hex")
    inside = total = 0
    for levels in SHARED(tree, RUNS)[1]:
        for number, level in enumerate(levels):
            assert (level.least <= level.count).all() and (level.count <= level.most).all()
            if number:
                above = dict(zip(levels[number - 1].keys.to_pylist(), range(2**9), strict=False))
                sums = np.zeros(len(above), np.int64)
                parents = domain.parent_keys(number, level.keys).to_pylist()
                np.add.at(sums, [above[key] for key in parents], level.count)
                assert (sums <= levels[number - 1].count).all()
                inside += int(
                    ((level.ci_low <= level.count) & (level.count <= level.ci_high)).sum()
                )
                total += len(level.count)
    # Below the root a count seldom leaves the interval of its node.
    assert inside > 0.95 * total
