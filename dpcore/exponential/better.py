"""Conditions under which the exponential mechanism's quantiles beat a planned tree's.

Measured, not derived (docs/quantiles.md): on gamma, Zipf and atomic data, from 100 to 100,000 rows,
under epsilon and rho, on the sets of docs/accuracy.md, and for 8 to 15 quantiles on the shapes of
`benchmarks.regret` by `benchmarks/quantiles.py`. It is so where the rows of every part are
enough to find the wanted quantile among all cells: a choice of rate g among K cells is off by about
ln(K) / g ranks.
"""

from __future__ import annotations

from fractions import Fraction

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.privacy.budget import Measure

# Up to 7 are chosen along paths of 3, up to 15 along paths of 4. Nine have 1.9 times the error of a
# tree for counts at 100 rows times epsilon and .8 times it from 3,000 on, so without a guess a tree
# it is. Beyond 15, and of more than 7 under rho, too little was measured.
_FEW_QUANTILES, _MOST_QUANTILES = 7, 15
# Of more cells than a chunk has nothing was measured; who wants rounds names the mechanism.
_MOST_CELLS = 2**17
# A part is to have so many times the rows by which a choice may be off: of few quantiles, and of
# more, where a tree for counts is what they compete with.
_TIMES, _TIMES_OF_MORE = 1.5, 4.0


def is_better(plan: ExponentialPlan, rows: Fraction | None) -> bool:
    """Whether the plan's quantiles are expected to be nearer than a tree's of the same budget.

    Args:
        plan: of the quantiles.
        rows: a public guess of how many there are, of each key. None: there is no guess. The ranks
            of few quantiles are then nearer by up to ten times where rows are many, and about as
            near where they are few.

    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> seven = ExponentialPlan(
    ...     cells=4096, unit=ADD_REMOVE_ROW, quantiles=tuple(Fraction(n, 8) for n in range(1, 8)),
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> is_better(seven, Fraction(100)), is_better(seven, Fraction(1000))
    (False, True)
    """
    if len(plan.quantiles) > _MOST_QUANTILES or plan.cells > _MOST_CELLS:
        return False
    few = len(plan.quantiles) <= _FEW_QUANTILES
    if not few and plan.budget.measure is not Measure.EPSILON:
        return False
    if rows is None:
        return few
    ends = (Fraction(0), *plan.quantiles, Fraction(1))
    # The narrowest part beside a quantile, at its own rate.
    least = min(
        float(min(own - below, above - own) * rows * plan.rates[place])
        for place, (below, own, above) in enumerate(
            zip(ends, plan.quantiles, ends[2:], strict=False)
        )
    )
    return least >= (_TIMES if few else _TIMES_OF_MORE) * log(plan.cells)
