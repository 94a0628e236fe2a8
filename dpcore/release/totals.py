"""Trees of one release that seem to hold other rows than the others: seen from the noisy totals.

All trees of a release read the same rows, so one that holds about none, or far fewer than another,
may have lost them to a policy: dates that are no dates, a wrong separator. The released totals say
that for free, as whatever is computed from a release does.

How wide an error may be: let X be the sum of independent discrete Laplace or Gaussian noise with
weights of at most 1 and variance s^2 together. The moment generating function of discrete Laplace
noise of variance v at t is 1 / (1 - v (cosh t - 1)), that of a weighted sum at most the same of the
whole variance, as (1 - a)(1 - b) >= 1 - a - b; that of Gaussian noise is below it, as e^x <= 1 / (1
- x). For t <= 1, cosh t - 1 <= 0.5431 t^2. So by Chernoff's bound, at t = u / (s sqrt(0.5431)),

    P(X > w) <= exp(-t w) / (1 - u^2),        0 < u < 1;

where that t is above 1, s is below 1.36, and t = 1 gives no more than exp(-w) / (1 - u^2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.questions.released import Released, Total

# That a release of trees that hold the same rows is remarked upon.
FALSE_ALARM = 1e-6
# A tree with fewer than this part of another's rows is remarked upon.
FAR_FEWER = 0.5
# Totals within so many standard errors of zero are about zero.
_ABOUT_NONE = 4.0
_CURVATURE = 0.5431


@dataclass(frozen=True, kw_only=True)
class OddTotal:
    """A tree that holds about no rows, or far fewer than another.

    Attributes:
        tree: its total.
        other: the tree with the most rows; None where that is this one.
        is_none: whether its total cannot be distinguished from zero.
    """

    tree: Total
    other: Total | None
    is_none: bool


def odd_totals(totals: Sequence[Total]) -> Iterator[OddTotal]:
    """The trees that hold about no rows, or surely far fewer than the one that holds most.

    Where all trees hold at least half as many rows as each other, and more than the noise hides
    (20 standard errors and 25 rows), a total is reported with a probability of at most
    `FALSE_ALARM`.

    Args:
        totals: of the trees of a release that count rows.

    >>> age, day = Total("age", 48_000.0, 20.0), Total("day", 12.0, 20.0)
    >>> [(odd.tree.name, odd.other.name, odd.is_none) for odd in odd_totals([age, day])]
    [('day', 'age', True)]
    >>> list(odd_totals([age, Total("sex", 47_000.0, 20.0)]))
    []
    """
    if not totals:
        return
    # Both ends of the error of each tree.
    chance = FALSE_ALARM / (2 * len(totals))
    most = max(totals, key=lambda total: total.rows)
    least_of_most = most.rows - error_width(most.std_error, chance)
    for total in totals:
        is_none = total.rows <= _ABOUT_NONE * total.std_error
        above = total.rows + error_width(total.std_error, chance)
        if is_none or above < FAR_FEWER * least_of_most:
            yield OddTotal(tree=total, other=None if total is most else most, is_none=is_none)


def error_width(std_error: float, chance: float) -> float:
    """Bound that the error of a total passes with a probability of at most a chance, at one end.

    Args:
        std_error: of noise as above; 0: there is none.
        chance: below 0.1.

    >>> error_width(0.0, 1e-6), round(error_width(100.0, 1e-6))
    (0.0, 1306)
    """
    if std_error == 0:
        return 0.0
    needed = log(1 / chance)
    # u = 1 - 1 / needed, for which 1 - u^2 is at least 1 / needed.
    exponent = needed + log(needed)
    return max(std_error * math.sqrt(_CURVATURE) / (1 - 1 / needed), 1.0) * exponent


@dataclass(frozen=True, kw_only=True)
class FullEdge:
    """An edge cell that holds most of a tree.

    Attributes:
        tree: the name.
        label: of the cell.
        bound: the key of the configuration that may be wrong, "lower" or "upper".
    """

    tree: str
    label: str
    bound: str


def full_edge(tree: Released) -> FullEdge | None:
    """Return the edge cell that surely holds most of the rows of a clamped tree; None where none.

    Rows beyond a bound are counted in the cell beside it. With a probability of at most
    `FALSE_ALARM` noise alone makes a cell hold more than half. Which cells are looked at:
    `Released.ends`.
    """
    ends = tree.ends()
    if not ends:
        return None
    chance = FALSE_ALARM / 4
    root = tree.top(1, 0)[0]
    for bound, edge in ends:
        known = (root.estimate, root.std_error, edge.estimate, edge.std_error)
        if any(each is None for each in known):
            continue
        total, total_error, rows, error = map(float, known)  # type: ignore[arg-type]
        least = rows - error_width(error, chance)
        if least > 0.5 * (total + error_width(total_error, chance)) and least > 0:
            return FullEdge(tree=tree.question.name, label=edge.shown, bound=bound)
    return None
