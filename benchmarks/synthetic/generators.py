"""Generators that are compared: from papers, in floating point, and by this project.

The hierarchy is that of midpoints of [0, 1]^d: level l halves column (l - 1) mod d. A node of level
l has a code of l bits; the codes of the deepest level order the points (Morton's order), and a node
is an interval of them. Holland et al., Section 9: the l-infinity diameter of a node of level l is
2^-floor(l / d).

Each is a function of points, epsilon and an rng, and private for neighbors that add or remove a
row. The generators from papers are of no use for a release.

**PrivTree** (Zhang, Xiao, Xie), on the midpoint hierarchy: all columns are halved at once. A node
of depth i is split where max(c - i delta, theta - delta) + Lap(lambda) > theta, with theta = 0,
lambda = (2 b - 1) / (b - 1) / epsilon_1 and delta = lambda ln b for fan-out b = 2^d: that is
epsilon_1-private at any depth. The leaves' counts then have noise of the scale 1 / epsilon_2. As
published the budget is halved; neighbors add or remove a row. Here the deepest level is bounded.

**SRRW**, the superregular random walk of Boedihardjo, Strohmer and Vershynin, in one column:
"Private measures, random walks, and synthetic data": to the distribution function at the edges of
2^L cells they add a walk W = sum_j lambda_j phi_j, phi_j Schauder's tents of height 1 and the line
from 0 to 1, lambda_j independent Laplace variables; it strays by log^(3/2), where independent steps
would stray by a root. The result is replaced by a close distribution.

Calibrated here: in this basis a row's step function has the coefficient 1 on the line and at most
1/2 on one tent of each level (value at the middle less the mean of the ends), so the coefficients'
sensitivity is 1 + L / 2, and lambda_j of the scale (1 + L / 2) / epsilon are epsilon-private for
neighbors that add or remove a row. The published scale is 2 (L + 2) / epsilon, for replacement and
by a bound of densities: four times as much. Published: the closest measure in W1; here: isotonic
regression, closest in the mean square. The total is taken as public, as published.

**This project's mechanisms** on boxes of columns, released in memory. Every column is 2^b cells of
[0, 1], as many as 53 bits or 62 in all allow. The noise is the project's own, of a key that the rng
gives: a run of the study is a release of its own. **PrivHP** as published is `privhp_paper`, and
**PMM** (He, Vershynin, Zhu), which prunes nothing, is `pmm` (dpcore/papers/holland.py). Both have
levels down to r = ceil(log2(epsilon n)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.optimize import isotonic_regression

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.plan import Holding, PartitionMechanism
from dptrees.dpcore.boxes.planner import (
    PartitionChoices,
    PartitionSetting,
    plan_partition,
)
from dptrees.dpcore.boxes.question import PLANNERS, HypercubeQuestion
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.dpcore.sketches.sketch import SketchKind


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

    @property
    def dimensions(self) -> int:
        """The number of columns, d."""
        return self.lower.shape[1]

    @property
    def probability(self) -> Floats:
        """(m,) the masses over their sum; the volumes where all masses are zero."""
        weight = self.mass if self.mass.any() else np.prod(self.upper - self.lower, axis=1)
        return weight / weight.sum()


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


DEEPEST = 40


def privtree_release(points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
    """The generator of (n, d) points."""
    counts = ExactCounts(points)
    dimensions = counts.dimensions
    fanout = 2**dimensions
    scale = (2 * fanout - 1) / (fanout - 1) / (epsilon / 2)
    decay = scale * math.log(fanout)
    nodes, leaves, levels = np.zeros(1, np.int64), [], []
    for level in range(min(DEEPEST, depth(dimensions)) // dimensions + 1):
        exact = counts(nodes, level * dimensions)
        judged = np.maximum(exact - level * decay, -decay) + rng.laplace(0, scale, nodes.size)
        split = (judged > 0) & ((level + 1) * dimensions <= min(DEEPEST, depth(dimensions)))
        leaves.append(nodes[~split])
        levels.append(np.full(leaves[-1].size, level * dimensions))
        nodes = ((nodes[split] * fanout)[:, None] + np.arange(fanout)).ravel()
        if not nodes.size:
            break
    mass = np.concatenate(
        [counts(each, int(at[0])) for each, at in zip(leaves, levels, strict=True) if each.size]
    )
    noisy = np.maximum(mass + rng.laplace(0, 2 / epsilon, mass.size), 0)
    return make_partition(np.concatenate(leaves), np.concatenate(levels), noisy, dimensions)


def effective_depth(rows: int, epsilon: float) -> int:
    """ceil(log2(epsilon n)), PMM's r; at least 1.

    >>> effective_depth(1000, 1.0)
    10
    """
    return max(1, math.ceil(math.log2(epsilon * rows)))


def walk(levels: int, scale: float, rng: np.random.Generator) -> Floats:
    """(2^levels + 1,) values of the walk at the edges of equal cells, from 0.

    Midpoint displacement is the same as adding tents: half a level's tents are zero at each edge.
    """
    values = np.array([0.0, rng.laplace(0, scale)])
    for _ in range(levels):
        middles = (values[:-1] + values[1:]) / 2
        middles += rng.laplace(0, scale, middles.size)
        wider = np.empty(2 * values.size - 1)
        wider[::2], wider[1::2] = values, middles
        values = wider
    return values


def srrw_release(points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
    """The generator of (n, 1) points, over 2^ceil(log2(epsilon n)) cells."""
    levels = effective_depth(len(points), epsilon)
    counts, edges = np.histogram(points[:, 0], 2**levels, (0, 1))
    noisy = np.concatenate(([0], np.cumsum(counts)))
    noisy = noisy + walk(levels, (1 + levels / 2) / epsilon, rng)
    inner = np.clip(isotonic_regression(noisy[1:-1]).x, 0, len(points))
    mass = np.diff(np.concatenate(([0.0], inner, [len(points)])))
    return Partition(lower=edges[:-1, None], upper=edges[1:, None], mass=mass)


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A named mechanism.

    Attributes:
        name: in the tables.
        release: of (n, d) points at epsilon.
        columns: the most it can do.
    """

    name: str
    release: Callable[[Floats, float, np.random.Generator], Partition]
    columns: int = 62


