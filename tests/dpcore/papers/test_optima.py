"""The published optima are optima: against brute force on small cases, and the paper's examples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dptrees.dpcore.papers.plans import best_fanouts
from dptrees.dpcore.papers.rameshwar import (
    covering_nodes,
    level_variance,
    tree_error_from_variances,
)
from dptrees.dpcore.papers.rameshwar_optima import (
    best_factorization,
    closest_prime_power,
    error_bound,
    height_bounds,
    least_error_bound,
    optimal_fanout,
    optimal_integer_fanout,
    optimal_level_budgets,
    optimal_real_fanouts,
)
from dptrees.dpcore.privacy.unit import Measure

EPSILON, RHO = Measure.EPSILON, Measure.RHO
MEASURES = [EPSILON, RHO]
EXPONENT = {EPSILON: 2, RHO: 1}
Shape = tuple[int, ...]


def error(leaves: int, fanouts: Sequence[int], budgets: Sequence[float], measure: Measure) -> float:
    variances = [level_variance(budget, measure) for budget in budgets]
    return tree_error_from_variances(leaves, fanouts, variances)


def equal_budget_error(fanouts: Sequence[int], measure: Measure) -> int:
    """Section V's g: in units of 4 K / epsilon^2."""
    return len(fanouts) ** EXPONENT[measure] * sum(fanout - 1 for fanout in fanouts)


