"""Wide tables beside columns that are measured alone: total variation of their synthetic rows.

Run as ``python -m benchmarks.wide_tables [--data FOLDER] [--runs 5] [--target]``.

Each number is a mean over releases, with its standard error: the mean total variation over all
pairs of columns between the rows and as many synthetic rows. ``alone`` are columns with 49/50 of
the budget, taken as independent. Data are 8 and 14 columns of FOLDER/adult.csv (UCI Adult, 48,842
rows), where the file is there, and generated tables: a chain of ordered columns, three latent
classes, and independent columns.

``--target`` has Adult's 14 columns alone: tables of four fifths of the rows, without and with
``target: income``, and beside the total variation the AUC of a logistic regression that is fitted
to the synthetic rows, on the last fifth.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.harness import SHARED_DATA, table
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.messages import Increments
from dptrees.dpcore.rows.columns import unpack
from dptrees.dpcore.tables.domain import TableCounter, row_texts
from dptrees.dpcore.tables.estimates import MeasuredTables
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan, PairDesign, TableShape
from dptrees.dpcore.tables.question import measure_tables

ORDERED = {"age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"}
Table = tuple[str, TableShape, list[Integers]]


def tables(folder: Path) -> Iterator[Table]:
    """Names, shapes and cells of rows."""
    if (folder / "adult.csv").exists():
        sizes = json.loads((folder / "adult-domain.json").read_text(encoding="utf-8"))
        rows = np.loadtxt(folder / "adult.csv", delimiter=",", skiprows=1, dtype=np.int64)
        for number in (8, 14):
            names = list(sizes)[:number]
            ordered = tuple(name in ORDERED for name in names)
            shape = TableShape(sizes=tuple(sizes[name] for name in names), ordered=ordered)
            yield f"adult, {number}", shape, list(rows.T[:number])
    rng = np.random.default_rng(11)
    for rows_number in (50_000, 5_000):
        walk = np.cumsum(rng.normal(0, 1, (rows_number, 8)), axis=1)
        chain = [_cells(column, 40) for column in walk.T]
        yield f"chain, {rows_number:,}", _shape((40,) * 8, ordered=True), chain
        classes, latent = rng.choice(3, rows_number, p=[0.5, 0.3, 0.2]), []
        sizes = (3, 5, 8, 12, 20, 4, 6, 10)
        for size in sizes:
            laws = rng.dirichlet(np.full(size, 0.5), 3).cumsum(axis=1)
            drawn = (rng.random(rows_number)[:, None] > laws[classes]).sum(axis=1)
            latent.append(drawn.clip(0, size - 1))
        yield f"latent, {rows_number:,}", _shape(sizes, ordered=False), latent
        sizes = (4, 30, 8, 60, 12, 5, 20, 3)
        apart = [rng.binomial(size - 1, 0.3, rows_number) for size in sizes]
        yield f"apart, {rows_number:,}", _shape(sizes, ordered=True), apart


def _shape(sizes: tuple[int, ...], *, ordered: bool) -> TableShape:
    return TableShape(sizes=sizes, ordered=(ordered,) * len(sizes))


def _cells(values: Floats, cells: int) -> Integers:
    """(n,) the cell of each value, of equal width between the least and the largest."""
    low, high = values.min(), values.max()
    scaled = ((values - low) / (high - low) * cells).astype(np.int64)
    result: Integers = np.minimum(scaled, cells - 1)
    return result


def counted(shape: TableShape, columns: Sequence[Integers]) -> Integers:
    """(length,) all counters of some rows."""
    counter = TableCounter(shape)
    counter.add(Increments(row_texts(columns, shape.sizes)), len(columns[0]))
    (partial,) = counter.take()
    return unpack(partial.data)


def source_under(key: ReleaseKey) -> NoiseSource:
    """Noise of a release under a key."""
    return NoiseSource(key=key, release="r", spec_digest=b"", global_digest=b"")


def means(found: Sequence[Sequence[float]]) -> list[str]:
    """The mean of each column over releases, with its standard error."""
    errors = np.std(found, axis=0, ddof=1) / np.sqrt(len(found))
    return [f"{a:.4f} ± {b:.4f}" for a, b in zip(np.mean(found, axis=0), errors, strict=True)]


def distance(shape: TableShape, counts: Integers, measured: MeasuredTables, rows: int) -> float:
    """Mean total variation of all pairs, between the rows and synthetic ones."""
    drawn = TableModel.fitted(measured).sample(rows, ReleaseKey.generate().stream("rows"))
    off = np.abs(counts - counted(shape, drawn))
    return float(np.mean([off[shape.pair_slice(*pair)].sum() for pair in shape.pairs])) / 2 / rows


def alone(plan: MarginalsPlan, counts: Integers, source: NoiseSource) -> MeasuredTables:
    """Columns that are measured with 49/50 of the budget, each with as much."""
    shape, amount = plan.shape, plan.budget.amount / 100
    plan = replace(
        plan,
        column_amount=98 * amount / shape.columns,
        choice_amount=amount,
        pair_amount=amount,
        designs=(PairDesign(least_rows=0),),
        named=(),
        column_parts=(),
    )
    law = plan.law(plan.column_amount)
    columns = tuple(
        add_noise(law, shape.column_counts(counts, each), source.stream("t", 0, 0, each))
        for each in range(shape.columns)
    )
    return MeasuredTables(plan=plan, columns=columns, pairs=())


def line(made: Table, epsilon: float, runs: int) -> list[str]:
    """The line of a table at an epsilon."""
    name, shape, columns = made
    counts, rows = counted(shape, columns), len(columns[0])
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon)))
    plan = MarginalsPlan.planned(shape=shape, unit=ADD_REMOVE_ROW, budget=budget)
    found = []
    for _ in range(runs):
        source = source_under(ReleaseKey.generate())
        ways = measure_tables(counts, plan, source, "t"), alone(plan, counts, source)
        found.append([distance(shape, counts, each, rows) for each in ways])
    return [f"{name}, {epsilon:g}", *means(found)]


def features(shape: TableShape, columns: Sequence[Integers]) -> Floats:
    """(n, features) of all columns but the last: powers of ordered cells, and flags of others."""
    parts = [np.ones(len(columns[0]))]
    for place, cells in enumerate(columns[:-1]):
        if shape.is_ordered(place):
            value = cells / max(1, shape.sizes[place] - 1)
            parts += [value, value * value, (cells > 0).astype(np.float64)]
        else:
            parts += [(cells == each).astype(np.float64) for each in range(shape.sizes[place])]
    return np.stack(parts, axis=1)


def auc(shape: TableShape, fitted: Sequence[Integers], tested: Sequence[Integers]) -> float:
    """AUC of a logistic regression of the last column, whose cells are 0 and 1, on the others."""
    known, truth = features(shape, fitted), fitted[-1] == 1
    weights = np.zeros(known.shape[1])
    for _ in range(15):
        odds = 1 / (1 + np.exp(-np.clip(known @ weights, -30, 30)))
        slope = known.T @ (odds - truth) + weights
        bend = (known * (odds * (1 - odds))[:, None]).T @ known + np.eye(len(weights))
        step = np.linalg.solve(bend, slope)
        weights -= step
        if np.abs(step).max() < 1e-3:
            break
    _, ranks, times = np.unique(
        features(shape, tested) @ weights, return_inverse=True, return_counts=True
    )
    ranks = (np.cumsum(times) - (times - 1) / 2)[ranks]
    ones = int((tested[-1] == 1).sum())
    above = ranks[tested[-1] == 1].sum() - ones * (ones + 1) / 2
    return float(above / (ones * (len(ranks) - ones)))


def target_lines(made: Table, epsilon: float, runs: int) -> Iterator[list[str]]:
    """The lines of a table without and with the last column as its target."""
    name, shape, columns = made
    order = np.random.default_rng(0).permutation(len(columns[0]))
    cut = len(order) * 4 // 5
    fitted, tested = ([each[part] for each in columns] for part in (order[:cut], order[cut:]))
    counts = counted(shape, fitted)
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon)))
    star = tuple(pair for pair in shape.pairs if pair[1] == shape.columns - 1)
    for said, named in (("none", ()), ("the last column", star)):
        plan = MarginalsPlan.planned(shape=shape, unit=ADD_REMOVE_ROW, budget=budget, named=named)
        found = []
        for _ in range(runs):
            key = ReleaseKey.generate()
            measured = measure_tables(counts, plan, source_under(key), "t")
            drawn = TableModel.fitted(measured).sample(cut, key.stream("rows"))
            found.append([distance(shape, counts, measured, cut), auc(shape, drawn, tested)])
        yield [f"{name}, {epsilon:g}", said, *means(found)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 1.0])
    parser.add_argument("--target", action="store_true", help="Adult with a target, and its AUC")
    options = parser.parse_args(arguments)
    made = list(tables(options.data))
    if options.target:
        adult = next(each for each in made if each[0] == "adult, 14")
        chosen = [target_lines(adult, epsilon, options.runs) for epsilon in options.epsilons]
        lines = [each for some in chosen for each in some]
        print(table(["data, epsilon", "target", "table", "AUC"], lines))
        return
    lines = [line(each, epsilon, options.runs) for each in made for epsilon in options.epsilons]
    print(table(["data, epsilon", "table", "alone"], lines))


if __name__ == "__main__":
    main()
