"""Matrix strategies beside trees: errors of all prefixes, and how long a plan takes.

    python -m benchmarks.factorised [CELLS ...]

prints the root mean square error of all prefixes under rho 1/2, where a row moves what is measured
by at most 1 (add_remove): of whole levels, of the strategy that `planned` takes for estimates, of
the strategy by name, and the dual bound, below which no unbiased linear mechanism is; and the
seconds of CPU of both plans.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction

from dptrees.dpcore.factorised.optimum import optimal_weights, prefix_gram
from dptrees.dpcore.factorised.strategies import MOST_OPTIMAL, plan_strategy
from dptrees.dpcore.levels.workload import OrderedWorkload, ReadAs
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting

_SETTING = Setting(unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
SIZES = (64, 256, 729, 1024, 1025, 1500, 2048, 4096, 2**16, 2**20)


def planned(cells: int, mechanism: str) -> tuple[float, float]:
    """Predicted error, and the seconds of CPU of a plan."""
    domain = StepDomain(kind="integer", column="x", lower=0, upper=cells)
    workload = OrderedWorkload(
        name="x", domain=domain, mechanism=mechanism, read_as=ReadAs.ESTIMATES
    )
    plan_strategy.cache_clear()
    start = time.process_time()
    tree = workload.planned(_SETTING)
    seconds = time.process_time() - start
    return workload.predicted(tree), seconds


def rows(sizes: Sequence[int]) -> Iterator[str]:
    """The table, line by line."""
    yield "| cells | whole levels | planned | factorised | bound | planned in | factorised in |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for cells in sizes:
        found = [planned(cells, each) for each in ("levels", "planned", "factorised")]
        errors = " | ".join(f"{error:.3f}" for error, _ in found)
        bound = ""
        if cells <= MOST_OPTIMAL:
            best = optimal_weights(prefix_gram, cells, of_prefixes=True)
            bound = f"{(best.bound / cells) ** 0.5:.3f}"
        yield f"| {cells:,} | {errors} | {bound} | {found[1][1]:.2f} s | {found[2][1]:.2f} s |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", nargs="*", type=int, help=f"default: {SIZES}")
    for line in rows(parser.parse_args().cells or SIZES):
        print(line, flush=True)


if __name__ == "__main__":
    main()
