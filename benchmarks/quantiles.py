"""Quantiles by the exponential mechanism beside quantiles of trees: errors of ranks, in rows.

    python benchmarks/quantiles.py [--releases 8] [--write docs/quantiles.md]

prints two tables, or writes them between the marks of a page. The first has the mean distance of
the requested rank from the ranks of the released cell, at epsilon 1 in 4,096 cells: of the
exponential mechanism, and of the tree that is planned for the same quantiles. The second has what
intervals of a share of .3 hold and how wide they are.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.workload import ExponentialWorkload
from dptrees.dpcore.levels.candidate import WholeLevels
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.workload import ReleaseTerms, Share
from dptrees.dpcore.release.in_memory import release_counts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.uniform.objectives import QuantileObjective

CELLS = 4096
ROWS = (100, 1_000, 10_000)
NUMBERS = (1, 3, 5, 7, 9, 99)
DOMAIN = IntegerDomain(column="value", lower=0, upper=CELLS)
BUDGET = Budget(measure=Measure.EPSILON, amount=Fraction(1))
ONE, TERMS = Share(budget=BUDGET), ReleaseTerms(unit=ADD_REMOVE_ROW)
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"


def data(rows: int) -> dict[str, Integers]:
    """Histograms of some rows, by their names."""
    draws = np.random.default_rng(rows)
    gamma = draws.gamma(2, 300, rows)
    found = {
        "gamma": gamma,
        "60 % of rows in one cell": np.where(draws.random(rows) < 0.6, 700, gamma),
        "Zipf": draws.zipf(1.5, rows) - 1.0,
        "uniform": draws.uniform(0, CELLS, rows),
    }
    return {
        name: np.bincount(np.minimum(values, CELLS - 1).astype(np.int64), minlength=CELLS)
        for name, values in found.items()
    }


def even_quantiles(number: int) -> tuple[float, ...]:
    """Return a number of evenly spaced quantiles."""
    return tuple(round(each / (number + 1), 6) for each in range(1, number + 1))


@functools.cache
def tree_question(number: int) -> Question:
    """The tree that is planned for the quantiles."""
    quantiles = even_quantiles(number)
    objective = QuantileObjective(quantiles=quantiles)
    levels = WholeLevels(objective=objective)
    workload = OrderedWorkload(name="tree", domain=DOMAIN, quantiles=quantiles, candidate=levels)
    return workload.planned(ONE, TERMS)


@functools.cache
def chosen_question(number: int, share: Fraction = Fraction(0)) -> Question:
    """The quantiles, chosen by the exponential mechanism."""
    workload = ExponentialWorkload(
        name="tree", domain=DOMAIN, quantiles=even_quantiles(number), interval_share=share
    )
    return workload.planned(ONE, TERMS)


def quantile_rows(
    question: Question, counts: Integers, releases: int
) -> Iterator[list[dict[str, float]]]:
    """The rows of the quantiles table of each of some releases."""
    plan = ReleasePlan(name="q", unit=ADD_REMOVE_ROW, budget=BUDGET, questions=(question,))
    for _ in range(releases):
        made = release_counts(plan, {"tree": counts}, ReleaseKey.generate())
        assert made.quantiles is not None
        yield made.quantiles.to_pylist()


def ranks_off(counts: Integers, rows: list[dict[str, float]]) -> Floats:
    """(quantiles,) distances of requested ranks from the ranks of the released cells, in rows."""
    upto = np.cumsum(counts)
    cells = np.array([row["value"] for row in rows]).astype(np.int64)
    ranks = np.array([row["q"] for row in rows]) * upto[-1]
    return np.maximum(np.maximum((upto - counts)[cells] - ranks, ranks - upto[cells]), 0)


def mean_off(question: Question, counts: Integers, releases: int) -> tuple[float, float]:
    """The mean over releases and quantiles, and its standard error."""
    means = [ranks_off(counts, rows).mean() for rows in quantile_rows(question, counts, releases)]
    return float(np.mean(means)), float(np.std(means, ddof=1) / np.sqrt(releases))


def accuracy_lines(releases: int) -> Iterator[str]:
    """The table of ranks, in Markdown."""
    yield f"| data | rows | {' | '.join(f'{each}' for each in NUMBERS)} quantiles |"
    yield "|---|---:|" + "---:|" * len(NUMBERS)
    for name in data(1):
        for rows in ROWS:
            counts, cells = data(rows)[name], []
            for number in NUMBERS:
                own, tree = (
                    mean_off(each(number), counts, releases)
                    for each in (chosen_question, tree_question)
                )
                cells.append(f"{_figure(*own)} (tree {_figure(*tree)})")
            yield f"| {name} | {rows:,} | {' | '.join(cells)} |"


def interval_lines(releases: int) -> Iterator[str]:
    """The table of intervals, in Markdown."""
    yield "| data | rows | a median's interval: held | values | three quantiles': held | values |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in data(1):
        for rows in ROWS[1:]:
            counts, cells = data(rows)[name], []
            for number in NUMBERS[:2]:
                found = list(
                    quantile_rows(chosen_question(number, Fraction(3, 10)), counts, 5 * releases)
                )
                held = np.mean([_held(counts, each) for each in found])
                width = np.median([row["ci_high"] - row["ci_low"] + 1 for e in found for row in e])
                cells += [f"{100 * held:.1f} %", f"{width:,.0f}"]
            yield f"| {name} | {rows:,} | {' | '.join(cells)} |"


def _held(counts: Integers, rows: list[dict[str, float]]) -> float:
    """The share of the intervals that hold the quantile of the rows."""
    upto = np.cumsum(counts)
    ranks = [max(1, int(np.ceil(row["q"] * upto[-1] - 1e-9))) for row in rows]
    cells = np.searchsorted(upto, ranks)
    pairs = zip(rows, cells.tolist(), strict=True)
    return float(np.mean([row["ci_low"] <= cell <= row["ci_high"] for row, cell in pairs]))


def _figure(mean: float, error: float) -> str:
    return "0" if mean < 0.05 else f"{mean:.1f} ± {error:.1f}"


def main() -> None:
    """Prints the tables, or writes them into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--releases", type=int, default=8, help="of each entry")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page with the marks")
    options = parser.parse_args()
    start = time.process_time()
    tables = [*accuracy_lines(options.releases), "", *interval_lines(options.releases)]
    found = "".join(f"{line}\n" for line in tables)
    if options.write is None:
        print(found, end="")
    else:
        before, _, rest = options.write.read_text(encoding="utf-8").partition(BEGIN)
        page = before + BEGIN + "\n" + found + "\n" + END + rest.partition(END)[2]
        options.write.write_text(page, encoding="utf-8")
    print(f"{time.process_time() - start:.0f} seconds of a processor", file=sys.stderr)


if __name__ == "__main__":
    main()
