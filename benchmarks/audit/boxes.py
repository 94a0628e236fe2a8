"""Random boxes of columns: partitions that grow by rules no planner would choose, their counts held
in every way."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from benchmarks.audit.trees import Draft, ordered_domain
from dpcore.hypercube.domain import HypercubeDomain, cell_bits
from dpcore.hypercube.question import HypercubeQuestion
from dpcore.partitions.growth import GrowthRule
from dpcore.partitions.plan import Estimation, Holding, LevelSketches, PartitionPlan
from dpcore.privacy.budget import Budget, Neighbors
from dpcore.sketches.shape import SketchKind, SketchShape


def box_draft(rng: Random, name: str, neighbors: Neighbors, *, sketches: bool = False) -> Draft:
    """A box of one to three columns, of counts held exactly or in sketches."""
    public = neighbors is Neighbors.SUBSTITUTE and rng.random() < 0.3
    axes, palettes = [], {}
    while len(axes) < rng.randint(1, 3):
        column = f"{name}_{len(axes)}"
        axis, palette = ordered_domain(rng, column, drops=not public)
        if axis.cells > 1:
            axes.append(axis)
            palettes[column] = palette
    depths = tuple(rng.randint(1, min(3, cell_bits(axis))) for axis in axes)
    domain = HypercubeDomain(axes=tuple(axes), depths=depths)
    levels = _levels(rng, domain.bits)
    estimation, parts = rng.choice(list(Estimation)), rng.choice([None, None, 3])
    root = not public and (
        estimation is Estimation.EVEN_SHARES or bool(parts) or rng.random() < 0.5
    )
    units = [rng.randint(1, 4) if root else 0, *(rng.randint(1, 5) for _ in levels[1:])]
    rule = GrowthRule(
        most=rng.choice([1, 2, 2**16, 2**16]),
        parts=parts,
        above=tuple(rng.choice([-math.inf, -math.inf, 0.0, 3.0]) for _ in levels[1:])
        if rng.random() < 0.5
        else (),
    )
    held = _sketches(rng, len(levels)) if sketches else None
    holding = Holding.SKETCH if sketches else rng.choice([Holding.DENSE, Holding.SPARSE])

    def make(budget: Budget) -> HypercubeQuestion:
        plan = PartitionPlan(
            depths=levels,
            amounts=tuple(budget.amount * Fraction(unit, sum(units)) for unit in units),
            measure=budget.measure,
            neighbors=neighbors,
            public_total=public,
            rule=rule,
            estimation=estimation,
            holding=holding,
            sketches=held,
        )
        return HypercubeQuestion(name=name, domain=domain, plan=plan)

    return Draft(make=make, palettes=palettes)


def _levels(rng: Random, bits: int) -> tuple[int, ...]:
    """The depths of one to four levels below the root."""
    depths = range(1, bits + 1)
    return (0, *sorted(rng.sample(depths, min(bits, rng.randint(1, 4)))))


def _sketches(rng: Random, levels: int) -> LevelSketches:
    """So narrow that both ends of a moved row often share a cell."""
    shape = SketchShape(
        kind=rng.choice(list(SketchKind)), rows=rng.choice([1, 1, 3]), width=rng.choice([2, 4, 16])
    )
    return LevelSketches(shape=shape, counters=rng.randrange(levels - 1))
