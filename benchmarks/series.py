"""Errors of totals to date of a series: as planned, with noise of open nodes, and their bounds.

    python -m benchmarks.series [--periods 14 90 365 3650]

prints root mean squares over all periods, in errors of one release of everything at the budget:

- epsilon: *planned*, the temporal tree of a series; *any tree*, the best tree of closed nodes whose
  subtrees and shares of the budget are free at every node (up to 365 periods); *open nodes*, least
  squares over a whole tree of noise that is fixed before counts are (docs/decisions/0046);
- rho: *sums*, the weighted sums of a series; *bound*, below which no linear measurements of
  Gaussian noise are (Li, Miklau 2013).

    python -m benchmarks.series --wanted [--periods 365]

prints the errors of totals to date, windows of 30 and 7 periods when they end, and single periods,
by what the series is planned for (`optimize_for`).
"""

from __future__ import annotations

import argparse
import math
from fractions import Fraction
from itertools import product

import numpy as np

from dptrees.dpcore.levels.planner import plan_tree, predicted_cdf_rmse
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.series.temporal import TemporalSetting, best_split, mean_variance
from dptrees.dpcore.series.totals_to_date import PeriodSums
from dptrees.dpcore.uniform.plan import TreePlan, TreeSetting

# So small that the variance of discrete noise is that of continuous noise.
EPSILON = Fraction(1, 1000)
MOST_PERIODS = 365
# Totals to date, and windows by their lengths.
WANTED = (None, 30, 7, 1)


def open_nodes_plan(periods: int) -> TreePlan:
    """The tree over all periods, and its shares of the budget, by the planner of CDFs: a total to
    date is a prefix, estimated from all nodes."""
    budget = Budget(measure=Measure.EPSILON, amount=EPSILON)
    return plan_tree(TreeSetting(leaves=periods, budget=budget, unit=ADD_REMOVE_ROW))


def open_nodes_error(periods: int) -> float:
    """The error of totals to date by that tree."""
    return predicted_cdf_rmse(open_nodes_plan(periods)) * float(EPSILON) / math.sqrt(2)


def any_tree_error(periods: int, weights: int = 80, shares: int = 40) -> float:
    """The least error of totals to date from closed nodes alone, under epsilon.

    G(n, w) is the least of the sum of the variances of totals inside a node of n periods plus w
    times the node's own, where a unit of budget is left for it; H(n, mu) that of nodes side by
    side, each of weight mu more than the periods after it. With S the sum of the variances of the
    children, a share s of a node makes its own 1 / (s^2 + (1 - s)^2 / S) and the variances inside
    1 / (1 - s)^2 times larger.

    Args:
        periods: T.
        weights, shares: how fine the grids of w, mu and s are.
    """
    grid = np.concatenate([[0.0], np.geomspace(0.05, 4 * periods, weights)])
    share = np.concatenate([[0.0], np.geomspace(0.005, 0.9, shares)])
    left = (1 - share) ** 2
    shape = periods + 1, len(grid)
    node, own, row, sums = (np.zeros(shape) for _ in range(4))
    node[1], own[1] = grid, 1.0
    for size in range(1, periods + 1):
        best, variance = np.full(len(grid), np.inf), np.zeros(len(grid))
        for first in range(1, size + 1):
            if first == size and size > 1:
                inside = best - grid * variance
                single = 1 / (share**2 + left / variance[:, None])
                cost = (inside[:, None] / left)[None] + grid[:, None, None] * single
                places = cost.reshape(len(grid), -1).argmin(axis=1)
                node[size] = cost.reshape(len(grid), -1)[np.arange(len(grid)), places]
                own[size] = single.ravel()[places]
            weight = size - first + grid
            above = np.maximum(weight - grid[-1], 0) * own[first, -1]
            total = np.interp(weight, grid, node[first]) + above + row[size - first]
            closer = total < best - 1e-12
            best[closer] = total[closer]
            variance[closer] = (np.interp(weight, grid, own[first]) + sums[size - first])[closer]
        row[size], sums[size] = best, variance
    return math.sqrt(float(np.interp(1.0, grid, row[periods])) / periods)


def lower_bound(periods: int) -> float:
    """The nuclear norm of the matrix of totals to date over T."""
    angles = (2 * np.arange(periods) + 1) * math.pi / (4 * periods + 2)
    return float((1 / (2 * np.sin(angles))).sum()) / periods


def wanted_errors(periods: int, power: int, window: int | None) -> list[float]:
    """The errors of what is printed of a series that is planned for one of it.

    Args:
        periods: T.
        power: 2 for epsilon, 1 for rho.
        window: what it is planned for, as of `TemporalSetting`.
    """
    split = best_split(periods, TemporalSetting(power=power, window=window))
    noise = tuple(share ** (-power) for share in split.shares)
    errors = [mean_variance(split.tree, noise, window=each) ** 0.5 for each in WANTED]
    sums = PeriodSums.for_periods(periods)
    if power == 1 and sums.mean_error(1, window) < split.error:
        errors = [sums.mean_error(1, each) for each in WANTED]
    return errors


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--periods", type=int, nargs="+", default=[14, 90, 365, 3650])
    parser.add_argument("--wanted", action="store_true", help="by what the series is planned for")
    if (chosen := parser.parse_args()).wanted:
        print("| T | | planned for | totals | 30 | 7 | periods |")
        rows = product(chosen.periods, (("epsilon", 2), ("rho", 1)), WANTED)
        for periods, (measure, power), window in rows:
            errors = [f"{each:.3g}" for each in wanted_errors(periods, power, window)]
            print("|", " | ".join([f"{periods:,}", measure, str(window), *errors]), "|")
        return
    print("| T | planned | any tree | open nodes | sums, rho | bound, rho |")
    for periods in chosen.periods:
        planned = best_split(periods, TemporalSetting(power=2)).error
        closed = f"{any_tree_error(periods):.2f}" if periods <= MOST_PERIODS else "-"
        sums = PeriodSums.for_periods(periods).mean_error(1)
        errors = [f"{each:.2f}" for each in (open_nodes_error(periods), sums, lower_bound(periods))]
        print("|", " | ".join([f"{periods:,}", f"{planned:.2f}", closed, *errors]), "|")


if __name__ == "__main__":
    main()
