"""Random boxes of columns: partitions that grow by rules no planner would choose, or as planned,
their counts held in every way."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

from benchmarks.audit.trees import Draft, Palettes, ordered_domain
from dptrees.dpcore.hypercube.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.hypercube.question import HypercubeQuestion
from dptrees.dpcore.hypercube.workload import HypercubeWorkload
from dptrees.dpcore.partitions.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.partitions.choices import PartitionChoices
from dptrees.dpcore.partitions.growth import GrowthRule
from dptrees.dpcore.partitions.mechanism import PartitionMechanism
from dptrees.dpcore.partitions.plan import Estimation, Holding, LevelSketches, PartitionPlan
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.questions.workload import ReleaseTerms, Share
from dptrees.dpcore.sketches.shape import SketchKind, SketchShape

# Averages are of adaptive partitions.
WHOLE_LEVELS = [each for each in Estimation if each is not Estimation.AVERAGED]


def box_draft(rng: Random, name: str, unit: PrivacyUnit, *, sketches: bool = False) -> Draft:
    """A box of one to three columns, of counts held exactly or in sketches."""
    domain, palettes = _domain(rng, name, unit)
    planner = _planned if rng.random() < 0.3 else _by_hand
    make = planner(rng, domain, unit, sketches=sketches)
    return Draft(
        make=lambda budget: HypercubeQuestion(name=name, domain=domain, plan=make(budget)),
        palettes=palettes,
    )


def adaptive_draft(rng: Random, name: str, unit: PrivacyUnit) -> Draft:
    """A box of one to three columns, with levels, budgets and thresholds that no planner would
    choose."""
    domain, palettes = _domain(rng, name, unit)
    public, levels = _is_public(domain, unit), _levels(rng, domain.bits)
    root = not public and rng.random() < 0.5
    units = [rng.randint(1, 4) if root else 0, *(rng.randint(1, 5) for _ in levels[1:])]
    thresholds = tuple(rng.choice([0, 1, 3, 30]) for _ in levels[1:])
    part, most = rng.choice([Fraction(0), Fraction(1, 3)]), rng.choice([1, 2, 2**16])

    def make(budget: Budget) -> HypercubeQuestion:
        plan = AdaptivePartitionPlan(
            depths=levels,
            amounts=tuple(budget.amount * Fraction(each, sum(units)) for each in units),
            thresholds=thresholds,
            most=most,
            measure=budget.measure,
            unit=unit,
            decision_part=part,
            averaged=most == 2,  # by what is drawn already, so that no other plan changes
            public_total=public,
        )
        return HypercubeQuestion(name=name, domain=domain, plan=plan)

    return Draft(make=make, palettes=palettes)


def _domain(rng: Random, name: str, unit: PrivacyUnit) -> tuple[HypercubeDomain, Palettes]:
    """One to three columns, and what their cells are made of."""
    public = unit == SUBSTITUTE_ROW and rng.random() < 0.3
    axes, palettes = [], {}
    while len(axes) < rng.randint(1, 3):
        column = f"{name}_{len(axes)}"
        axis, palette = ordered_domain(rng, column, drops=not public)
        if axis.cells > 1:
            axes.append(axis)
            palettes[column] = palette
    depths = tuple(rng.randint(1, min(3, cell_bits(axis))) for axis in axes)
    return HypercubeDomain(axes=tuple(axes), depths=depths), palettes


def _by_hand(
    rng: Random, domain: HypercubeDomain, unit: PrivacyUnit, *, sketches: bool
) -> Callable[[Budget], PartitionMechanism]:
    """Levels and their budgets that no planner would choose."""
    public = _is_public(domain, unit)
    levels = _levels(rng, domain.bits)
    estimation, parts = rng.choice(WHOLE_LEVELS), rng.choice([None, None, 3])
    needed = estimation is Estimation.EVEN_SHARES or parts is not None
    root = not public and (needed or rng.random() < 0.5)
    units = [rng.randint(1, 4) if root else 0, *(rng.randint(1, 5) for _ in levels[1:])]
    rule = GrowthRule(most=rng.choice([1, 2, 2**16, 2**16]), parts=parts)
    shape = _shape(rng) if sketches else None
    counters = rng.randrange(len(levels) - 1)
    return lambda budget: PartitionPlan(
        depths=levels,
        amounts=tuple(budget.amount * Fraction(unit, sum(units)) for unit in units),
        measure=budget.measure,
        unit=unit,
        public_total=public,
        rule=rule,
        estimation=estimation,
        holding=Holding.SPARSE if shape is None else Holding.SKETCH,
        sketches=None if shape is None else LevelSketches(shape=shape, counters=counters),
    )


def _planned(
    rng: Random, domain: HypercubeDomain, unit: PrivacyUnit, *, sketches: bool
) -> Callable[[Budget], PartitionMechanism]:
    """Return a planner of a random mechanism, as a section would describe it, with splits where
    counts exceed their noise."""
    given: dict[str, Any] = {"holding": rng.choice([Holding.DENSE, Holding.SPARSE])}
    if sketches:
        shape = _shape(rng)
        own = {"sketch": shape.kind, "hash_rows": shape.rows, "width": shape.width}
        given = {"holding": Holding.SKETCH, "most": 1} | own
    choices = PartitionChoices(
        depth=rng.randint(1, domain.bits),
        bits_apart=rng.randint(1, 2),
        split_errors=rng.choice([0.0, 0.5, 3.0]),
        root=rng.random() < 0.5,
        **given,
    )
    workload = HypercubeWorkload(name="planned", domain=domain, choices=choices)
    terms = ReleaseTerms(unit=unit)
    return lambda budget: workload.planned(Share(budget=budget), terms).plan


def _is_public(domain: HypercubeDomain, unit: PrivacyUnit) -> bool:
    """Whether the number of rows is public."""
    return unit == SUBSTITUTE_ROW and not domain.drops_rows


def _levels(rng: Random, bits: int) -> tuple[int, ...]:
    """The depths of one to four levels below the root."""
    depths = range(1, bits + 1)
    return (0, *sorted(rng.sample(depths, min(bits, rng.randint(1, 4)))))


def _shape(rng: Random) -> SketchShape:
    """So narrow that both ends of a moved row often share a cell."""
    return SketchShape(
        kind=rng.choice(list(SketchKind)), rows=rng.choice([1, 1, 3]), width=rng.choice([2, 4, 16])
    )
