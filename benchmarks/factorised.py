"""Strategies past trees beside trees: errors of prefixes, and how long a plan takes.

    python benchmarks/factorised.py [CELLS ...]

prints two tables. The first is of the root mean square error of all prefixes under unit Gaussian
noise, where a row moves what is measured by at most 1 (add_remove): of the planned tree, of the
square root of the prefix sums, of the strategies in whole numbers, and the dual bound, below which
no unbiased linear mechanism is. The second is of pure epsilon, epsilon = 1, where trees are better.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from dpcore.arrays import Floats
from dpcore.factorised.optimum import optimal_weights, prefix_gram
from dpcore.factorised.planner import MOST_OPTIMAL, best_strategy
from dpcore.factorised.read import Read
from dpcore.factorised.strategy import Strategy
from dpcore.factorised.toeplitz import ToeplitzStrategy
from dpcore.ordered.planner import plan_tree, predicted_cdf_rmse
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.unit import ADD_REMOVE_ROW
from dpcore.uniform.setting import TreeSetting

SIZES = (64, 256, 1024, 2048, 4096, 2**16, 2**20)
# Strategies whose columns are summed entry by entry.
_MOST_SUMMED = 4096


def tree_rmse(cells: int, measure: Measure) -> float:
    """Of the planned tree: rho 1/2 is Gaussian noise of variance 1 for a row; epsilon is 1."""
    amount = Fraction(1, 2) if measure is Measure.RHO else Fraction(1)
    budget = Budget(measure=measure, amount=amount)
    setting = TreeSetting(leaves=cells, unit=ADD_REMOVE_ROW, budget=budget)
    return predicted_cdf_rmse(plan_tree(setting))


def strategy_rmse(strategy: Strategy) -> float:
    """Under Gaussian noise of the length of the longest column."""
    return float(np.sqrt(strategy.prefix_variances.mean() * strategy.column_norm))


def laplace_rmse(strategy: Strategy) -> float:
    """Under Laplace noise of epsilon 1: the variance is twice the square of the longest column by
    the sum of its entries."""
    sums = np.abs(strategy.dense()).sum(axis=0).max()
    return float(np.sqrt(2 * strategy.prefix_variances.mean()) * sums)


def square_root_rmse(cells: int) -> float:
    """Of the square root of the prefix sums: one column by all of its rows."""
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
        even = strategy_rmse(ToeplitzStrategy.of(cells))
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
        even = laplace_rmse(ToeplitzStrategy.of(cells))
        yield f"| {cells:,} | {tree_rmse(cells, Measure.EPSILON):.1f} | {even:.1f} | {best} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", type=int, nargs="*", default=list(SIZES))
    sizes = parser.parse_args().cells
    print("RMSE of prefixes under unit Gaussian noise (rho = 1/2):\n")
    for line in rows(sizes):
        print(line, flush=True)
    print("\nunder epsilon = 1, Laplace noise:\n")
    for line in pure_rows([each for each in sizes if each <= MOST_OPTIMAL]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
