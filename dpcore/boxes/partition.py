"""A partition of a domain too fine to list: its nodes, their noisy counts and estimates.

A node is a number of `depth` bits, the prefix of all codes below it. A *split* node has all its
2^s descendants of the next depth in the next level; the others are the parts of the partition
(Holland, Camtepe, Thapa, Xue, section 5, where s = 1). Least squares, with y of variance s: up, a
leaf has z = y, a = s; inside, S = sum z_c, A = sum a_c, 1 / a = 1 / s + 1 / A, z = a (y / s + S /
A). Down, the root has u = z, g = a; a child, with k_c = a_c / A, u_c = z_c + k_c (u - S) and g_c
= a_c - a_c^2 / A + k_c^2 g. A weighted sum of leaves, sum w u, is from a node down alpha u plus
an independent error of variance e: of a leaf alpha = w and e = 0, above alpha = sum alpha_c k_c
and e = sum e_c + sum alpha_c^2 a_c - (sum alpha_c a_c)^2 / A; at the root alpha^2 g + e. Where
noisy counts decided which nodes exist, estimates of nodes chosen for being large are biased by a
part of a standard error. Whole counts are drawn towards even ones by James and Stein's estimate:
with p the parent's count, e_i a child's even part of it, h_i its estimate of variance a_i and m
children,

    e_i + f (h_i - e_i),    f = max(0, 1 - (m - 1) / sum_i (h_i - e_i)^2 / a_i).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.boxes.domain import HypercubeDomain, Nodes
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.trees.consistency import root_count, split_counts


@dataclass(frozen=True, eq=False)
class GrownLevel:
    """The nodes of one level that were looked at.

    Args:
        depth: of the nodes, in bits.
        nodes: (n,) in the order of their parents, children in order.
        parents: (n,) the place of each node's parent in the level above.
        value: (n,) what was measured, in rows.
        variance: (n,) of its noise, in rows^2; 0 where the count is known, infinite where nothing
            was measured.
    """

    depth: int
    nodes: Nodes
    parents: Integers
    value: Floats
    variance: Floats

    def __len__(self) -> int:
        return len(self.nodes)

    def fanout(self, above: GrownLevel) -> int:
        """Number of nodes into which each node of the level above was split."""
        return 1 << (self.depth - above.depth)

    def split(self, above: GrownLevel) -> Integers:
        """(m,) the places of the nodes above that were split, in the order of the children."""
        return self.parents[:: self.fanout(above)]


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownTree:
    """All levels of a grown tree, the root first.

    Args:
        levels: at least the root; none is empty.
    """

    levels: tuple[GrownLevel, ...]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return sum(map(len, self.levels))

    def pairs(self) -> Iterator[tuple[int, GrownLevel, GrownLevel]]:
        """Each level below the root, by its place, with the level above it."""
        for place in range(1, len(self.levels)):
            yield place, self.levels[place - 1], self.levels[place]

    def leaves(self) -> list[Flags]:
        """Flags of the nodes that were not split, for each level (n,)."""
        ends = [np.ones(len(level), np.bool_) for level in self.levels]
        for place, above, level in self.pairs():
            ends[place - 1][level.split(above)] = False
        return ends


def descendant_nodes(nodes: Nodes, bits: int) -> Nodes:
    """(n 2^bits,) the descendants of nodes so many bits below them, in order.

    >>> descendant_nodes(np.array([0, 3], np.uint64), 1).tolist()
    [0, 1, 6, 7]
    """
    below = np.arange(1 << bits, dtype=np.uint64)
    result: Nodes = ((nodes[:, np.newaxis] << np.uint64(bits)) | below).reshape(-1)
    return result


def prefixes(codes: Nodes, bits: int, depth: int) -> Nodes:
    """(n,) the nodes of a depth that hold codes of so many bits.

    >>> prefixes(np.array([5, 2], np.uint64), 3, 1).tolist()
    [1, 0]
    """
    # NumPy leaves a shift by all 64 bits undefined.
    return np.zeros_like(codes) if depth == 0 else codes >> np.uint64(bits - depth)


# Of what is measured: a variance of 0 says that a count is known, and a law of almost no noise has
# one that is too small for a float64.
_LEAST_VARIANCE = 2.0**-100


class Estimates(NamedTuple):
    """Estimated counts of some nodes: measured, or estimated from measurements.

    Attributes:
        estimate: (n,) in rows.
        variance: (n,) of its error, in rows^2, given the partition; infinite where nothing is
            measured, 0 where the count is known, NaN where it is not known how far off it is.
    """

    estimate: Floats
    variance: Floats


def measured_variance(variance: float) -> float:
    """The variance that represents one of noise, in rows^2: never 0.

    >>> measured_variance(8.0), measured_variance(0.0) > 0
    (8.0, True)
    """
    return max(variance, _LEAST_VARIANCE)


class Measurement(Protocol):
    """Noisy counts of the nodes of every level, each a fixed number however often it is read."""

    def variance(self, level: int) -> float:
        """Return the variance of the error of a count of a level below the root, in rows^2."""

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        """The noisy counts of some nodes.

        Args:
            level: 0..h, of the plan.
            depth: of the nodes, in bits.
            nodes: (n,) none twice.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class SummedMeasurement:
    """The noisy counts of several measurements of different rows together, node by node.

    Each is a fixed number for every node, whenever it is looked at, so a partition that is grown
    anew when there are more measurements looks up what was pruned before, and is the one that
    would have been kept up to date.

    Args:
        parts: the measurements, of the same levels.

    Source: Holland, Camtepe, Thapa, Xue, Appendix A: continual counters.
    """

    parts: Sequence[Measurement]

    def variance(self, level: int) -> float:
        """Return the variance of a level, as `Measurement.variance` does."""
        return math.fsum(part.variance(level) for part in self.parts)

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        """Return measured nodes, as `Measurement.at` does."""
        value, variance = np.zeros(len(nodes)), np.zeros(len(nodes))
        for part in self.parts:
            own = part.at(level, depth, nodes)
            value += own.estimate
            variance += own.variance
        return Estimates(value, variance)


