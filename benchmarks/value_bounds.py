"""Means with chosen bounds of values, beside means with the best bounds in hindsight; and dates.

Run as ``python -m benchmarks.value_bounds``. The error of a mean of n values with bounds L and U is
the root of two squares: the noise that `objective: mean` adds (of standard deviation
sqrt(2) / (n epsilon) times the distances of the mean from L and from U, by their root of squares),
and what both bounds move the mean by. Biases of the two sides are added without their signs, so
that they cannot cancel. The choice has a share of the budget, and the mean has the rest. The best
bounds are searched among values of the data and 0, at no cost and with the whole budget. Printed
are the root mean square of 300 errors divided by the best error, a geometric mean for each set, and
how often no bin is clear. The rule was tuned on the first families and not on the rest.

The second table is of dates: the error in rows of the rank of a median with chosen bounds and the
rest of the budget, divided by the error with the range of the dates and the whole budget. It is the
root of two squares: half of the difference of the numbers of rows beyond both bounds, and the error
that is predicted for a point of the CDF of a tree of that many days, between 12 numbers of days by
the logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np

import dptrees
from benchmarks.harness import print_lines
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.choices.value_bounds import (
    DateBoundsPlan,
    ValueBoundsPlan,
    candidate_bounds,
    candidate_dates,
)
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.pipelines.sections.first_stages import RANGES_SHARE

SIZES, CHOICES = (1_000, 10_000), 300  # of n epsilon, at epsilon 1
Families = dict[str, Callable[[np.random.Generator, int], Any]]

TUNED: Families = {
    "lognormal (10, 1), incomes": lambda rng, n: rng.lognormal(10, 1, n),
    "lognormal (3, .5)": lambda rng, n: rng.lognormal(3, 0.5, n),
    "gamma .5": lambda rng, n: rng.gamma(0.5, 100, n),
    "gamma 3": lambda rng, n: rng.gamma(3, 7, n),
    "normal, mean 50, sd 10": lambda rng, n: rng.normal(50, 10, n),
    "half 0, half exponential 100": lambda rng, n: rng.exponential(100, n) * (rng.random(n) < 0.5),
    "uniform from 0 to 1": lambda rng, n: rng.random(n),
    "normal, mean 0, sd .01": lambda rng, n: rng.normal(0, 0.01, n),
}
HELD_OUT: Families = {
    "Pareto 1.5": lambda rng, n: rng.pareto(1.5, n) + 1,
    "Pareto 2.5": lambda rng, n: (rng.pareto(2.5, n) + 1) * 30,
    "30 % negative": lambda rng, n: np.where(
        rng.random(n) < 0.3, -rng.exponential(40, n), rng.lognormal(4, 1, n)
    ),
    "uniform from 1,000 to 1,100": lambda rng, n: rng.uniform(1000, 1100, n),
    "delays, whole": lambda rng, n: np.round(
        np.where(rng.random(n) < 0.6, rng.normal(-8, 8, n), rng.exponential(40, n))
    ),
    "negative gamma 2": lambda rng, n: -rng.gamma(2, 30, n),
    "Weibull .5": lambda rng, n: rng.weibull(0.5, n) * 10,
    "ages, whole": lambda rng, n: np.clip(np.round(rng.gamma(6, 6.5, n)), 0, 95),
    "1 % of 5,000 to 9,000, others to 80": lambda rng, n: np.where(
        rng.random(n) < 0.01, rng.uniform(5000, 9000, n), rng.uniform(0, 80, n)
    ),
}


def errors(values: Floats, lower: Any, upper: Any, epsilon: float) -> Floats:
    """The error of the mean with each pair of bounds.

    Args:
        values: rising.
        lower, upper: (pairs,) bounds.
        epsilon: of the mean.
    """
    n, sums = len(values), np.concatenate([[0.0], np.cumsum(values)])
    first = np.searchsorted(values, lower, "left")
    last = np.searchsorted(values, upper, "right")
    raised = (first * lower - sums[first]) / n
    reduced = (sums[-1] - sums[last] - (n - last) * upper) / n
    mean = sums[-1] / n + raised - reduced
    noise = math.sqrt(2) / (n * epsilon) * np.hypot(mean - lower, upper - mean)
    found: Floats = np.hypot(raised + reduced, noise)
    return found


def best_error(values: Floats) -> float:
    """The smallest error of any bounds, among some hundred quantiles and 0, at epsilon 1."""
    n = len(values)
    places = np.unique([0, *np.geomspace(1, n / 2, 80).round().astype(int)])
    lower = np.unique([0.0, *values[places]])[:, None]
    upper = np.unique([0.0, *values[n - 1 - places]])[None, :]
    pairs = np.broadcast_arrays(lower, upper)
    above = pairs[0] < pairs[1]
    return float(errors(values, pairs[0][above], pairs[1][above], 1.0).min())


def ratio(name: str, draw: Callable[..., Any], n: int) -> tuple[float, float]:
    """The error with chosen bounds beside the best error, and how often none are chosen."""
    rng = np.random.default_rng(sum(name.encode()))
    values = np.sort(np.asarray(draw(rng, n), float))
    budget = Budget(measure=Measure.EPSILON, amount=RANGES_SHARE)
    plan = ValueBoundsPlan(
        unit=ADD_REMOVE_ROW,
        budget=budget,
        sides=("lower", "upper"),
        candidates=candidate_bounds(-1e12, 1e12),
    )
    counts = np.bincount(plan.cell_ids(values), minlength=plan.cells)
    quotient = 1 - math.exp(-float(budget.amount))
    up, down = rng.geometric(quotient, (2, CHOICES, plan.cells))  # discrete Laplace noise
    bounds = [each for each in map(plan.chosen, counts + up - down) if each]
    lower, upper = np.array(bounds).T
    found = errors(values, lower, upper, float(Fraction(1) - RANGES_SHARE))
    root = math.sqrt((found**2).mean())
    return root / best_error(values), 1 - len(bounds) / CHOICES


def lines() -> Iterator[str]:
    """The lines of the table."""
    yield f"| values | {' | '.join(f'n epsilon = {n:,}' for n in SIZES)} |"
    yield "|---|" + "---:|" * len(SIZES)
    for name, families in (("tuned on", TUNED), ("held out", HELD_OUT)):
        found = []
        for each, draw in families.items():
            pairs = [ratio(each, draw, n) for n in SIZES]
            found.append([error for error, _ in pairs])
            cells = [f"{a:.2f}" + (f" (none: {b:.0%})" if b else "") for a, b in pairs]
            yield f"| {each} | {' | '.join(cells)} |"
        means = np.exp(np.log(found).mean(axis=0)).tolist()
        worst = np.max(found, axis=0).tolist()
        yield f"| **{name}: geometric mean** | {' | '.join(f'{each:.2f}' for each in means)} |"
        yield f"| **{name}: worst** | {' | '.join(f'{each:.2f}' for each in worst)} |"


# Years with fractions; garbage is no part of the range.
DATES: Families = {
    "birthdays of a century": lambda rng, n: 2025 - 100 * rng.beta(1.3, 1.6, n),
    "orders of three years": lambda rng, n: 2025 - 3 * rng.beta(1, 2, n),
    "orders of three years, 1 % on 1970-01-01": lambda rng, n: np.where(
        rng.random(n) < 0.01, 1970, 2025 - 3 * rng.beta(1, 2, n)
    ),
    "events, twice as many every three years": lambda rng, n: np.maximum(
        2025 - rng.exponential(3 / math.log(2), n), 1990
    ),
    "one month": lambda rng, n: 2025.2 + rng.random(n) / 12,
}
_FIRST, _LAST = 1800, 2200
_DAYS = 365.2425


def tree_errors(epsilon: float) -> tuple[Floats, Floats]:
    """Logarithms of numbers of days, and the predicted error of a tree of each, in rows."""
    days = np.unique(np.geomspace(2, 146_000, 12).astype(int))
    found = []
    for each in days.tolist():
        domain = {"column": "d", "lower": date(_FIRST, 1, 1)}
        domain["upper"] = date(_FIRST, 1, 1) + timedelta(days=each)
        privacy = {"epsilon": epsilon, "neighbors": "add_remove"}
        plan = dptrees.plan({"privacy": privacy, "trees": [{"name": "d", "domain": domain}]})
        found.append(plan.to_dicts()[0]["error"])
    return np.log(days), np.array(found)


def date_ratio(
    name: str, draw: Callable[..., Any], n: int, whole: Any, rest: Any
) -> tuple[float, float, float]:
    """The error with chosen bounds beside the error with the range, the part of the rows beyond the
    bounds, and how often none are chosen."""
    rng = np.random.default_rng(sum(name.encode()))
    years = np.sort(np.asarray(draw(rng, n), float))
    plan = DateBoundsPlan(
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=RANGES_SHARE),
        sides=("lower", "upper"),
        candidates=candidate_dates(date(_FIRST, 1, 1), date(_LAST, 1, 1)),
    )
    counts = np.bincount((years - _FIRST).astype(int), minlength=plan.cells)
    up, down = rng.geometric(1 - math.exp(-float(RANGES_SHARE)), (2, CHOICES, plan.cells))
    found, beyond = [], []
    for lower, upper in filter(None, map(plan.chosen, counts + up - down)):
        before, after = (years < lower.year).sum(), (years >= upper.year).sum()
        noise = np.interp(math.log((upper.year - lower.year) * _DAYS), *rest)
        found.append(math.hypot((before - after) / 2, noise))
        beyond.append((before + after) / n)
    true = years[years != 1970]
    best = np.interp(math.log(max((true[-1] - true[0]) * _DAYS, 1)), *whole)
    root = math.sqrt(np.square(found).mean())
    return root / best, float(np.mean(beyond)), 1 - len(found) / CHOICES


def date_lines() -> Iterator[str]:
    """The lines of the table of dates."""
    titles = (f"n epsilon = {n:,} | rows beyond" for n in SIZES)
    yield f"| dates | {' | '.join(titles)} |"
    yield "|---|" + "---:|" * (2 * len(SIZES))
    whole, rest = tree_errors(1.0), tree_errors(float(1 - RANGES_SHARE))
    for name, draw in DATES.items():
        cells = []
        for n in SIZES:
            error, beyond, none = date_ratio(name, draw, n, whole, rest)
            cells += [f"{error:.2f}" + (f" (none: {none:.0%})" if none else ""), f"{beyond:.1%}"]
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print_lines(__doc__, lambda: chain(lines(), [""], date_lines()))
