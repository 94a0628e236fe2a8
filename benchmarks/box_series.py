"""A box in a series: how far off its partition of all rows so far is, and what runs cost.

    python -m benchmarks.box_series [--periods 365] [--rows 1000] [--columns 1] [--epsilon 1]

The rows of every period are independent points of one law (Beta(2, 8) in every column), or of one
that moves. At some periods the distance of the partition to all rows so far is printed: W1 in one
column (exact), in several sliced W1 of samples. Beside the series, at the same epsilon in all:

- once: one release of all rows so far, by the same mechanism: the rows of a series that ends there;
- anew: a release of all rows so far in every period, each with its part of epsilon;
- apart: a release of every period's rows alone, with all of epsilon, and their partitions together;
- sketches: the series with counts in sketches of so many bytes.

Then the seconds of a run, and the bytes that it leaves to the next one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.synthetic.grown_tree import Partition
from benchmarks.synthetic.measures import line_distance, sliced_distance
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.hypercube.released import ReleasedHypercube
from dptrees.dpcore.hypercube.workload import HypercubeWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.make import make_domain
from dptrees.dpcore.partitions.choices import PartitionChoices
from dptrees.dpcore.partitions.plan import Holding
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.place import STATE
from dptrees.dpcore.questions.workload import ReleaseTerms, Share
from dptrees.dpcore.release.in_memory import RunBefore, release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.spans import select_span
from dptrees.dpcore.series.workload import SeriesWorkload

KEY = ReleaseKey(bytes(32))
CELLS = 2**24
SAMPLED = 50_000


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is compared.

    Args:
        periods: T.
        rows: of a period.
        columns: d.
        epsilon: of all runs.
        moving: whether the law moves from period to period.
    """

    periods: int
    rows: int
    columns: int
    epsilon: Fraction
    moving: bool

    def points(self, period: int) -> Floats:
        """(rows, d) the rows of a period."""
        rng = np.random.default_rng(period)
        points = rng.beta(2, 8, (self.rows, self.columns))
        if not self.moving:
            return points
        return 0.5 * points + 0.5 * (period - 1) / self.periods

    def workload(self, rows: int, memory: int | None = None) -> HypercubeWorkload:
        """The box, planned for so many rows in all; in sketches where a memory is given."""
        axes = [
            make_domain({"column": f"x{number}", "lower": 0, "upper": 1, "cells": CELLS})
            for number in range(self.columns)
        ]
        bits = 64 // self.columns
        own: dict[str, Any] = {} if memory is None else {"holding": Holding.SKETCH}
        return HypercubeWorkload(
            name="box",
            domain=HypercubeDomain(axes=tuple(axes), depths=(min(24, bits),) * self.columns),
            choices=PartitionChoices(rows=rows, memory=memory, split_errors=4.0, **own),
        )

    def plan(self, question: Any, epsilon: Fraction) -> ReleasePlan:
        """The plan of a release or a run."""
        budget = Budget(measure=Measure.EPSILON, amount=epsilon)
        return ReleasePlan(name="r", unit=ADD_REMOVE_ROW, budget=budget, questions=(question,))

    def alone(self, points: Floats, epsilon: Fraction, nonce: bytes) -> Partition:
        """One release of rows."""
        budget = Budget(measure=Measure.EPSILON, amount=epsilon)
        terms = ReleaseTerms(unit=ADD_REMOVE_ROW)
        question = self.workload(len(points)).planned(Share(budget=budget), terms)
        made = release_rows(self.plan(question, epsilon), table(points), KEY, nonce=nonce)
        return released_boxes(ReleasedHypercube(question, made.part), self.columns)

    def runs(self, memory: int | None = None) -> Iterator[tuple[int, Partition, float, int]]:
        """Every run: its period, the partition of all rows so far, CPU seconds, and the bytes that
        it leaves."""
        before: list[RunBefore] = []
        own = self.workload(self.rows * self.periods, memory)
        budget = Budget(measure=Measure.EPSILON, amount=self.epsilon)
        terms = ReleaseTerms(unit=ADD_REMOVE_ROW)
        first = SeriesWorkload.from_workload(own, Series(periods=self.periods, period=1))
        question: Any = first.planned(Share(budget=budget), terms)
        for period in range(1, self.periods + 1):
            question = replace(question, period=period)
            rows, nonce = table(self.points(period)), period.to_bytes(2, "big")
            began = time.process_time()
            plan = self.plan(question, self.epsilon)
            made = release_rows(plan, rows, KEY, nonce=nonce, before=before)
            seconds = time.process_time() - began
            left = 0
            if period < self.periods:
                left = len(made.part(STATE, "box", 0, 0)["sealed"][0].as_py())
            yield period, to_date(question, made, self.columns), seconds, left
            before = [RunBefore(made, nonce)]


