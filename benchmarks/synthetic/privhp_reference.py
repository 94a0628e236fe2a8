"""PrivHP (Holland et al., Algorithms 2 to 4), with errata fixed, in plain floats.

Corrected: the top k belong to level l, which was just added, not l + 1; the last level is r; the
level above the root has the root's diameter. Neighbors add or remove a row, as in the proof of
Theorem 2 (the definition printed, replacement, needs twice the noise: half of the epsilon given).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.synthetic.bounds import level_budgets
from benchmarks.synthetic.grown_tree import ExactCounts, enforced
from benchmarks.synthetic.hierarchy import make_partition
from benchmarks.synthetic.partition import Partition
from dptrees.dpcore.arrays import Floats, Integers


@dataclass(frozen=True, kw_only=True)
class SketchSize:
    """A count-min sketch: `rows` hash rows (j) of `width` cells (w)."""

    rows: int
    width: int


class NoisyCountMin:
    """Private count-min sketch of one level (Algorithm 1): noise of the scale j / epsilon a cell.

    The estimate is the least of noisy cells, as printed; with several rows it is biased low.
    """

    def __init__(
        self,
        cells: Integers,
        counts: Integers,
        size: SketchSize,
        epsilon: float,
        rng: np.random.Generator,
    ) -> None:
        # Multiply-shift would do; this stays readable: (a x + b mod p) mod w, p = 2^61 - 1 split.
        self.multipliers = rng.integers(1, 2**63, (size.rows, 2), dtype=np.uint64) | np.uint64(1)
        self.size = size
        self.table = rng.laplace(0, size.rows / epsilon, (size.rows, size.width))
        for row in range(size.rows):
            self.table[row] += np.bincount(self.hashed(cells, row), counts, size.width)

    def hashed(self, cells: Integers, row: int) -> Integers:
        """The cells' places in a row."""
        product = cells.astype(np.uint64) * self.multipliers[row, 0] + self.multipliers[row, 1]
        # The high half of a product with an odd multiplier is well mixed.
        high = (product >> np.uint64(32)) * np.uint64(self.size.width)
        return (high >> np.uint64(32)).astype(np.int64)

    def __call__(self, nodes: Integers) -> Floats:
        """Estimates of nodes' counts, in the shape of their codes."""
        flat = nodes.ravel()
        rows = [self.table[row, self.hashed(flat, row)] for row in range(self.size.rows)]
        return np.min(rows, axis=0).reshape(nodes.shape)


@dataclass(frozen=True, kw_only=True)
class PrivHP:
    """The published mechanism.

    Attributes:
        k: how many nodes of a level are split.
        depth: r.
        sketch: of the levels below L_k; None counts exactly, with noise for every node.
    """

    k: int
    depth: int
    sketch: SketchSize | None = None

    @property
    def dense(self) -> int:
        """L_k, the last level that is whole."""
        return min(self.k.bit_length() - 1, self.depth)

    @property
    def state_bytes(self) -> int:
        """Bytes of counters and sketches while rows are read, 8 bytes each; exact counts not
        included."""
        sketch = self.sketch.rows * self.sketch.width if self.sketch else 0
        return 8 * (2 ** (self.dense + 1) - 1 + (self.depth - self.dense) * sketch)

    def release(self, points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
        """The generator of (n, d) points."""
        counts = ExactCounts(points)
        budgets = level_budgets(epsilon, dimensions=points.shape[1], k=self.k, depth=self.depth)
        nodes = np.zeros(1, np.int64)
        above = np.maximum(counts(nodes, 0) + rng.laplace(0, 1 / budgets[0], 1), 0)
        leaves: list[tuple[Integers, int, Floats]] = []
        for level in range(1, self.depth + 1):
            children = (nodes << 1)[:, None] + np.arange(2)
            noisy = self._measured(counts, children, level, budgets[level], rng)
            found = enforced(noisy, above).ravel()
            hot = np.ones(found.size, bool)
            if level == self.depth:
                hot[:] = False
            elif found.size > self.k:
                hot[np.argsort(-found, kind="stable")[self.k :]] = False
            leaves.append((children.ravel()[~hot], level, found[~hot]))
            nodes, above = children.ravel()[hot], found[hot]
        codes, mass = (np.concatenate([leaf[part] for leaf in leaves]) for part in (0, 2))
        levels = np.concatenate([np.full(leaf[0].size, leaf[1]) for leaf in leaves])
        return make_partition(codes, levels, mass, counts.dimensions)

    def _measured(
        self,
        counts: ExactCounts,
        children: Integers,
        level: int,
        epsilon: float,
        rng: np.random.Generator,
    ) -> Floats:
        if self.sketch is None or level <= self.dense:
            return counts(children, level) + rng.laplace(0, 1 / epsilon, children.shape)
        cells, rows = counts.cells(level)
        return NoisyCountMin(cells, rows, self.sketch, epsilon, rng)(children)
