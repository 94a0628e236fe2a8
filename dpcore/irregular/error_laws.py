"""Laws of the errors of an irregular tree's estimates, as combinations of noise.

With the passes of `dpcore.trees.estimation`, z_p = (1 - m_p) y_p + m_p S_p, m_p = a_p / A_p, and
k_c = a_c / A_p. Let p_0, ..., p_L = v be the path from the root to v, alpha_L = 1 and alpha_l =
k_{l+1} alpha_{l+1}. In the estimate of v a node w carries z_w with a coefficient T_w:

    T_root = alpha_0; of a child c of w: T_c = m_w T_w, less alpha_l where w = p_l and l < L,
    more alpha_{l+1} where c = p_{l+1}. The measurement y_w has the coefficient (1 - m_w) T_w.

On the path T_{p_l} = alpha_l r_l with r_root = 1, r_c = 1 + k_c (m_p r_p - 1), whatever the node
v below. So the j-th cumulants of all nodes' errors follow in two passes from their noise's
cumulants:

    up:    B_v = (1 - m_v)^j kappa_v + m_v^j sum B_c                                      of z_v
    down:  P_root = 0, P_c = k_c^j (P_p + ((1 - m_p) r_p)^j kappa_p
           + (m_p r_p - 1)^j (sum of B over the siblings of c)),  K_v = r_v^j B_v + P_v   of u_v

(j = 2 gives g.) For a sum of estimates u_v with weights w_v, b the weight of u and t that of z
are

    up:    r_v = sum b_c k_c over the children, b_v = w_v + r_v
    down:  t_root = b_root, t_c = m_v t_v - r_v + b_c

and y_v has the coefficient (1 - m_v) t_v, which includes the covariances. The leaves below one
parent are alike, so nothing has the size of the leaves; a law of very many coefficients is merged
(`dpcore.trees.error_laws`). Source: derived here; equal to unit noise sent through the estimator,
and to dense least squares (tests).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arithmetic.elementary import log, power
from dptrees.dpcore.arithmetic.sums import integer_power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.plan import IrregularPlan, NodeVariances, plan_errors
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.trees.error_laws import (
    ErrorLaw,
    LawTerms,
    MergedLaw,
    NodeMoments,
    distinct,
    group_widths,
    joined,
    law_cumulants,
    noise_cumulant,
    power_sums,
    sum_laws,
)
from dptrees.dpcore.trees.shapes import IrregularTree


class SumCoefficients(NamedTuple):
    """The coefficients of z in a sum of estimates.

    Attributes:
        inner: per level l < h (n_l,).
        leaves: (n_{h-1},) of the leaves below each lowest parent that were not chosen.
        chosen: (n_{h-1},) how many leaves below each lowest parent were chosen; their coefficients
            are larger by 1.
    """

    inner: list[Floats]
    leaves: Floats
    chosen: Integers


def sum_coefficients(
    tree: IrregularTree,
    children: Sequence[Floats],
    gains: Sequence[Floats],
    chosen: Sequence[Integers],
) -> SumCoefficients:
    """The coefficients of z in the sum of the estimates of some nodes.

    Args:
        tree: of height 1 or more.
        children: m per level l < h, the weight of the children in z.
        gains: k per level 1 to h; the leaves' by their parent.
        chosen: per level 0 to h, the nodes, each once.
    """
    height = tree.height
    parents = np.searchsorted(tree.child_starts[-1], chosen[-1], side="right") - 1
    counts = np.bincount(parents, minlength=tree.level_sizes[height - 1])
    passed, weights = counts * gains[-1], list[Floats]()
    below = [passed]
    for level in reversed(range(height)):
        own = below[0].copy()
        own[chosen[level]] += 1.0
        weights.insert(0, own)
        if level:
            below.insert(0, tree.child_sum(level - 1, own * gains[level - 1]))
    inner = [weights[0]]
    for level in range(height - 1):
        left = children[level] * inner[level] - below[level]
        inner.append(tree.to_children(level, left) + weights[level + 1])
    leaves: Floats = children[-1] * inner[-1] - below[-1]
    return SumCoefficients(inner, leaves, counts)


# A law of more different coefficients is merged, into at most about so many.
_MOST_GROUPS = 1000
# So many groups are tried first, and taken where the merging changes less than this part of the
# variance.
_COARSE_GROUPS = 100
_CLOSE = 2e-7
# Coefficients are first sorted into cells of this relative width; the last cell takes the rest.
_CELL = 0.1
_CELLS = 200
# Among more terms than so many times the groups, equal coefficients are not looked for.
_FEW = 32
# In a tree of more inner nodes, the siblings at its first branching are merged once for all.
_LARGE = 20_000


@dataclass(frozen=True, kw_only=True, eq=False)
class _Summary:
    """Terms in groups, so that some can be taken out again.

    Attributes:
        terms: by level, and in the order of nodes.
        group, classes: the group of each term, and the class of each group.
        places: per level, where the terms of each node and of those after it begin.
        sums: (3, groups) of the counts, and of the coefficients' first and second powers.
        widths: (groups,) the largest less the least coefficient.
    """

    terms: LawTerms
    group: Integers
    classes: Integers
    places: list[Integers]
    sums: Floats
    widths: Floats


class IrregularErrors:
    """The error laws of the estimates of one plan's irregular tree.

    >>> from dptrees.dpcore.irregular.planner import with_best_shares
    >>> from dptrees.dpcore.trees.shapes import IrregularTree
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
    >>> from fractions import Fraction
    >>> plan = with_best_shares(IrregularPlan(
    ...     tree=IrregularTree.from_fanouts([[2], [3, 1]]), unit=SUBSTITUTE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)), public_level=0))
    >>> errors = IrregularErrors(plan)
    >>> law, moments = errors.node(1, 0), errors.moments(1)
    >>> bool(abs(law.variance - moments.variance[0]) < 1e-9)
    True
    """

    def __init__(self, plan: IrregularPlan) -> None:
        self._plan, self._tree = plan, plan.tree
        tree, height = plan.tree, plan.tree.height
        # The class of a node is named by its level and the length of its chain.
        self._laws: list[NoiseLaw | None] = []
        for level in range(height + 1):
            self._laws += [
                plan.law(level, chain) if chain <= level else None for chain in range(height + 1)
            ]
        self._leaf_chains = (
            np.where(tree.fanouts[-1] == 1, tree.chains[-1] + 1, 0)
            if height
            else np.zeros(1, dtype=np.int64)
        )

    @cached_property
    def _variances(self) -> NodeVariances:
        return plan_errors(self._plan)

    @cached_property
    def _children(self) -> list[Floats]:
        """m per level l < h: the weight of the children in z, 1 where a node is not measured."""
        result = []
        for variances, sums in zip(
            self._plan.variances_above_leaves, self._below_and_sums[1], strict=True
        ):
            total = variances + sums
            with np.errstate(invalid="ignore"):
                share = variances / np.where(total > 0, total, 1.0)
            result.append(np.where(np.isinf(variances), 1.0, share))
        return result

    @cached_property
    def _below_and_sums(self) -> tuple[list[Floats], list[Floats]]:
        below, tree = self._variances.below, self._tree
        sums = [tree.child_sum(level, below[level + 1]) for level in range(tree.height - 1)]
        return below, [*sums, tree.fanouts[-1] * self._plan.leaf_variances]

    @cached_property
    def _gains(self) -> list[Floats]:
        """k per level 1 to h; the leaves' by their parent."""
        below, sums = self._below_and_sums
        gains = []
        for level in range(self._tree.height - 1):
            total = self._tree.to_children(level, sums[level])
            gains.append(
                np.divide(below[level + 1], total, out=np.zeros_like(total), where=total > 0)
            )
        return [*gains, 1.0 / self._tree.fanouts[-1]]

    @cached_property
    def _ratios(self) -> list[Floats]:
        """r per level; the leaves' by their parent."""
        ratios = [np.ones(1)]
        for level, (children, gain) in enumerate(zip(self._children, self._gains, strict=True)):
            outside = children * ratios[-1] - 1.0
            ratios.append(1.0 + gain * self._to_children(level, outside))
        return ratios

    def _to_children(self, level: int, values: Floats) -> Floats:
        """Values of a level for its children; the leaves' are by their parent."""
        if level == self._tree.height - 1:
            return values
        return self._tree.to_children(level, values)

    @cached_property
    def _moments(self) -> list[NodeMoments]:
        if not self._tree.height:
            return [
                NodeMoments(
                    variance=self._plan.leaf_variances,
                    fourth=self._noise(0, self._leaf_chains, 4),
                    sixth=self._noise(0, self._leaf_chains, 6),
                )
            ]
        return [
            NodeMoments(variance=variance, fourth=fourth, sixth=sixth)
            for variance, fourth, sixth in zip(
                [*self._variances.estimates, self._variances.leaf_estimates],
                self._cumulants(4),
                self._cumulants(6),
                strict=True,
            )
        ]

    def moments(self, level: int) -> NodeMoments:
        """The cumulants of the errors of all nodes of a level.

        Args:
            level: 0 to h.

        Returns:
            (n_l,); of the leaves (n_{h-1},), those below each lowest parent being alike.
        """
        return self._moments[level]

    def _noise(self, level: int, chains: Integers, order: int) -> Floats:
        """The cumulants of the nodes' own noise; 0 where there is none."""
        size = self._tree.height + 1
        laws = self._laws[level * size : (level + 1) * size]
        return np.array([noise_cumulant(law, order) if law else 0.0 for law in laws])[chains]

    def _cumulants(self, order: int) -> list[Floats]:
        """K per level, leaves by their parent, in rows^order."""
        tree, height = self._tree, self._tree.height
        leaves = self._noise(height, self._leaf_chains, order)
        own: list[Floats] = []
        below, sums = [leaves], [tree.fanouts[-1] * leaves]
        for level in reversed(range(height)):
            children = self._children[level]
            own.insert(
                0,
                integer_power(1 - children, order) * self._noise(level, tree.chains[level], order),
            )
            below.insert(0, own[0] + integer_power(children, order) * sums[0])
            if level:
                sums.insert(0, tree.child_sum(level - 1, below[0]))
        above, result = np.zeros(1), [below[0] * integer_power(self._ratios[0], order)]
        for level in range(height):
            ratio, gain = self._ratios[level], self._gains[level]
            outside = integer_power(self._children[level] * ratio - 1.0, order)
            from_parent = above + integer_power(ratio, order) * own[level] + outside * sums[level]
            # Of the sum over the siblings, the child's own part is taken out again.
            siblings = self._to_children(level, from_parent) - below[level + 1] * self._to_children(
                level, outside
            )
            above = integer_power(gain, order) * siblings
            result.append(integer_power(self._ratios[level + 1], order) * below[level + 1] + above)
        return result

    def node(self, level: int, node: int) -> MergedLaw:
        """The law of the error of one node's estimate.

        Args:
            level, node: of the tree.

        Returns:
            the law: exact, or merged where it has very many coefficients. In a large tree it takes
            the time of the subtree of the node's ancestor at the first branching.

        Raises:
            ValueError: the tree has no such node.
        """
        sizes = self._tree.level_sizes
        if not (0 <= level < len(sizes) and 0 <= node < sizes[level]):
            raise ValueError(f"node: level {level} has no node {node}")
        if not self._tree.height:
            law = self._laws[0]
            return MergedLaw(law=ErrorLaw(terms=((law, 1.0, 1),) if law else ()))
        path, alphas = self._path(level, node)
        top = self._branching
        is_small = sum(self._tree.level_sizes[:-1]) < _LARGE or top + 1 == self._tree.height
        if level <= top or is_small:
            return sum_laws([self._merged(self._terms(0, alphas[0], path, alphas))])
        # The path's first siblings are most of the tree: what they add is merged once for all.
        children = float(self._children[top][0])
        ratio = float(self._ratios[top][0])
        own = self._own_of_root(top, (1 - children) * alphas[top] * ratio)
        outside = alphas[top] * (children * ratio - 1.0)
        below = self._terms(top + 1, alphas[top + 1] + outside, path, alphas)
        known = sum_laws([own, self._merged(below)])
        rest = self._rest(self._coarse_siblings, path[top + 1], outside)
        if rest.difference > _CLOSE * (known.variance + rest.variance):
            rest = self._rest(self._siblings, path[top + 1], outside)
        return sum_laws([known, rest])

    def sum(self, nodes: Iterable[tuple[int, int]]) -> MergedLaw:
        """The law of the error of the sum of some nodes' estimates.

        Args:
            nodes: (level, node) of the tree, each once.

        Returns:
            the law: exact, or merged where it has very many coefficients. It takes the time of one
            pass over the inner nodes.

        Raises:
            ValueError: the tree has no such node.
        """
        sizes, chosen = self._tree.level_sizes, [list[int]() for _ in self._tree.level_sizes]
        for level, node in nodes:
            if not (0 <= level < len(sizes) and 0 <= node < sizes[level]):
                raise ValueError(f"node: level {level} has no node {node}")
            chosen[level].append(node)
        if not self._tree.height:
            return self.node(0, 0)
        found = sum_coefficients(
            self._tree,
            self._children,
            self._gains,
            [np.array(each, dtype=np.int64) for each in chosen],
        )
        ones, last = np.ones(1, dtype=np.int64), self._tree.height
        parts = [
            self._own(level, chains, (1 - children) * own, np.broadcast_to(ones, own.shape))
            for level, (chains, children, own) in enumerate(
                zip(self._tree.chains, self._children, found.inner, strict=True)
            )
        ]
        others = self._tree.fanouts[-1] - found.chosen
        parts.append(self._own(last, self._leaf_chains, found.leaves, others))
        parts.append(self._own(last, self._leaf_chains, found.leaves + 1.0, found.chosen))
        return self._merged(joined(parts))

    @cached_property
    def _branching(self) -> int:
        """The first level whose node has several children; all above have a single child."""
        level = 0
        while level < self._tree.height - 1 and self._tree.level_sizes[level + 1] == 1:
            level += 1
        return level

    def _own_of_root(self, level: int, coefficient: float) -> MergedLaw:
        chain = self._tree.chains[level]
        ones = np.ones(1, dtype=np.int64)
        return self._merged(self._own(level, chain, np.array([coefficient]), ones))

    @cached_property
    def _siblings(self) -> _Summary:
        return self._summary(_MOST_GROUPS)

    @cached_property
    def _coarse_siblings(self) -> _Summary:
        return self._summary(_COARSE_GROUPS // 4)

    def _summary(self, most: int) -> _Summary:
        """All measurements in the sum of z over the nodes below the branching one."""
        tree, top = self._tree, self._branching
        coefficient, parts, places = np.ones(tree.level_sizes[top + 1]), [], []
        for level in range(top + 1, tree.height + 1):
            is_leaf = level == tree.height
            chains = self._leaf_chains if is_leaf else tree.chains[level]
            own = coefficient if is_leaf else (1 - self._children[level]) * coefficient
            counts = tree.fanouts[-1] if is_leaf else np.ones(1, dtype=np.int64)
            kept = self._kept(level, chains, own, counts)
            parts.append(self._own(level, chains, own, counts))
            places.append(np.concatenate([[0], np.cumsum(kept)]))
            if not is_leaf:
                coefficient = self._to_children(level, self._children[level] * coefficient)
        starts = np.cumsum([0, *(part.sizes.size for part in parts)]).tolist()
        terms = joined(parts)
        groups, classes = self._groups(terms, most)
        return _Summary(
            terms=terms,
            group=groups,
            classes=classes,
            places=[each + start for each, start in zip(places, starts, strict=False)],
            sums=power_sums(terms, groups, classes.size),
            widths=group_widths(terms.sizes, groups, classes.size),
        )

    def _rest(self, summary: _Summary, node: int, coefficient: float) -> MergedLaw:
        """A multiple of the sum of z over the siblings of a node below the branching one."""
        top = self._branching
        ranges = self._tree.node_ranges(top + 1, node, node + 1)
        # Leaves are by their parent.
        ranges = [*ranges[:-1], ranges[-2]] if len(ranges) > 1 else ranges
        inside = np.concatenate(
            [
                np.arange(places[low], places[high])
                for places, (low, high) in zip(summary.places, ranges, strict=True)
            ]
        )
        sums = summary.sums - power_sums(
            summary.terms.taken(inside), summary.group[inside], summary.classes.size
        )
        left = sums[0] > 0.5
        counts, first, second = sums[:, left]
        classes = summary.classes[left]
        # (c - root mean square)^2 over a group; the last term is for rounding.
        sizes = np.sqrt(second / counts)
        off = np.maximum(2 * sizes * (sizes * counts - first), 0.0) + 1e-14 * second
        noise = self._class_moments[:, classes]
        widths = np.maximum(summary.widths[left], 1e-7 * sizes)
        square = coefficient * coefficient
        difference = square * float((off * noise[0]).sum())
        fourth = square * square * float((off * widths**2 * np.maximum(noise[1], 0.0)).sum())
        return MergedLaw(
            law=self._error_law(classes, sizes * abs(coefficient), counts),
            difference=difference,
            difference_fourth=3 * difference * difference + fourth,
        )

    def _path(self, level: int, node: int) -> tuple[list[int], list[float]]:
        """The nodes p_l from the root, and alpha_l."""
        tree, path, alphas = self._tree, [node], [1.0]
        for above in reversed(range(level)):
            place = path[0]
            parent = int(np.searchsorted(tree.child_starts[above], place, side="right")) - 1
            at = parent if above == tree.height - 1 else place
            alphas.insert(0, float(self._gains[above][at]) * alphas[0])
            path.insert(0, parent)
        return path, alphas

    def _terms(self, top: int, start: float, path: list[int], alphas: list[float]) -> LawTerms:
        """The measurements below and at the path's node of a level, whose z has coefficient start,
        in the estimate of the path's last node."""
        tree, level, parts = self._tree, len(path) - 1, []
        coefficient, ones = np.array([start]), np.ones(1, dtype=np.int64)
        ranges = tree.node_ranges(top, path[top], path[top] + 1)
        if top == tree.height:
            chains = self._leaf_chains[path[-2] : path[-2] + 1]
            return self._own(top, chains, coefficient, ones)
        for above, (low, high) in zip(range(top, tree.height), ranges, strict=False):
            children = self._children[above][low:high]
            chains = tree.chains[above][low:high]
            parts.append(self._own(above, chains, (1 - children) * coefficient, ones))
            below = children * coefficient
            if above < level:
                below[path[above] - low] -= alphas[above]
            if above == tree.height - 1:
                break
            coefficient = np.repeat(below, tree.fanouts[above][low:high])
            if above < level:
                coefficient[path[above + 1] - ranges[above + 1 - top][0]] += alphas[above + 1]
        counts, chains = tree.fanouts[-1][low:high], self._leaf_chains[low:high]
        if level == tree.height:
            counts, at = counts.copy(), slice(path[-2] - low, path[-2] - low + 1)
            counts[at] -= 1
            parts.append(self._own(level, chains[at], below[at] + 1.0, ones))
        parts.append(self._own(tree.height, chains, below, counts))
        return joined(parts)

    def _kept(
        self, level: int, chains: Integers, coefficients: Floats, counts: Integers
    ) -> npt.NDArray[np.bool_]:
        """The nodes of a level that have noise of their own in an estimate."""
        size = self._tree.height + 1
        laws = self._laws[level * size : (level + 1) * size]
        noisy = np.array([law is not None and law.variance > 0 for law in laws])
        kept: npt.NDArray[np.bool_] = (coefficients != 0) & noisy[chains] & (counts > 0)
        return kept

    def _own(
        self, level: int, chains: Integers, coefficients: Floats, counts: Integers
    ) -> LawTerms:
        """The terms of a level's own noise: of the nodes that are measured."""
        kept = self._kept(level, chains, coefficients, counts)
        return LawTerms(
            classes=chains[kept] + level * (self._tree.height + 1),
            sizes=np.abs(coefficients[kept]),
            counts=np.broadcast_to(counts, kept.shape)[kept],
        )

    def _merged(self, terms: LawTerms) -> MergedLaw:
        """The law of a sum of terms; terms of very many coefficients are merged."""
        if not terms.sizes.size:
            return MergedLaw(law=ErrorLaw(terms=()))
        few = terms.sizes.size <= _FEW * _MOST_GROUPS
        found = distinct(terms, _MOST_GROUPS) if few else None
        if found:
            groups, classes = found
            counts, _, second = power_sums(terms, groups, classes.size)
            return MergedLaw(law=self._error_law(classes, np.sqrt(second / counts), counts))
        merged = self._in_groups(terms, _COARSE_GROUPS)
        if merged.difference > _CLOSE * merged.variance:
            merged = self._in_groups(terms, _MOST_GROUPS)
        return merged

    def _in_groups(self, terms: LawTerms, most: int) -> MergedLaw:
        groups, classes = self._groups(terms, most)
        counts, _, second = power_sums(terms, groups, classes.size)
        sizes = np.sqrt(second / counts)
        off = (terms.sizes - sizes[groups]) ** 2
        noise = self._class_moments[:, terms.classes]
        difference = float((terms.counts * off * noise[0]).sum())
        fourth = float((terms.counts * off**2 * np.maximum(noise[1], 0.0)).sum())
        return MergedLaw(
            law=self._error_law(classes, sizes, counts),
            difference=difference,
            difference_fourth=3 * difference * difference + fourth,
        )

    def _error_law(self, classes: Integers, sizes: Floats, counts: Floats) -> ErrorLaw:
        return ErrorLaw(
            terms=tuple(
                (law, size, round(count))
                for each, size, count in zip(
                    classes.tolist(), sizes.tolist(), counts.tolist(), strict=True
                )
                if (law := self._laws[each]) is not None
            )
        )

    @cached_property
    def _class_moments(self) -> Floats:
        """(2, classes) the variance and the fourth cumulant of each class's noise."""
        cumulants = np.array([law_cumulants(law) if law else (0.0, 0.0) for law in self._laws])
        moments: Floats = cumulants.T
        return moments

    def _groups(self, terms: LawTerms, most: int) -> tuple[Integers, Integers]:
        """The group of each term, and the class of each group.

        A class's coefficients fall into cells of one relative width, and the last cell takes the
        rest; a cell is cut evenly into a number of groups that follows the cube root of its share
        of the variance, which makes E D^2 least.
        """
        if not terms.sizes.size:
            return terms.classes, terms.classes
        largest = np.zeros(len(self._laws))
        np.maximum.at(largest, terms.classes, terms.sizes)
        depth = log(largest[terms.classes] / terms.sizes) / _CELL
        place = np.minimum(depth, _CELLS - 1).astype(np.int64)
        cell = terms.classes * _CELLS + place
        share = terms.counts * terms.sizes**2 * self._class_moments[0][terms.classes]
        roots = power(np.bincount(cell, share), 1 / 3)
        cuts = np.ceil(roots * (most / roots.sum())).astype(np.int64)
        within = np.minimum(depth - place, 1 - 1e-9)  # the last cell is cut at its top alone
        named = (np.cumsum(cuts) - cuts)[cell] + (within * cuts[cell]).astype(np.int64)
        occupied = np.bincount(named, minlength=int(cuts.sum())) > 0
        classes = np.repeat(np.arange(cuts.size) // _CELLS, cuts)
        return (np.cumsum(occupied) - 1)[named], classes[occupied]
