"""The law of the choice of bounds of values: its formula, its sensitivity, what it reveals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.choices.value_bounds import ValueBoundsPlan, candidate_bounds
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.privacy.sensitivity import tail_sensitivity
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.specification import Refusal

CANDIDATES = (1, 2, 4)
VALUES = (0, 1, 3, 5)  # one in each cell
SIDES = ("lower", "upper")
Population = tuple[int, ...]  # the value of each unit


def make_plan(
    *,
    amount: Fraction = Fraction(2),
    lower: Fraction = Fraction(1, 2),
    measure: Measure = Measure.EPSILON,
    neighbors: Neighbors = Neighbors.ADD_REMOVE,
    tolerated: int = 2,
) -> ValueBoundsPlan:
    """A plan of both bounds; `lower` is the fraction of the budget that the lower one spends."""
    return ValueBoundsPlan(
        unit=PrivacyUnit(neighbors=neighbors),
        budget=Budget(measure=measure, amount=amount),
        lower_amount=lower * amount,
        candidates=CANDIDATES,
        tolerated=tolerated,
    )


def count_units(plan: ValueBoundsPlan, population: Population) -> np.ndarray:
    return np.bincount(
        plan.cell_ids(np.array(population, np.int64)), minlength=len(plan.candidates) + 1
    )


def populations() -> Iterator[Population]:
    for units in range(4):
        yield from itertools.combinations_with_replacement(VALUES, units)
    yield from [(5,) * 40, (0,) * 40, (1,) * 20 + (3,) * 20, (0, 5) * 6]


def neighboring_populations(population: Population, neighbors: Neighbors) -> Iterator[Population]:
    """Yield every neighbor; a unit that is substituted may come to have no value."""
    if neighbors is Neighbors.ADD_REMOVE:
        yield from ((*population, value) for value in VALUES)
        return
    for place in range(len(population)):
        rest = population[:place] + population[place + 1 :]
        yield rest
        yield from ((*rest, value) for value in VALUES)


def distances(side: str, population: Population, tolerated: int, places: range) -> list[int]:
    """The distances by their definition."""
    beyond = [
        sum(value >= u if side == "upper" else value < u for value in population)
        for u in (CANDIDATES[place] for place in places)
    ]
    if side == "lower":
        beyond = beyond[::-1]
    narrower = [math.inf, *beyond[:-1]]
    result = [
        int(max(0, n - tolerated, tolerated - m)) for n, m in zip(beyond, narrower, strict=True)
    ]
    return result[::-1] if side == "lower" else result


def joint_law(plan: ValueBoundsPlan, population: Population) -> dict[tuple[float, float], Fraction]:
    """The exact law of both bounds."""
    counts, law = count_units(plan, population), {}
    for place, lower in enumerate(plan.probabilities("lower", counts)):
        uppers = plan.probabilities("upper", counts, place + 1)
        for upper, each in zip(CANDIDATES[place + 1 :], uppers, strict=True):
            law[CANDIDATES[place], upper] = lower * each
    return law


def pairs(neighbors: Neighbors) -> Iterator[tuple[Population, Population]]:
    for one in populations():
        yield from ((one, two) for two in neighboring_populations(one, neighbors))


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_sensitivity_is_the_largest_range_of_all_tiny_populations(neighbors: Neighbors) -> None:
    largest = 0
    for (one, two), side, tolerated in itertools.product(pairs(neighbors), SIDES, (0, 1, 2, 6)):
        before, after = (distances(side, each, tolerated, range(3)) for each in (one, two))
        changes = [b - a for a, b in zip(before, after, strict=True)]
        largest = max(largest, max(changes) - min(changes))
    assert largest == tail_sensitivity(PrivacyUnit(neighbors=neighbors))


def test_the_sensitivity_is_of_a_unit_and_not_of_its_rows() -> None:
    unit = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",), rows=1000)
    assert tail_sensitivity(unit) == 2


def test_probabilities_are_the_formula() -> None:
    for tolerated, first, measure in itertools.product((0, 1, 3, 30), (0, 1), Measure):
        plan = make_plan(measure=measure, tolerated=tolerated, amount=Fraction(1, 4))
        rate = 1 / 16 if measure is Measure.EPSILON else 1 / 2
        for population, side in itertools.product(populations(), SIDES):
            places = range(0, 2) if side == "lower" else range(first, 3)
            wanted = [
                math.exp(-rate * each) for each in distances(side, population, tolerated, places)
            ]
            start = 0 if side == "lower" else first
            law = plan.probabilities(side, count_units(plan, population), start)
            assert sum(law) == 1, (tolerated, first, measure)
            expected = [each / math.fsum(wanted) for each in wanted]
            assert np.allclose([float(each) for each in law], expected, rtol=1e-6)


THIRD = Fraction(1, 3)


@pytest.mark.parametrize(
    ("lower", "tolerated"),
    [*((THIRD, each) for each in (0, 1, 2, 6)), (0, 0), (0, 2), (1, 1), (1, 6)],
)
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_no_tiny_population_reveals_more_than_epsilon(
    neighbors: Neighbors, lower: Fraction | int, tolerated: int
) -> None:
    plan = make_plan(neighbors=neighbors, tolerated=tolerated, lower=Fraction(lower))
    largest = 0.0
    for one, two in pairs(neighbors):
        if len(plan.sides) > 1:
            laws = [list(joint_law(plan, each).values()) for each in (one, two)]
        else:
            side = plan.sides[0]
            laws = [plan.probabilities(side, count_units(plan, each)) for each in (one, two)]
        ratios = [abs(math.log(a / b)) for a, b in zip(*laws, strict=True)]
        largest = max(largest, *ratios)
    assert 0.4 < largest <= 2


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_no_tiny_population_reveals_more_than_rho(neighbors: Neighbors) -> None:
    rho = Fraction(1, 8)
    plan = make_plan(neighbors=neighbors, measure=Measure.RHO, amount=rho)
    for one, two in pairs(neighbors):
        laws = [[float(p) for p in joint_law(plan, each).values()] for each in (one, two)]
        for (p, q), order in itertools.product((laws, laws[::-1]), (1.5, 2.0, 5.0, 30.0)):
            moment = math.fsum(b * (a / b) ** order for a, b in zip(p, q, strict=True))
            assert math.log(moment) / (order - 1) <= order * float(rho) + 1e-12


def test_values_that_many_units_have_leave_one_candidate_likely() -> None:
    """No candidate has about m units beyond it, and yet the narrowest one of fewer is chosen."""
    plan = replace(make_plan(tolerated=20), candidates=candidate_bounds(-1e6, 1e6))
    counts = count_units(plan, (7,) * 1000)
    chosen = plan.chosen(counts, RandomStream(bytes(32)))
    assert chosen == (6.0, 8.0)


def test_an_upper_bound_lies_above_the_lower_bound() -> None:
    plan = make_plan(amount=Fraction(1, 100))
    counts = count_units(plan, ())
    for number in range(200):
        lower, upper = plan.chosen(counts, RandomStream(number.to_bytes(32, "big")))
        assert lower < upper


def test_candidates_are_exact_decimals() -> None:
    numbers = candidate_bounds(-1e12, 1e12)
    assert {0.15, 1e-6, -3e5, 0.0} <= set(numbers) and list(numbers) == sorted(set(numbers))
    integers = candidate_bounds(0, 10**6, integers=True)
    assert all(isinstance(each, int) for each in integers) and 15 in integers
    assert candidate_bounds(-7, 7, integers=True)[0] == -7


def test_large_integers_are_compared_exactly() -> None:
    values = np.array([10**12 - 1, 10**12, 2**63 - 1], np.int64)
    plan = replace(make_plan(), candidates=(-1e12, 0.0, 1e12))
    assert plan.cell_ids(values).tolist() == [2, 3, 3]
    assert plan.cell_ids(np.array([-np.inf, np.inf])).tolist() == [0, 3]


def test_other_plans_are_refused() -> None:
    for changed, sentence in (
        ({"candidates": (1, 2)}, "candidates: there must be 3 to 512"),
        ({"candidates": (2, 1, 3)}, "candidates: there must be 3 to 512, which rise"),
        ({"candidates": (1, 2, math.inf)}, "candidates: they must be finite"),
        ({"tolerated": -1}, "tolerated: -1 is not from 0"),
        ({"lower_amount": Fraction(3)}, "fraction: the lower bound spends more"),
        ({"lower_amount": Fraction(1, 2**30)}, "fraction: the budget is too small"),
        (
            {"unit": PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("p",), rows=2)},
            "unit: counts once",
        ),
    ):
        with pytest.raises(Refusal, match=sentence):
            replace(make_plan(), **changed)  # type: ignore[arg-type]
