"""Methods of papers that look at the data first: DAWA, AHP and MWEM.

- DAWA: Li, Hay, Miklau, Wang, PVLDB 2014: buckets of cells that are nearly even, then GreedyH.
- AHP: Zhang, Chen, Xu, Meng, Xie, "Towards Accurate Histogram Publication under Differential
  Privacy", SDM 2014, with the parameters of DPBench.
- MWEM: Hardt, Ligett, McSherry, "A Simple and Practical Algorithm for Differentially Private Data
  Release", NIPS 2012, with rounds by the size of the data, as in DPBench.

All under epsilon, for a row more or less.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.accuracy.greedy import WeightedTree, greedy_tree, range_gram
from benchmarks.accuracy.tasks import draw_ranges
from dptrees.dpcore.arrays import Floats, Integers

# Shares of the first stages, as their authors and DPBench have them.
_DAWA_SHARE, _AHP_SHARE, _AHP_ETA = 0.25, 0.85, 0.35
_REPLAYED = 10


@lru_cache(maxsize=2)
def _deviations(counts: bytes) -> tuple[Floats, ...]:
    """Return sum |x_i - mean| of all buckets of 1, 2, 4, ... cells, by where they start."""
    cells = np.frombuffer(counts)
    found = []
    length = 1
    while length <= cells.size:
        windows = sliding_window_view(cells, length)
        found.append(np.abs(windows - windows.mean(axis=1, keepdims=True)).sum(axis=1))
        length *= 2
    return tuple(found)


def dawa_buckets(
    rng: np.random.Generator, counts: Floats, epsilon: float, later: float
) -> Integers:
    """(B,) where the buckets start: the partition of least noisy cost into powers of two.

    A bucket costs its deviation and 1 / `later`, the error that its own noise will add. A row moves
    a deviation by up to 2 (1 - 1/length), and may move it up in the bucket that is chosen and down
    in the one that would be instead, so the noise has twice that scale over epsilon: that much
    is proved, by holding the noise of all other buckets fixed. (The authors' program draws half
    of it, and is then worse with few rows: buckets come out shorter.)
    """
    size = counts.size
    costs = []
    for exponent, deviation in enumerate(_deviations(counts.tobytes())):
        length = 1 << exponent
        scale = 0.0 if length == 1 else 4 * (1 - 1 / length) / epsilon
        drawn = deviation + 1 / later + rng.laplace(0.0, 1.0, deviation.size) * scale
        # By where a bucket ends; one that would begin before the first cell costs too much.
        costs.append(np.concatenate([np.full(length - 1, np.inf), drawn.clip(0)]))
    # Costs that noise made negative are zero, and of equal ones the longest bucket is taken:
    # without that short ones would win by luck. Longest first, then.
    table = np.array(costs[::-1]).T
    best = np.zeros(size + 1)
    lengths = 1 << np.arange(table.shape[1])[::-1]
    chosen = np.zeros(size + 1, dtype=np.int64)
    for end in range(1, size + 1):
        totals = best[np.maximum(end - lengths, 0)] + table[end - 1]
        least = totals.argmin()
        chosen[end], best[end] = lengths[least], totals[least]
    starts, end = [], size
    while end > 0:
        end -= int(chosen[end])
        starts.append(end)
    return np.array(starts[::-1])


def dawa(rng: np.random.Generator, counts: Floats, epsilon: float) -> Floats:
    """(K,) DAWA's estimate, for the workload of all ranges."""
    first, later = epsilon * _DAWA_SHARE, epsilon * (1 - _DAWA_SHARE)
    starts = dawa_buckets(rng, counts, first, later)
    tree = greedy_tree(range_gram(starts, counts.size))
    totals = tree.estimate(rng, np.add.reduceat(counts, starts), later)
    sizes = np.diff(np.append(starts, counts.size))
    return np.repeat(totals / sizes, sizes)


def greedy(rng: np.random.Generator, counts: Floats, epsilon: float) -> Floats:
    """(K,) GreedyH's estimate, for the workload of all ranges."""
    return _range_tree(counts.size).estimate(rng, counts, epsilon)


@lru_cache(maxsize=4)
def _range_tree(cells: int) -> WeightedTree:
    return greedy_tree(range_gram(np.arange(cells), cells))


def ahp(rng: np.random.Generator, counts: Floats, epsilon: float) -> Floats:
    """(K,) AHP's estimate: cells of nearly the same noisy count share one measured mean."""
    first, later = epsilon * _AHP_SHARE, epsilon * (1 - _AHP_SHARE)
    noisy = counts + rng.laplace(0.0, 1 / first, counts.size)
    noisy[noisy <= _AHP_ETA * np.log(counts.size) / first] = 0.0
    order = np.argsort(noisy, kind="stable")
    starts = ahp_clusters(noisy[order], later)
    sizes = np.diff(np.append(starts, counts.size))
    means = np.add.reduceat(counts[order], starts) + rng.laplace(0.0, 1 / later, starts.size)
    found = np.empty(counts.size)
    found[order] = np.repeat(means / sizes, sizes)
    return found


def ahp_clusters(rising: Floats, epsilon: float) -> Integers:
    """(C,) where clusters of rising counts start: a cell joins the cluster before it unless that
    costs more than the best cluster that it could begin."""
    noise = 2 / epsilon**2
    sums = np.concatenate([[0.0], rising.cumsum()])
    squares = np.concatenate([[0.0], np.square(rising).cumsum()])

    def cost(start: int, stop: int) -> float:
        spread = squares[stop] - squares[start] - (sums[stop] - sums[start]) ** 2 / (stop - start)
        return float(spread + noise / (stop - start))

    starts, last = [0], cost(0, 1)
    size = rising.size
    sizes = np.arange(1, size + 1)
    for cell in range(1, size):
        joined = cost(starts[-1], cell + 1)
        # Runs of equal counts are never cut.
        if rising[cell] > rising[cell - 1]:
            own = sizes[: size - cell]
            mean = (sums[cell + 1 :] - sums[cell]) / own
            alone = float(np.min((rising[cell] - mean) ** 2 + noise / own**2))
            if joined >= last + alone:
                starts.append(cell)
                joined = cost(cell, cell + 1)
        last = joined
    return np.array(starts)


def mwem(rng: np.random.Generator, counts: Floats, epsilon: float) -> Floats:
    """(K,) MWEM's estimate for the ranges of the task, a twentieth of epsilon on the total."""
    start, stop = draw_ranges(counts.size)
    total = max(1.0, counts.sum() + rng.laplace(0.0, 20 / epsilon))
    rounds = int(np.clip(np.sqrt(total * epsilon / 4), 5, 60))  # near the best of 5 to 60
    each = epsilon * 0.95 / (2 * rounds)
    exact = np.concatenate([[0.0], counts.cumsum()])
    truth = exact[stop] - exact[start]
    guess = np.full(counts.size, total / counts.size)
    average = np.zeros(counts.size)
    measured: list[tuple[int, int, float]] = []
    for _ in range(rounds):
        now = np.concatenate([[0.0], guess.cumsum()])
        scores = np.abs(truth - now[stop] + now[start]) * each / 2
        query = int(np.argmax(scores + rng.gumbel(size=scores.size)))
        low, high = int(start[query]), int(stop[query])
        measured.append((low, high, truth[query] + rng.laplace(0.0, 1 / each)))
        for _ in range(_REPLAYED):
            for low, high, noisy in measured:
                factor = np.exp((noisy - guess[low:high].sum()) / (2 * total))
                guess[low:high] *= factor
                guess *= total / guess.sum()
        average += guess
    return average / rounds
