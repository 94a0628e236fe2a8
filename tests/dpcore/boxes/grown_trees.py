"""Random grown trees, and their generalized least squares by matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.partition import (
    GrownEstimate,
    GrownLevel,
    GrownTree,
    descendant_nodes,
    weighted_families,
)

ROOTS = ("measured", "unmeasured", "public")


def random_tree(
    rng: np.random.Generator, root: str, *, steps: tuple[int, ...] | None = None
) -> GrownTree:
    """A tree of a few levels, some nodes of each split, some of the others known to be empty; the
    values are counts with noise."""
    steps = steps or tuple(rng.integers(1, 4, rng.integers(1, 4)))
    variance = {"measured": rng.uniform(0.5, 20), "unmeasured": np.inf, "public": 0.0}[root]
    total = 0.0 if root == "unmeasured" else float(rng.integers(0, 200))
    levels = [
        GrownLevel(
            depth=0,
            nodes=np.zeros(1, np.uint64),
            parents=np.zeros(1, np.int64),
            value=np.array([total]),
            variance=np.array([variance]),
        )
    ]
    for step in steps:
        above = levels[-1]
        able = np.flatnonzero((above.variance > 0) | (above.depth == 0))
        split = np.sort(rng.choice(able, rng.integers(1, min(len(able), 5) + 1), replace=False))
        count = len(split) << step
        own = np.full(count, rng.uniform(0.5, 20.0))
        empty = rng.random(count) < 0.3
        empty[:: 1 << step] = False  # no node without a cell is split
        levels.append(
            GrownLevel(
                depth=above.depth + int(step),
                nodes=descendant_nodes(above.nodes[split], int(step)),
                parents=np.repeat(split, 1 << step),
                value=np.where(empty, 0.0, rng.integers(-9, 60, count)),
                variance=np.where(empty, 0.0, own),
            )
        )
    return GrownTree(levels=tuple(levels))


@dataclass(frozen=True, kw_only=True)
class DenseTree:
    """The best linear unbiased estimates, from the definition.

    Args:
        sums: for each level (n, leaves), ones where a leaf is below a node.
        ends: for each level (n,), the number of a leaf, -1 where it is none.
        values: (nodes, leaves) what the estimated leaves are of the measured nodes.
        covariance: (leaves, leaves) of the estimated leaves.
    """

    sums: list[Floats]
    ends: list[np.ndarray]
    values: Floats
    covariance: Floats

    @classmethod
    def of(cls, tree: GrownTree) -> DenseTree:
        leaves = tree.leaves()
        many = sum(int(each.sum()) for each in leaves)
        sums = [np.zeros((len(level), many)) for level in tree.levels]
        ends = [np.full(len(level), -1) for level in tree.levels]
        number = 0
        for place, own in enumerate(leaves):
            for node in np.flatnonzero(own):
                at = int(node)
                ends[place][at] = number
                for level in range(place, -1, -1):
                    sums[level][at, number] = 1.0
                    at = int(tree.levels[level].parents[at])
                number += 1
        matrix = np.concatenate(sums)
        spread = np.concatenate([level.variance for level in tree.levels])
        value = np.concatenate([level.value for level in tree.levels])
        exact, noisy = spread == 0, (spread > 0) & np.isfinite(spread)
        free = linalg.null_space(matrix[exact]) if exact.any() else np.eye(many)
        seen = matrix[noisy] @ free
        information = seen.T @ (seen / spread[noisy][:, None])
        covariance = free @ np.linalg.solve(information, free.T)
        particular = np.zeros(many)
        if exact.any():
            particular = np.linalg.lstsq(matrix[exact], value[exact], rcond=None)[0]
        left = (value[noisy] - matrix[noisy] @ particular) / spread[noisy]
        return cls(
            sums=sums,
            ends=ends,
            values=particular + covariance @ matrix[noisy].T @ left,
            covariance=covariance,
        )

    def estimates(self, level: int) -> tuple[Floats, Floats]:
        """Return the estimates of the nodes of a level, and their variances."""
        own = self.sums[level]
        return own @ self.values, np.einsum("nk,kl,nl->n", own, self.covariance, own)

    def sum_variance(self, weights: list[Floats]) -> float:
        """Return the variance of a weighted sum of leaves; weights are given by level."""
        flat = np.zeros(len(self.values))
        for ends, own in zip(self.ends, weights, strict=True):
            flat[ends[ends >= 0]] = own[ends >= 0]
        return float(flat @ self.covariance @ flat)


def sum_variance(
    found: GrownEstimate, weights: Sequence[Floats], other: GrownEstimate | None = None
) -> float:
    """Return the variance of a weighted sum of all leaves, family by family; under other variances
    than those that gave the estimates where there are some."""
    own = other or found
    alphas, spread = [np.array(each, np.float64) for each in weights], 0.0
    taus = [np.zeros(len(each)) for each in alphas]
    for place, above, level in reversed(list(found.tree.pairs())):
        columns = alphas[place], taus[place], found.below[place], own.below[place]
        up, turned, more = weighted_families(
            *(each.reshape(-1, level.fanout(above)) for each in columns)
        )
        alphas[place - 1][level.split(above)] = up
        taus[place - 1][level.split(above)] = turned
        spread += more
    # Nothing turns where the variances are those that gave the weights.
    assert other is not None or np.allclose(np.concatenate(taus), 0.0)
    root, own_root = (float(each.estimates[0].variance[0]) for each in (found, own))
    alpha, tau = float(alphas[0][0]), float(taus[0][0])
    return max(0.0, alpha * alpha * own_root + 2 * alpha * tau * root + spread)
