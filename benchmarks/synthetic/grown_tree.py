"""Partitions of the cube, and trees of its cells that grow where rows are.

The hierarchy is that of midpoints of [0, 1]^d: level l halves column (l - 1) mod d. A node of level
l has a code of l bits; the codes of the deepest level order the points (Morton's order), and a node
is an interval of them. Holland et al., Section 9: the l-infinity diameter of a node of level l is
2^-floor(l / d).

The trees of noisy counts grow from the root, and have two estimates of their nodes. Floats and
NumPy's noise, so of no use for a release: a readable reference. A level halves a node `bits` times,
into 2^bits children; children of one node are in one row of a table. All trees count rows with
sensitivity 1 a level (neighbors add or remove a row), so a level with budget epsilon_l has Laplace
noise of the scale 1 / epsilon_l.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class Partition:
    """Boxes with disjoint interiors; a point is uniform in a box drawn by its mass.

    Attributes:
        lower: (m, d) corners in [0, 1]^d.
        upper: (m, d) the opposite corners, above `lower` in every column.
        mass: (m,) nonnegative, not normalized; one that is all zero means equal densities.
    """

    lower: Floats
    upper: Floats
    mass: Floats

    def __post_init__(self) -> None:
        if self.lower.ndim != 2 or self.lower.shape != self.upper.shape:
            raise ValueError(f"corners have shapes {self.lower.shape} and {self.upper.shape}")
        if self.mass.shape != (len(self.lower),):
            raise ValueError(f"{len(self.lower)} boxes have masses of shape {self.mass.shape}")
        if not (self.lower < self.upper).all():
            raise ValueError("a box is empty")
        if not (self.mass >= 0).all():
            raise ValueError("a mass is negative or no number")

    @property
    def dimensions(self) -> int:
        """The number of columns, d."""
        return self.lower.shape[1]

    @property
    def probability(self) -> Floats:
        """(m,) the masses over their sum; the volumes where all masses are zero."""
        weight = self.mass if self.mass.any() else np.prod(self.upper - self.lower, axis=1)
        return weight / weight.sum()

    def sample(self, rng: np.random.Generator, rows: int) -> Floats:
        """(rows, d) independent points.

        >>> half = Partition(lower=np.zeros((1, 2)), upper=np.full((1, 2), 0.5), mass=np.ones(1))
        >>> bool((half.sample(np.random.default_rng(0), 100) < 0.5).all())
        True
        """
        box = rng.choice(len(self.mass), size=rows, p=self.probability)
        low, high = self.lower[box], self.upper[box]
        return low + rng.random(low.shape) * (high - low)


def whole_cube(dimensions: int) -> Partition:
    """The uniform distribution: what is known without data."""
    shape = (1, dimensions)
    return Partition(lower=np.zeros(shape), upper=np.ones(shape), mass=np.ones(1))


def depth(dimensions: int) -> int:
    """The deepest level: as many bits a column as 62 bits allow, and at most a float's 53."""
    return min(62 // dimensions, 53) * dimensions


def encode_points(points: Floats) -> Integers:
    """(n,) codes of the deepest level of (n, d) points in the cube; 1 belongs to the last cell.

    >>> level = depth(2) - 2
    >>> (encode_points(np.array([[0.0, 0.9], [0.9, 0.0]])) >> level).tolist()
    [1, 2]
    """
    dimensions = points.shape[1]
    bits = depth(dimensions) // dimensions
    cells = np.minimum((points * 2.0**bits).astype(np.int64), 2**bits - 1)
    codes = np.zeros(len(points), np.int64)
    for level in range(depth(dimensions)):
        bit = cells[:, level % dimensions] >> (bits - 1 - level // dimensions) & 1
        codes = codes << 1 | bit
    return codes


def make_partition(codes: Integers, levels: Integers, mass: Floats, dimensions: int) -> Partition:
    """The boxes of nodes.

    Args:
        codes: (m,) of nodes, each of its own level's number of bits.
        levels: (m,).
        mass: (m,).
        dimensions: d.
    """
    lower = np.zeros((len(codes), dimensions))
    upper = np.ones((len(codes), dimensions))
    for level in range(int(levels.max(initial=0))):
        inside = levels > level
        bit = codes >> np.maximum(levels - 1 - level, 0) & 1
        column = level % dimensions
        middle = (lower[:, column] + upper[:, column]) / 2
        lower[:, column] = np.where(inside & (bit == 1), middle, lower[:, column])
        upper[:, column] = np.where(inside & (bit == 0), middle, upper[:, column])
    return Partition(lower=lower, upper=upper, mass=mass)


def box_intervals(partition: Partition) -> tuple[Floats, Floats]:
    """(m,) and (m,): each box as an interval of codes, these as fractions of [0, 1].

    A uniform point of the box is uniform in the interval.

    Raises:
        ValueError: a box is no node of the hierarchy.
    """
    dimensions = partition.dimensions
    volume = np.prod(partition.upper - partition.lower, axis=1)
    first = encode_points(partition.lower) / 2.0 ** depth(dimensions)
    levels = np.round(-np.log2(volume)).astype(np.int64)
    codes = encode_points((partition.lower + partition.upper) / 2) >> depth(dimensions) - levels
    made = make_partition(codes, levels, partition.mass, dimensions)
    if not (
        np.array_equal(made.lower, partition.lower) and np.array_equal(made.upper, partition.upper)
    ):
        raise ValueError("a box is no node of the binary midpoint hierarchy")
    return first, first + volume


def diameters(levels: int, dimensions: int) -> Floats:
    """(levels + 1,) gamma_l of levels 0, ..., `levels` in l-infinity.

    >>> diameters(4, 2).tolist()
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    return 2.0 ** -(np.arange(levels + 1) // dimensions).astype(np.float64)


# The variance of what nobody measured.
UNKNOWN = 1e18


@dataclass(frozen=True, kw_only=True)
class Step:
    """A measured level: how many halvings below the one above, and its budget."""

    bits: int
    epsilon: float

    @property
    def variance(self) -> float:
        """Variance of the noise of one node."""
        return 2 / self.epsilon**2


@dataclass(frozen=True, kw_only=True, eq=False)
class Level:
    """The nodes of a measured level that the tree has.

    Attributes:
        depth: halvings below the root.
        codes: (g, 2^bits) of the nodes, a row for each node above that was split.
        noisy: (g, 2^bits) counts.
        variance: of the noise.
        parents: (g,) places of the split nodes in the flattened level above.
    """

    depth: int
    codes: Integers
    noisy: Floats
    variance: float
    parents: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownTree:
    """A tree of noisy counts.

    Attributes:
        dimensions: d.
        root: its noisy count.
        root_variance: of that; `UNKNOWN` where it is not measured.
        levels: below it, from the top.
    """

    dimensions: int
    root: float
    root_variance: float
    levels: tuple[Level, ...]

    @property
    def nodes(self) -> int:
        """How many counts it holds below the root."""
        return sum(level.noisy.size for level in self.levels)

    def partition(self, counts: Sequence[Floats]) -> Partition:
        """The generator: the leaves with their estimates, (g, 2^bits) a level."""
        codes, levels, mass = [], [], []
        for place, level in enumerate(self.levels):
            leaf = np.ones(level.codes.size, bool)
            if place + 1 < len(self.levels):
                leaf[self.levels[place + 1].parents] = False
            codes.append(level.codes.ravel()[leaf])
            levels.append(np.full(codes[-1].size, level.depth))
            mass.append(counts[place].ravel()[leaf])
        return make_partition(
            np.concatenate(codes), np.concatenate(levels), np.concatenate(mass), self.dimensions
        )


class ExactCounts:
    """The counts of all nodes of a data set, from its sorted codes."""

    def __init__(self, points: Floats) -> None:
        self.dimensions = points.shape[1]
        self.codes = np.sort(encode_points(points))

    def __call__(self, nodes: Integers, level: int) -> Floats:
        """Counts of nodes of a level, in the shape of their codes."""
        shift = depth(self.dimensions) - level
        ends = [np.searchsorted(self.codes, each << shift) for each in (nodes, nodes + 1)]
        return (ends[1] - ends[0]).astype(np.float64)

    def cells(self, level: int) -> tuple[Integers, Integers]:
        """The codes of the nodes of a level that hold rows, and how many they hold."""
        return np.unique(self.codes >> depth(self.dimensions) - level, return_counts=True)


# Which nodes to split: (g, m) estimates and the next step, to (g, m) choices.
Rule = Callable[[Floats, Step], np.ndarray]


def everything(estimates: Floats, step: Step) -> np.ndarray:
    """Split all nodes."""
    return np.ones(estimates.shape, bool)


def largest(k: int) -> Rule:
    """Split the k nodes with the largest estimates (Holland et al., Algorithm 3)."""

    def rule(estimates: Floats, step: Step) -> np.ndarray:
        chosen = np.zeros(estimates.size, bool)
        chosen[np.argsort(-estimates.ravel(), kind="stable")[:k]] = True
        return chosen.reshape(estimates.shape)

    return rule


def above_noise(deviations: float, most: int = 200_000) -> Rule:
    """Split what exceeds so many standard deviations of the noise that its children would get."""

    def rule(estimates: Floats, step: Step) -> np.ndarray:
        high = estimates > deviations * np.sqrt(step.variance)
        return high & largest(most)(estimates, step) if high.sum() > most else high

    return rule


def grow(
    counts: ExactCounts, steps: Sequence[Step], rule: Rule, *, rng: np.random.Generator
) -> GrownTree:
    """A tree whose growth looks at noisy counts alone; the root is not measured.

    A node is judged by the best linear estimate from what is known above it and beside it. The
    noise of every node of the whole hierarchy is thought of as drawn beforehand, so that growing
    is post-processing; here it is drawn when a node is first looked at, which is the same.
    """
    levels: list[Level] = []
    codes, parents = np.zeros(1, np.int64), np.zeros(1, np.int64)
    above, above_variance = np.zeros(1), np.full(1, UNKNOWN)
    for place, step in enumerate(steps):
        children = (codes << step.bits)[:, None] + np.arange(2**step.bits)
        level = sum(each.bits for each in steps[: place + 1])
        noisy = counts(children, level) + rng.laplace(0, 1 / step.epsilon, children.shape)
        levels.append(
            Level(depth=level, codes=children, noisy=noisy, variance=step.variance, parents=parents)
        )
        if place + 1 == len(steps):
            break
        gain = step.variance / (2**step.bits * step.variance + above_variance)
        estimates = noisy + ((above - noisy.sum(axis=1)) * gain)[:, None]
        parents = np.flatnonzero(rule(estimates, steps[place + 1]))
        if not parents.size:
            break
        codes, above = children.ravel()[parents], estimates.ravel()[parents]
        above_variance = np.repeat(step.variance * (1 - gain), 2**step.bits)[parents]
    return GrownTree(
        dimensions=counts.dimensions, root=0.0, root_variance=UNKNOWN, levels=tuple(levels)
    )


def least_squares(tree: GrownTree, *, shrink: bool = False) -> tuple[Floats, ...]:
    """Nonnegative estimates that add up: generalized least squares, then projections downwards.

    The least squares estimate of a node is a mean of its own count and of its children's sum,
    weighted by precision, corrected by its share of what its parent has (Hay et al.). Then, from
    the root, each node's children are moved to the closest nonnegative numbers with its sum.

    Args:
        tree: grown.
        shrink: whether children first move towards equal shares, by the positive part of James and
            Stein: by all of their difference where it is no larger than noise.

    Returns:
        Per level (g, 2^bits) estimates.
    """
    from_below = _from_below(tree)
    values, variances = from_below[0]
    total, noise = values.sum(axis=1), variances.sum(axis=1)
    root = (tree.root * noise + total * tree.root_variance) / (noise + tree.root_variance)
    found: list[Floats] = []
    above = np.maximum(root, 0)
    for level, (values, variances) in zip(tree.levels, from_below, strict=True):
        totals = above[level.parents]
        surplus = (totals - values.sum(axis=1)) / variances.sum(axis=1)
        solved = values + variances * surplus[:, None]
        if shrink:
            solved = _shrunk(solved, variances, totals)
        found.append(on_simplex(solved, totals))
        above = found[-1].ravel()
    return tuple(found)


def _from_below(tree: GrownTree) -> list[tuple[Floats, Floats]]:
    """Per level (g, m) estimates from a node and all below it, and their variances."""
    found: list[tuple[Floats, Floats]] = []
    below: tuple[Level, Floats, Floats] | None = None
    for level in reversed(tree.levels):
        values = level.noisy.ravel().copy()
        variances = np.full(values.size, level.variance)
        if below is not None:
            lower, sums, noise = below
            weight = noise / (noise + variances[lower.parents])
            values[lower.parents] = weight * values[lower.parents] + (1 - weight) * sums
            variances[lower.parents] *= weight
        tables = values.reshape(level.noisy.shape), variances.reshape(level.noisy.shape)
        found.append(tables)
        below = level, tables[0].sum(axis=1), tables[1].sum(axis=1)
    return found[::-1]


def _shrunk(values: Floats, variances: Floats, totals: Floats) -> Floats:
    """(g, m) rows, moved towards equal shares of their totals as far as they are noise."""
    equal = (totals / values.shape[1])[:, None]
    difference = values - equal
    size = (difference**2 / variances).sum(axis=1)
    kept = np.maximum(0, 1 - (values.shape[1] - 1) / np.maximum(size, 1e-300))
    return equal + kept[:, None] * difference


def on_simplex(values: Floats, totals: Floats) -> Floats:
    """The closest nonnegative rows with given sums (Held, Wolfe, Crowder), (g, m) of (g, m), (g,).

    >>> on_simplex(np.array([[3.0, -1.0], [1.0, 1.0]]), np.array([2.0, 4.0])).tolist()
    [[2.0, 0.0], [2.0, 2.0]]
    """
    descending = np.sort(values, axis=1)[:, ::-1]
    surplus = np.cumsum(descending, axis=1) - totals[:, None]
    cut = surplus / np.arange(1, values.shape[1] + 1)
    last = np.maximum((descending > cut).sum(axis=1), 1) - 1
    return np.maximum(values - cut[np.arange(len(cut)), last][:, None], 0)


def enforced(children: Floats, parents: Floats) -> Floats:
    """Holland et al., Algorithm 4, with both corrections, for (g, 2) children of (g,) parents."""
    children = np.maximum(children, 0)  # error correction type 1
    even = children - ((children.sum(axis=1) - parents) / 2)[:, None]
    left = np.stack((parents, np.zeros_like(parents)), axis=1)
    right = left[:, ::-1]
    # Error correction type 2: a child below zero gets nothing, the other one all.
    return np.where(even[:, :1] < 0, right, np.where(even[:, 1:] < 0, left, even))
