"""The laws of the errors of a plan's own estimates, whichever estimator it names.

Source: `dpcore.uniform.errors` (fully efficient), `dpcore.papers.estimator_errors` (the papers'
others).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from dptrees.dpcore.errors.intervals import QuantileMargin, one_sided
from dptrees.dpcore.errors.law import BLUR_VARIANCE, ROUNDING, ErrorLaw
from dptrees.dpcore.papers.estimator_errors import EstimatorErrors, IndependentErrors
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.errors import UniformErrors
from dptrees.dpcore.uniform.plan import Measured, TreePlan
from dptrees.dpcore.uniform.widths import IntervalWidths, interval_widths, standard_width

# Boundaries whose laws are inverted, all of them in a small tree.
_FEW = 24


# The laws of the errors of nodes, prefixes and ranges.
PlanErrors = UniformErrors | IndependentErrors | EstimatorErrors


@lru_cache(maxsize=16)
def estimate_errors(plan: TreePlan) -> PlanErrors:
    """The laws of a plan's own estimates.

    >>> from dptrees.dpcore.papers.mechanisms import independent_mechanism
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
    >>> from fractions import Fraction
    >>> from dptrees.dpcore.uniform.setting import TreeSetting
    >>> plan = independent_mechanism(TreeSetting(
    ...     leaves=9, unit=SUBSTITUTE_ROW, public_total=True,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(8))))
    >>> estimate_errors(plan).prefix(3).terms
    ((DiscreteLaplace(scale=Fraction(1, 1)), 1.0, 1),)
    """
    if plan.measured is Measured.PREFIXES:
        law = plan.laws[-1]
        if law is None:  # one leaf, publicly known
            return UniformErrors(plan)
        return IndependentErrors(tree=plan.tree, law=law, public_total=plan.public_total)
    if plan.is_efficient:
        return UniformErrors(plan)
    return EstimatorErrors(estimator=plan.estimator, plan=plan)


# Every release under a plan and every check of it in one process needs the same ones.
@lru_cache(maxsize=32)
def estimate_widths(plan: TreePlan, confidence: float) -> IntervalWidths:
    """The widths of the intervals of a plan's own estimates.

    For the papers' estimators they come from the widest law among nodes of each kind, and among
    boundaries: all of a small tree, else the first, the last, the middle and the ends of subtrees.

    Args:
        plan: any.
        confidence: above 0 and at most 0.9999.
    """
    if plan.is_efficient:
        return interval_widths(plan, confidence)
    errors, tree = estimate_errors(plan), plan.tree
    levels = tuple(
        max(
            standard_width(errors.node(level, node), confidence)
            for node in sorted({0, size // 2, max(0, size - 2), size - 1})
        )
        for level, size in enumerate(tree.level_sizes)
    )
    laws = [errors.prefix(leaf) for leaf in _boundaries(tree)]
    if not plan.public_total:
        places = sorted({0, tree.leaves // 2, tree.leaves - 1})
        laws += [errors.prefix(leaf, less_total=0.5) for leaf in places]
    prefix, one = (
        max(
            law.blurred_half_width(each) / math.sqrt(law.variance + BLUR_VARIANCE)
            if law.variance > ROUNDING
            else 0.0
            for law in laws
        )
        for each in (confidence, one_sided(confidence))
    )
    return IntervalWidths(
        confidence=confidence,
        levels=levels,
        prefix=prefix,
        quantile=QuantileMargin(both=(prefix, 0.5), one=(one, 0.5)),
    )


def _boundaries(tree: UniformTree) -> list[int]:
    if tree.leaves <= _FEW:
        return list(range(tree.leaves))
    ends = {min(tree.leaves, tree.leaves_below(level)) - 1 for level in range(tree.height)}
    # Before the last node of each level, whose siblings a trimmed tree has fewer of.
    ends |= {
        (size - 1) * tree.leaves_below(level) - 1
        for level, size in enumerate(tree.level_sizes)
        if size > 1
    }
    last = tree.leaves - 1
    return sorted({0, 1, 2, 4, 7, 12, 20, last // 3, last // 2, last - 1, last} | ends)


def range_error(plan: TreePlan, start: int, stop: int) -> ErrorLaw:
    """The law of the error of the estimated count of leaves ``start`` to ``stop`` - 1.

    Args:
        plan: of the tree.
        start, stop: 0 <= start <= stop <= K.

    Raises:
        ValueError: not a range of the tree's leaves.

    Source: the design, section 5 ("ranges take two boundaries").

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = TreePlan(
    ...     tree=UniformTree(leaves=4, fanouts=(4,)), unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)))
    >>> range_error(plan, 1, 3).terms  # two leaves
    ((DiscreteLaplace(scale=Fraction(1, 1)), 1.0, 2),)
    >>> round(range_margin(range_error(plan, 1, 2), 0.95), 6), plan.laws[1].bound(0.05)
    (3.0, 3)
    """
    if not 0 <= start <= stop <= plan.tree.leaves:
        raise ValueError(f"range: {start} to {stop} is not within 0 to {plan.tree.leaves}")
    return estimate_errors(plan).range(start, stop)


def runs_error(plan: TreePlan, runs: Sequence[tuple[int, int]]) -> ErrorLaw:
    """The law of the error of the estimated count of several runs of leaves together.

    Args:
        plan: of the tree.
        runs: [start, stop) of each, rising, with gaps between them.
    """
    return estimate_errors(plan).sum(runs)


def range_margin(law: ErrorLaw, confidence: float) -> float:
    """The half-width in rows of an interval for a range's count, from the range's own law.

    Args:
        law: from `range_error`.
        confidence: the coverage is at least this; above 0 and at most 0.9999.

    Returns:
        rows either side of the estimate; 0 where the count is known.

    Raises:
        ValueError: no such confidence.
    """
    # An atom at the very end stays inside whatever the estimate's last bits are.
    return law.half_width(confidence) * (1 + 1e-9) if law.variance > ROUNDING else 0.0
