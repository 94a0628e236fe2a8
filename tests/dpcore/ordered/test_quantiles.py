"""Quantiles against their definition, leaf by leaf; merging in any order; intervals."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.adaptive.mechanism import AdaptiveWidths
from dptrees.dpcore.factorised.mechanism import NormalWidths
from dptrees.dpcore.ordered.question import QuantileCells, Totals, chunk_quantiles
from dptrees.dpcore.questions.answer_errors import difference_ends
from dptrees.dpcore.trees.error_laws import QuantileMargin, prefix_margin
from dptrees.dpcore.trees.forests import PrefixSolution
from dptrees.dpcore.uniform.intervals import IntervalWidths
from tests.dpcore.cases import for_each

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.9, 1.0)
WIDTH = 1.7


def random_solution(seed: int, keys: int, leaves: int) -> tuple[PrefixSolution, float]:
    """Prefixes of sparse trees, one of them empty, and the variance of the total."""
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.7, (keys, leaves))
    counts[0] = 0
    estimate = np.cumsum(counts + rng.normal(0, 1.5, counts.shape), axis=1)
    alpha = np.broadcast_to((np.arange(leaves) + 1) / leaves, counts.shape)
    root = 4.0
    variance = rng.uniform(0.5, 4, counts.shape) + alpha**2 * root
    return (
        PrefixSolution(
            estimate=estimate, variance=variance, alpha=alpha, count=np.cumsum(counts, axis=1)
        ),
        root,
    )


def whole(
    prefixes: PrefixSolution, root: float, width: float | QuantileMargin = WIDTH
) -> QuantileCells:
    keys, leaves = prefixes.count.shape
    totals = Totals(count=prefixes.count[:, -1], before_count=np.zeros(keys, np.int64))
    return chunk_quantiles(
        QUANTILES,
        prefixes.count,
        totals,
        first_leaf=0,
        leaves=leaves,
        ends=difference_ends(prefixes, prefixes.estimate[:, -1], root, width),
    )


def by_definition(
    quantile: float, prefixes: PrefixSolution, root: float, key: int
) -> tuple[int, float, int, int]:
    """(cell, share, low, high), one leaf after another."""
    counts, leaves = prefixes.count[key].tolist(), prefixes.count.shape[1]
    total = counts[-1]
    cell, share = -1, 0.0
    for leaf, count in enumerate(counts):
        if total and count >= max(1, math.ceil(round(quantile * total, 9))):
            before = counts[leaf - 1] if leaf else 0
            cell, share = leaf, min(1.0, max(0.0, (quantile * total - before) / (count - before)))
            break
    low, high = leaves - 1, 0
    for leaf in reversed(range(leaves)):
        difference = prefixes.estimate[key, leaf] - quantile * prefixes.estimate[key, -1]
        alpha = prefixes.alpha[key, leaf]
        variance = prefixes.variance[key, leaf] + root * (quantile**2 - 2 * quantile * alpha)
        margin = float(prefix_margin(WIDTH, np.array(variance)))
        if difference + margin >= 0:
            low = leaf
        if difference - margin < 0 and high == 0:
            high = min(leaf + 1, leaves - 1)
    return cell, share, low, high


@for_each("seed", range(3))
def test_equal_the_definition(seed: int) -> None:
    prefixes, root = random_solution(seed, 20, 15)
    found = whole(prefixes, root)
    for key, (place, quantile) in itertools.product(range(20), enumerate(QUANTILES)):
        cell, share, low, high = by_definition(quantile, prefixes, root, key)
        assert found.cell[key, place] == cell
        assert found.share[key, place] == pytest.approx(share, abs=1e-12)
        assert (found.low[key, place], found.high[key, place]) == (low, high)


def in_pieces(
    prefixes: PrefixSolution,
    root: float,
    size: int,
    key: int,
    width: float | QuantileMargin = WIDTH,
) -> list[QuantileCells]:
    """What the subtrees of ``size`` leaves of one key's tree know, each a chunk of one unit."""
    leaves = prefixes.count.shape[1]
    pieces = []
    for start in range(0, leaves, size):
        part = np.s_[key : key + 1, start : start + size]
        own = PrefixSolution(
            estimate=prefixes.estimate[part],
            variance=prefixes.variance[part],
            alpha=prefixes.alpha[part],
            count=prefixes.count[part],
        )
        pieces.append(
            chunk_quantiles(
                QUANTILES,
                own.count,
                Totals(
                    count=prefixes.count[key, -1:],
                    before_count=prefixes.count[key, start - 1 : start]
                    if start
                    else np.zeros(1, int),
                ),
                first_leaf=start,
                leaves=leaves,
                ends=difference_ends(own, prefixes.estimate[key, -1:], root, width),
            )
        )
    return pieces


