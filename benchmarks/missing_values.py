"""Rates and associations of missing values, in synthetic rows and in the rows themselves.

Run as ``python -m benchmarks.missing_values [--data FOLDER] [--runs 10]``.

Data are the 14 columns of FOLDER/adult.csv (UCI Adult, 48,842 rows). Three columns have a code for
values that are not known: these become null. Each number is a mean over releases with its
standard error, beside the same number of the rows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import SHARED_DATA, table
from benchmarks.wide_tables import ORDERED, source_under
from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.domain import CATEGORY
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan
from dptrees.dpcore.tables.question import measure_tables

# The codes of values that are not known.
UNKNOWN = {"workclass": 8, "occupation": 14, "native-country": 41}
# Codes of ages count from 17.
YOUNG = 25 - 17


def read(folder: Path) -> tuple[TableDomain, dict[str, pa.Array]]:
    """The columns with their categories of missing values, and the rows."""
    sizes = json.loads((folder / "adult-domain.json").read_text(encoding="utf-8"))
    rows = np.loadtxt(folder / "adult.csv", delimiter=",", skiprows=1, dtype=np.int64)
    axes, columns = [], {}
    for (name, size), codes in zip(sizes.items(), rows.T, strict=True):
        known = tuple(code for code in range(size) if code != UNKNOWN.get(name))
        axes.append(
            StepDomain(kind="integer", column=name, lower=0, upper=size)
            if name in ORDERED
            else CategoryDomain(column=name, categories=known, missing=CATEGORY, ordered=False)
        )
        columns[name] = pa.array(codes, mask=codes == UNKNOWN.get(name, -1))
    return TableDomain(axes=tuple(axes)), columns


def missing(domain: TableDomain, codes: Sequence[Integers]) -> Mapping[str, Flags]:
    """Which rows lack a value of each column of `UNKNOWN`."""
    places = {name: domain.find_column(name) for name in UNKNOWN}
    return {name: codes[place] == domain.present(place) for name, place in places.items()}


def figures(domain: TableDomain, codes: Sequence[Integers]) -> Iterator[tuple[str, float]]:
    """What is compared, by its name."""
    lost = missing(domain, codes)
    young = codes[domain.find_column("age")] < YOUNG
    yield from ((f"{name} missing", float(flags.mean())) for name, flags in lost.items())
    work = lost["workclass"]
    yield "occupation missing, of rows without workclass", float(lost["occupation"][work].mean())
    yield "occupation missing, of rows with workclass", float(lost["occupation"][~work].mean())
    yield "workclass missing, of ages below 25", float(work[young].mean())
    yield "workclass missing, of ages from 25 on", float(work[~young].mean())


def lines(folder: Path, epsilons: Sequence[float], runs: int) -> Iterator[list[str]]:
    """The lines of the table."""
    domain, columns = read(folder)
    codes, _ = domain.row_codes(columns)
    truth, counts = dict(figures(domain, codes)), domain.leaf_counts(columns)
    found: dict[str, list[str]] = {name: [f"{value:.4f}"] for name, value in truth.items()}
    for epsilon in epsilons:
        budget = Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon)))
        plan = MarginalsPlan.planned(shape=domain.shape, unit=ADD_REMOVE_ROW, budget=budget)
        made: dict[str, list[float]] = {name: [] for name in truth}
        for _ in range(runs):
            key = ReleaseKey.generate()
            model = TableModel.fitted(measure_tables(counts, plan, source_under(key), "t"))
            for name, value in figures(domain, model.sample(len(codes[0]), key.stream("rows"))):
                made[name].append(value)
        for name, values in made.items():
            error = np.std(values, ddof=1) / np.sqrt(runs)
            found[name].append(f"{np.mean(values):.4f} ± {error:.4f}")
    yield from ([name, *each] for name, each in found.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 1.0])
    options = parser.parse_args(arguments)
    heads = [f"epsilon {each:g}" for each in options.epsilons]
    found = lines(options.data, options.epsilons, options.runs)
    print(table(["part of the rows", "rows", *heads], list(found)))


if __name__ == "__main__":
    main()
