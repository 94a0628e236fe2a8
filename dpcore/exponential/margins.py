"""Errors in rank of chosen quantiles: bounds and a model, without the data.

A *margin* speaks of ranks: the rank that a quantile wants lies within so many rows of the
ranks of the cell that was chosen for it. With n rows in all, K cells and the rate g of a choice:

    a cell    weighs exp(-g d), and one of distance 0 weighs 1. So P(d >= x) <= K exp(-g x), by
              the exponential mechanism as by permute-and-flip.
    a place   of K PLACES, one with distance 0: P(d >= x) <= K PLACES exp(-g x). Its middle,
              where rows are parted, is off by half its ranks more, at most n / (2 PLACES), and by
              half a row, since sides have whole numbers of rows.

Between two chosen places, off by e and e', the q-quantile wants a rank that is off by (1 - q) e +
q e', and by what its rounded part misses (`Rank.missed`). The margins of a path each hold with
their part of the probability, so all do together. The ranks of a cell are no further than the
ranks of a place in it.

Where rows lie densely a choice is off by a two-sided exponential law of rate g: a standard
deviation of sqrt(2) / g, along a path by the same sums. The model has this; it is less where cells
hold many rows each, and more where few rows are spread over very many cells.

Source: McSherry and Talwar 2007, theorem 6; McKenna and Sheldon 2020, section 4.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.exponential.places import PLACES
from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.ranks import Rank
from dptrees.dpcore.exponential.weights import FLOOR


class Margin(NamedTuple):
    """So many rows, and such a share of all rows."""

    rows: float
    share: float = 0.0


def margins(plan: ExponentialPlan, confidence: float) -> list[Margin]:
    """Bounds on the errors in rank, each with the confidence; one for each quantile, in order.

    Args:
        plan: of the quantiles.
        confidence: above 0 and below 1.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.budget import Budget, Measure
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> plan = ExponentialPlan(
    ...     cells=1000, unit=ADD_REMOVE_ROW, quantiles=(Fraction(1, 2),),
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> round(margins(plan, 0.95)[0].rows, 1)  # ln(1000 / .05)
    9.9
    """
    result = [Margin(0.0)] * len(plan.quantiles)
    for path in plan.first.paths():
        failure = (1 - confidence) / len(path)
        result[path[-1].place] = _along(plan, path, failure)
    return result


def _along(plan: ExponentialPlan, path: tuple[Rank, ...], failure: float) -> Margin:
    low = high = wanted = Margin(0.0)
    for rank in path:
        part = float(rank.part)
        shifted = Margin(*((1 - part) * a + part * b for a, b in zip(low, high, strict=True)))
        own, missed = _own(plan, rank, failure), float(rank.missed)
        wanted = Margin(shifted.rows + own, shifted.share + missed)
        bound = Margin(wanted.rows + 0.5, wanted.share + 1 / (2 * PLACES))
        low, high = _beside(rank, path, bound, (low, high))
    return wanted


def _beside(
    rank: Rank, path: tuple[Rank, ...], bound: Margin, ends: tuple[Margin, Margin]
) -> tuple[Margin, Margin]:
    """The margins of the ends of the part below a choice on a path."""
    return (bound, ends[1]) if path[-1].place > rank.place else (ends[0], bound)


def _own(plan: ExponentialPlan, rank: Rank, failure: float) -> float:
    """Error of one choice in rows, exceeded with a probability of at most `failure`."""
    candidates = plan.cells * (1 if rank.is_last else PLACES)
    # What the floor of the weights adds.
    left = failure - candidates * FLOOR
    return log(candidates / left) / float(plan.rate(rank)) if left > 0 else math.inf


def rank_errors(plan: ExponentialPlan) -> list[float]:
    """The predicted standard deviations of the ranks of what is chosen, in rows, where rows lie
    densely; one for each quantile, in order."""
    result = [0.0] * len(plan.quantiles)
    for path in plan.first.paths():
        low = high = own = 0.0
        for rank in path:
            part, rate = float(rank.part), float(plan.rate(rank))
            own = (1 - part) * (1 - part) * low + part * part * high + 2 / (rate * rate)
            low, high = (own, high) if path[-1].place > rank.place else (low, own)
        result[path[-1].place] = math.sqrt(own)
    return result


def root_mean_square(errors: list[float]) -> float:
    """Return the root of the mean square of the errors of all quantiles."""
    return math.sqrt(math.fsum(error * error for error in errors) / len(errors))