@dataclass(frozen=True, kw_only=True, eq=False)
class CodeCounts:
    """Exact counts of the codes that rows touch, from which that of any node follows.

    Args:
        bits: of a code.
        codes: (m,) rising, none twice.
        below: (m + 1,) the rows of all codes before each, in rows.

    >>> counts = CodeCounts.from_codes(3, np.array([1, 6], np.uint64), np.array([5, 2]))
    >>> counts.at(1, np.array([0, 1], np.uint64)).tolist()
    [5, 2]
    """

    bits: int
    codes: Nodes
    below: Integers

    @classmethod
    def from_codes(cls, bits: int, codes: Nodes, counts: Integers) -> CodeCounts:
        """Make the counts (m,), in rows, of rising codes (m,)."""
        return cls(bits=bits, codes=codes, below=np.concatenate([[0], np.cumsum(counts)]))

    def at(self, depth: int, nodes: Nodes) -> Integers:
        """(n,) the rows of nodes of a depth."""
        if depth == 0:
            return np.full(len(nodes), self.below[-1])
        width = self.bits - depth
        first = nodes << np.uint64(width)
        last = first | np.uint64((1 << width) - 1)
        start = np.searchsorted(self.codes, first, side="left")
        stop = np.searchsorted(self.codes, last, side="right")
        result: Integers = self.below[stop] - self.below[start]
        return result


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeNoise:
    """Exact counts with noise that is a keyed function of the node.

    Guarantee. Let T be the whole noisy tree, in which every node of every level, 2^64 of them if
    need be, has its count plus independent noise of its level's law: a row moves one count of a
    level (two under ``substitute``), so T is private as `dpcore.boxes.plan` states. The noise
    of a node is a keyed function of the level and the node (`NoiseSource.node_streams`), the same
    whether and when it is computed, and the keystreams of different nodes are independent to whom
    the key is not known. So a partition that grows by looking at some nodes is a function of T, and
    private as T is, although most of T is never computed; which nodes it looks at follows from T
    too.

    Args:
        tree: its name.
        counts: exact.
        laws: (h + 1,) the noise of each level; None where it is not measured.
        source: the release's.
        public_total: the root, which then has no noise, is public; nothing else may be without.
        purpose: what is drawn.

    Source: derived here; of Holland et al. this is Algorithm 2 with a sketch as wide as the domain.
    """

    tree: str
    counts: CodeCounts
    laws: Sequence[NoiseLaw | None]
    source: NoiseSource
    public_total: bool = False
    purpose: str = "count"

    def variance(self, level: int) -> float:
        """Return the variance of a level, as `Measurement.variance` does."""
        law = self.laws[level]
        return math.inf if law is None else measured_variance(law.variance)

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        """Return measured nodes, as `Measurement.at` does."""
        law = self.laws[level]
        if law is None and not (level == 0 and self.public_total):
            return Estimates(np.zeros(len(nodes)), np.full(len(nodes), np.inf))
        exact = self.counts.at(depth, nodes)
        if law is None:
            return Estimates(exact.astype(np.float64), np.zeros(len(nodes)))
        streams = self.source.node_streams(self.tree, self.purpose, depth, nodes)
        noisy = add_noise(law, exact, streams)
        spread = measured_variance(law.variance)
        return Estimates(noisy.astype(np.float64), np.full(len(nodes), spread))


