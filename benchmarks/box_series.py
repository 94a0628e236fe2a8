"""A box in a series: how far off its partition of all rows so far is, and what runs cost.

    python -m benchmarks.box_series [--periods 365] [--rows 1000] [--epsilon 1]

The rows of every period are independent points of Beta(2, 8) in one column. At some periods W1 of
the partition and all rows so far is printed. Beside the series, at the same epsilon in all:

- once: one release of all rows so far, by the same mechanism: the rows of a series that ends there;
- sketches: the series with counts in sketches of 64 KiB;
- apart: a release of every period's rows alone, with all of epsilon, and their partitions together;
- anew: a release of all rows so far in every period, each with its part of epsilon.

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

from benchmarks.harness import table
from benchmarks.synthetic.__main__ import line_distance
from benchmarks.synthetic.generators import Partition
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.planner import PartitionChoices
from dptrees.dpcore.boxes.question import HypercubeWorkload
from dptrees.dpcore.boxes.released import ReleasedHypercube
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.messages import STATE
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import RunBefore, release_rows
from dptrees.dpcore.series.runs import Series, select_span
from dptrees.dpcore.series.workload import SeriesWorkload

KEY = ReleaseKey(bytes(32))
CELLS, MEMORY = 2**24, 2**16
TERMS = ReleaseTerms(unit=ADD_REMOVE_ROW)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A series: its periods, the rows of each, and the epsilon of all runs."""

    periods: int
    rows: int
    epsilon: Fraction

    def workload(self, rows: int, memory: int | None = None) -> HypercubeWorkload:
        """The box, planned for so many rows in all; in sketches where a memory is given."""
        axis = make_domain({"column": "x", "lower": 0, "upper": 1, "cells": CELLS})
        own: dict[str, Any] = {} if memory is None else {"holding": Holding.SKETCH}
        return HypercubeWorkload(
            name="box",
            domain=HypercubeDomain(axes=(axis,), depths=(24,)),
            choices=PartitionChoices(rows=rows, memory=memory, split_errors=4.0, **own),
        )

    def alone(self, points: Floats, epsilon: Fraction, nonce: bytes) -> Partition:
        """One release of rows."""
        budget = Budget(measure=Measure.EPSILON, amount=epsilon)
        question = self.workload(len(points)).planned(Share(budget=budget), TERMS)
        made = released(question, budget, points, nonce)
        return boxes(ReleasedHypercube(question, made.part))

    def runs(self, memory: int | None = None) -> Iterator[tuple[Partition, float, int]]:
        """Every run: the partition of all rows so far, CPU seconds, and the bytes left."""
        before: list[RunBefore] = []
        budget = Budget(measure=Measure.EPSILON, amount=self.epsilon)
        own = self.workload(self.rows * self.periods, memory)
        first = SeriesWorkload.from_workload(own, Series(periods=self.periods, period=1))
        question: Any = first.planned(Share(budget=budget), TERMS)
        for period in range(1, self.periods + 1):
            question = replace(question, period=period)
            nonce, began = period.to_bytes(2, "big"), time.process_time()
            made = released(question, budget, self.points(period), nonce, before)
            seconds, left = time.process_time() - began, 0
            if period < self.periods:
                left = len(made.part(STATE, "box", 0, 0)["sealed"][0].as_py())
            span = question.find_released(1)

            def read(*part: Any, made: Any = made, span: Any = span) -> pa.Table:
                return select_span(made.part(*part), span)

            yield boxes(ReleasedHypercube(question.released_tree(span), read)), seconds, left
            before = [RunBefore(made, nonce)]

    def points(self, period: int) -> Floats:
        """(rows, 1) the rows of a period."""
        return np.random.default_rng(period).beta(2, 8, (self.rows, 1))


def released(question: Any, budget: Budget, points: Floats, nonce: bytes, before: Any = ()) -> Any:
    """A release or a run."""
    plan = ReleasePlan(name="r", unit=ADD_REMOVE_ROW, budget=budget, questions=(question,))
    rows = pa.table({"x": points[:, 0]}).to_batches()
    return release_rows(plan, rows, KEY, nonce=nonce, before=before)


def boxes(found: ReleasedHypercube) -> Partition:
    """The parts of a release."""
    parts = found.partition.parts
    starts, stops = (each[0][:, None] / CELLS for each in (parts.starts, parts.stops))
    return Partition(lower=starts, upper=stops, mass=parts.counts.astype(float))


def pooled(partitions: list[Partition]) -> Partition:
    """The rows of several partitions together."""
    own = [(each.lower, each.upper, each.mass) for each in partitions]
    lower, upper, mass = (np.concatenate(each) for each in zip(*own, strict=True))
    return Partition(lower=lower, upper=upper, mass=mass)


def print_study(study: Study) -> None:
    """Print the tables of a study."""
    times = sorted({1, 10, 100, study.periods // 2, study.periods} & {*range(study.periods + 1)})
    so_far, apart, costs = [], [], []
    series = study.runs(), study.runs(MEMORY)
    lines = []
    for period in range(1, study.periods + 1):
        so_far.append(study.points(period))
        apart.append(study.alone(so_far[-1], study.epsilon, b"apart %d" % period))
        made = [next(each) for each in series]
        if period in times:
            together, part = np.concatenate(so_far), study.epsilon / study.periods
            partitions = [
                study.alone(together, study.epsilon, b"once"),
                *(each[0] for each in made),
                pooled(apart),
                study.alone(together, part, b"anew"),
            ]
            distances = [f"{line_distance(together, each):.3g}" for each in partitions]
            lines.append([f"{period}", *distances])
            costs += [
                [f"{name}, {period}", f"{seconds:.3f}", f"{left:,}"]
                for name, (_, seconds, left) in zip(("series", "64 KiB"), made, strict=True)
            ]
    print(table(["period", "once", "series", "series, 64 KiB of sketches", "apart", "anew"], lines))
    print(table(["counts, period", "CPU seconds", "bytes left"], costs))


def main() -> None:
    """Print the tables of the arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--periods", type=int, default=365)
    parser.add_argument("--rows", type=int, default=1000, help="of a period")
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    chosen = parser.parse_args()
    print_study(Study(periods=chosen.periods, rows=chosen.rows, epsilon=chosen.epsilon))


if __name__ == "__main__":
    main()
