"""Strategies past trees beside trees: errors of prefixes, and how long a plan takes.

    python -m benchmarks.factorised [CELLS ...]
    python -m benchmarks.factorised --counts RELEASES

prints two tables. The first is of the root mean square error of all prefixes under unit Gaussian
noise, where a row moves what is measured by at most 1 (add_remove): of the planned tree, of the
square root of the prefix sums, of the strategies in whole numbers, and the dual bound, below which
no unbiased linear mechanism is. The second is of pure epsilon, epsilon = 1, where trees are better.
With ``--counts`` it prints the errors of nonnegative counts, rho 1/2, on the histograms of
`benchmarks.accuracy` that are found, beside the errors of whole levels that are planned for counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.accuracy.cases import CELLS, DataSet, draw_ranges, found_sets
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.factorised.mechanism import WeightedSums
from dptrees.dpcore.factorised.optimum import Read, optimal_weights, prefix_gram
from dptrees.dpcore.factorised.strategies import (
    MOST_OPTIMAL,
    MatrixStrategy,
    ToeplitzStrategy,
    best_strategy,
)
from dptrees.dpcore.levels.planner import WholeLevels, plan_tree, predicted_cdf_rmse
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.uniform.plan import Consistency, TreeSetting

_HALF = Budget(measure=Measure.RHO, amount=Fraction(1, 2))
_KEY = ReleaseKey(b"accuracy: a public constant key.")
SIZES = (64, 256, 1024, 2048, 4096, 2**16, 2**20)
# Strategies whose columns are summed entry by entry.
_MOST_SUMMED = 4096


def tree_rmse(cells: int, measure: Measure) -> float:
    """Error of the planned tree: rho 1/2 is Gaussian noise of variance 1 for a row; epsilon is
    1."""
    amount = Fraction(1, 2) if measure is Measure.RHO else Fraction(1)
    budget = Budget(measure=measure, amount=amount)
    setting = TreeSetting(leaves=cells, unit=ADD_REMOVE_ROW, budget=budget)
    return predicted_cdf_rmse(plan_tree(setting))


def strategy_rmse(strategy: MatrixStrategy) -> float:
    """Under Gaussian noise of the length of the longest column."""
    return float(np.sqrt(strategy.prefix_variances.mean() * strategy.column_norm))


def laplace_rmse(strategy: MatrixStrategy) -> float:
    """Under Laplace noise of epsilon 1: the variance is twice the square of the longest column by
    the sum of its entries."""
    sums = np.abs(strategy.dense()).sum(axis=0).max()
    return float(np.sqrt(2 * strategy.prefix_variances.mean()) * sums)


def square_root_rmse(cells: int) -> float:
    """Error of the square root of the prefix sums: one column by all of its rows."""
    index = np.arange(1, cells)
    root: Floats = np.concatenate([[1.0], np.cumprod((2 * index - 1) / (2 * index))])
    return float(np.sqrt((root**2).sum() * np.cumsum(root**2).mean()))


def rows(sizes: list[int]) -> Iterator[str]:
    """The first table."""
    yield "| cells | planned tree | square root | even columns | best | bound | planned in |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for cells in sizes:
        best, bound, seconds = "", "", ""
        if cells <= MOST_OPTIMAL:
            start = time.process_time()
            best = f"{strategy_rmse(best_strategy(cells, Read(kind='cdf'))):.3f}"
            seconds = f"{time.process_time() - start:.1f} s"
            bound = f"{(optimal_weights(prefix_gram, cells).bound / cells) ** 0.5:.3f}"
        even = strategy_rmse(ToeplitzStrategy.from_size(cells))
        yield (
            f"| {cells:,} | {tree_rmse(cells, Measure.RHO):.3f} | {square_root_rmse(cells):.3f} | "
            f"{even:.3f} | {best} | {bound} | {seconds} |"
        )


def pure_rows(sizes: list[int]) -> Iterator[str]:
    """The second table."""
    yield "| cells | planned tree | even columns | best for Gaussian |"
    yield "|---:|---:|---:|---:|"
    for cells in sizes:
        if cells > _MOST_SUMMED:
            continue
        best = ""
        if cells <= MOST_OPTIMAL:
            best = f"{laplace_rmse(best_strategy(cells, Read(kind='cdf'))):.1f}"
        even = laplace_rmse(ToeplitzStrategy.from_size(cells))
        yield f"| {cells:,} | {tree_rmse(cells, Measure.EPSILON):.1f} | {even:.1f} | {best} |"


def count_rows(sets: Sequence[DataSet], releases: int) -> Iterator[str]:
    """The table of counts: of prefixes and of random ranges, geometric means over the sets."""
    yield "| rows | whole levels for counts | factorised, top down | factorised | its estimates |"
    yield "|---:|---:|---:|---:|---:|"
    domain, share = IntegerDomain(column="x", lower=0, upper=CELLS), Share(budget=_HALF)
    terms = ReleaseTerms(unit=ADD_REMOVE_ROW)
    sums = OrderedWorkload(name="x", domain=domain, candidate=WeightedSums())
    strategy = sums.planned(share, terms)
    for rows in (100, 1000, 10_000, 100_000, 1_000_000):
        levels = WholeLevels(for_counts=True, guessed_rows=rows)
        tree = OrderedWorkload(name="x", domain=domain, candidate=levels)
        compared: list[tuple[OrderedQuestion[Any], str]] = [
            (tree.planned(share, terms), "count"),
            (replace(strategy, consistency=Consistency.TOP_DOWN), "count"),
            (strategy, "count"),
            (strategy, "estimate"),
        ]
        found = [
            np.exp(np.mean([np.log(_errors(*each, data, rows, releases)) for data in sets], axis=0))
            for each in compared
        ]
        cells = (f"{prefixes:.2f}, {ranges:.2f}" for prefixes, ranges in found)
        yield f"| {rows:,} | {' | '.join(cells)} |"


def _errors(
    question: OrderedQuestion[Any], column: str, data: DataSet, rows: int, releases: int
) -> tuple[float, float]:
    """Root mean squares over prefixes and over ranges."""
    plan = ReleasePlan(name="r", unit=question.unit, budget=_HALF, questions=(question,))
    counts, (start, stop) = data.counts(rows), draw_ranges(CELLS)
    squares = []
    for number in range(releases):
        nonce = f"{data.name} {rows} {number}".encode()
        release = release_counts(plan, {"x": counts}, _KEY, nonce=nonce)
        values = release.part("cdf", "x", 0, 0)[column].to_numpy()
        error = np.concatenate([[0.0], values - counts.cumsum()])
        squares.append((np.mean(error[1:] ** 2), np.mean((error[stop] - error[start]) ** 2)))
    prefixes, ranges = np.sqrt(np.mean(squares, axis=0))
    return float(prefixes), float(ranges)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int)
    parser.add_argument("cells", type=int, nargs="*", default=list(SIZES))
    chosen = parser.parse_args()
    if chosen.counts:
        sets = [each for each in found_sets() if each.group == str(CELLS)]
        print(f"Counts of {CELLS:,} cells on {len(sets)} sets, rho = 1/2: prefixes, ranges:\n")
        for line in count_rows(sets, chosen.counts):
            print(line, flush=True)
        return
    sizes = chosen.cells
    print("RMSE of prefixes under unit Gaussian noise (rho = 1/2):\n")
    for line in rows(sizes):
        print(line, flush=True)
    print("\nunder epsilon = 1, Laplace noise:\n")
    for line in pure_rows([each for each in sizes if each <= MOST_OPTIMAL]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
