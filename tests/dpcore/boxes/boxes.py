"""What several tests of boxes share: a box of odd sides, rows, plans with noise or next to none,
releases in memory, exact counts of boxes by brute force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.parts import Box, ReleasedPartition
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.planner import PartitionChoices, PartitionSetting
from dptrees.dpcore.boxes.question import PLANNERS, HypercubeQuestion, HypercubeWorkload
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows

KEY = ReleaseKey(bytes(range(32)))
# A level's noise of this budget is 0 in all of 2^64 draws.
NO_NOISE = Fraction(10**6)
HOLDINGS = tuple(Holding)
MECHANISMS = ("privhp", "privhp_paper", "pmm")


def box_domain(
    *cells: int, depths: Sequence[int] | None = None, **policies: str
) -> HypercubeDomain:
    """Columns c0, c1, ... of whole numbers from 0."""
    return HypercubeDomain(
        axes=tuple(
            StepDomain(kind="integer", column=f"c{place}", lower=0, upper=own, **policies)
            for place, own in enumerate(cells)
        ),
        depths=tuple(depths or ((own - 1).bit_length() for own in cells)),
    )


def draw_rows(domain: HypercubeDomain, many: int, seed: int = 0) -> pa.RecordBatch:
    """Rows in clusters, so that some parts are heavy and most are empty."""
    rng = np.random.default_rng(seed)
    columns = {}
    for axis in domain.axes:
        spread = rng.beta(0.4, 2.0, many) if rng.random() < 0.7 else rng.random(many)
        columns[axis.column] = np.minimum((spread * axis.cells).astype(np.int64), axis.cells - 1)
    return pa.record_batch(columns)


def make_setting(
    *,
    bits: int = 24,
    dimensions: int = 2,
    measure: Measure = Measure.EPSILON,
    amount: Fraction = Fraction(1),
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    public_total: bool = False,
) -> PartitionSetting:
    """What a planner is given of a box whose sides are halved in turn."""
    return PartitionSetting(
        bits=bits,
        diameters=lambda depth: 2.0 ** -(depth // dimensions),
        dimensions=dimensions,
        budget=Budget(measure=measure, amount=amount),
        unit=unit,
        public_total=public_total,
    )


def plan_question(
    domain: HypercubeDomain,
    mechanism: str = "privhp",
    *,
    amount: Fraction = NO_NOISE,
    measure: Measure = Measure.EPSILON,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    name: str = "box",
    **choices: Any,
) -> HypercubeQuestion:
    """The planned question; sketches are wide enough to keep all codes of small boxes apart."""
    known: dict[str, Any] = {"depth": domain.bits, **choices}
    if known.get("holding") is Holding.SKETCH:
        known = {"width": 2**17, "memory": 2**30} | known
    workload = HypercubeWorkload(
        name=name,
        domain=domain,
        mechanism=mechanism if mechanism in PLANNERS else "privhp",
        choices=PartitionChoices.from_mechanism(mechanism, **known),
    )
    budget = Budget(measure=measure, amount=amount)
    return workload.planned(Setting(unit=unit, budget=budget))


def released(
    question: HypercubeQuestion, rows: pa.RecordBatch, key: ReleaseKey = KEY, *, nonce: bytes = b""
) -> ReleasedHypercube:
    """The answers of a release in memory."""
    plan = ReleasePlan(
        name="boxes", unit=question.unit, budget=question.budget, questions=(question,)
    )
    tree = release_rows(plan, [rows], key, nonce=nonce).tree(question.name)
    assert isinstance(tree, ReleasedHypercube)
    return tree


def rows_in(rows: pa.RecordBatch, sides: Mapping[str, tuple[int, int]]) -> int:
    """How many rows lie in a box."""
    inside = np.ones(rows.num_rows, np.bool_)
    for name, (low, high) in sides.items():
        values = rows.column(name).to_numpy()
        inside &= (values >= low) & (values < high)
    return int(inside.sum())


def covered_shares(partition: ReleasedPartition, sides: Box) -> list[Floats]:
    """For each level (n,) the share of each part that a box covers; 0 of other nodes."""
    return [
        ends * partition.covered(place, np.arange(len(ends)), sides)
        for place, ends in enumerate(partition.tree.leaves())
    ]
