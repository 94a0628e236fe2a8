"""The error of the estimated count of a range of leaves: its variance in O(height), its law.

A range begins in one child c0 and ends in another child c1 of the lowest node v that holds both its
boundaries. With (alpha, e) of the prefixes inside c0 and c1, the range is a combination of the
children's estimates with weights 1 - alpha_0, 1 (between), alpha_1 and independent rests:

    alpha_v = sum w_c k_c,  e_v = e_0 + e_1 + sum w_c^2 a_c - (sum w_c a_c)^2 / A

and on the way to the root a node is its parent's only child of weight alpha.

Source: the design, section 5 ("ranges take two boundaries"); equals dense least squares.
"""

from __future__ import annotations

from dpcore.error_law import ErrorLaw
from dpcore.plan import TreePlan
from dpcore.plan_errors import errors_of
from dpcore.tree_errors import TreeErrors

# A variance below this is that of a count known exactly, but for rounding.
_ROUNDING = 1e-9


def range_variance(plan: TreePlan, start: int, stop: int) -> float:
    """The variance of the estimated count of leaves ``start`` to ``stop`` - 1, in rows^2.

    Args:
        plan: of the tree.
        start, stop: 0 <= start <= stop <= K.

    Raises:
        ValueError: not a range of the tree's leaves.

    >>> from fractions import Fraction
    >>> from dpcore.privacy import Budget, Measure, Neighbors
    >>> from dpcore.tree import Tree
    >>> plan = TreePlan(
    ...     tree=Tree(leaves=4, fanouts=(4,)), neighbors=Neighbors.SUBSTITUTE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)), public_total=True)
    >>> round(range_variance(plan, 1, 3) / plan.variances[1], 6)  # 2 (1 - 2/4)
    1.0
    """
    if not 0 <= start <= stop <= plan.tree.leaves:
        raise ValueError(f"range: {start} to {stop} is not within 0 to {plan.tree.leaves}")
    if start == stop:
        return 0.0
    if not plan.is_efficient:
        return errors_of(plan).range(start, stop).variance
    errors = TreeErrors(plan)
    alpha, rest = _within(errors, 0, 0, start, stop)
    return alpha**2 * errors.root_variance + rest


def range_error(plan: TreePlan, start: int, stop: int) -> ErrorLaw:
    """The law of the error of the estimated count of leaves ``start`` to ``stop`` - 1.

    Args:
        plan: of the tree.
        start, stop: 0 <= start <= stop <= K.

    Raises:
        ValueError: not a range of the tree's leaves.

    Source: `dpcore.plan_errors`, exact.

    >>> from fractions import Fraction
    >>> from dpcore.privacy import Budget, Measure, Neighbors
    >>> from dpcore.tree import Tree
    >>> plan = TreePlan(
    ...     tree=Tree(leaves=4, fanouts=(4,)), neighbors=Neighbors.ADD_REMOVE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)))
    >>> range_error(plan, 1, 3).terms  # two leaves
    ((DiscreteLaplace(scale=Fraction(1, 1)), 1.0, 2),)
    """
    if not 0 <= start <= stop <= plan.tree.leaves:
        raise ValueError(f"range: {start} to {stop} is not within 0 to {plan.tree.leaves}")
    if start == stop:
        return ErrorLaw(terms=())
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
    >>> from dpcore.privacy import Budget, Measure, Neighbors
    >>> from dpcore.tree import Tree
    >>> plan = TreePlan(
    ...     tree=Tree(leaves=4, fanouts=(4,)), neighbors=Neighbors.ADD_REMOVE,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...     level_amounts=(Fraction(0), Fraction(1)))
    >>> round(range_margin(plan, 1, 2, 0.95), 6), plan.laws[1].bound(0.05)
    (3.0, 3)
    """
    law = range_error(plan, start, stop)
    # An atom at the very end stays inside whatever the estimate's last bits are.
    return law.half_width(confidence) * (1 + 1e-9) if law.variance > _ROUNDING else 0.0


def _within(
    errors: TreeErrors, level: int, node: int, start: int, stop: int
) -> tuple[float, float]:
    """(alpha, e) of the part of the range that lies in a node."""
    tree = errors.tree
    leaves = tree.leaf_range(level, node)
    if start <= leaves.start and leaves.stop <= stop:
        return 1.0, 0.0
    if stop <= leaves.start or leaves.stop <= start:
        return 0.0, 0.0
    children = tree.children(level, node)
    width = tree.leaves_below(level + 1)
    # Only the children that hold a boundary are entered; those between are whole.
    first, last = max(start // width, children.start), min((stop - 1) // width, children.stop - 1)
    alpha = rest = weighted = 0.0
    whole = range(first + 1, last)
    if len(whole):
        below = errors.below(level + 1, whole.start)
        alpha += len(whole) * errors.gain(level + 1, whole.start)
        rest += len(whole) * below
        weighted += len(whole) * below
    for child in sorted({first, last}):
        weight, inside = _within(errors, level + 1, child, start, stop)
        below = errors.below(level + 1, child)
        alpha += weight * errors.gain(level + 1, child)
        rest += inside + weight**2 * below
        weighted += weight * below
    total = errors.total(level, node)
    return alpha, rest - (weighted**2 / total if total else 0.0)
