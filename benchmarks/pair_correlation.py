"""Correlations of measured pairs of columns, in synthetic rows and in the rows themselves.

Run as ``python -m benchmarks.pair_correlation [--data FOLDER] [--releases 6] [--draws 4]``.

A line has the correlation in the rows; its mean in synthetic rows over the releases that measured
the pair, with the standard deviation over releases; and the largest distance of a draw from the
mean of its release. Data are education and income in 14 columns of FOLDER/adult.csv (UCI Adult,
48,842 rows), where the file is there, and two normal columns of 128 cells among six.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.harness import SHARED_DATA, table
from benchmarks.wide_tables import Table, counted, source_under, tables
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan, Pair, TableShape
from dptrees.dpcore.tables.question import measure_tables

CELLS = 128


def normal(rows: int, strength: float) -> Table:
    """Six columns: the second goes with the first, as do two more, by less."""
    rng = np.random.default_rng(7)
    first = rng.normal(0, 1, rows)
    weights = (1.0, strength, 0.0, 0.5, 0.0, 0.5)
    columns = [first * w + rng.normal(0, 1, rows) * np.sqrt(1 - w * w) for w in weights]
    cells = [np.clip((each + 4) * CELLS / 8, 0, CELLS - 1).astype(np.int64) for each in columns]
    shape = TableShape(sizes=(CELLS,) * 6, ordered=(True,) * 6)
    return f"normal, {rows:,} rows", shape, cells


def correlation(columns: Sequence[Integers], pair: Pair) -> float:
    """The correlation of the cells of two columns."""
    return float(np.corrcoef(columns[pair[0]], columns[pair[1]])[0, 1])


def line(made: Table, pair: Pair, epsilon: float, releases: int, draws: int) -> list[str]:
    """The line of a pair at an epsilon."""
    name, shape, columns = made
    counts, rows = counted(shape, columns), len(columns[0])
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon)))
    plan = MarginalsPlan.planned(shape=shape, unit=ADD_REMOVE_ROW, budget=budget)
    means, off = [], 0.0
    for _ in range(releases):
        key = ReleaseKey.generate()
        measured = measure_tables(counts, plan, source_under(key), "t")
        if pair not in [each.pair for each in measured.pairs]:
            continue
        model, found = TableModel.fitted(measured), []
        for draw in range(draws):
            found.append(correlation(model.sample(rows, key.stream("rows", draw)), pair))
        means.append(float(np.mean(found)))
        off = max(off, float(np.abs(np.array(found) - means[-1]).max()))
    drawn = f"{np.mean(means):.3f} ± {np.std(means):.3f}" if means else ""
    numbers = f"{correlation(columns, pair):.3f}", f"{len(means)} of {releases}"
    return [f"{name}, {epsilon:g}", *numbers, drawn, f"{off:.3f}"]


def lines(folder: Path, releases: int, draws: int) -> Iterator[list[str]]:
    """The lines of the table."""
    adult = [each for each in tables(folder) if each[0] == "adult, 14"]
    for made in adult:
        for epsilon in (1, 10):
            yield line(made, (3, 13), epsilon, releases, draws)
    for rows in (1_000, 30_000):
        for strength in (0.3, 0.9):
            for epsilon in (1, 10):
                yield line(normal(rows, strength), (0, 1), epsilon, releases, draws)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--releases", type=int, default=6)
    parser.add_argument("--draws", type=int, default=4)
    options = parser.parse_args(arguments)
    heads = ["data, epsilon", "rows", "measured", "synthetic rows", "a draw is off by"]
    print(table(heads, list(lines(options.data, options.releases, options.draws))))


if __name__ == "__main__":
    main()
