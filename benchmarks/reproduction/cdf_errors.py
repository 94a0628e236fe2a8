"""Rameshwar, Tandon, Sharma, Figure 1: the errors of the mechanisms for K = 256."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from benchmarks.harness import deviation, holds, number, table
from benchmarks.harness import section as page_section
from benchmarks.papers.cdf_errors import (
    histogram_error,
    independent_error,
    refined_error,
    tree_error,
)
from benchmarks.reproduction.simulation import Mean, measured, prefix_error
from dptrees.dpcore.levels.planner import plan_mechanism, predicted_cdf_rmse
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.uniform.plan import Estimator, TreePlan, TreeSetting

LEAVES = 256
EPSILONS = (Fraction(1, 10), Fraction(1), Fraction(4))


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve of the figure at one epsilon: N^2 E_2, the error summed over the K points."""

    label: str
    plan: TreePlan
    paper: float | None

    @property
    def exact(self) -> float:
        """Exact error with the discrete noise that a release draws, in rows^2."""
        return self.plan.tree.leaves * predicted_cdf_rmse(self.plan) ** 2

    def measured(self, runs: int) -> Mean:
        """From the mechanism itself, in rows^2."""
        error = prefix_error(self.plan, runs=runs, name=f"figure 1, {self.label}")
        return error.scaled(self.plan.tree.leaves)


def public_total_plan(
    mechanism: str, leaves: int, amount: Fraction, measure: Measure = Measure.EPSILON, **fields: Any
) -> TreePlan:
    """A plan for the neighbors of the paper: one row is substituted, N is public."""
    return plan_mechanism(
        mechanism,
        TreeSetting(
            leaves=leaves,
            budget=Budget(measure=measure, amount=amount),
            unit=SUBSTITUTE_ROW,
            public_total=True,
        ),
        **fields,
    )


def curves(epsilon: Fraction) -> Iterator[Curve]:
    """The figure's curves, then the curves of the paper's refinement and of this project."""
    k, none, refined = LEAVES, Estimator.NONE, Estimator.REFINED
    halves, eighths = (epsilon / 2,) * 2, (epsilon / 8,) * 8
    sixteen: dict[str, Any] = {"fanouts": (16, 16), "level_budgets": "equal"}
    for label, paper, name, fields in (
        ("independent", independent_error(k, epsilon), "independent", {}),
        ("histogram", histogram_error(k, epsilon), "histogram", {"estimator": none}),
        ("binary tree", tree_error(k, (2,) * 8, eighths), "binary", {"estimator": none}),
        ("16-ary tree", tree_error(k, (16, 16), halves), "tree", {**sixteen, "estimator": none}),
        (
            "16-ary, refined",
            refined_error(k, (16, 16), halves),
            "tree",
            {**sixteen, "estimator": refined},
        ),
        ("planned, least squares", None, "planned", {}),
    ):
        plan = public_total_plan(name, k, epsilon, **fields)
        yield Curve(label=label, plan=plan, paper=paper)


def section(runs: int) -> str:
    """The section of the document."""
    rows, deviations = [], []
    for epsilon in EPSILONS:
        for curve in curves(epsilon):
            found = curve.measured(runs)
            deviations.append(found.deviation(curve.exact))
            rows.append(
                (
                    curve.label,
                    f"{float(epsilon):g}",
                    "" if curve.paper is None else number(curve.paper),
                    number(curve.exact),
                    measured(found),
                    deviation(deviations[-1]),
                )
            )
    worst = max(map(abs, deviations))
    at_one = {curve.label: curve for curve in curves(Fraction(1))}
    order = [at_one[label].exact for label in ("16-ary tree", "histogram", "binary tree")]
    planned = at_one["planned, least squares"].exact
    gain, over_refined = (at_one[f"16-ary{end}"].exact / planned for end in (" tree", ", refined"))
    return page_section(
        "1. Errors of the mechanisms, K = 256 (Rameshwar et al., Figure 1)",
        f"""`N^2 E_2` in rows^2, summed over the K points of the CDF. The figure prints no numbers;
        "paper" is the closed form that it draws (Lemmas III.1, III.2, IV.4, Theorem IV.1), for
        continuous noise. "exact" is ours for the discrete noise that a release draws, "measured"
        the mean of {runs:,} runs with its standard error, and the last column is measured less
        exact, in standard errors.""",
        table(("mechanism", "epsilon", "paper", "exact", "measured", "off by"), rows),
        f"""What the text says of the figure, that the histogram has less error than the binary tree
        and the 16-ary tree the least of all, holds: {holds(order == sorted(order))}. All measured
        errors are within {worst:.1f} standard errors of the exact ones. Exact and paper agree where
        noise is large; at epsilon = 4 discrete Laplace noise has visibly less variance than
        continuous noise of the same privacy (a level of the 16-ary tree has scale 1, variance 1.841
        instead of 2; a leaf of the histogram scale 1/2, variance 0.362 instead of 0.5). Least
        squares on the planned tree divides the error of the best curve of the figure by {gain:.2f}
        at epsilon = 1, and that of the paper's refinement of it by {over_refined:.2f}.""",
    )
