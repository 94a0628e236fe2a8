"""Trees whose answers are linear in what was measured, at other budgets: what temporal levels are,
and what a window of them is.

A temporal level is the tree at a part of the budget: the same shape, the same split over its own
levels, so that variances are in proportion, v_l w_i at level i of a node of temporal level l. Then
the best linear estimate in time and within the tree at once is the best one within each tree,
followed by the best one over time (least squares of a Kronecker product is the product of both).
A window is one more tree of that shape, whose noise has the variance that its weights give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.sensitivity import amount_factor
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.uniform.forest import UniformForest

# Of noise that is zero for all that floats can say.
_LEAST_VARIANCE = 1e-100


def adds_up(question: object) -> bool:
    """Whether temporal nodes of a tree can be put together: its leaves are known, and its estimates
    are linear in what was measured, by least squares."""
    return (
        isinstance(question, TreeQuestion)
        and question.mechanism.errors_are_known
        and type(question.forest) in (UniformForest, IrregularForest)
    )


def scaled(question: TreeQuestion[Any], budget: Budget) -> TreeQuestion[Any]:
    """The same tree at another budget, split over its levels in the same proportions."""
    plan: Any = question.plan
    factor = budget.amount / plan.budget.amount
    amounts = tuple(amount * factor for amount in plan.level_amounts)
    return _with_plan(question, replace(plan, budget=budget, level_amounts=amounts))


def windowed(levels: Sequence[TreeQuestion[Any]], factors: Sequence[float]) -> TreeQuestion[Any]:
    """The tree whose noise has the variance of a window's, for the errors of its estimates.

    Nothing is drawn by it. At every level of the tree its law is that of the amount at which the
    variance is the sum of the factors times the temporal levels' variances.

    Args:
        levels: for each temporal level, the tree.
        factors: `dpcore.series.windows.level_factors`.
    """
    first: Any = levels[0].plan
    amounts = []
    for level, amount in enumerate(first.level_amounts):
        laws = [_law(each.plan, level) for each in levels]
        own = laws[0]
        if own is None:
            amounts.append(amount)
            continue
        variance = math.fsum(
            factor * _variance(law) for factor, law in zip(factors, laws, strict=True) if law
        )
        amounts.append(
            amount * Fraction(amount_factor(first.budget.measure, _variance(own), variance))
        )
    budget = replace(first.budget, amount=sum(amounts, Fraction(0)))
    return _with_plan(levels[0], replace(first, budget=budget, level_amounts=tuple(amounts)))


def _with_plan(question: TreeQuestion[Any], plan: Any) -> TreeQuestion[Any]:
    """Return the same tree with another plan."""
    return replace(question, mechanism=replace(question.mechanism, plan=plan))


def leaf_variance(question: TreeQuestion[Any]) -> float:
    """The variance of the noise of a leaf."""
    law = _law(question.plan, question.plan.tree.height)
    assert law is not None
    return _variance(law)


def _law(plan: Any, level: int) -> NoiseLaw | None:
    """The noise of a level's nodes; of an irregular tree, of those that have siblings."""
    result: NoiseLaw | None = plan.laws[level] if hasattr(plan, "laws") else plan.law(level, 0)
    return result


def _variance(law: NoiseLaw) -> float:
    return max(float(law.variance), _LEAST_VARIANCE)
