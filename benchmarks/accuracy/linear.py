"""Strategies of papers that look at no data: Identity, Uniform, HB, Privelet, AHP's last step.

Noise is NumPy's, of floating point: enough to measure errors, and nothing to release with.

- Identity, Uniform: Hay et al., "Principled Evaluation of Differentially Private Algorithms using
  DPBench", SIGMOD 2016.
- HB: Qardaji, Yang, Li, "Understanding Hierarchical Methods for Differentially Private Histograms",
  PVLDB 2013.
- Privelet: Xiao, Wang, Gehrke, "Differential Privacy via Wavelet Transforms", ICDE 2010.

Every one keeps its budget for a row more or less, which changes one cell by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.accuracy.cases import Privacy
from dptrees.dpcore.arrays import Floats


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