def as_lists(cells: QuantileCells) -> list[Any]:
    return cells.to_array().tolist()


@for_each("seed", range(3))
def test_pieces_merge_to_the_whole_in_any_order(seed: int) -> None:
    prefixes, root = random_solution(seed, 4, 20)
    together = whole(prefixes, root)
    for key in range(4):
        pieces = in_pieces(prefixes, root, 5, key)
        expected = together.to_array()[:, key : key + 1].tolist()
        for a, b, c, d in itertools.permutations(pieces):
            assert as_lists(a.merge(b).merge(c).merge(d)) == expected
            assert as_lists(a.merge(b).merge(c.merge(d))) == expected


def test_the_subtrees_of_a_chunk_collapse_to_one_row() -> None:
    prefixes, root = random_solution(1, 2, 12)
    for key in range(2):
        pieces = in_pieces(prefixes, root, 3, key)
        units = QuantileCells.from_array(
            np.concatenate([piece.to_array() for piece in pieces], axis=1)
        )
        assert (
            as_lists(units.collapse())
            == whole(prefixes, root).to_array()[:, key : key + 1].tolist()
        )


@for_each("seed", range(3))
def test_intervals_hold_every_quantile_whose_errors_stay_within_the_width(seed: int) -> None:
    """If no prefix errs by more than the width, the interval must hold the true quantile."""
    rng = np.random.default_rng(seed)
    truth = np.cumsum(rng.poisson(3, (300, 25)) + (np.arange(25) == 3), axis=1)
    error = rng.uniform(-1, 1, truth.shape) * 6
    prefixes = PrefixSolution(
        estimate=truth + error,
        # The total is known, so that the error of D is the error of the prefix.
        variance=np.full(truth.shape, 36.0),
        alpha=np.zeros(truth.shape),
        count=truth,
    )
    prefixes.estimate[:, -1], prefixes.variance[:, -1] = truth[:, -1], 0.0
    found = whole(prefixes, 0.0, width=1.0)
    assert (found.low <= found.cell).all() and (found.cell <= found.high).all()
    assert (found.high - found.low).mean() < 15  # and says something


def test_no_error_gives_the_narrowest_interval() -> None:
    truth = np.cumsum(np.array([[2, 0, 3, 5]]), axis=1)
    zero = np.zeros((1, 4))
    exact = PrefixSolution(estimate=truth.astype(float), variance=zero, alpha=zero, count=truth)
    found = whole(exact, 0.0)
    assert found.cell[0].tolist() == [0, 0, 2, 2, 3, 3]
    assert found.low[0].tolist() == [0, 0, 2, 2, 3, 3]
    assert found.high[0].tolist() == [0, 0, 2, 2, 3, 3]


BOTH, ONE = 2.0, 1.5