def _uniform(points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
    shape = (1, points.shape[1])
    return Partition(lower=np.zeros(shape), upper=np.ones(shape), mass=np.ones(1))


REFERENCES = (
    Generator(name="uniform", release=_uniform),
    Generator(name="SRRW", release=srrw_release, columns=1),
    Generator(name="PrivTree", release=privtree_release),
)


TREE = "box"
# A column's bits: a double's integers of cells, and sides of a part that a double can halve.
MOST_COLUMN_BITS = 40


def box(dimensions: int) -> HypercubeDomain:
    """[0, 1]^d in cells that are powers of two."""
    bits = min(depth(dimensions) // dimensions, MOST_COLUMN_BITS)
    axes = tuple(
        NumberDomain(column=f"x{place}", lower=0.0, upper=1.0, cells=2**bits, outside="clamp")
        for place in range(dimensions)
    )
    return HypercubeDomain(axes=axes, depths=(bits,) * dimensions)


def planned(
    mechanism: str, domain: HypercubeDomain, rows: int, epsilon: float, **given: Any
) -> PartitionMechanism:
    """The plan of a mechanism by its name; N is taken as known, as the published ones do."""
    setting = PartitionSetting(
        bits=domain.bits,
        diameters=lambda bits: max(domain.extents(bits)),
        dimensions=len(domain.axes),
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(epsilon).limit_denominator(10**6)),
        unit=ADD_REMOVE_ROW,
    )
    choices = PartitionChoices.from_mechanism(mechanism, rows=rows, **given)
    return PLANNERS.get(mechanism, plan_partition)(setting, choices)


def real(name: str, mechanism: str, **given: Any) -> Generator:
    """A generator of the study by the project's own code; published ones have their depth."""

    def release(points: Floats, epsilon: float, rng: np.random.Generator) -> Partition:
        domain, choices = box(points.shape[1]), dict(given)
        if mechanism in ("pmm", "privhp_paper"):
            choices.setdefault("depth", effective_depth(len(points), epsilon))
        plan = planned(mechanism, domain, len(points), epsilon, **choices)
        question = HypercubeQuestion(name=TREE, domain=domain, plan=plan)
        release_plan = ReleasePlan(
            name="study",
            unit=ADD_REMOVE_ROW,
            budget=Budget(measure=Measure.EPSILON, amount=plan.spending.epsilon),
            questions=(question,),
        )
        columns = [pa.array(column) for column in points.T]
        rows = pa.record_batch(columns, names=list(domain.columns))
        released = release_rows(release_plan, [rows], ReleaseKey(rng.bytes(32)))
        parts = released.tree(TREE).partition.parts
        cells = np.array([axis.cells for axis in domain.axes], np.float64)
        return Partition(
            lower=np.stack(parts.starts, axis=1) / cells,
            upper=np.stack(parts.stops, axis=1) / cells,
            mass=np.maximum(parts.counts, 0).astype(np.float64),
        )

    return Generator(name=name, release=release)


REAL_GENERATORS: tuple[Generator, ...] = (
    real("PMM", "pmm", holding=Holding.SPARSE),
    real(
        "PrivHP, k 64, sketch 1 x 512",
        "privhp_paper",
        most=64,
        width=512,
        sketch=SketchKind.COUNT_MIN,
    ),
    real("PrivHP, k 64, exact", "privhp_paper", most=64, holding=Holding.SPARSE),
    real("dptrees", "privhp"),
    real("planned", "planned"),
)


GENERATORS = (*REFERENCES, *REAL_GENERATORS)
