"""Compares planned trees with the optimum before estimation, and times the planner.

Errors are mean squared errors of a CDF point, in rows^2, at epsilon = 1 or rho = 1, for substitute
neighbors and a public number of rows. "paper" is the error of the raw counts on the tree of
Rameshwar, Tandon, Sharma; "estimated" the same tree after estimation; "aim" what this project set
out to reach with continuous noise.

The second table has the other objectives, for add_remove and a private number of rows: the error of
what they read under their own plan, and under the plan for the CDF.

    python benchmarks/planner.py
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from fractions import Fraction

from dptrees.dpcore.levels.planner import plan_tree, predicted_cdf_rmse, predicted_error
from dptrees.dpcore.ordered.candidates import candidates
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW
from dptrees.dpcore.uniform.objectives import Guess, Objective, QuantileObjective, RangeObjective
from dptrees.dpcore.uniform.setting import TreeSetting
from dptrees.dpcore.uniform.strategies import search_strategies

LEAVES = (256, 997, 1024, 4096, 65536, 10**6, 2**20, 2**30, 2**40)
AIMS = {
    (256, Measure.EPSILON): 159.5,
    (1024, Measure.EPSILON): 315.4,
    (4096, Measure.EPSILON): 527,
    (65536, Measure.EPSILON): 1238,
    (2**20, Measure.EPSILON): 2402,
    (1024, Measure.RHO): 9.58,
    (65536, Measure.RHO): 23.3,
}


QUARTILES = (0.25, 0.5, 0.75)
BESIDE = tuple(q + beside for q in QUARTILES for beside in (-0.05, -0.025, 0.0, 0.025, 0.05))
OBJECTIVES: dict[str, Callable[[int], Objective]] = {
    "quantiles": lambda leaves: QuantileObjective(quantiles=QUARTILES),
    # In cells: as if K rows were even over the domain, for the quartiles and what lies beside them.
    "quantiles, guessed": lambda leaves: QuantileObjective(
        quantiles=BESIDE,
        guesses=tuple(Guess(stop=int(q * leaves), density=1.0) for q in BESIDE),
    ),
    "ranges": lambda leaves: RangeObjective(),
    "ranges of 1 %, 10 %": lambda leaves: RangeObjective(widths=(leaves // 100, leaves // 10)),
}


def shape(fanouts: tuple[int, ...]) -> str:
    """The fan-outs, with repetitions as powers."""
    runs = ((fanout, len(list(run))) for fanout, run in itertools.groupby(fanouts))
    return " ".join(f"{fanout}^{count}" if count > 1 else str(fanout) for fanout, count in runs)


def row(leaves: int, measure: Measure) -> str:
    """One line of the table."""
    budget = Budget(measure=measure, amount=Fraction(1))
    substitute = SUBSTITUTE_ROW
    search_strategies.cache_clear()
    start = time.perf_counter()
    planned = plan_tree(
        TreeSetting(leaves=leaves, budget=budget, unit=substitute, public_total=True)
    )
    seconds = time.perf_counter() - start
    paper = {
        each.plan.estimator.value: predicted_cdf_rmse(each.plan) ** 2
        for each in candidates(planned)
        if each.label == "tree"
    }
    errors = [paper["none"], paper["full"], predicted_cdf_rmse(planned) ** 2]
    aim = AIMS.get((leaves, measure), "")
    figures = " ".join(f"{error:10.2f}" for error in errors)
    return (
        f"{leaves:>13} {measure.value:8} {figures} {aim!s:>8} "
        f"{errors[0] / errors[2]:6.2f} {seconds:8.3f}  {shape(planned.tree.fanouts)}"
    )


def objective_row(leaves: int, measure: Measure, name: str) -> str:
    """One line of the second table."""
    budget, unit = Budget(measure=measure, amount=Fraction(1)), ADD_REMOVE_ROW
    objective = OBJECTIVES[name](leaves)
    cdf_plan = plan_tree(TreeSetting(leaves=leaves, budget=budget, unit=unit))
    search_strategies.cache_clear()
    start = time.perf_counter()
    own = plan_tree(TreeSetting(leaves=leaves, budget=budget, unit=unit), objective=objective)
    seconds = time.perf_counter() - start
    errors = [predicted_error(each, objective) for each in (own, cdf_plan)]
    return (
        f"{leaves:>13} {measure.value:8} {name:20} {errors[0]:8.3f} {errors[1]:8.3f} "
        f"{errors[1] / errors[0]:6.2f} {seconds:8.3f}  {shape(own.tree.fanouts)}"
    )


def main() -> None:
    """Prints the tables."""
    print(
        f"{'K':>13} {'measure':8} {'paper':>10} {'estimated':>10} {'planned':>10} {'aim':>8} "
        f"{'ratio':>6} {'seconds':>8}  shape"
    )
    for measure in Measure:
        for leaves in LEAVES:
            print(row(leaves, measure))
    print(
        f"\n{'K':>13} {'measure':8} {'objective':20} {'own plan':>8} {'cdf plan':>8} {'ratio':>6} "
        f"{'seconds':>8}  shape"
    )
    for measure in Measure:
        for leaves in (1024, 2**20, 2**30):
            for name in OBJECTIVES:
                print(objective_row(leaves, measure, name))


if __name__ == "__main__":
    main()
