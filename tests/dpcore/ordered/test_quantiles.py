"""Quantiles against their definition, leaf by leaf; merging in any order; intervals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from dpcore.errors.intervals import prefix_margin
from dpcore.ordered.quantiles import QuantileCells, Totals, chunk_quantiles
from dpcore.questions.intervals import difference_ends
from dpcore.trees.forest import PrefixSolution

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


def whole(prefixes: PrefixSolution, root: float, width: float = WIDTH) -> QuantileCells:
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


@pytest.mark.parametrize("seed", range(3))
def test_equal_the_definition(seed: int) -> None:
    prefixes, root = random_solution(seed, 20, 15)
    found = whole(prefixes, root)
    for key, (place, quantile) in itertools.product(range(20), enumerate(QUANTILES)):
        cell, share, low, high = by_definition(quantile, prefixes, root, key)
        assert found.cell[key, place] == cell
        assert found.share[key, place] == pytest.approx(share, abs=1e-12)
        assert (found.low[key, place], found.high[key, place]) == (low, high)


def test_an_empty_tree_has_no_quantile() -> None:
    prefixes, root = random_solution(0, 3, 9)
    assert (whole(prefixes, root).cell[0] == -1).all()


def in_pieces(prefixes: PrefixSolution, root: float, size: int, key: int) -> list[QuantileCells]:
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
                ends=difference_ends(own, prefixes.estimate[key, -1:], root, WIDTH),
            )
        )
    return pieces


def as_lists(cells: QuantileCells) -> list[Any]:
    return cells.to_array().tolist()


@pytest.mark.parametrize("seed", range(3))
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


def test_the_array_keeps_every_bit() -> None:
    prefixes, root = random_solution(2, 5, 11)
    cells = whole(prefixes, root)
    again = QuantileCells.from_array(cells.to_array())
    assert cells.to_array().dtype == np.int64
    for name in ("cell", "share", "low", "high"):
        assert (getattr(again, name) == getattr(cells, name)).all()


@pytest.mark.parametrize("seed", range(3))
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
