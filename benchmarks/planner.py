"""Compares planned trees with the optimum before estimation, and times the planner.

Errors are mean squared errors of a CDF point, in rows^2, at epsilon = 1 or rho = 1, for substitute
neighbours and a public number of rows. "paper" is the error of the raw counts on the tree of
Rameshwar, Tandon, Sharma; "estimated" the same tree after estimation; "aim" what this project set
out to reach with continuous noise.

    python benchmarks/planner.py
"""

from __future__ import annotations

import itertools
import time
from fractions import Fraction

from dpcore.candidates import candidates
from dpcore.planner import plan_tree, predicted_cdf_rmse
from dpcore.privacy import Budget, Measure, Neighbors
from dpcore.strategies import search_strategies

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


def shape(fanouts: tuple[int, ...]) -> str:
    """The fan-outs, with repetitions as powers."""
    runs = ((fanout, len(list(run))) for fanout, run in itertools.groupby(fanouts))
    return " ".join(f"{fanout}^{count}" if count > 1 else str(fanout) for fanout, count in runs)


def row(leaves: int, measure: Measure) -> str:
    """One line of the table."""
    budget = Budget(measure=measure, amount=Fraction(1))
    substitute = Neighbors.SUBSTITUTE
    search_strategies.cache_clear()
    start = time.perf_counter()
    planned = plan_tree(leaves=leaves, budget=budget, neighbors=substitute, public_total=True)
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


def main() -> None:
    """Prints the table."""
    print(
        f"{'K':>13} {'measure':8} {'paper':>10} {'estimated':>10} {'planned':>10} {'aim':>8} "
        f"{'ratio':>6} {'seconds':>8}  shape"
    )
    for measure in Measure:
        for leaves in LEAVES:
            print(row(leaves, measure))


if __name__ == "__main__":
    main()
