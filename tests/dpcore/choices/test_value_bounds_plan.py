"""The choice of bounds of values: its bins, its sensitivity, its rule, and how rarely it is off."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.choices.value_bounds import SIDES, ValueBoundsPlan, candidate_bounds
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.specification import Refusal

VALUES = (-9, -1, 0, 1, 3, 5)
Population = tuple[int, ...]  # the value of each unit


def make_plan(
    *,
    amount: Fraction = Fraction(1),
    measure: Measure = Measure.EPSILON,
    neighbors: Neighbors = Neighbors.ADD_REMOVE,
    sides: tuple[str, ...] = SIDES[0],
    candidates: tuple[float, ...] = (-2, -1, 0, 1, 2, 5),
) -> ValueBoundsPlan:
    return ValueBoundsPlan(
        unit=PrivacyUnit(neighbors=neighbors),
        budget=Budget(measure=measure, amount=amount),
        sides=sides,
        candidates=candidates,
    )


def count_units(plan: ValueBoundsPlan, population: Population) -> np.ndarray:
    return np.bincount(plan.cell_ids(np.array(population, np.int64)), minlength=plan.cells)


def neighboring_populations(population: Population, neighbors: Neighbors) -> Iterator[Population]:
    """Yield every neighbor; a unit that is substituted may come to have no value."""
    if neighbors is Neighbors.ADD_REMOVE:
        yield from ((*population, value) for value in VALUES)
        return
    for place in range(len(population)):
        rest = population[:place] + population[place + 1 :]
        yield rest
        yield from ((*rest, value) for value in VALUES)


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_noise_spends_the_budget_on_the_worst_of_all_tiny_populations(
    neighbors: Neighbors,
) -> None:
    epsilon, rho = (make_plan(neighbors=neighbors, measure=each) for each in Measure)
    absolute, square = 0, 0
    for units in range(4):
        for one in itertools.combinations_with_replacement(VALUES, units):
            for two in neighboring_populations(one, neighbors):
                moved = count_units(epsilon, one) - count_units(epsilon, two)
                absolute = max(absolute, int(abs(moved).sum()))
                square = max(square, int((moved**2).sum()))
    assert isinstance(epsilon.law, DiscreteLaplace) and isinstance(rho.law, DiscreteGaussian)
    assert absolute / epsilon.law.scale == epsilon.budget.amount
    assert square / (2 * rho.law.sigma_squared) == rho.budget.amount


def test_each_value_is_in_the_bin_of_its_definition() -> None:
    plan = make_plan()
    bins = [
        lambda x: x < -2,
        lambda x: -2 <= x < -1,
        lambda x: -1 <= x < 0,
        lambda x: x == 0,
        lambda x: 0 < x <= 1,
        lambda x: 1 < x <= 2,
        lambda x: 2 < x <= 5,
        lambda x: x > 5,
    ]
    assert plan.cells == len(bins)
    values = [*np.arange(-3, 6.5, 0.25).tolist(), -math.inf, math.inf, -1e-300, 1e-300]
    for value, cell in zip(values, plan.cell_ids(np.array(values)).tolist(), strict=True):
        assert [place for place, holds in enumerate(bins) if holds(value)] == [cell]


def test_large_integers_are_compared_exactly() -> None:
    plan = make_plan(candidates=(-1e12, 0.0, 1e12))
    values = np.array([10**12 - 1, 10**12, 10**12 + 1, 2**63 - 1], np.int64)
    assert plan.cell_ids(values).tolist() == [3, 3, 4, 4]


def test_candidates_are_exact_decimals() -> None:
    numbers = candidate_bounds(-1e12, 1e12)
    assert {0.2, 1e-6, -5e5, 0.0} <= set(numbers) and list(numbers) == sorted(set(numbers))
    assert {1.2, 2.5, -8e5} <= set(numbers)
    integers = candidate_bounds(0, 10**6, integers=True)
    assert 25 in integers and 2.5 not in integers
    assert all(isinstance(each, int) for each in integers) and 20 in integers
    assert candidate_bounds(-7, 7, integers=True)[0] == -7


def test_without_a_clear_bin_there_are_no_bounds() -> None:
    plan = make_plan()
    noisy = np.full(plan.cells, plan.clear)
    assert plan.chosen(noisy) == ()
    noisy[3] += 1
    assert len(plan.chosen(noisy)) == 2


@pytest.mark.parametrize("sides", SIDES)
def test_bounds_are_candidates_and_the_lower_one_is_below_the_upper_one(
    sides: tuple[str, ...],
) -> None:
    plan = make_plan(sides=sides)
    for places in itertools.product((0, 4, 10**4), repeat=plan.cells):
        found = plan.chosen(np.array(places))
        assert set(found) <= set(plan.candidates) and list(found) == sorted(set(found))
        assert bool(found) == (10**4 in places)


@pytest.mark.parametrize("scale", [5, 12, 40, 80])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_bound_leaves_out_as_many_units_as_a_typical_error(scale: int, mirrored: bool) -> None:
    """Values fall off exponentially; the place is searched in the survival function."""
    plan = make_plan(amount=Fraction(1, 5), candidates=candidate_bounds(-1000, 1000))
    edges = [0.0, *(digit * 10.0**k for k in range(-6, 3) for digit in (1, 2, 5)), 1000.0]

    def beyond(x: float) -> float:
        return 10_000 * math.exp(-x / scale)

    values = np.array(edges) * (-1 if mirrored else 1)
    counts = np.zeros(plan.cells, np.int64)
    last = max(place for place, edge in enumerate(edges) if beyond(edge) > plan.near)
    for place in range(last):
        counts[plan.cell_ids(values[place + 1 : place + 2])] = round(
            beyond(edges[place]) - beyond(edges[place + 1])
        )
    counts[plan.cell_ids(values[last + 1 : last + 2])] = round(beyond(edges[last]))
    typical = plan.law.bound(2 / 5)
    wanted = next(
        (x for x in candidate_bounds(0, edges[last + 1]) if beyond(x) <= typical), edges[last + 1]
    )
    assert edges[last] < wanted <= edges[last + 1]
    assert abs(plan.chosen(counts)[0 if mirrored else 1]) == wanted


def test_a_bound_is_never_beyond_its_bin() -> None:
    plan = make_plan(candidates=candidate_bounds(-100, 100))
    coarse = replace(plan, candidates=tuple(sorted({*plan._edges})))
    numbers = np.random.default_rng(3)
    for _ in range(300):
        noisy = numbers.choice([-20, 0, 2, 30, 900], plan.cells)
        if not (found := plan.chosen(noisy)):
            continue
        outer = coarse.chosen(noisy)
        assert outer[0] <= found[0] < found[1] <= outer[1]


RUNS = 10_000


def false_bounds(plan: ValueBoundsPlan, values: np.ndarray) -> int:
    """How many of 10,000 choices have a bound more than ten times as large as every value."""
    counts = np.bincount(plan.cell_ids(values), minlength=plan.cells)
    assert isinstance(plan.law, DiscreteLaplace)
    ratio, random = math.exp(-1 / float(plan.law.scale)), np.random.default_rng(1)
    shape = (2, RUNS, plan.cells)
    up, down = random.geometric(1 - ratio, shape)  # the difference is discrete Laplace
    noisy, largest = counts + up - down, 10 * abs(values).max()
    found = (plan.chosen(each) for each in noisy)
    return sum(max(map(abs, bounds), default=0) > largest for bounds in found)


@pytest.mark.parametrize("rows", [60, 1000])
def test_no_bound_is_ten_times_beyond_all_values(rows: int) -> None:
    """Expected are less than one in 10,000 choices; 12 or more have a probability below 1e-9."""
    plan = make_plan(candidates=candidate_bounds(-1e12, 1e12), amount=Fraction(1))
    values = np.random.default_rng(2).exponential(20, rows)
    assert false_bounds(plan, values) < 12


def test_a_threshold_of_half_the_height_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ValueBoundsPlan.far
    monkeypatch.setattr(ValueBoundsPlan, "far", lambda self, factor: own(self, factor) // 2)
    plan = make_plan(candidates=candidate_bounds(-1e12, 1e12), amount=Fraction(1))
    assert false_bounds(plan, np.random.default_rng(2).exponential(20, 1000)) >= 12


@pytest.mark.parametrize(("lowest", "highest"), [(0, 10**12), (-(10**12), 0), (0.5, 3), (-1, 1)])
def test_bounds_of_any_few_bins_are_in_order(lowest: float, highest: float) -> None:
    plan = make_plan(candidates=candidate_bounds(lowest, highest))
    places = [*range(4), *range(plan.cells - 4, plan.cells)]
    for first, last in itertools.product(places, places):
        noisy = np.zeros(plan.cells, dtype=np.int64)
        noisy[[first, last]] = 5000
        lower, upper = plan.chosen(noisy)
        assert lower < upper, (first, last)


def test_other_plans_are_refused() -> None:
    for changed, sentence in (
        ({"candidates": (1, 2)}, "candidates: there must be 3 to 512"),
        ({"candidates": (2, 1, 3)}, "candidates: there must be 3 to 512, which rise"),
        ({"candidates": (1, 2, math.inf)}, "candidates: they must be finite"),
        ({"sides": ("upper", "lower")}, "sides: .* are not lower, upper or both"),
        (
            {"budget": Budget(measure=Measure.EPSILON, amount=Fraction(1, 2**40))},
            "fraction: the budget is too small",
        ),
        (
            {"unit": PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("p",), rows=2)},
            "unit: counts once",
        ),
    ):
        with pytest.raises(Refusal, match=sentence):
            replace(make_plan(), **changed)  # type: ignore[arg-type]