@cache
def factorizations(number: int, least: int = 2) -> list[Shape]:
    """All unordered factorizations, in ascending order."""
    found: list[Shape] = [(number,)] if number >= least else []
    for factor in range(least, math.isqrt(number) + 1):
        if number % factor == 0:
            found += [(factor, *rest) for rest in factorizations(number // factor, factor)]
    return found


def ordered_shapes(leaves: int) -> Iterator[Shape]:
    """Every shape with prod n_i >= K whose root is no larger than needed and not repeated."""
    lower: list[Shape] = [()]
    while lower:
        shape = lower.pop()
        below = math.prod(shape)
        yield (-(-leaves // below), *shape)
        lower += [(fanout, *shape) for fanout in range(2, -(-leaves // below))]


# Level budgets, Theorem IV.2.


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(
    ("fanouts", "total"),
    [
        ((5,), Fraction(1)),
        ((2, 2), Fraction(1, 3)),
        ((3, 7), Fraction(7, 10**9)),
        ((2, 17, 40), Fraction(1)),
        ((16, 16, 16), Fraction(1, 3)),
        ((2, 2**39), Fraction(7, 10**9)),
    ],
)
def test_level_budgets_are_optimal_and_exact(
    fanouts: Shape, total: Fraction, measure: Measure
) -> None:
    budgets = optimal_level_budgets(fanouts, total, measure)
    assert sum(budgets) == total
    weights = [(n - 1) ** (1 / (EXPONENT[measure] + 1)) for n in fanouts]
    exact = [float(total) * weight / sum(weights) for weight in weights]
    for budget, expected in zip(budgets[:-1], exact, strict=False):
        assert -1.01e-12 <= (float(budget) - expected) / float(total) <= 1e-15  # rounded down
    assert float(budgets[-1]) == pytest.approx(exact[-1], rel=1e-6)
    leaves = math.prod(fanouts)
    least = error(leaves, fanouts, budgets, measure)
    rng = np.random.default_rng(len(fanouts))
    for scale in (1e-3, 0.1, 1.0):
        for _ in range(20):
            moved = np.array(budgets, float) * np.exp(scale * rng.normal(size=len(fanouts)))
            moved *= float(total) / moved.sum()
            assert error(leaves, fanouts, moved, measure) >= least * (1 - 1e-10)


@pytest.mark.parametrize("measure", MEASURES)
def test_real_fanouts_are_optimal(measure: Measure) -> None:
    rng = np.random.default_rng(3)
    for height in (1, 2, 5):
        budgets = list(rng.dirichlet(np.full(height, 5.0)))
        fanouts = np.array(optimal_real_fanouts(1000, budgets, measure))
        assert math.prod(fanouts) == pytest.approx(1000)
        variances = np.array([level_variance(budget, measure) for budget in budgets])
        least = float((fanouts - 1) @ variances)
        for _ in range(50):
            step = rng.normal(size=height) * 0.2
            moved = fanouts * np.exp(step - step.mean())
            assert float((moved - 1) @ variances) >= least * (1 - 1e-12)
    stated = 1000 ** (1 / 2) * np.array([1, 4]) / math.sqrt(4)  # budgets 1 and 2
    assert optimal_real_fanouts(1000, (1, 2)) == pytest.approx(stated)


# beta*, Lemma IV.3.


@pytest.mark.parametrize(("measure", "figure"), [(EPSILON, 16.8010), (RHO, 4.9216)])
def test_optimal_fanout(measure: Measure, figure: float) -> None:
    fanout, degree = optimal_fanout(measure), EXPONENT[measure] + 1
    assert fanout == pytest.approx(figure, abs=1e-4)
    with localcontext() as context:
        context.prec = 40

        def slope(beta: Decimal) -> Decimal:
            return beta.ln() - degree * (1 - 1 / beta)

        # The root lies within two units in the last place.
        step = 2 * Decimal(math.ulp(fanout))
        assert slope(Decimal(fanout) - step) < 0 < slope(Decimal(fanout) + step)
        # The paper prints "roughly 16.79"; the root is above 16.80.
        assert measure is RHO or slope(Decimal("16.80")) < 0


@pytest.mark.parametrize(("measure", "fanout"), [(EPSILON, 17), (RHO, 5)])
def test_optimal_integer_fanout(measure: Measure, fanout: int) -> None:
    degree = EXPONENT[measure] + 1
    brute = min(range(2, 1000), key=lambda n: (n - 1) / math.log(n) ** degree)
    assert optimal_integer_fanout(measure) == brute == fanout


# Section V.


@pytest.mark.parametrize("measure", MEASURES)
def test_best_factorisation_and_height_bounds_by_brute_force(measure: Measure) -> None:
    for leaves in range(2, 1200):
        ranked = [(equal_budget_error(s, measure), len(s)) for s in factorizations(leaves)]
        best = best_factorization(leaves, measure)
        assert math.prod(best) == leaves
        assert list(best) == sorted(best)
        assert (equal_budget_error(best, measure), len(best)) == min(ranked)
        lower, upper = height_bounds(leaves, measure)
        assert lower <= len(best) <= upper


# The search over prod n_i >= K.


@cache
def least_nodes(leaves: int) -> list[int]:
    """The least covering nodes of heights 1, 2, ... by a search that cuts nothing."""
    states, heights = {1: 0}, []
    while states:
        heights.append(min(cost + part(leaves, L, -(-leaves // L)) for L, cost in states.items()))
        above: dict[int, int] = {}
        for below, cost in states.items():
            for fanout in range(2, -(-leaves // below)):
                product, total = below * fanout, cost + part(leaves, below, fanout)
                above[product] = min(total, above.get(product, total))
        states = above
    return heights


def part(leaves: int, below: int, fanout: int) -> int:
    """The sum over the first K numbers of the digit that represents L = below."""
    periods, rest = divmod(leaves, below * fanout)
    digits = periods * below * fanout * (fanout - 1) // 2
    return digits + sum(min(rest - d * below, below) * d for d in range(-(-rest // below)))


@pytest.mark.parametrize("measure", MEASURES)
def test_best_fanouts_of_all_ordered_shapes(measure: Measure) -> None:
    for leaves in range(2, 64):
        ranked = [
            (len(s) ** EXPONENT[measure] * sum(covering_nodes(leaves, s)), len(s), s)
            for s in ordered_shapes(leaves)
        ]
        assert best_fanouts(leaves, measure) == min(ranked)[2]


@pytest.mark.parametrize("measure", MEASURES)
def test_best_fanouts_by_a_search_without_bounds(measure: Measure) -> None:
    power = EXPONENT[measure]
    for leaves in (*range(64, 400, 5), 997, 1000, 1001, 1024, 2047, 3001):
        best = best_fanouts(leaves, measure)
        error = len(best) ** power * sum(covering_nodes(leaves, best))
        assert error == min(h**power * nodes for h, nodes in enumerate(least_nodes(leaves), 1))
        assert math.prod(best[1:]) < leaves <= math.prod(best)
        assert math.prod((best[0] - 1, *best[1:])) < leaves


# Bad input.


@pytest.mark.parametrize(
    "function",
    [
        best_fanouts,
        best_factorization,
        closest_prime_power,
        height_bounds,
        lambda leaves: optimal_real_fanouts(leaves, (1,)),
        lambda leaves: error_bound(leaves, (2,), (1,)),
        lambda leaves: least_error_bound(leaves, 1, 1),
    ],
)
def test_refuses_leaves(function: Callable[[int], object]) -> None:
    for leaves in (0, -1, 2**40 + 1):
        with pytest.raises(ValueError, match=f"leaves: {leaves} is not between"):
            function(leaves)
