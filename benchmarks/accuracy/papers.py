"""Methods of papers, reimplemented with floating-point noise, as lines of the tables.

- GreedyH: a binary tree whose nodes are weighted for a workload, from the leaves up (Li, Hay,
  Miklau, Wang, "A Data- and Workload-Aware Algorithm for Range Queries Under Differential Privacy",
  PVLDB 2014, Section 5).

Methods of papers that look at the data first: DAWA, AHP and MWEM.

- DAWA: Li, Hay, Miklau, Wang, PVLDB 2014: buckets of cells that are nearly even, then GreedyH.
- AHP: Zhang, Chen, Xu, Meng, Xie, "Towards Accurate Histogram Publication under Differential
  Privacy", SDM 2014, with the parameters of DPBench.
- MWEM: Hardt, Ligett, McSherry, "A Simple and Practical Algorithm for Differentially Private Data
  Release", NIPS 2012, with rounds by the size of the data, as in DPBench.

All under epsilon, for a row more or less.

Strategies of papers that look at no data: Identity, Uniform, HB, Privelet, AHP's last step.

Noise is NumPy's, of floating point: enough to measure errors, and nothing to release with.

- Identity, Uniform: Hay et al., "Principled Evaluation of Differentially Private Algorithms using
  DPBench", SIGMOD 2016.
- HB: Qardaji, Yang, Li, "Understanding Hierarchical Methods for Differentially Private Histograms",
  PVLDB 2013.
- Privelet: Xiao, Wang, Gehrke, "Differential Privacy via Wavelet Transforms", ICDE 2010.

Every one keeps its budget for a row more or less, which changes one cell by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.accuracy.cases import (
    ANY_TREE,
    Absent,
    Answers,
    Case,
    Method,
    Privacy,
    Tree,
    draw_ranges,
)
from dptrees.dpcore.arrays import Floats, Integers

_STEPS = 100


def range_gram(starts: Integers, cells: int) -> Floats:
    """(B, B) W'W of the workload W of all ranges of cells, over buckets of even counts.

    Cells i <= j lie together in (i + 1)(K - j) ranges. Between buckets that is a product of sums.

    Args:
        starts: (B,) the first cell of each bucket; all cells for buckets of one.
        cells: K.

    >>> range_gram(np.array([0, 1]), 2)
    array([[2., 1.],
           [1., 2.]])
    """
    cell = np.arange(cells, dtype=float)
    stops = np.append(starts[1:], cells)
    later = np.concatenate([[0.0], (cells - cell).cumsum()])
    left, right = np.add.reduceat(cell + 1, starts), np.diff(later[np.append(starts, cells)])
    gram = np.triu(np.multiply.outer(left, right), 1)
    after = np.repeat(later[stops], stops - starts) - later[1:]
    inside = np.add.reduceat((cell + 1) * (2 * after + cells - cell), starts)
    return (gram + gram.T + np.diag(inside)) / np.multiply.outer(stops - starts, stops - starts)


@dataclass(frozen=True, kw_only=True)
class WeightedTree:
    """A binary tree over cells, padded to a power of two.

    Attributes:
        cells: K.
        weights: by level, root first, how often each node is measured; on every path they sum
            to 1.
    """

    cells: int
    weights: tuple[Floats, ...]

    def estimate(self, rng: np.random.Generator, counts: Floats, epsilon: float) -> Floats:
        """(K,) least squares on all nodes, measured with Laplace noise 1 / (epsilon weight)."""
        exact = np.pad(counts, (0, self.weights[-1].size - counts.size))
        best: list[tuple[Floats, Floats]] = []
        for weight in reversed(self.weights):
            known = weight > 0
            scale = 1 / (epsilon * np.where(known, weight, 1.0))
            own = exact + rng.laplace(0.0, 1.0, exact.size) * scale
            precision = np.where(known, 1 / (2 * scale**2), 0.0)
            if best:
                sums, variances = (each.reshape(-1, 2).sum(axis=1) for each in best[0])
                total = precision + 1 / variances
                own = (own * precision + sums / variances) / total
                precision = total
            best.insert(0, (own, 1 / precision))
            exact = exact.reshape(-1, 2).sum(axis=1) if exact.size > 1 else exact
        solved = best[0][0]
        for estimate, variance in best[1:]:
            pair, part = estimate.reshape(-1, 2), variance.reshape(-1, 2)
            part = part / part.sum(axis=1, keepdims=True)
            solved = (pair + part * (solved - pair.sum(axis=1))[:, None]).ravel()
        return solved[: self.cells]


def greedy_tree(gram: Floats) -> WeightedTree:
    """Weights each node against all below it, where that makes the workload's error least.

    With weight w of a node and 1 - w of the strategy below it, of Gram matrix G, u = G^-1 1 and
    k = 1'u, the Gram matrix of both is inverted by one more term, w^2 u u' / ((1-w)^2 + w^2 k).
    What a node gains is judged as its authors' program judges it: by W'W in place of W, and halved
    every second level below the root, since nodes above it are measured too, which a greedy choice
    cannot know. (Without that it is worse by a half on random ranges.)

    Args:
        gram: (K, K) W'W.
    """
    cells = gram.shape[0]
    height = (cells - 1).bit_length()
    answered = np.pad(gram, (0, (1 << height) - cells))  # W'W u of every node
    error = own = np.square(answered).sum(axis=0)
    gain = np.ones(1 << height)
    weights, left = [np.ones(1 << height)], [np.ones(1)]
    share = np.arange(_STEPS) / _STEPS
    for level in reversed(range(height)):
        k, apart, error = (each.reshape(-1, 2).sum(axis=1) for each in (gain, own, error))
        answered = answered.reshape(-1, 1 << level, 2).sum(axis=2)
        together = np.square(answered).sum(axis=0)
        decay = 2.0 ** (-level / 2)
        better = ((together - apart) * decay + apart)[:, None] * decay * share**2
        seen = (1 - share) ** 2 + decay * share**2 * k[:, None]
        totals = (error[:, None] - better / seen) / (1 - share) ** 2
        weight, error = share[totals.argmin(axis=1)], totals.min(axis=1)
        factor = 1 / ((1 - weight) ** 2 + weight**2 * k)  # of G^-1 1, the node being measured
        answered, gain, own = answered * factor, k * factor, together * factor**2
        weights.insert(0, weight)
    for level, each in enumerate(weights):
        weights[level] = each * left[-1]
        left.append(np.repeat(left[-1] * (1 - each), 2))
    return WeightedTree(cells=cells, weights=tuple(weights))


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


def noise(
    rng: np.random.Generator, privacy: Privacy, size: int, *, share: float = 1.0, reach: float = 1.0
) -> Floats:
    """(size,) noise under a share of the budget, of answers that one row moves by `reach` in all:
    in l1 under epsilon (Laplace), in l2 under rho (Gaussian)."""
    if privacy.is_pure:
        return rng.laplace(0.0, reach / (privacy.value * share), size)
    return rng.normal(0.0, reach / np.sqrt(2 * privacy.value * share), size)


def identity(rng: np.random.Generator, counts: Floats, privacy: Privacy, parts: int = 1) -> Floats:
    """Noise on every cell, under one of so many equal parts of the budget."""
    return counts + noise(rng, privacy, counts.size, share=1 / parts)


def uniform(rng: np.random.Generator, counts: Floats, privacy: Privacy) -> Floats:
    """The noisy number of rows, spread evenly."""
    total = counts.sum() + noise(rng, privacy, 1)[0]
    return np.full(counts.size, total / counts.size)


def branching(cells: int, privacy: Privacy) -> tuple[int, int]:
    """HB's fan-out and height: the least of its formula for the mean error of ranges.

    Levels share the budget, so a node's variance is h^2 under epsilon, and h under rho.

    >>> branching(4096, Privacy.of("epsilon=1"))
    (16, 3)
    """
    best = None
    for fanout in range(2, cells + 1):
        height = 1
        while fanout**height < cells:
            height += 1
        node = height**2 if privacy.is_pure else height
        error = node * ((fanout - 1) * height - 2 * (fanout + 1) / 3)
        if best is None or error < best[0]:
            best = error, fanout, height
        if height == 1:
            break
    assert best is not None
    return best[1], best[2]


def hierarchical(rng: np.random.Generator, counts: Floats, privacy: Privacy) -> Floats:
    """HB: a tree of one fan-out, its levels below the root measured alike, then least squares."""
    fanout, height = branching(counts.size, privacy)
    padded = np.pad(counts, (0, fanout**height - counts.size))
    levels, measured = [padded], []
    for _ in range(height - 1):
        levels.append(levels[-1].reshape(-1, fanout).sum(axis=1))
    for exact in reversed(levels):
        measured.append(exact + noise(rng, privacy, exact.size, share=1 / height))
    return least_squares(measured, fanout)[: counts.size]


def least_squares(measured: Sequence[Floats], fanout: int) -> Floats:
    """The leaves of a tree whose levels below the root are measured with equal variances.

    Args:
        measured: from the level below the root to the leaves.
        fanout: of every node.

    Source: Hay et al., "Boosting the Accuracy of Differentially Private Histograms Through
    Consistency", PVLDB 2010, Theorem 3, with weights for any variances.

    >>> least_squares([np.array([4.0, 0.0]), np.array([1.0, 1.0, 0.0, 0.0])], 2).tolist()
    [1.6666666666666665, 1.6666666666666665, 0.0, 0.0]
    """
    best, variance = [measured[-1]], 1.0
    for own in reversed(measured[:-1]):
        summed, below = best[0].reshape(-1, fanout).sum(axis=1), fanout * variance
        variance = 1 / (1 + 1 / below)
        best.insert(0, variance * (own + summed / below))
    solved = best[0]
    for estimate in best[1:]:
        children = estimate.reshape(-1, fanout)
        children = children + ((solved - children.sum(axis=1)) / fanout)[:, None]
        solved = children.ravel()
    return solved


def wavelet(rng: np.random.Generator, counts: Floats, privacy: Privacy) -> Floats:
    """Privelet: noise on the Haar coefficients, each by the cells below it.

    A coefficient (left mean - right mean) / 2 of s cells moves by 1 / s; with weights s all
    1 + log2 K that a row reaches move by one each.
    """
    height = int(np.ceil(np.log2(counts.size)))
    means = np.pad(counts, (0, 2**height - counts.size))
    reach = float(1 + height) if privacy.is_pure else float(np.sqrt(1 + height))
    details = []
    for level in range(1, height + 1):
        left, right = means[0::2], means[1::2]
        drawn = noise(rng, privacy, left.size, reach=reach) / 2**level
        details.append((left - right) / 2 + drawn)
        means = (left + right) / 2
    means = means + noise(rng, privacy, 1, reach=reach) / 2**height
    for detail in reversed(details):
        means = np.stack([means + detail, means - detail], axis=1).ravel()
    return means[: counts.size]


Estimate = Callable[[np.random.Generator, Floats, Privacy], Floats]


def _run(
    name: str, estimate: Estimate, case: Case, numbers: Sequence[int]
) -> list[Mapping[str, Answers]]:
    counts = case.counts.astype(float)
    found: list[Mapping[str, Answers]] = []
    for number in numbers:
        text = f"{name} {case.data.name} {case.rows} {case.privacy} {number}"
        rng = np.random.default_rng([*text.encode()])
        found.append({"": Answers(prefixes=estimate(rng, counts, case.privacy).cumsum())})
    return found


def _pure(
    estimate: Callable[[np.random.Generator, Floats, float], Floats],
    rng: np.random.Generator,
    counts: Floats,
    privacy: Privacy,
) -> Floats:
    if not privacy.is_pure:
        raise Absent("is for epsilon")
    return estimate(rng, counts, privacy.value)


_ESTIMATES: Mapping[str, Estimate] = {
    "Identity": identity,
    "Uniform": uniform,
    "HB": hierarchical,
    "Privelet": wavelet,
    "GreedyH": partial(_pure, greedy),
    "DAWA": partial(_pure, dawa),
    "AHP": partial(_pure, ahp),
    "MWEM": partial(_pure, mwem),
}
# Others are for ranges, and some of them take a matrix of all cells.
_ALSO_FOR_NODES = ("Identity", "Uniform", "HB", "Privelet", "AHP")


def _level_run(case: Case, numbers: Sequence[int]) -> list[Mapping[str, Answers]]:
    """An equal share of the budget on every level, every count as it was measured."""
    found: list[Mapping[str, Answers]] = []
    for number in numbers:
        rng = np.random.default_rng([*f"levels {case.rows} {case.privacy} {number}".encode()])
        nodes = {}
        for name, starts in case.data.levels.items():
            exact = np.add.reduceat(case.counts, starts).astype(float)
            nodes[name] = identity(rng, exact, case.privacy, len(case.data.levels))
        found.append({"": Answers(nodes=nodes)})
    return found


PAPERS = (
    *(
        Method(
            name=name,
            run=partial(_run, name, estimate),
            trees=ANY_TREE if name in _ALSO_FOR_NODES else frozenset({Tree.ORDERED}),
        )
        for name, estimate in _ESTIMATES.items()
    ),
    Method(
        name="equal split",
        run=_level_run,
        trees=frozenset({Tree.HIERARCHY}),
    ),
)
