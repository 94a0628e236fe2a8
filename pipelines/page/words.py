"""A glossary for readers of the page, and the guarantee in two sentences."""

from __future__ import annotations

from collections.abc import Mapping

from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.answers.figures import percent

_COUNT = (
    "A number near the estimate, adjusted so that the numbers fit together. Usually, counts are "
    "whole numbers, are never negative, and the counts of the parts add up to the count of the "
    "whole."
)
_ESTIMATE = (
    "A number that is computed from noisy measurements, without further adjustment. It can be "
    "fractional, and negative. To add up numbers yourself, use estimates."
)


def word_meanings(plan: ReleasePlan, confidence: float) -> Mapping[str, str]:
    """Return the meanings of the words that a reader of the page needs.

    Args:
        plan: of the release.
        confidence: of its intervals.
    """
    level = percent(confidence)
    return {
        "Privacy unit": f"What the guarantee protects. Here it is {protected_in_words(plan)}.",
        **_budget_meanings(plan),
        "Confidence interval": (
            f"A range of values around a published number. With a confidence of {level}, the range "
            f"contains the true number. This holds for each number separately. The sign ± is half "
            "of the range."
        ),
        "Estimate": _ESTIMATE,
        "Count": _COUNT,
    }


def _budget_meanings(plan: ReleasePlan) -> Mapping[str, str]:
    """Return the meanings of the numbers that the guarantee states."""
    budget = "The privacy budget: how much the release may reveal about a privacy unit. "
    smaller = "Smaller values protect more."
    if plan.promised is not None:
        delta = "A small allowance beyond the limit of epsilon. "
        return {"Epsilon": budget + smaller, "Delta": delta + smaller}
    if plan.budget.measure is Measure.EPSILON:
        return {"Epsilon": budget + smaller}
    law = "It is the parameter of zero-concentrated differential privacy. "
    return {"Rho": budget + law + smaller}


def guarantee_in_short(plan: ReleasePlan) -> str:
    """Return the guarantee in sentences that a reader may quote.

    Args:
        plan: of the release.
    """
    is_rho = plan.promised is None and plan.budget.measure is not Measure.EPSILON
    name = "rho" if is_rho else "epsilon"
    return (
        "In short: every result on this page, unless it is marked as exact, contains random noise. "
        "The noise limits what anyone can learn from this release about "
        f"{protected_in_words(plan)}. The smaller {name} is, the stronger is this limit."
    )


def protected_in_words(plan: ReleasePlan) -> str:
    """Return what the guarantee protects, of each period if each is protected by itself.

    Args:
        plan: of the release.
    """
    unit, run = plan.unit, plan.run
    if unit.is_row:
        return "one row"
    period = "" if run is None else " in one period"
    if run is not None and run.max_periods is not None:
        period = " in all periods"
    return f"all rows of one {unit.name} together{period}"