class GrowthConsistency(Protocol):
    """Rule that makes children agree with their parents while a partition grows."""

    def root(self, value: Floats, variance: Floats) -> Estimates:
        """Begin with the root, (1,) each."""

    def children(self, parents: Estimates, value: Floats, variance: Floats) -> Estimates:
        """Return consistent values of the children of some nodes.

        Args:
            parents: (m,) of the nodes that are split.
            value, variance: (m, n) what is measured of their children; a variance of 0 where the
                count is known.

        Returns:
            (m, n) of the children.
        """


class EvenShares(GrowthConsistency):
    """Algorithm 4: what children have too much or too little is shared evenly.

    First negative counts become 0 (error correction type 1). Then each child gives up an equal part
    of the excess L = sum - parent; one that would become negative is set to 0 and its sibling has
    all of the parent's (error correction type 2). With more than two children, where the paper
    gives no rule, those that would become negative are set to 0 and the others share what remains,
    until none would. A child that no row can be in takes no part.

    Source: Holland, Camtepe, Thapa, Xue, Algorithm 4; a root below 0 is taken as 0, which the paper
    leaves open.

    >>> parent = Estimates(np.array([5.0]), np.array([np.nan]))
    >>> EvenShares().children(parent, np.array([[3.5, 3.7]]), np.ones((1, 2))).estimate.round(6)
    array([[2.4, 2.6]])
    >>> EvenShares().children(parent, np.array([[-2.0, 9.0]]), np.ones((1, 2))).estimate
    array([[0., 5.]])
    """

    def root(self, value: Floats, variance: Floats) -> Estimates:
        return Estimates(np.maximum(value, 0.0), np.full(value.shape, np.nan))

    def children(self, parents: Estimates, value: Floats, variance: Floats) -> Estimates:
        open_ = variance > 0
        count = np.where(open_, np.maximum(value, 0.0), 0.0)
        total = parents.estimate[:, np.newaxis]
        while True:
            many = np.maximum(open_.sum(axis=1, keepdims=True), 1)
            excess = np.where(open_, count, 0.0).sum(axis=1, keepdims=True) - total
            shared = np.where(open_, count - excess / many, 0.0)
            below = shared < 0
            if not below.any():
                return Estimates(shared, np.full(shared.shape, np.nan))
            open_ &= ~below


class BestLinear(GrowthConsistency):
    """The best linear unbiased estimates from what was measured of a node, of its ancestors, and of
    the siblings of each of them. What cousins say of their common ancestor is left to the least
    squares of the grown tree (the first docstring).

    Let p be the variance of a parent's estimate u, and y_c its children's values with variances
    v_c, S = sum y_c, A = sum v_c. Both speak of the parent, so it becomes u' = (u / p + S / A)
    / (1/p + 1/A) with variance p' = 1 / (1/p + 1/A), and a child y_c + (v_c / A) (u' - S) with
    variance v_c - v_c^2 / A + (v_c / A)^2 p'. Estimates may be negative; that they are unbiased is
    true of a partition that was fixed beforehand.

    Source: the design, section 5, of a tree in which nothing but the ancestors is split (a Kalman
    filter down the levels); Hay, Rastogi, Miklau, Suciu 2010 for the whole tree.

    >>> parent = Estimates(np.array([5.0]), np.array([0.0]))
    >>> BestLinear().children(parent, np.array([[3.5, 3.7]]), np.ones((1, 2))).estimate.round(6)
    array([[2.4, 2.6]])
    """

    def root(self, value: Floats, variance: Floats) -> Estimates:
        return Estimates(value, variance)

    def children(self, parents: Estimates, value: Floats, variance: Floats) -> Estimates:
        sums, spreads = value.sum(axis=1), variance.sum(axis=1)
        # Of a parent that nothing is known of the children determine all.
        blank = np.isinf(parents.variance)
        own = np.where(blank, 1.0, parents.variance)
        weight = np.where(blank, 1.0, own / (own + spreads))
        known = np.where(blank, sums, parents.estimate + weight * (sums - parents.estimate))
        left = np.where(blank, spreads, own * (1 - weight))
        share = np.divide(
            variance, spreads[:, np.newaxis], out=np.zeros_like(variance), where=variance > 0
        )
        count = value + share * (known - sums)[:, np.newaxis]
        return Estimates(count, variance * (1 - share) + np.square(share) * left[:, np.newaxis])


