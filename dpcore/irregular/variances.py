"""The error of the estimated counts of an irregular tree, and its derivative in the noise.

The recursions of `dpcore.trees.least_squares` with one shortening: the leaves below one parent have
one variance s, so that A = n s and, with g_v the parent's, g_leaf = s (1 - 1/n) + g_v / n^2.
Nothing here has the size of the leaves: a tree of 8.1 million leaves is one of some 300,000
parents.

The derivative of a weighted sum F = sum omega_v g_v in the variances s_v of the measurements is the
sum of the squared coefficients of each measurement in the estimates, weighted by omega: to first
order the weights that make the estimate best do not move. It follows in two passes (the adjoint of
the recursions):

    up:    gamma_v = omega_v + sum gamma_c (a_c / A_v)^2                         dF / dg_v
    down:  alpha_root = gamma_root, beta_v = alpha_v (a_v / A_v)^2 + sum gamma_c (a_c^2 / A_v^2
           - 2 g_v a_c^2 / A_v^3), alpha_c = beta_v + gamma_c (1 - 2 a_c / A_v + 2 g_v a_c / A_v^2)
           dF / ds_v = alpha_v (a_v / s_v)^2; of the leaves n beta_v + Omega_v (1 - 1/n)

where Omega_v is the weight of all leaves below a lowest parent.

Source: derived here; equals dense least squares (tests).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arithmetic.sums import ordered_sum
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.trees.irregular import IrregularTree


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeVariances:
    """Variances of all estimates of a tree, from the variances of its measurements.

    Args:
        tree: of height 1 or more and one root.
        variances: per level l < h, (n_l,) s of every node: infinite where not measured, zero where
            known exactly.
        leaf_variances: (n_{h-1},) s of the leaves below each lowest parent, finite.

    >>> errors = NodeVariances(tree=IrregularTree.from_fanouts([[2], [2, 2]]),
    ...     variances=(np.array([np.inf]), np.ones(2)), leaf_variances=np.ones(2))
    >>> [round(value, 6) for value in errors.level_means]
    [1.333333, 0.666667, 0.666667]
    """

    tree: IrregularTree
    variances: Sequence[Floats]
    leaf_variances: Floats

    @cached_property
    def _sums_and_below(self) -> tuple[list[Floats], list[Floats]]:
        """A and a per level l < h."""
        total = self.tree.fanouts[-1] * self.leaf_variances
        sums, below = [total], [_combined(self.variances[-1], total)]
        for level in reversed(range(self.tree.height - 1)):
            sums.insert(0, self.tree.child_sum(level, below[0]))
            below.insert(0, _combined(self.variances[level], sums[0]))
        return sums, below

    @property
    def below(self) -> list[Floats]:
        """a per level l < h, (n_l,): the variance of z, the estimate from below."""
        return self._sums_and_below[1]

    @cached_property
    def estimates(self) -> list[Floats]:
        """g per level l < h, (n_l,): the variance of the estimate of every node, in rows^2."""
        below = self.below
        spread = [below[0]]
        for level in range(self.tree.height - 1):
            a, gain = below[level + 1], self._gain(level)
            # a (1 - a / A) + (a / A)^2 g
            above = self.tree.to_children(level, spread[-1])
            spread.append(a + gain * (gain * above - a))
        return spread

    def _gain(self, level: int) -> Floats:
        """a_c / A of the nodes of level + 1 < h; zero where the children are known exactly."""
        sums, below = self._sums_and_below
        inverse = np.divide(1.0, sums[level], out=np.zeros_like(sums[level]), where=sums[level] > 0)
        gain: Floats = below[level + 1] * self.tree.to_children(level, inverse)
        return gain

    @cached_property
    def leaf_estimates(self) -> Floats:
        """(n_{h-1},) g of the leaves below each lowest parent."""
        fanout = self.tree.fanouts[-1]
        spread: Floats = self.leaf_variances * (1 - 1 / fanout) + self.estimates[-1] / fanout**2
        return spread

    @cached_property
    def level_means(self) -> list[float]:
        """(h + 1,) the mean variance of the estimated counts of each level's nodes, in rows^2."""
        means = [float(level.mean()) for level in self.estimates]
        leaves = float((self.tree.fanouts[-1] * self.leaf_estimates).sum())
        return [*means, leaves / self.tree.leaves]

    def weighted_sum(self, weights: Sequence[Floats], leaf_weights: Floats) -> float:
        """F = sum omega_v g_v, in rows^2.

        Args:
            weights: omega per level l < h, (n_l,) or (1,) for all nodes of a level alike.
            leaf_weights: (n_{h-1},) the weight of all leaves below a lowest parent together.
        """
        total = ordered_sum(
            float((weight * spread).sum())
            for weight, spread in zip(weights, self.estimates, strict=True)
        )
        return total + float((leaf_weights * self.leaf_estimates).sum())

    def derivatives(
        self, weights: Sequence[Floats], leaf_weights: Floats
    ) -> tuple[list[Floats], Floats]:
        """dF / ds of every measurement; zero where a node is not measured or known exactly.

        Args:
            weights, leaf_weights: as for `weighted_sum`.

        Returns:
            per level l < h (n_l,); and (n_{h-1},) of all leaves below a lowest parent together.
        """
        tree, spread = self.tree, self.estimates
        sums, below = self._sums_and_below
        gammas = self._gammas(weights, leaf_weights)
        alpha, results = gammas[0], []
        for level in range(tree.height):
            positive = sums[level] > 0
            inverse = np.divide(1.0, sums[level], out=np.zeros_like(alpha), where=positive)
            results.append(alpha * _squared_share(below[level], self.variances[level]))
            beta = alpha * (below[level] * inverse) ** 2
            if level == tree.height - 1:
                break
            gain = self._gain(level)
            bend = 2.0 * spread[level] * inverse
            beta += (1.0 - bend) * tree.child_sum(level, gammas[level + 1] * gain**2)
            alpha = tree.to_children(level, beta) + gammas[level + 1] * (
                1.0 + gain * (tree.to_children(level, bend) - 2.0)
            )
        fanout = tree.fanouts[-1]
        # The leaves have one variance, A = n s: the terms of the pass down are the terms of Omega.
        leaves = fanout * beta + leaf_weights * (1 - 1 / fanout)
        return results, leaves

    def _gammas(self, weights: Sequence[Floats], leaf_weights: Floats) -> list[Floats]:
        """dF / dg_v per level l < h: the weight of a node's variance, those below it included."""
        tree = self.tree
        gammas = [weights[-1] + leaf_weights / tree.fanouts[-1] ** 2]
        for level in reversed(range(tree.height - 1)):
            from_children = tree.child_sum(level, gammas[0] * self._gain(level) ** 2)
            gammas.insert(0, weights[level] + from_children)
        return gammas


def plan_errors(plan: IrregularPlan) -> NodeVariances:
    """The errors of a plan's estimates, with the discrete laws of its noise."""
    return NodeVariances(
        tree=plan.tree,
        variances=plan.variances_above_leaves,
        leaf_variances=plan.leaf_variances,
    )


def _combined(variances: Floats, sums: Floats) -> Floats:
    """a = 1 / (1 / s + 1 / A): A where the node is not measured, zero where either is."""
    return sums * _share_of_children(variances, sums)


def _share_of_children(variances: Floats, sums: Floats) -> Floats:
    """a / A = s / (s + A)."""
    total = variances + sums
    with np.errstate(invalid="ignore"):
        share = variances / np.where(total > 0, total, 1.0)
    return np.where(np.isinf(variances), 1.0, share)


def _squared_share(below: Floats, variances: Floats) -> Floats:
    """(a / s)^2, the squared weight of a node's own measurement in z: zero where it has none."""
    measured = np.isfinite(variances) & (variances > 0)
    share = np.divide(below, variances, out=np.zeros_like(below), where=measured)
    return share**2
