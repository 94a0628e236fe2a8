"""Synthetic rows of a box and of a table, by the number of columns.

Run as ``python -m benchmarks.boxes_or_tables adult.csv adult-domain.json``: the first columns of
the table, coded as whole numbers. Numbers are the total variation of two-way counts between the
rows and as many synthetic ones, in the mean over all pairs of columns: 0 is none, 1 is all. The box
is `kind: hypercube` with ``mechanism: adaptive``, ``for: counts``, and a guess of the rows; the
table is `kind: table`. Columns named in ORDERED are ordered, others are categories.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dptrees.dpcore.hypercube.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.hypercube.workload import HypercubeWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey, public_stream
from dptrees.dpcore.ordered.category import CategoryDomain
from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.ordered.make import OrderedDomain
from dptrees.dpcore.partitions.choices import PartitionChoices
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.workload import ReleaseTerms, Share, Workload
from dptrees.dpcore.release.in_memory import release_rows
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.table.domain import TableDomain
from dptrees.dpcore.table.workload import TableWorkload

ORDERED = (
    *("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
    *("carat", "depth", "table", "price", "x", "y", "z"),
)
COLUMNS = (2, 3, 4, 5, 6, 8)
EPSILONS = (Fraction(1), Fraction(1, 10))


def axes(sizes: Mapping[str, int]) -> tuple[OrderedDomain, ...]:
    """The domains of columns of codes."""
    return tuple(
        IntegerDomain(column=name, lower=0, upper=size)
        if name in ORDERED
        else CategoryDomain(column=name, categories=tuple(range(size)), ordered=False)
        for name, size in sizes.items()
    )


def workloads(sizes: Mapping[str, int], rows: int) -> dict[str, Workload]:
    """A box and a table of the same columns."""
    own = axes(sizes)
    box = HypercubeDomain(axes=own, depths=tuple(map(cell_bits, own)))
    choices = PartitionChoices.from_mechanism("adaptive", rows=rows, decided_apart=False)
    return {
        "box": HypercubeWorkload(name="t", domain=box, mechanism="adaptive", choices=choices),
        "table": TableWorkload(name="t", domain=TableDomain(axes=own)),
    }


def synthetic(workload: Workload, rows: pa.Table, epsilon: Fraction, seed: int) -> pa.Table:
    """Return as many synthetic rows as there are rows."""
    share = Share(budget=Budget(measure=Measure.EPSILON, amount=epsilon))
    question = workload.planned(share, ReleaseTerms(unit=ADD_REMOVE_ROW))
    plan = ReleasePlan(name="t", unit=ADD_REMOVE_ROW, budget=share.budget, questions=(question,))
    key = ReleaseKey(bytes([seed]) * 32)
    sampler = release_rows(plan, rows.to_batches(), key).tree("t").sampler()
    batches = sampler.batches(len(rows), public_stream("sample", seed))
    return pa.Table.from_batches(batches, schema=sampler.schema)


def distance(rows: pa.Table, made: pa.Table, sizes: Mapping[str, int]) -> float:
    """The mean total variation of two-way counts."""
    found = []
    for one, other in combinations(sizes, 2):
        shape = sizes[one] * sizes[other]
        shares = [
            np.bincount(
                each[one].to_numpy() * sizes[other] + each[other].to_numpy(), minlength=shape
            )
            / len(each)
            for each in (rows, made)
        ]
        found.append(np.abs(shares[0] - shares[1]).sum() / 2)
    return float(np.mean(found))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", help="CSV of codes from 0")
    parser.add_argument("domain", help="JSON: the number of codes of each column")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    every = pyarrow.csv.read_csv(given.rows)
    with open(given.domain, encoding="utf-8") as file:
        sizes = json.load(file)
    print("| columns | epsilon | box | table |\n| ---: | ---: | ---: | ---: |")
    for number in COLUMNS:
        own = dict(list(sizes.items())[:number])
        rows = every.select(list(own)).combine_chunks()
        for epsilon in EPSILONS:
            cells = []
            for workload in workloads(own, len(rows)).values():
                runs = [
                    distance(rows, synthetic(workload, rows, epsilon, seed), own)
                    for seed in range(given.repeat)
                ]
                cells.append(f"{np.mean(runs):.3f}")
            print(f"| {number} | {float(epsilon):g} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