def measured_nodes(
    domain: HypercubeDomain, measurement: Measurement, level: int, depth: int, nodes: Nodes
) -> Estimates:
    """(n,) measurements of nodes of a level; 0, and known, where no row can be."""
    filled = domain.has_cells(depth, nodes)
    value, variance = np.zeros(len(nodes)), np.zeros(len(nodes))
    value[filled], variance[filled] = measurement.at(level, depth, nodes[filled])
    return Estimates(value, variance)


def child_estimates(
    consistency: GrowthConsistency, parents: Estimates, own: Estimates
) -> Estimates:
    """(m n,) the estimates of the children of m nodes that agree with the parents' estimates."""
    shape = len(parents.estimate), -1
    below = consistency.children(parents, own.estimate.reshape(shape), own.variance.reshape(shape))
    return Estimates(*(values.reshape(-1) for values in below))


def largest_nodes(places: Integers, estimate: Floats, most: int) -> Integers:
    """Return at most so many of the places of nodes, rising: those with the largest estimates."""
    if len(places) <= most:
        return places
    order = np.argsort(-estimate[places], kind="stable")
    return np.sort(places[order[:most]])


# Gives, of the nodes of a level, what was measured, the estimates that decide, and the places of
# those that are split, rising; from the level, the nodes and the estimates of their parents.
GrowthStep = Callable[[int, Nodes, Estimates | None], tuple[Estimates, Estimates, Integers]]


def grow_tree(depths: Sequence[int], step: GrowthStep) -> tuple[GrownTree, list[Estimates]]:
    """Grow a partition from the root.

    Args:
        depths: (h + 1,) of the levels, in bits, the root's 0 first, rising.
        step: what is measured of the nodes of a level, and which of them are split; of the last
            level none is.

    Returns:
        the tree; and for each of its levels the estimates that decided.
    """
    nodes, parents = np.zeros(1, np.uint64), np.zeros(1, np.int64)
    above: Estimates | None = None
    levels, running = [], []
    for level, depth in enumerate(depths):
        own, decided, places = step(level, nodes, above)
        levels.append(GrownLevel(depth, nodes, parents, *own))
        running.append(decided)
        if not len(places):
            break
        bits = depths[level + 1] - depth
        above = Estimates(*(values[places] for values in decided))
        nodes, parents = descendant_nodes(nodes[places], bits), np.repeat(places, 1 << bits)
    return GrownTree(levels=tuple(levels)), running


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownEstimate:
    """The least squares estimates of a grown tree.

    Args:
        tree: the tree.
        estimates: of each level, u and g.
        below: of each level (n,), a: the variance of what is known of a node from itself and below.
    """

    tree: GrownTree
    estimates: tuple[Estimates, ...]
    below: tuple[Floats, ...]


def weighted_families(
    alpha: Floats, tau: Floats, below: Floats, other: Floats
) -> tuple[Floats, Floats, float]:
    """One step up of the variance of a weighted sum of leaves under other variances of the
    measurements than those that gave the weights.

    No small change of the weights changes the least variance, so sum W^2 v' of its weights W is its
    derivative in the direction v'. With tau and b the derivatives of alpha and a, rest = alpha_c -
    alpha: tau = sum (rest_c b_c + tau_c a_c) / A, and e' = sum rest_c^2 b_c + 2 rest_c tau_c a_c.

    Args:
        alpha, tau: (m, n) of the children of m nodes; tau is 0 of leaves.
        below: (m, n) a of the children, in rows^2.
        other: (m, n) b, likewise; a where they are the variances that gave the weights.

    Returns:
        (m,) alpha and tau of the nodes; and what their children add to e', in rows^2.

    >>> weighted_families(np.array([[1.0, 0.0]]), np.zeros((1, 2)), *np.ones((2, 1, 2)))
    (array([0.5]), array([0.]), 0.5)
    """
    sums = below.sum(axis=1)
    above = (alpha * below).sum(axis=1) / sums
    rest = alpha - above[:, np.newaxis]
    turned = (rest * other + tau * below).sum(axis=1) / sums
    return above, turned, float((rest * (rest * other + 2 * tau * below)).sum())