def table(points: Floats) -> list[pa.RecordBatch]:
    """Points as rows."""
    columns = {f"x{number}": points[:, number] for number in range(points.shape[1])}
    batches: list[pa.RecordBatch] = pa.table(columns).to_batches()
    return batches


def to_date(question: Any, made: Any, columns: int) -> Partition:
    """The partition of all rows so far that a run released."""
    span = question.find_released(1)

    def read(kind: str, tree: str, key: int, index: int) -> pa.Table:
        return select_span(made.part(kind, tree, key, index), span)

    return released_boxes(ReleasedHypercube(question.released_tree(span), read), columns)


def released_boxes(released: ReleasedHypercube, columns: int) -> Partition:
    """The parts of a release as boxes of the unit cube."""
    parts = released.partition.parts
    return Partition(
        lower=np.stack([each / CELLS for each in parts.starts], axis=1),
        upper=np.stack([each / CELLS for each in parts.stops], axis=1),
        mass=parts.counts.astype(float),
    )


def pooled(partitions: list[Partition]) -> Partition:
    """The rows of several partitions together."""
    return Partition(
        lower=np.concatenate([each.lower for each in partitions]),
        upper=np.concatenate([each.upper for each in partitions]),
        mass=np.concatenate([each.mass for each in partitions]),
    )


def distance(points: Floats, partition: Partition) -> float:
    """W1, or in several columns sliced W1 of samples."""
    if points.shape[1] == 1:
        return line_distance(points, partition)
    rng = np.random.default_rng(1)
    number = min(SAMPLED, len(points))
    some = points[rng.choice(len(points), number, replace=False)]
    return sliced_distance(some, partition.sample(rng, number), rng=rng)


def print_study(study: Study, memory: int) -> None:
    """Print the tables of a study."""
    times = sorted({1, 10, 100, study.periods // 2, study.periods})
    times = [each for each in times if 1 <= each <= study.periods]
    shape = "moving" if study.moving else "the same"
    print(
        f"\n{study.columns} columns, {study.rows:,} rows a period, {study.periods} periods, "
        f"epsilon {float(study.epsilon):g}, {shape} law"
    )
    so_far, apart = [], []
    wanted: dict[int, Floats] = {}
    own: dict[tuple[str, int], float] = {}
    for period in range(1, study.periods + 1):
        points = study.points(period)
        so_far.append(points)
        nonce = b"apart" + period.to_bytes(2, "big")
        apart.append(study.alone(points, study.epsilon, nonce))
        if period in times:
            together = wanted[period] = np.concatenate(so_far)
            part = study.epsilon / study.periods
            own["once", period] = distance(together, study.alone(together, study.epsilon, b"once"))
            own["anew", period] = distance(together, study.alone(together, part, b"anew"))
            own["apart", period] = distance(together, pooled(apart))
    costs: dict[str, list[tuple[float, int]]] = {}
    for name, limit in (("series", None), (f"{memory // 1024} KiB", memory)):
        for period, partition, seconds, left in study.runs(limit):
            costs.setdefault(name, []).append((seconds, left))
            if period in times:
                own[name, period] = distance(wanted[period], partition)
    names = ["once", "series", f"{memory // 1024} KiB", "apart", "anew"]
    print(f"| period | {' | '.join(names)} |")
    print(f"| ---: |{' ---: |' * len(names)}")
    for period in times:
        row = " | ".join(f"{own[name, period]:.3g}" for name in names)
        print(f"| {period} | {row} |")
    print("| counts | period | CPU seconds | bytes left |")
    print("| --- | ---: | ---: | ---: |")
    for name, each in costs.items():
        for period in times:
            seconds, left = each[period - 1]
            print(f"| {name} | {period} | {seconds:.3f} | {left:,} |")


def main() -> None:
    """Print the tables of the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--periods", type=int, default=365)
    parser.add_argument("--rows", type=int, default=1000, help="of a period")
    parser.add_argument("--columns", type=int, default=1)
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    parser.add_argument("--memory", type=int, default=2**16, help="bytes of the sketches")
    parser.add_argument("--moving", action="store_true", help="a law that moves")
    chosen = parser.parse_args()
    study = Study(
        periods=chosen.periods,
        rows=chosen.rows,
        columns=chosen.columns,
        epsilon=chosen.epsilon,
        moving=chosen.moving,
    )
    print_study(study, chosen.memory)


if __name__ == "__main__":
    main()
