"""The two ways to make children agree: Algorithm 4 case by case against the paper's pseudocode, the
best linear estimates against dense algebra of what was measured on the way from the root."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.partition import (
    BestLinear,
    Estimates,
    EvenShares,
    GrownLevel,
    GrownTree,
    GrowthConsistency,
)
from tests.dpcore.boxes.grown_trees import ROOTS, DenseTree, random_tree


def algorithm_4(parent: float, left: float, right: float) -> tuple[float, float]:
    """Return the children's values by Algorithm 4, as printed."""
    left, right = max(left, 0.0), max(right, 0.0)
    excess = left + right - parent
    if left - excess / 2 < 0:
        return 0.0, parent
    if right - excess / 2 < 0:
        return parent, 0.0
    return left - excess / 2, right - excess / 2


def even(parent: float, *children: float, empty: tuple[int, ...] = ()) -> list[float]:
    variance = np.ones((1, len(children)))
    variance[0, list(empty)] = 0.0
    parents = Estimates(np.array([parent]), np.array([np.nan]))
    found = EvenShares().children(parents, np.array([children]), variance)
    assert np.isnan(found.variance).all()
    shares: list[float] = found.estimate[0].tolist()
    return shares


ROWS = st.one_of(st.integers(-40, 40).map(float), st.floats(-1e6, 1e6))


def test_algorithm_4_case_by_case() -> None:
    for parent, children, expected in (
        (4.6, (3.5, 3.7), (2.2, 2.4)),  # Example 7.1
        (10.0, (6.0, 6.0), (5.0, 5.0)),  # surplus
        (10.0, (3.0, 5.0), (4.0, 6.0)),  # deficit
        (10.0, (-3.0, 5.0), (2.5, 7.5)),  # correction 1, then a deficit
        (10.0, (-3.0, -5.0), (5.0, 5.0)),  # correction 1, twice
        (4.0, (1.0, 9.0), (0.0, 4.0)),  # correction 2 of the left
        (4.0, (9.0, 1.0), (4.0, 0.0)),  # correction 2 of the right
        (4.0, (-1.0, 9.0), (0.0, 4.0)),  # corrections 1 and 2
        (0.0, (3.0, 3.0), (0.0, 0.0)),
        (0.0, (-3.0, 5.0), (0.0, 0.0)),
        (7.0, (0.0, 7.0), (0.0, 7.0)),  # nothing to share
    ):
        assert even(parent, *children) == pytest.approx(expected, abs=1e-12)
        assert algorithm_4(parent, *children) == pytest.approx(expected, abs=1e-12)


@given(ROWS.map(abs), ROWS, ROWS)
def test_two_children_are_those_of_the_paper(parent: float, left: float, right: float) -> None:
    expected = algorithm_4(parent, left, right)
    scale = max(parent, abs(left), abs(right), 1.0)
    assert even(parent, left, right) == pytest.approx(expected, abs=1e-9 * scale)


@given(ROWS.map(abs), st.lists(ROWS, min_size=1, max_size=9), st.data())
@settings(deadline=None)
def test_shares_are_nonnegative_sum_and_keep_the_order(
    parent: float, children: list[float], data: st.DataObject
) -> None:
    empty = tuple(data.draw(st.sets(st.integers(1, 8))) & set(range(1, len(children))))
    found = even(parent, *children, empty=empty)
    filled = [place for place in range(len(children)) if place not in empty]
    scale = max(parent, *map(abs, children), 1.0)
    assert min(found) >= 0 and not any(found[place] for place in empty)
    assert sum(found) == pytest.approx(parent, abs=1e-9 * scale)
    order = sorted(filled, key=lambda place: children[place])
    for less, more in pairwise(order):
        assert found[less] <= found[more] + 1e-9 * scale
    # Those that keep something all gave the same.
    moved = [max(children[k], 0.0) - found[k] for k in filled if found[k] > 1e-9 * scale]
    assert not moved or max(moved) - min(moved) <= 1e-8 * scale


def test_families_of_one_level_do_not_touch_each_other() -> None:
    rng = np.random.default_rng(2)
    parents, values = rng.uniform(0, 50, 40), rng.normal(5, 20, (40, 4))
    variance = np.where(rng.random((40, 4)) < 0.3, 0.0, 1.0)
    variance[:, 0] = 1.0
    both = Estimates(parents, np.full(40, np.nan))
    together = EvenShares().children(both, values, variance).estimate
    for k in range(40):
        empty = tuple(np.flatnonzero(variance[k] == 0).tolist())
        assert together[k].tolist() == even(parents[k], *values[k].tolist(), empty=empty)