def least_squares(tree: GrownTree) -> GrownEstimate:
    """The best linear unbiased estimates of all nodes.

    Args:
        tree: the tree; a node that is split has a child that is not known.

    Source: the docstring of this module; compared with dense algebra in the tests.

    >>> from dptrees.dpcore.boxes.partition import GrownLevel
    >>> def level(depth, value):
    ...     n = len(value)
    ...     return GrownLevel(depth=depth, nodes=np.arange(n, dtype=np.uint64), value=value,
    ...                       parents=np.zeros(n, np.int64), variance=np.ones(n))
    >>> found = least_squares(GrownTree(levels=(
    ...     level(0, np.array([12.0])), level(1, np.array([4.0, 5.0])))))
    >>> [each.estimate.tolist() for each in found.estimates]
    [[11.0], [5.0, 6.0]]
    >>> found.estimates[0].variance.round(6).tolist()
    [0.666667]
    """
    z = [level.value for level in tree.levels]
    a = [level.variance for level in tree.levels]
    for place, above, level in reversed(list(tree.pairs())):
        fanout, split = level.fanout(above), level.split(above)
        sums = z[place].reshape(-1, fanout).sum(axis=1)
        spread = a[place].reshape(-1, fanout).sum(axis=1)
        own = above.variance[split]
        # Of a node that nothing is measured of the children determine all.
        blank = np.isinf(own)
        weight = np.where(
            blank, 1.0, np.where(blank, 1.0, own) / np.where(blank, 1.0, own + spread)
        )
        z[place - 1], a[place - 1] = z[place - 1].copy(), a[place - 1].copy()
        measured = np.where(np.isinf(own), 0.0, above.value[split])
        z[place - 1][split] = measured * (1 - weight) + sums * weight
        a[place - 1][split] = weight * spread
    estimates = [Estimates(z[0], a[0])]
    for place, above, level in tree.pairs():
        estimates.append(_down(estimates[-1], z[place], a[place], level.split(above)))
    return GrownEstimate(tree=tree, estimates=tuple(estimates), below=tuple(a))


def selection_biases(
    tree: GrownTree, bias: Callable[[int, Floats], Floats], estimates: Sequence[Floats]
) -> list[Floats]:
    """(h + 1,) for each level (n,) by how much least squares estimates are too large on average, in
    rows: they are linear in what is measured.

    Args:
        tree: the tree.
        bias: of what is measured of split nodes, of a level and estimates of it.
        estimates: for each level (n,).
    """
    levels = []
    for place, (level, ends) in enumerate(zip(tree.levels, tree.leaves(), strict=True)):
        measured = ~ends & (level.variance > 0) & np.isfinite(level.variance)
        own = bias(place, estimates[place])
        levels.append(replace(level, value=np.where(measured, own, 0.0)))
    if not any(level.value.any() for level in levels):
        return [level.value for level in levels]
    return [each.estimate for each in least_squares(GrownTree(levels=tuple(levels))).estimates]


