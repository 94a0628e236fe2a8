"""The choice of bounds of dates: its candidates, its bins, its sensitivity, its thresholds and its
rule."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.choices.value_bounds import (
    SIDES,
    DateBoundsPlan,
    DateBoundsQuestion,
    candidate_dates,
)
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.privacy.unit import Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.specification import Refusal

YEARS = candidate_dates(date(1800, 1, 1), date(2200, 1, 1))
FEW = (date(2000, 2, 29), date(2001, 1, 1), date(2002, 1, 1), date(2002, 3, 1))
VALUES = (date(1, 1, 1), date(2000, 2, 28), *FEW, date(2001, 12, 31), date(9999, 12, 31), None)


def make_plan(
    *,
    amount: Fraction = Fraction(1, 5),
    measure: Measure = Measure.EPSILON,
    neighbors: Neighbors = Neighbors.ADD_REMOVE,
    sides: tuple[str, ...] = SIDES[0],
    candidates: tuple[Any, ...] = YEARS,
) -> DateBoundsPlan:
    return DateBoundsPlan(
        unit=PrivacyUnit(neighbors=neighbors),
        budget=Budget(measure=measure, amount=amount),
        sides=sides,
        candidates=candidates,
    )


def bins_of(plan: DateBoundsPlan, column: pa.Array) -> list[int]:
    """The number of rows in each bin."""
    question = DateBoundsQuestion(name="b", column="x", integers=False, trees=(), plan=plan)
    cells = question.increments({"x": column}).cells
    return np.bincount(cells, minlength=plan.cells).tolist()


# --- candidates ---


@pytest.mark.parametrize(
    ("lowest", "highest", "second", "number"),
    [
        (date(1800, 1, 1), date(2200, 1, 1), date(1801, 1, 1), 401),
        (date(1500, 1, 1), date(2500, 1, 1), date(1510, 1, 1), 101),
        (date(1990, 5, 3), date(2026, 1, 1), date(1990, 6, 1), 429),
        (date(2026, 1, 1), date(2027, 1, 1), date(2026, 1, 2), 366),
        (datetime(2026, 3, 4, 6, 30), datetime(2026, 3, 24), datetime(2026, 3, 4, 7), 475),
        (datetime(2026, 3, 4), datetime(2026, 3, 4, 8), datetime(2026, 3, 4, 0, 1), 481),
        (datetime(1950, 1, 1), datetime(2050, 1, 1), datetime(1951, 1, 1), 101),
    ],
)
def test_candidates_are_starts_of_the_finest_unit_that_is_not_too_fine(
    lowest: date, highest: date, second: date, number: int
) -> None:
    found = candidate_dates(lowest, highest)
    assert (found[0], found[1], found[-1], len(found)) == (lowest, second, highest, number)
    assert list(found) == sorted(set(found)) and {type(each) for each in found} == {type(lowest)}


def test_candidates_with_a_zone_are_in_utc() -> None:
    summer = timezone(timedelta(hours=2))
    found: Any = candidate_dates(
        datetime(2026, 1, 1, tzinfo=summer), datetime(2027, 1, 1, tzinfo=timezone.utc)
    )
    assert [each.isoformat() for each in found[:2]] == [
        "2025-12-31T22:00:00+00:00",
        "2026-01-01T00:00:00+00:00",
    ]


@pytest.mark.parametrize(
    ("lowest", "highest", "sentence"),
    [
        (date(2026, 1, 1), date(2026, 1, 1), "upper: no candidate lies between 2026-01-01 and"),
        (date(1, 1, 1), date(9999, 12, 31), "lower: .* are more than 5,100 years apart"),
        (
            datetime(2020, 1, 1),
            datetime(2021, 1, 1, tzinfo=timezone.utc),
            "lower: .* must both have a time zone, or neither",
        ),
    ],
)
def test_ends_that_give_no_candidates_are_refused(
    lowest: date, highest: date, sentence: str
) -> None:
    with pytest.raises(Refusal, match=sentence):
        candidate_dates(lowest, highest)


@pytest.mark.parametrize("zone", [None, timezone.utc])
def test_a_plan_is_read_as_it_was_written(zone: timezone | None) -> None:
    plans = [
        make_plan(candidates=candidate_dates(*(datetime(y, 1, 1, tzinfo=zone) for y in (1, 9)))),
        make_plan(),
    ]
    for plan in plans:
        spec = plan.spec()
        assert all(isinstance(each, str) for each in spec["candidates"])
        read = DateBoundsPlan.from_spec(spec, unit=plan.unit, measure=Measure.EPSILON)
        assert read == plan and read.spec() == spec


# --- bins and sensitivity ---


def test_each_date_is_in_the_bin_of_its_definition() -> None:
    plan = make_plan(candidates=FEW)
    for value in VALUES:
        held = [value is not None and a <= value < b for a, b in itertools.pairwise(FEW)]
        assert bins_of(plan, pa.array([value], pa.date32())) == list(map(int, held))
        if value is not None:
            moment = pa.array([datetime(value.year, value.month, value.day, 23, 59, 59)])
            assert bins_of(plan, moment.cast(pa.timestamp("s"))) == list(map(int, held))


@pytest.mark.parametrize("resolution", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_timestamps_are_compared_as_instants(resolution: str, zone: str | None) -> None:
    utc = None if zone is None else timezone.utc
    ends = [datetime(2026, 3, 4, hour, tzinfo=utc) for hour in (6, 9)]
    plan = make_plan(candidates=candidate_dates(*ends))
    moments = [
        ends[0] + timedelta(seconds=each) for each in (-1, 0, 59, 60, 3 * 3600 - 1, 3 * 3600)
    ]
    column = pa.array(moments, pa.timestamp("us", zone)).cast(pa.timestamp(resolution, zone))
    found = bins_of(plan, column)
    assert len(found) == 180 and found[:2] == [2, 1] and found[-1] == 1 and sum(found) == 4


def test_a_time_with_a_zone_has_no_bin_among_times_without_one() -> None:
    column = pa.array([datetime(2026, 3, 4)], pa.timestamp("us", "Europe/Berlin"))
    for candidates in (FEW, candidate_dates(datetime(2020, 1, 1), datetime(2030, 1, 1))):
        with pytest.raises(ValueError, match="zone"):
            bins_of(make_plan(candidates=candidates), column)


Population = tuple[date | None, ...]


def neighboring(population: Population, neighbors: Neighbors) -> Iterator[Population]:
    """Yield every neighbor."""
    if neighbors is Neighbors.ADD_REMOVE:
        yield from ((*population, value) for value in VALUES)
        return
    for place in range(len(population)):
        yield from ((*population[:place], value, *population[place + 1 :]) for value in VALUES)


@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_the_noise_spends_the_budget_on_the_worst_of_all_tiny_populations(
    neighbors: Neighbors,
) -> None:
    epsilon, rho = (
        make_plan(neighbors=neighbors, measure=each, candidates=FEW) for each in Measure
    )
    counts = {
        one: np.array(bins_of(epsilon, pa.array(one, pa.date32())))
        for units in range(3)
        for one in itertools.product(VALUES, repeat=units)
    }
    absolute, square = 0, 0
    for one in counts:
        for two in neighboring(one, neighbors):
            if two in counts:
                moved = counts[one] - counts[two]
                absolute = max(absolute, int(abs(moved).sum()))
                square = max(square, int((moved**2).sum()))
    assert isinstance(epsilon.law, DiscreteLaplace) and isinstance(rho.law, DiscreteGaussian)
    assert absolute / epsilon.law.scale == epsilon.budget.amount
    assert square / (2 * rho.law.sigma_squared) == rho.budget.amount


# --- thresholds ---


def sum_tails(law: NoiseLaw, bins: int) -> tuple[np.ndarray, int]:
    """P(sum >= x - middle) of so many independent draws, a power of two, and the middle."""
    reach = law.bound(1e-12) + 1
    chances = law.pmf(np.arange(-reach, reach + 1))
    for _ in range(bins.bit_length() - 1):
        chances = np.convolve(chances, chances)
        middle = len(chances) // 2
        width = min(middle, 2000)
        chances = chances[middle - width : middle + width + 1]
    return np.cumsum(chances[::-1])[::-1], len(chances) // 2


def chance_above(law: NoiseLaw, bins: int, least: float) -> float:
    tails, middle = sum_tails(law, bins)
    return float(tails[middle + math.floor(least) + 1])


def false_clear(plan: DateBoundsPlan, part: float = 1.0) -> float:
    """A bound of the probability that noise alone makes a sum clear."""
    return sum(
        math.ceil(plan.cells / bins) * chance_above(plan.law, bins, part * least)
        for bins, least, _ in plan._sums[:-1]
    )


@pytest.mark.parametrize("measure", list(Measure))
def test_noise_alone_is_hardly_ever_clear(measure: Measure) -> None:
    plan = make_plan(measure=measure, amount=Fraction(1, 5 if measure is Measure.EPSILON else 50))
    assert false_clear(plan) < 1e-4
    assert false_clear(plan, 0.8) > 1e-4


@pytest.mark.parametrize("measure", list(Measure))
def test_noise_alone_rarely_moves_a_bound(measure: Measure) -> None:
    plan = make_plan(measure=measure, amount=Fraction(1, 5 if measure is Measure.EPSILON else 50))
    chances = [chance_above(plan.law, bins, least) for bins, _, least in plan._sums[:-1]]
    assert all(0.3 < each * 20 * len(plan._sums) < 1.5 for each in chances)


# --- the rule ---


def noisy(plan: DateBoundsPlan, **rows: int) -> np.ndarray:
    """Counts, by years as "y1990=100"."""
    counts = np.zeros(plan.cells, np.int64)
    for year, number in rows.items():
        counts[int(year[1:]) - 1800] = number
    return counts


def chosen_years(plan: DateBoundsPlan, counts: np.ndarray) -> tuple[int, ...]:
    return tuple(each.year for each in plan.chosen(counts))


def test_bounds_are_around_clear_bins_and_reach_to_those_above_noise() -> None:
    plan = make_plan()
    assert chosen_years(plan, noisy(plan, y2023=900, y2024=900)) == (2023, 2025)
    _, clear, beyond = plan._sums[0]
    assert plan.clear == clear > beyond
    few, many = math.floor(beyond), math.floor(beyond) + 1
    assert chosen_years(plan, noisy(plan, y2022=few, y2023=900, y2024=many)) == (2023, 2025)
    assert chosen_years(plan, noisy(plan, y2022=many, y2023=900, y2024=few)) == (2022, 2024)
    # A stray far away counts only if it is clear.
    assert chosen_years(plan, noisy(plan, y1970=plan.clear, y2023=900)) == (2023, 2024)
    assert chosen_years(plan, noisy(plan, y1970=plan.clear + 1, y2023=900)) == (1970, 2024)


def test_no_bin_need_be_clear_if_a_sum_of_bins_is() -> None:
    """A thousand birthdays of a century, ten a year."""
    plan = make_plan()
    counts = noisy(plan, **{f"y{year}": 10 for year in range(1925, 2025)})
    low, high = chosen_years(plan, counts)
    assert 1920 <= low <= 1930 and 2020 <= high <= 2030 and counts.max() < plan.clear


def test_without_a_clear_sum_there_are_no_bounds() -> None:
    plan = make_plan()
    assert plan.chosen(np.zeros(plan.cells, np.int64)) == ()
    assert plan.chosen(noisy(plan, y2023=plan.clear)) == ()
    assert plan.chosen(np.full(plan.cells, 10))[0] == date(1800, 1, 1)  # all of them are


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("cells", [3, 4, 5, 400])
def test_bounds_are_candidates_and_rise(sides: tuple[str, ...], cells: int) -> None:
    plan = make_plan(candidates=YEARS[: cells + 1])
    one = make_plan(candidates=YEARS[: cells + 1], sides=sides)
    random = np.random.default_rng(4)
    for _ in range(300):
        counts = random.choice([-20, 0, 2, 30, 900], cells, p=[0.2, 0.3, 0.3, 0.1, 0.1])
        both = plan.chosen(counts)
        assert len(both) in (0, 2) and set(both) <= set(plan.candidates)
        assert list(both) == sorted(set(both))
        mirrored = plan.chosen(counts[::-1])
        if cells == 4 and both:  # sums of bins lie symmetrically
            places = [plan.candidates.index(each) for each in both]
            back = [plan.candidates.index(each) for each in mirrored]
            assert back == [cells - place for place in places[::-1]]
        wanted = dict(zip(SIDES[0], both, strict=False))
        assert one.chosen(counts) == tuple(wanted[side] for side in sides if both)
