"""The grids of Qardaji, Yang, Li 2013, reimplemented from their paper, for `benchmarks.rectangles`.

"Differentially Private Grids for Geospatial Data", Guidelines 1 and 2: UG has m = sqrt(n eps / 10)
parts a side; AG has alpha = 1/2, m1 = max(10, m / 4), m2 = sqrt(N' (1 - alpha) eps / 5), with their
least squares. n is known to both.
"""

from __future__ import annotations

import math

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers


def _laplace(epsilon: float, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """Discrete, as a difference of geometrics."""
    q = -math.expm1(-epsilon)
    found: Floats = (rng.geometric(q, shape) - rng.geometric(q, shape)).astype(np.float64)
    return found


def _edges(cells: int, parts: int) -> Integers:
    """(m + 1,) of runs of cells as even as they can be."""
    parts = max(1, min(parts, cells))
    return np.round(np.linspace(0, cells, parts + 1)).astype(np.int64)


def _block_sums(counts: Floats, first: Integers, second: Integers) -> Floats:
    rows = np.add.reduceat(counts, first[:-1], axis=0)
    found: Floats = np.add.reduceat(rows, second[:-1], axis=1)
    return found


def _spread(blocks: Floats, first: Integers, second: Integers) -> Floats:
    """Blocks spread evenly over their cells."""
    one, two = np.diff(first), np.diff(second)
    dense = blocks / (one[:, np.newaxis] * two)
    return np.repeat(np.repeat(dense, one, axis=0), two, axis=1)


def uniform_grid(counts: Integers, epsilon: float, rng: np.random.Generator) -> Floats:
    """UG of Qardaji et al.: the cells (K1, K2), in rows, from their exact counts."""
    parts = round(math.sqrt(counts.sum() * epsilon / 10))
    first, second = (_edges(cells, parts) for cells in counts.shape)
    blocks = _block_sums(counts, first, second)
    return _spread(blocks + _laplace(epsilon, blocks.shape, rng), first, second)


def adaptive_grid(counts: Integers, epsilon: float, rng: np.random.Generator) -> Floats:
    """AG of Qardaji et al., likewise."""
    whole, half = counts.sum() * epsilon, epsilon / 2
    first, second = (
        _edges(cells, max(10, round(math.sqrt(whole / 10) / 4))) for cells in counts.shape
    )
    blocks = _block_sums(counts, first, second)
    noisy = blocks + _laplace(half, blocks.shape, rng)
    table = np.empty(counts.shape)
    for (row, column), own in np.ndenumerate(noisy):
        inside = np.s_[first[row] : first[row + 1], second[column] : second[column + 1]]
        cells = counts[inside]
        parts = math.ceil(math.sqrt(max(own, 0.0) * half / 5)) or 1
        below = [_edges(size, parts) for size in cells.shape]
        leaves = _block_sums(cells, below[0], below[1])
        leaves = leaves + _laplace(half, leaves.shape, rng)
        # Both measurements have one variance.
        many = leaves.size
        best = (many * own + leaves.sum()) / (many + 1)
        leaves += (best - leaves.sum()) / many
        table[inside] = _spread(leaves, below[0], below[1])
    return table