def _down(
    parents: Estimates, z: Floats, a: Floats, split: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Estimates:
    """The estimates of a level from those above."""
    z, a = z.reshape(len(split), -1), a.reshape(len(split), -1)
    sums, spread = z.sum(axis=1, keepdims=True), a.sum(axis=1, keepdims=True)
    share = a / spread
    count = z + share * (parents.estimate[split][:, np.newaxis] - sums)
    variance = a - a * share + np.square(share) * parents.variance[split][:, np.newaxis]
    return Estimates(count.reshape(-1), np.maximum(variance, 0.0).reshape(-1))


def with_variances(found: GrownEstimate, levels: Sequence[float]) -> GrownEstimate:
    """The same estimates under variances of the measurements other than those that gave the
    weights: their variances, and b in place of a.

    With omega a split node's weight of S in z, v the other variances and b that of z: up, b = v
    of a leaf, above b = (1 - omega)^2 v + omega^2 sum b_c. Down, u = lambda z + R with R of
    variance r independent of z: lambda = 1 and r = 0 at the root, below with m = lambda omega - 1

        lambda_c = 1 + k_c m,   r_c = k_c^2 (m^2 (sum b - b_c) + lambda^2 (1 - omega)^2 v + r),

    and u has the variance lambda^2 b + r.

    Args:
        found: the estimates.
        levels: (h + 1,) the other variances of what is measured; 0 where nothing is.
    """
    tree, a = found.tree, found.below
    own = [
        np.where(level.variance > 0, variance, 0.0)
        for level, variance in zip(tree.levels, levels, strict=False)
    ]
    below, families = [each.copy() for each in own], []
    for place, above, level in reversed(list(tree.pairs())):
        split, shape = level.split(above), (-1, level.fanout(above))
        parts, b, v = a[place].reshape(shape), below[place].reshape(shape), own[place - 1][split]
        sums = parts.sum(axis=1, keepdims=True)
        omega = a[place - 1][split] / sums[:, 0]
        below[place - 1][split] = np.square(1 - omega) * v + np.square(omega) * b.sum(axis=1)
        families.append((split, omega, parts / sums, b, v))
    variances, factor, rest = [below[0]], np.ones(1), np.zeros(1)
    for split, omega, share, b, v in reversed(families):
        moved = (factor[split] * omega - 1)[:, np.newaxis]
        above_all = np.square(factor[split] * (1 - omega)) * v + rest[split]
        siblings = np.square(moved) * (b.sum(axis=1, keepdims=True) - b)
        rest = (np.square(share) * (siblings + above_all[:, np.newaxis])).reshape(-1)
        factor = (1 + share * moved).reshape(-1)
        variances.append(np.square(factor) * b.reshape(-1) + rest)
    estimates = (each.estimate for each in found.estimates)
    return GrownEstimate(
        tree=tree, estimates=tuple(map(Estimates, estimates, variances)), below=tuple(below)
    )


def whole_counts(
    tree: GrownTree,
    estimates: Sequence[Floats],
    spreads: Sequence[Floats],
    cells: Sequence[Floats] | None = None,
) -> list[Integers]:
    """(h + 1,) for each level (n,) the counts, in rows.

    Args:
        tree: the tree.
        estimates: for each level (n,), in rows.
        spreads: for each level (n,), in rows^2, by how much each child may be moved among its
            siblings; a count of spread 0 is known to be 0 and stays so.
        cells: for each level (n,) how many cells of the domain each node has, to shrink towards
            even counts; None: not to shrink.

    >>> from dptrees.dpcore.boxes.partition import GrownLevel
    >>> tree = GrownTree(levels=tuple(
    ...     GrownLevel(depth=depth, nodes=np.arange(n, dtype=np.uint64), value=np.zeros(n),
    ...                parents=np.zeros(n, np.int64), variance=np.ones(n))
    ...     for depth, n in ((0, 1), (1, 2))))
    >>> estimates = [np.array([9.4]), np.array([10.2, -0.8])]
    >>> [each.tolist() for each in whole_counts(tree, estimates, [np.ones(1), np.ones(2)])]
    [[9], [9, 0]]
    """
    counts = [root_count(estimates[0])]
    for place, above, level in tree.pairs():
        fanout, split = level.fanout(above), level.split(above)
        totals = counts[-1][split]
        wanted = estimates[place].reshape(-1, fanout)
        spread = spreads[place].reshape(-1, fanout)
        if cells is not None:
            wanted = _shrunk(wanted, spread, totals, cells[place].reshape(-1, fanout))
        empty = spread == 0
        if empty.any():
            # So far below its siblings that the projection leaves it at 0.
            far = -4.0 * (1.0 + np.abs(wanted).sum(axis=1) + totals)[:, np.newaxis]
            most = spread.max(axis=1, keepdims=True)
            wanted, spread = np.where(empty, far, wanted), np.where(empty, most, spread)
        counts.append(split_counts(wanted, spread, totals).reshape(-1))
    return counts


def _shrunk(wanted: Floats, spread: Floats, totals: Integers, cells: Floats) -> Floats:
    """Estimates (m, n) of children drawn towards even ones."""
    even = totals[:, np.newaxis] * (cells / cells.sum(axis=1, keepdims=True))
    known = np.where(spread > 0, spread, 1.0)
    off = np.where(spread > 0, wanted - even, 0.0)
    seen = (np.square(off) / known).sum(axis=1)
    free = (spread > 0).sum(axis=1) - 1.0
    factor = 1.0 - np.divide(free, seen, out=np.ones_like(seen), where=seen > free)
    result: Floats = even + np.maximum(factor, 0.0)[:, np.newaxis] * off
    return result
