"""The law of the choice of a bound: its formula, its sensitivity, what it reveals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.choices.unit_bounds import BoundPlan
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.privacy.sensitivity import excess_sensitivity
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.specification import Refusal

SIZES = (1, 2, 4)
FALSE_ALARM = 1e-6
Population = tuple[int, ...]  # the rows of each unit; 0: it has none


def person(neighbors: Neighbors) -> PrivacyUnit:
    return PrivacyUnit(neighbors=neighbors, columns=("person",))


def make_plan(
    *,
    amount: Fraction = Fraction(1),
    measure: Measure = Measure.EPSILON,
    neighbors: Neighbors = Neighbors.ADD_REMOVE,
    tolerated: Fraction = Fraction(2),
    sizes: tuple[int, ...] = SIZES,
) -> BoundPlan:
    budget = Budget(measure=measure, amount=amount)
    return BoundPlan(unit=person(neighbors), budget=budget, sizes=sizes, tolerated=tolerated)


def count_units(plan: BoundPlan, population: Population) -> np.ndarray:
    rows = np.array([each for each in population if each], np.int64)
    return np.bincount(plan.cell_ids(rows), minlength=len(plan.sizes) + 1)


def neighboring_populations(population: Population, neighbors: Neighbors) -> Iterator[Population]:
    """Yield every neighbor of a population whose units have at most five rows."""
    if neighbors is Neighbors.ADD_REMOVE:
        yield from ((*population, rows) for rows in range(1, 6))
        return
    for place, rows in itertools.product(range(len(population)), range(6)):
        yield (*population[:place], rows, *population[place + 1 :])


def populations() -> Iterator[Population]:
    for units in range(4):
        yield from itertools.combinations_with_replacement(range(1, 6), units)
    yield from [(5,) * 40, (2,) * 40, (1,) * 40, (2,) * 9 + (5,) * 3]


def excess(plan: BoundPlan, population: Population) -> list[Fraction]:
    """The distances by their definition."""
    above = [sum(rows > size for rows in population) for size in plan.sizes]
    return [max(Fraction(0), number - plan.tolerated) for number in above]


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_sensitivity_is_the_largest_range_of_all_tiny_populations(neighbors: Neighbors) -> None:
    plan = make_plan(neighbors=neighbors)
    ranges = set()
    for one in populations():
        for two in neighboring_populations(one, neighbors):
            changes = [b - a for a, b in zip(excess(plan, one), excess(plan, two), strict=True)]
            ranges.add(max(*changes, 0) - min(*changes, 0))
    assert max(ranges) == excess_sensitivity(plan.unit)


def test_the_sensitivity_is_of_a_unit_and_not_of_its_rows() -> None:
    unit = replace(person(Neighbors.ADD_REMOVE), rows=1000, keys=10, rows_per_key=200)
    assert excess_sensitivity(unit) == 1


def test_probabilities_are_the_formula() -> None:
    for tolerated, measure in itertools.product(
        (Fraction(0), Fraction(3, 2), Fraction(30)), Measure
    ):
        plan = make_plan(measure=measure, tolerated=tolerated, amount=Fraction(1, 8))
        rate = 1 / 8 if measure is Measure.EPSILON else 1.0
        for population in populations():
            weights = [
                size ** -float(plan.exponent) * math.exp(-rate * float(distance))
                for size, distance in zip(SIZES, excess(plan, population), strict=True)
            ]
            law = plan.probabilities(count_units(plan, population))
            assert sum(law) == 1, (tolerated, measure)
            expected = [each / math.fsum(weights) for each in weights]
            # The public weights are rounded to 2^-16 of a unit.
            assert np.allclose([float(each) for each in law], expected, rtol=1e-4)


@pytest.mark.parametrize("tolerated", [Fraction(0), Fraction(1, 2), Fraction(2), Fraction(20)])
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_no_tiny_population_reveals_more_than_epsilon(
    neighbors: Neighbors, tolerated: Fraction
) -> None:
    plan = make_plan(neighbors=neighbors, tolerated=tolerated)
    losses = [
        abs(math.log(a / b))
        for one in populations()
        for two in neighboring_populations(one, neighbors)
        for a, b in zip(*(plan.probabilities(count_units(plan, each)) for each in (one, two)),
                        strict=True)
    ]  # fmt: skip
    assert 0.9 < max(losses) <= 1


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_no_tiny_population_reveals_more_than_rho(neighbors: Neighbors) -> None:
    rho = Fraction(1, 8)
    plan = make_plan(neighbors=neighbors, measure=Measure.RHO, amount=rho)
    for one in populations():
        for two in neighboring_populations(one, neighbors):
            laws = [
                [float(each) for each in plan.probabilities(count_units(plan, population))]
                for population in (one, two)
            ]
            for p, q in (laws, laws[::-1]):
                for order in (1.5, 2.0, 5.0, 30.0):
                    moment = math.fsum(b * (a / b) ** order for a, b in zip(p, q, strict=True))
                    assert math.log(moment) / (order - 1) <= order * float(rho) + 1e-12


def test_more_units_beyond_a_size_make_larger_bounds_likelier() -> None:
    plan = make_plan(sizes=(1, 2, 4, 8, 16))
    means = []
    for units in (0, 10, 100):
        law = plan.probabilities(np.array([500, 50, units, units // 2, units // 4, 0]))
        means.append(sum(size * each for size, each in zip(plan.sizes, law, strict=True)))
    assert means[0] < means[1] < means[2]


def test_choices_follow_the_law() -> None:
    """A chi-squared test, whose false alarm is 1e-6; shown to fail on another law."""
    plan, counts = make_plan(), np.array([30, 4, 1, 2])
    found = [plan.chosen(counts, RandomStream(bytes(28) + number.to_bytes(4, "big")))
             for number in range(4000)]  # fmt: skip
    seen = [found.count((size,)) for size in SIZES]
    law = np.array([float(each) for each in plan.probabilities(counts)])
    assert stats.chisquare(seen, law * len(found)).pvalue > FALSE_ALARM
    other = np.array([float(each) for each in plan.probabilities(counts + np.array([0, 1, 0, 0]))])
    assert stats.chisquare(seen, other * len(found)).pvalue < FALSE_ALARM


def test_the_exponent_grows_with_what_the_choice_can_see() -> None:
    """Four times the cube root of the rate times the tolerated units, within its limits."""
    for seen, exponent in ((0, 2), (Fraction(1, 4), 3), (1, 4), (2, 5), (5, 7), (1000, 8)):
        assert make_plan(tolerated=Fraction(seen)).exponent == exponent
        assert make_plan(tolerated=Fraction(2 * seen), amount=Fraction(1, 2)).exponent == exponent


def test_large_numbers_do_not_overflow() -> None:
    plan = make_plan(sizes=(1, 2**20), amount=Fraction(1, 2**19))
    law = plan.probabilities(np.array([2**39, 2**38, 2**38]))
    assert law[1] > Fraction(9, 10) and sum(law) == 1


def test_cells_are_of_the_first_size_that_is_no_smaller() -> None:
    assert make_plan().cell_ids(np.array([1, 2, 3, 4, 5, 10**6])).tolist() == [0, 1, 2, 2, 3, 3]


def test_other_plans_are_refused() -> None:
    for changed, sentence in (
        ({"sizes": (3,)}, "sizes: there must be 2 to 64"),
        ({"sizes": (2, 1)}, "sizes: there must be 2 to 64, which rise"),
        ({"sizes": (0, 1)}, "sizes: they must be from 1"),
        ({"tolerated": Fraction(1, 3)}, "tolerated: 1/3 is no multiple of 2"),
        ({"tolerated": Fraction(-1)}, "tolerated: -1 is no multiple"),
        ({"unit": ADD_REMOVE_ROW}, "unit: counts once where its bounds are chosen"),
        ({"unit": replace(person(Neighbors.ADD_REMOVE), rows=2)}, "unit: counts once"),
        ({"budget": Budget(measure=Measure.EPSILON, amount=Fraction(1, 2**21))}, "too small"),
    ):
        with pytest.raises(Refusal, match=sentence):
            replace(make_plan(), **changed)  # type: ignore[arg-type]
