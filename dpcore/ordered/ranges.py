"""The error of the estimated count of a range of leaves: its variance, its law, its interval.

Source: the design, section 5 ("ranges take two boundaries"); `dpcore.uniform.errors`.
"""

from __future__ import annotations

from dpcore.errors.law import ROUNDING, ErrorLaw
from dpcore.ordered.errors import errors_of
from dpcore.uniform.plan import TreePlan


def range_variance(plan: TreePlan, start: int, stop: int) -> float:
    """The variance of the estimated count of leaves ``start`` to ``stop`` - 1, in rows^2.

    Args:
        plan: of the tree.
        start, stop: 0 <= start <= stop <= K.

    Raises:
        ValueError: not a range of the tree's leaves.

    >>> from fractions import Fraction
    >>> from dpcore.privacy.budget import Budget, Measure, Neighbors
    >>> from dpcore.trees.uniform import Tree
    >>> plan = TreePlan(
    ...     tree=Tree(leaves=4, fanouts=(4,)), neighbors=Neighbors.SUBSTITUTE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)), public_total=True)
    >>> round(range_variance(plan, 1, 3) / plan.variances[1], 6)  # 2 (1 - 2/4)
    1.0
    """
    return range_error(plan, start, stop).variance


def range_error(plan: TreePlan, start: int, stop: int) -> ErrorLaw:
    """The law of the error of the estimated count of leaves ``start`` to ``stop`` - 1.

    Args:
        plan: of the tree.
        start, stop: 0 <= start <= stop <= K.

    Raises:
        ValueError: not a range of the tree's leaves.

    Source: `dpcore.ordered.errors`, exact.

    >>> from fractions import Fraction
    >>> from dpcore.privacy.budget import Budget, Measure, Neighbors
    >>> from dpcore.trees.uniform import Tree
    >>> plan = TreePlan(
    ...     tree=Tree(leaves=4, fanouts=(4,)), neighbors=Neighbors.ADD_REMOVE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)))
    >>> range_error(plan, 1, 3).terms  # two leaves
    ((DiscreteLaplace(scale=Fraction(1, 1)), 1.0, 2),)
    """
    if not 0 <= start <= stop <= plan.tree.leaves:
        raise ValueError(f"range: {start} to {stop} is not within 0 to {plan.tree.leaves}")
    return errors_of(plan).range(start, stop)


def range_margin(plan: TreePlan, start: int, stop: int, confidence: float) -> float:
    """The half-width in rows of an interval for a range's count, from the range's own law.

    Args:
        plan: of the tree.
        start, stop: 0 <= start <= stop <= K.
        confidence: the coverage is at least this; above 0 and at most 0.9999.

    Returns:
        rows either side of the estimate; 0 where the count is known.

    Raises:
        ValueError: no range of the tree's leaves, or no such confidence.

    >>> from fractions import Fraction
    >>> from dpcore.privacy.budget import Budget, Measure, Neighbors
    >>> from dpcore.trees.uniform import Tree
    >>> plan = TreePlan(
    ...     tree=Tree(leaves=4, fanouts=(4,)), neighbors=Neighbors.ADD_REMOVE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)))
    >>> round(range_margin(plan, 1, 2, 0.95), 6), plan.laws[1].bound(0.05)
    (3.0, 3)
    """
    law = range_error(plan, start, stop)
    # An atom at the very end stays inside whatever the estimate's last bits are.
    return law.half_width(confidence) * (1 + 1e-9) if law.variance > ROUNDING else 0.0
