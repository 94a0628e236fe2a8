"""The temporal tree, the split of a budget over it, and the weights of windows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dptrees.dpcore.series.temporal import (
    TemporalSetting,
    TemporalTree,
    Window,
    best_split,
    estimated_variances,
    level_factors,
    mean_variance,
    split_of_fanout,
    window_weights,
)
from dptrees.dpcore.specification import Refusal

TREES = [
    TemporalTree.from_fanout(14, 2),
    TemporalTree.from_fanout(13, 3),
    TemporalTree.from_fanout(9, 3),
    TemporalTree.from_fanout(1, 2),
    TemporalTree(periods=7, spans=(1,)),
    TemporalTree(periods=13, spans=(1, 3, 6)),
]


def test_every_node_closes_once_and_none_that_would_end_too_late() -> None:
    for tree in TREES:
        closed = tree.closed(tree.periods)
        assert len(set(closed)) == len(closed), tree
        for level, span in enumerate(tree.spans):
            mine = [(each.first, each.last) for each in closed if each.level == level]
            assert mine == [(at + 1, at + span) for at in range(0, tree.periods - span + 1, span)]


def test_what_is_carried_is_what_the_next_period_goes_on_with() -> None:
    for tree in TREES:
        assert tree.carried(0) == tree.carried(tree.periods) == []
        for period in range(1, tree.periods + 1):
            for level in tree.counted(period):
                opened_before = tree.find_span(level, period).first < period
                assert (level in tree.carried(period - 1)) == opened_before
            assert sorted(tree.closing(period) + tree.carried(period)) == tree.counted(period)


def test_roots_are_the_largest_closed_nodes() -> None:
    for tree in TREES:
        for period in range(1, tree.periods + 1):
            roots = tree.roots(period)
            assert (roots[0].first, roots[-1].last) == (1, period), tree
            assert all(one.last + 1 == other.first for one, other in pairwise(roots)), tree
            assert set(roots) <= set(tree.closed(period))


def test_weights_are_those_of_dense_least_squares() -> None:
    for tree in TREES:
        variances = tuple(np.random.default_rng(1).uniform(0.5, 3, len(tree.spans)).tolist())
        for arrived in range(1, tree.periods + 1):
            nodes, periods = tree.closed(arrived), range(1, arrived + 1)
            design = np.array(
                [[each.first <= at <= each.last for at in periods] for each in nodes], float
            )
            precision = np.diag([1 / variances[each.level] for each in nodes])
            covariance = np.linalg.inv(design.T @ precision @ design)
            for first in periods:
                for last in range(first, arrived + 1):
                    inside = np.array([first <= at <= last for at in periods], float)
                    window = Window(first=first, last=last, arrived=arrived)
                    weights = window_weights(tree, variances, window)
                    found = [weights.get(each, 0.0) for each in nodes]
                    dense = inside @ covariance @ design.T @ precision
                    np.testing.assert_allclose(found, dense, atol=1e-12)
                    variance = np.dot(level_factors(tree, weights), variances)
                    assert variance == pytest.approx(inside @ covariance @ inside, rel=1e-10), tree


def test_the_mean_variance_is_that_of_the_totals_to_date() -> None:
    for tree in TREES:
        variances = tuple(np.random.default_rng(2).uniform(0.5, 3, len(tree.spans)).tolist())
        to_date = [
            np.dot(
                level_factors(
                    tree,
                    window_weights(tree, variances, Window(first=1, last=period, arrived=period)),
                ),
                variances,
            )
            for period in range(1, tree.periods + 1)
        ]
        assert mean_variance(tree, variances) == pytest.approx(np.mean(to_date), rel=1e-12)
        assert estimated_variances(tree, variances)[0] == variances[0]


def test_the_mean_variance_of_windows_is_that_of_dense_least_squares() -> None:
    """The last periods, when their last one is over: by all closed nodes, or the fewest."""
    for tree in TREES:
        variances = tuple(np.random.default_rng(3).uniform(0.5, 3, len(tree.spans)).tolist())
        for size in range(1, tree.periods + 1):
            found, fewest = [], []
            for last in range(size, tree.periods + 1):
                nodes, periods = tree.closed(last), range(1, last + 1)
                design = np.array(
                    [[each.first <= at <= each.last for at in periods] for each in nodes], float
                )
                noise = np.array([variances[each.level] for each in nodes])
                inside = np.array([at > last - size for at in periods], float)
                found.append(inside @ np.linalg.solve(design.T / noise @ design, inside))
                cover = tree.cover(last - size + 1, last)
                fewest.append(sum(variances[each.level] for each in cover))
            mean = mean_variance(tree, variances, window=size)
            assert mean == pytest.approx(np.mean(found), rel=1e-10), (tree, size)
            alone = mean_variance(tree, variances, window=size, from_below=False)
            assert alone == pytest.approx(np.mean(fewest), rel=1e-12), (tree, size)


@pytest.mark.parametrize("power", [1, 2])
def test_the_split_for_windows_is_the_best_for_them(power: int) -> None:
    for periods, size in ((30, 7), (100, 1), (100, 30)):
        setting = TemporalSetting(power=power, window=size)
        best = best_split(periods, setting)
        if size == 1:
            assert best.tree.spans == (1,) and best.error == 1
        rng = np.random.default_rng(4)
        for _ in range(50):
            shares = np.array(best.shares) * rng.uniform(0.8, 1.25, len(best.shares))
            variances = tuple(((shares / shares.sum()) ** (-power)).tolist())
            assert mean_variance(best.tree, variances, window=size) >= best.error**2 - 1e-9
        to_date = best_split(periods, TemporalSetting(power=power))
        noise = tuple(share ** (-power) for share in to_date.shares)
        assert best.error <= mean_variance(to_date.tree, noise, window=size) ** 0.5 + 1e-9


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("size", [*range(1, 13), 38, 39, 40])
def test_the_tree_for_windows_is_near_the_best_of_all_trees(power: int, size: int) -> None:
    """Also for one window as long as the series: a root and next to nothing below it."""
    periods = 12 if size < 13 else 40
    setting = TemporalSetting(power=power, window=size)
    chains = [(1,), *((1, span) for span in range(2, periods + 1))]
    chains += [(1, one, two) for one in range(2, 7) for two in range(2 * one, periods + 1, one)]
    found = best_split(periods, setting).error
    for spans in chains:
        tree = TemporalTree(periods=periods, spans=spans)
        for root in (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
            shares = [1.0] if len(spans) == 1 else [1 - root, *([root / (len(spans) - 1)] * 9)]
            noise = tuple(share**-power for share in shares[: len(spans)])
            assert found <= 1.03 * mean_variance(tree, noise, window=size) ** 0.5, spans
    if size == periods:
        assert found < 1.02


@pytest.mark.parametrize("power", [1, 2])
def test_no_other_split_is_better(power: int) -> None:
    for periods in (1, 2, 7, 14, 30, 100):
        best = best_split(periods, TemporalSetting(power=power))
        assert sum(best.shares) == pytest.approx(1) and min(best.shares) > 0, periods
        rng = np.random.default_rng(3)
        for _ in range(50):
            shares = np.array(best.shares) * rng.uniform(0.8, 1.25, len(best.shares))
            shares /= shares.sum()
            variances = tuple((shares ** (-power)).tolist())
            assert mean_variance(best.tree, variances) ** 0.5 >= best.error - 1e-9, periods
        for fanout in (2, 3, 7):
            # It may leave a level out whose share is next to nothing.
            other = split_of_fanout(periods, fanout, TemporalSetting(power=power))
            assert best.error <= other.error * 1.001


def test_a_fanout_that_is_requested_measures_all_its_levels() -> None:
    for power in (1, 2):
        for periods in (1, 2, 5, 14, 365):
            split = split_of_fanout(periods, 2, TemporalSetting(power=power))
            assert split.tree == TemporalTree.from_fanout(periods, 2), power
            assert sum(split.shares) == pytest.approx(1), power
            assert min(split.shares) >= 1 / (2 * len(split.shares)) - 1e-12, power


def test_windows_beyond_what_arrived_are_refused() -> None:
    for first, last, arrived in ((0, 1, 3), (3, 2, 3), (1, 4, 3), (4, 4, 3)):
        with pytest.raises(Refusal, match="is not within the 3 periods that have been released"):
            Window(first=first, last=last, arrived=arrived)


def test_periods_out_of_range_are_refused() -> None:
    for periods in (0, -1, 2**16 + 1):
        with pytest.raises(Refusal, match=r"periods: .* is not from 1 to 65536"):
            TemporalTree(periods=periods)


def test_spans_that_make_no_tree_are_refused() -> None:
    for spans in ((), (2,), (1, 1), (1, 2, 3), (1, 20)):
        with pytest.raises(ValueError, match="spans"):
            TemporalTree(periods=14, spans=spans)
