"""What planning for the error after estimation gives: the mean squared error of a CDF point."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction

from benchmarks.harness import deviation, holds, number, shape, table
from benchmarks.harness import section as page_section
from benchmarks.papers.cdf_errors import level_variance
from benchmarks.papers.factorisations import best_factorization
from benchmarks.reproduction.cdf_errors import public_total_plan
from benchmarks.reproduction.simulation import Mean, measured, prefix_error
from dptrees.dpcore.levels.planner import predicted_cdf_rmse
from dptrees.dpcore.papers.cdf_mechanisms import optimal_level_budgets, tree_error_from_variances
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.prefix_errors import mean_prefix_variance
from dptrees.dpcore.uniform.strategies import search_strategies

# Measured by simulation up to here: runs of more leaves are fewer.
MEASURED_LEAVES = 4096


@dataclass(frozen=True, kw_only=True)
class Aim:
    """The error that was to be reached with continuous noise, at epsilon = 1 or rho = 1."""

    leaves: int
    measure: Measure
    error: str | None

    def is_reached(self, error: float) -> bool:
        """To the digits in which it is written."""
        if self.error is None:
            return True
        decimals = len(self.error.partition(".")[2])
        return round(error, decimals) <= float(self.error)


AIMS = (
    Aim(leaves=256, measure=Measure.EPSILON, error="159.5"),
    Aim(leaves=1024, measure=Measure.EPSILON, error="315.4"),
    Aim(leaves=4096, measure=Measure.EPSILON, error="527"),
    Aim(leaves=2**16, measure=Measure.EPSILON, error="1238"),
    Aim(leaves=2**20, measure=Measure.EPSILON, error="2402"),
    Aim(leaves=2**30, measure=Measure.EPSILON, error=None),
    Aim(leaves=1024, measure=Measure.RHO, error="9.58"),
    Aim(leaves=2**16, measure=Measure.RHO, error="23.3"),
    Aim(leaves=2**30, measure=Measure.RHO, error=None),
)


def timed_plan(aim: Aim) -> tuple[TreePlan, float]:
    """The planned tree, and the seconds that planning took."""
    search_strategies.cache_clear()
    start = time.perf_counter()
    plan = public_total_plan("planned", aim.leaves, Fraction(1), aim.measure)
    return plan, time.perf_counter() - start


def paper_error(aim: Aim) -> float:
    """The least error before estimation, over factorizations of K, in rows^2 a point."""
    fanouts = best_factorization(aim.leaves, aim.measure)
    budgets = optimal_level_budgets(fanouts, Fraction(1), aim.measure)
    variances = [level_variance(each, aim.measure) for each in budgets]
    return tree_error_from_variances(aim.leaves, fanouts, variances) / aim.leaves


def continuous_error(plan: TreePlan) -> float:
    """The error after estimation if the noise were continuous, in rows^2 a point."""
    variances = [
        level_variance(amount, plan.budget.measure) if amount else unmeasured
        for amount, unmeasured in zip(plan.level_amounts, plan.variances, strict=True)
    ]
    return mean_prefix_variance(plan.tree, variances)


def measured_error(plan: TreePlan, runs: int) -> Mean:
    """From the mechanism itself, in rows^2 a point."""
    name = f"planned, {plan.tree.leaves}, {plan.budget.measure.value}"
    return prefix_error(plan, runs=runs, name=name)


def section(runs: int) -> str:
    """The section of the document."""
    rows, deviations, ratios, reached = [], [], [], True
    for aim in AIMS:
        plan, seconds = timed_plan(aim)
        exact, continuous = predicted_cdf_rmse(plan) ** 2, continuous_error(plan)
        before = paper_error(aim)
        ratios.append(before / exact)
        reached &= aim.is_reached(continuous)
        simulated = ["", ""]
        if aim.leaves <= MEASURED_LEAVES:
            found = measured_error(plan, runs if aim.leaves == 256 else runs // 4)
            deviations.append(found.deviation(exact))
            simulated = [measured(found), deviation(deviations[-1])]
        rows.append(
            (
                f"{aim.leaves:,} {aim.measure.value} = 1",
                number(before),
                aim.error or "",
                number(continuous),
                number(exact),
                *simulated,
                shape(plan.tree.fanouts),
                f"{seconds:.2f}",
            )
        )
    headers = (
        "K, budget",
        "paper",
        "aim",
        "continuous",
        "exact",
        "measured",
        "off by",
        "fan-outs",
        "planning, s",
    )
    worst = max(map(abs, deviations))
    return page_section(
        "5. Planned trees",
        f"""The squared error of a point of the CDF, mean over the K points, in rows^2, one row
        substituted, N public. "paper" is the least error before estimation over factorisations of
        K; "aim" is what this project set out to reach after estimation with continuous noise, and
        "continuous" what it reaches; "exact" is for the discrete noise that a release draws,
        "measured" from runs of it ({runs:,} at K = 256, a quarter at larger K). The seconds of
        planning depend on the machine that wrote this page; nothing else here changes from run to
        run.""",
        table(headers, rows),
        f"""Every aim is reached to its printed digits: {holds(reached)}. Measured and exact agree
        within {worst:.1f} standard errors. Discrete Laplace noise has slightly less variance than
        continuous noise of the same privacy; discrete Gaussian noise has the same. Estimation and
        planning together divide the error of the paper's best tree by {min(ratios):.1f} to
        {max(ratios):.1f}.""",
    )
