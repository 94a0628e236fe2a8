"""GreedyH: a binary tree whose nodes are weighted for a workload, from the leaves up.

Source: Li, Hay, Miklau, Wang, "A Data- and Workload-Aware Algorithm for Range Queries Under
Differential Privacy", PVLDB 2014, Section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
