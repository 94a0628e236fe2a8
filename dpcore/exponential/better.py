"""Conditions under which the exponential mechanism's quantiles beat a planned tree's.

Measured, not derived (docs/quantiles.md): on gamma, Zipf and atomic data, from 100 to 100,000 rows,
under epsilon and rho, and on the sets of docs/accuracy.md. It is so of few quantiles, where the
rows of every part are enough to find the wanted one among all cells: a choice of rate g among K
cells is off by about ln(K) / g ranks.
"""

from __future__ import annotations

from fractions import Fraction

from dpcore.arithmetic.elementary import log
from dpcore.exponential.plan import ExponentialPlan

# Beyond, a tree is as near or nearer: of nine deciles by 1.6 to 1.9 times at n epsilon = 10,000.
_MOST_QUANTILES = 7
# Of more cells than a chunk has nothing was measured; who wants rounds names the mechanism.
_MOST_CELLS = 2**17
# A part is to have so many times the rows by which a choice may be off.
_TIMES = 1.5


def is_better(plan: ExponentialPlan, rows: Fraction | None) -> bool:
    """Whether the plan's quantiles are expected to be nearer than a tree's of the same budget.

    Args:
        plan: of the quantiles.
        rows: a public guess of how many there are, of each key. None: there is no guess. Of so few
            quantiles the ranks are then nearer by up to ten times where rows are many, and about
            as near where they are few.

    >>> from dpcore.privacy.budget import Budget, Measure
    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> seven = ExponentialPlan(
    ...     cells=4096, unit=ADD_REMOVE_ROW, quantiles=tuple(Fraction(n, 8) for n in range(1, 8)),
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> is_better(seven, Fraction(100)), is_better(seven, Fraction(1000))
    (False, True)
    """
    if len(plan.quantiles) > _MOST_QUANTILES or plan.cells > _MOST_CELLS:
        return False
    if rows is None:
        return True
    ends = (Fraction(0), *plan.quantiles, Fraction(1))
    # The narrowest part beside a quantile, at its own rate.
    least = min(
        float(min(own - below, above - own) * rows * plan.rates[place])
        for place, (below, own, above) in enumerate(
            zip(ends, plan.quantiles, ends[2:], strict=False)
        )
    )
    return least >= _TIMES * log(plan.cells)
