"""This project's mechanisms on boxes of columns, released in memory, as generators of the study.

Every column is 2^b cells of [0, 1], as many as 53 bits or 62 in all allow. The noise is the
project's own, of a key that the rng gives: a run of the study is a release of its own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.synthetic.generators import Generator, Released, sparse_bytes
from benchmarks.synthetic.grown_tree import ExactCounts
from benchmarks.synthetic.hierarchy import depth
from benchmarks.synthetic.partition import Partition
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.hypercube.question import HypercubeQuestion
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.number import NumberDomain
from dptrees.dpcore.partitions.choices import PartitionChoices, PartitionSetting
from dptrees.dpcore.partitions.mechanism import PartitionMechanism
from dptrees.dpcore.partitions.plan import Holding
from dptrees.dpcore.partitions.planner import plan_partition, plan_privtree
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.release.in_memory import release_rows
from dptrees.dpcore.release.plan import ReleasePlan

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
        diameters=lambda bits: max(domain.widths(bits)),
        dimensions=len(domain.axes),
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(epsilon).limit_denominator(10**6)),
        unit=ADD_REMOVE_ROW,
    )
    choices = PartitionChoices.from_mechanism(mechanism, rows=rows, **given)
    return (plan_privtree if mechanism == "privtree" else plan_partition)(setting, choices)


def real(name: str, mechanism: str, **given: Any) -> Generator:
    """A generator of the study by the project's own code."""

    def release(points: Floats, epsilon: float, rng: np.random.Generator) -> Released:
        domain = box(points.shape[1])
        plan = planned(mechanism, domain, len(points), epsilon, **given)
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
        partition = Partition(
            lower=np.stack(parts.starts, axis=1) / cells,
            upper=np.stack(parts.stops, axis=1) / cells,
            mass=np.maximum(parts.counts, 0).astype(np.float64),
        )
        state = plan.state_bytes
        if state is None:
            state = sparse_bytes(ExactCounts(points), plan.depths[-1])
        return Released(partition=partition, state_bytes=state)

    return Generator(name=name, release=release)


REAL_GENERATORS: tuple[Generator, ...] = (
    real("dptrees", "privhp"),
    real("dptrees, 256 KiB", "privhp", holding=Holding.SKETCH, memory=2**18),
    real("dptrees privtree", "privtree"),
)
