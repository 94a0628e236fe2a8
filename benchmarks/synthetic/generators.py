"""The generators of the study: each by a name, as a function of points, epsilon and an rng.

These are references in floats; `benchmarks.synthetic.real_generators` has the releases of this
project, and `benchmarks.synthetic.compared` all that are compared.
All are private for neighbors that add or remove a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from benchmarks.reproduction.simulation import simulate
from benchmarks.synthetic import pmm_reference, privtree_reference, srrw
from benchmarks.synthetic.grown_tree import ExactCounts, Step, above_noise, grow, least_squares
from benchmarks.synthetic.hierarchy import depth
from benchmarks.synthetic.partition import Partition, whole_cube
from benchmarks.synthetic.privhp_reference import PrivHP, SketchSize
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.uniform.setting import TreeSetting

PLANNED_LEAVES = 2**16


@dataclass(frozen=True, kw_only=True)
class Released:
    """A generator, and what was held while rows were read.

    Attributes:
        partition: to sample from.
        state_bytes: of counters, 8 bytes each, and of the codes of sparse ones, 8 bytes each.
    """

    partition: Partition
    state_bytes: int


@dataclass(frozen=True, kw_only=True)
class Generator:
    """A named mechanism.

    Attributes:
        name: in the tables.
        release: of (n, d) points at epsilon.
        columns: the most it can do.
    """

    name: str
    release: Callable[[Floats, float, np.random.Generator], Released]
    columns: int = 62


def effective_depth(rows: int, epsilon: float) -> int:
    """ceil(log2(epsilon n)), PMM's r; at least 1."""
    return max(1, math.ceil(math.log2(epsilon * rows)))


def grown_steps(rows: int, epsilon: float, dimensions: int) -> list[Step]:
    """What a grown tree measures, by the study's own finding.

    Whole rounds of the columns, about four bits at once, each level with less budget than the one
    above. One column: down to about PMM's r, with 2^-1/2 of the budget. More: one level more than r
    has, two from four columns on, with 2^-1/4; concentrated data needs them, and the threshold
    keeps other data from them.

    >>> [round(step.epsilon, 3) for step in grown_steps(10_000, 1.0, 1)]
    [0.453, 0.32, 0.227]
    >>> [round(step.epsilon, 3) for step in grown_steps(10_000, 1.0, 2)]
    [0.275, 0.231, 0.194, 0.163, 0.137]
    """
    bits = dimensions * max(1, round(4 / dimensions))
    down = effective_depth(rows, epsilon)
    if dimensions == 1:
        steps, fall = max(1, round((down - 1) / bits)), 0.5
    else:
        steps, fall = max(1, round(down / bits)) + (1 if dimensions < 4 else 2), 0.25
    steps = min(steps, depth(dimensions) // bits)
    weights = 2.0 ** (-fall * np.arange(steps))
    return [Step(bits=bits, epsilon=float(each)) for each in epsilon * weights / weights.sum()]


def _uniform(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
    return Released(partition=whole_cube(points.shape[1]), state_bytes=0)


def _pmm(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
    mechanism = pmm_reference.mechanism(len(points), epsilon)
    partition = mechanism.release(points, epsilon, rng)
    return Released(partition=partition, state_bytes=mechanism.state_bytes)


def _privhp(
    k: int, sketch: SketchSize | None
) -> Callable[[Floats, float, np.random.Generator], Released]:
    def release(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
        mechanism = PrivHP(k=k, depth=effective_depth(len(points), epsilon), sketch=sketch)
        partition = mechanism.release(points, epsilon, rng)
        state = mechanism.state_bytes
        if sketch is None:
            state += sparse_bytes(ExactCounts(points), mechanism.depth)
        return Released(partition=partition, state_bytes=state)

    return release


def _privtree(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
    state = sparse_bytes(ExactCounts(points), privtree_reference.DEEPEST)
    partition = privtree_reference.release(points, epsilon, rng)
    return Released(partition=partition, state_bytes=state)


def _grown(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
    counts = ExactCounts(points)
    steps = grown_steps(len(points), epsilon, counts.dimensions)
    tree = grow(counts, steps, above_noise(4), rng=rng)
    # In one column errors of neighbors add up, and what shrinking moves moves far.
    partition = tree.partition(least_squares(tree, shrink=counts.dimensions > 1))
    deepest = sum(step.bits for step in steps)
    return Released(partition=partition, state_bytes=sparse_bytes(counts, deepest))


def _srrw(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
    partition = srrw.release(points, epsilon, rng)
    return Released(partition=partition, state_bytes=8 * len(partition.mass))


def _planned(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
    """This project's tree of one column, planned for its CDF, by its own code.

    Over PMM's cells, but no more than one chunk of a release holds.
    """
    leaves = min(2 ** effective_depth(len(points), epsilon), PLANNED_LEAVES)
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(epsilon).limit_denominator(10**6))
    setting = TreeSetting(leaves=leaves, budget=budget, unit=ADD_REMOVE_ROW)
    counts = np.histogram(points[:, 0], leaves, (0, 1))[0]
    # Noise is of the name, the plan and the counts: the rng makes it that of one run.
    name = f"planned, {rng.integers(2**62)}"
    found = simulate(plan_tree(setting), counts[None].astype(np.int64), name=name)
    mass = np.diff(found.counts[0].astype(np.float64), prepend=0.0)
    edges = np.arange(leaves + 1)[:, None] / leaves
    partition = Partition(lower=edges[:-1], upper=edges[1:], mass=mass)
    return Released(partition=partition, state_bytes=8 * leaves)


def sparse_bytes(counts: ExactCounts, level: int) -> int:
    """Return the bytes of exact counts at a level: a table, or codes and counts where these are
    fewer."""
    occupied = counts.cells(min(level, 53 if counts.dimensions == 1 else level))[0].size
    return 8 * min(2**level, 2 * int(occupied))


REFERENCES = (
    Generator(name="uniform", release=_uniform),
    Generator(name="SRRW", release=_srrw, columns=1),
    Generator(name="PMM", release=_pmm),
    Generator(name="PrivTree", release=_privtree),
    Generator(
        name="PrivHP, k 64, sketch 1 x 512", release=_privhp(64, SketchSize(rows=1, width=512))
    ),
    Generator(name="PrivHP, k 64, exact", release=_privhp(64, None)),
    Generator(name="planned tree", release=_planned, columns=1),
)