def test_a_root_below_0_is_0() -> None:
    root = EvenShares().root(np.array([-4.0]), np.array([2.0]))
    assert root.estimate.tolist() == [0.0] and np.isnan(root.variance).all()


def so_far(tree: GrownTree, consistency: GrowthConsistency) -> list[Estimates]:
    """The running estimates of a tree, level by level."""
    root = tree.levels[0]
    found = [consistency.root(root.value, root.variance)]
    for _, above, level in tree.pairs():
        fanout, split = level.fanout(above), level.split(above)
        own = consistency.children(
            Estimates(*(values[split] for values in found[-1])),
            level.value.reshape(-1, fanout),
            level.variance.reshape(-1, fanout),
        )
        found.append(Estimates(*(values.reshape(-1) for values in own)))
    return found


def path_to(tree: GrownTree, height: int, family: int) -> GrownTree:
    """The families along the way to one of a level, so that nothing but its ancestors is split."""
    levels, split = [], int(tree.levels[height].parents[family])
    for place in range(height, 0, -1):
        level = tree.levels[place]
        own = np.flatnonzero(level.parents == split)
        above = tree.levels[place - 1]
        levels.insert(
            0,
            GrownLevel(
                depth=level.depth,
                nodes=level.nodes[own],
                parents=np.full(len(own), split),
                value=level.value[own],
                variance=level.variance[own],
            ),
        )
        split = int(above.parents[split])
    for place in range(1, len(levels)):
        parent = tree.levels[place].nodes[levels[place].parents[0]]
        at = int(np.flatnonzero(levels[place - 1].nodes == parent)[0])
        levels[place] = replace(levels[place], parents=np.full(len(levels[place]), at))
    return GrownTree(levels=(tree.levels[0], *levels))


@pytest.mark.parametrize("root", ROOTS)
def test_the_best_linear_estimate_is_that_of_the_way_from_the_root(root: str) -> None:
    """By dense algebra of what was measured along it; planted: a parent taken for exact."""
    rng, planted = np.random.default_rng(ROOTS.index(root)), 0
    for _ in range(40):
        tree = random_tree(rng, root)
        running = so_far(tree, BestLinear())
        for height in range(1, len(tree.levels)):
            level, above = tree.levels[height], tree.levels[height - 1]
            fanout = level.fanout(above)
            for family in range(0, len(level), fanout):
                dense = DenseTree.of(path_to(tree, height, family))
                estimate, variance = dense.estimates(height)
                own = slice(family, family + fanout)
                assert np.allclose(running[height].estimate[own], estimate, rtol=1e-9, atol=1e-8)
                assert np.allclose(running[height].variance[own], variance, rtol=1e-9, atol=1e-9)
                parent = running[height - 1].estimate[level.parents[family]]
                taken = BestLinear().children(
                    Estimates(np.array([parent]), np.zeros(1)),
                    level.value[own][np.newaxis],
                    level.variance[own][np.newaxis],
                )
                planted += not np.allclose(taken.estimate[0], estimate, rtol=1e-9, atol=1e-8)
    assert planted > 30


def test_nothing_known_above_leaves_what_is_measured() -> None:
    value, variance = np.array([[4.0, -2.0, 0.0]]), np.array([[1.0, 2.0, 0.0]])
    blank = Estimates(np.zeros(1), np.full(1, np.inf))
    found = BestLinear().children(blank, value, variance)
    assert np.array_equal(found.estimate, value) and np.array_equal(found.variance, variance)


def test_next_to_no_noise_divides_nothing_by_zero() -> None:
    tiny = 2.0**-100
    with np.errstate(all="raise"):
        for parent in (0.0, tiny, 4.0, np.inf):
            found = BestLinear().children(
                Estimates(np.array([9.0]), np.array([parent])),
                np.array([[4.0, 5.0, 0.0]]),
                np.array([[tiny, tiny, 0.0]]),
            )
            assert found.estimate[0].tolist() == pytest.approx([4.0, 5.0, 0.0])
            assert found.estimate[0, 2] == 0.0 == found.variance[0, 2]