def closest_rising(values: list[float]) -> list[float]:
    """Isotonic regression: neighbors that fall are replaced by their mean."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (mean, size), (own, more) = blocks[-2:]
            blocks[-2:] = [((mean * size + own * more) / (size + more), size + more)]
    return [mean for mean, size in blocks for _ in range(size)]


@for_each("seed", range(3))
def test_rising_limits_equal_the_definition(seed: int) -> None:
    prefixes, root = random_solution(seed, 20, 15)
    margin = QuantileMargin(both=(BOTH, 0.0), one=(ONE, 0.0))
    found = whole(prefixes, root, margin)
    for key, (place, quantile) in itertools.product(range(20), enumerate(QUANTILES)):
        estimate, alpha = prefixes.estimate[key], prefixes.alpha[key]
        difference = estimate - quantile * estimate[-1]
        own = prefixes.variance[key] + root * (quantile**2 - 2 * quantile * alpha)
        # Rows between the edges around each leaf; nothing is known before the first.
        rows = np.maximum(np.diff(difference), 0)
        before, after = np.append(0, rows), np.append(rows, 0)
        above, below = difference + margin.rows(own, before), difference - margin.rows(own, after)
        reach = [leaf for leaf, limit in enumerate(closest_rising(above.tolist())) if limit >= 0]
        short = [leaf for leaf, limit in enumerate(closest_rising(below.tolist())) if limit < 0]
        assert found.low[key, place] == min(reach, default=14)
        assert found.high[key, place] == (min(max(short) + 1, 14) if short else 0)


def test_margins_lie_between_one_end_and_both() -> None:
    margin, variance = QuantileMargin(both=(BOTH, 0.0), one=(ONE, 0.0)), np.full(200, 9.0)
    rows = margin.rows(variance, np.linspace(0, 60, 200))
    assert (np.diff(rows) <= 0).all()
    assert rows[0] == pytest.approx(prefix_margin((BOTH, 0.0), variance)[0])
    one, doubled = (
        prefix_margin((ONE, 0.0), variance),
        rows[0] - prefix_margin((ONE, 0.0), variance),
    )
    exact = one + doubled * np.log2(1 + 2 ** -(np.linspace(0, 60, 200) / doubled))
    assert (rows >= exact).all() and (rows <= exact + 0.06 * doubled).all()


@pytest.mark.parametrize("factor", [1.0, 0.8])
def test_half_the_rows_apart_never_fail_more_often(factor: float) -> None:
    """Exponential tails: both ends together fail at most as often as stated, and no less than half
    of it; with margins of a fifth less they would fail more often."""
    scale, failure = 5.0, 0.05

    def tail(rows: float) -> float:
        return 0.5 * math.exp(-rows / scale)

    both, one = (-scale * math.log(each) for each in (failure, 2 * failure))
    margin = QuantileMargin(both=(both, 0.0), one=(one, 0.0))
    unit = 1.0 - 1.0 / 12.0  # its error, blurred, has a standard deviation of one row
    fails = []
    for rows in np.linspace(0, 40, 81).tolist():
        width = factor * float(margin.rows(np.array([unit]), np.array([rows]))[0])
        fails += [
            tail(width + inside * rows) + tail(width + (1 - inside) * rows) for inside in (0, 1)
        ]
    assert (max(fails) <= failure * (1 + 1e-12)) == (factor == 1.0)
    assert min(fails) >= 0.5 * failure


@for_each("seed", range(3))
def test_rising_limits_of_pieces_are_no_narrower(seed: int) -> None:
    """Nothing is known across the edges of pieces, so their intervals are no narrower."""
    prefixes, root = random_solution(seed, 4, 20)
    margin = QuantileMargin(both=(BOTH, 0.0), one=(BOTH, 0.0))
    together = whole(prefixes, root, margin)
    for key in range(4):
        merged = functools.reduce(QuantileCells.merge, in_pieces(prefixes, root, 5, key, margin))
        assert (merged.low[0] <= together.low[key]).all()
        assert (merged.high[0] >= together.high[key]).all()
        assert (merged.cell[0] == together.cell[key]).all()


def test_rising_limits_are_narrower_where_few_rows_lie() -> None:
    """Fluctuating estimates of few rows: narrower by a third, and the coverage that is stated."""
    rng = np.random.default_rng(1)
    trees, leaves = 400, 200
    noise = rng.normal(0, 1, (trees, leaves)) + rng.normal(0, 1, (trees, 1))
    truth = np.cumsum(np.tile([0.0, 0.4], (1, leaves // 2)), axis=1)
    truth = np.broadcast_to(truth, noise.shape)
    prefixes = PrefixSolution(
        estimate=truth + noise,
        variance=np.full(noise.shape, 2.0),
        alpha=np.zeros(noise.shape),
        count=np.rint(truth).astype(np.int64),
    )
    # The middle of 40 rows, whose number is known.
    prefixes.estimate[:, -1], prefixes.variance[:, -1] = truth[:, -1], 0.0
    cell = int((truth[0] >= 0.5 * truth[0, -1]).argmax())
    found = {
        name: whole(prefixes, 0.0, margin)
        for name, margin in {
            "before": 1.96,
            "rising": QuantileMargin(both=(1.96, 0.0), one=(1.645, 0.0)),
            "too narrow": QuantileMargin(both=(0.4, 0.0), one=(0.3, 0.0)),
        }.items()
    }
    held = {
        name: float(np.mean((each.low[:, 3] <= cell) & (cell <= each.high[:, 3])))
        for name, each in found.items()
    }
    width = {name: (each.high - each.low)[:, 3].mean() for name, each in found.items()}
    # 400 of .95: five standard deviations are .054.
    assert held["rising"] >= 0.95 - 0.054 > held["too narrow"]
    assert width["rising"] <= 0.75 * width["before"]


def test_widths_of_before_have_no_margins_of_quantiles() -> None:
    normal = NormalWidths(confidence=0.95, closer=True)
    margin = normal.quantile
    assert margin is not None and margin.both[0] > margin.one[0] > 1.6
    for widths in (
        normal,
        AdaptiveWidths(confidence=0.95, slope=2.0, quantile=margin),
        IntervalWidths(confidence=0.95, levels=(2.0,), prefix=2.0, quantile=margin),
    ):
        entry = widths.spec()
        assert type(widths).from_spec(entry) == widths
        assert widths.as_stored(entry) == widths
        del entry[widths.later]
        former = widths.as_stored(entry)
        assert former.quantile is None and former.spec() == entry
        assert type(widths).from_spec(entry) == former
