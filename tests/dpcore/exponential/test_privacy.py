"""What the quantiles of neighboring tiny data sets reveal, from their whole laws: all of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from unittest.mock import patch

import numpy as np
import pytest

from dptrees.dpcore.exponential import plan as planning
from dptrees.dpcore.exponential import quantiles as choosing
from dptrees.dpcore.exponential.choice import ERROR, FLOOR, LARGEST, PLACES, Chosen
from dptrees.dpcore.exponential.plan import _LEAST_RATE, LARGEST_OF_PLACES, SLACK, ExponentialPlan
from dptrees.dpcore.exponential.quantiles import Cells, QuantileGap, choose_among, sides
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.privacy.sensitivity import rank_sensitivity
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    SUBSTITUTE_ROW,
    Measure,
    Neighbors,
    PrivacyUnit,
)
from dptrees.dpcore.specification import Refusal
from tests.dpcore.cases import for_each
from tests.dpcore.exponential.enumerated_law import Law, enumerated_law
from tests.dpcore.exponential.plans import make_plan

CELLS, MOST_ROWS = 3, 4
MEDIAN = (Fraction(1, 2),)
HIGH = (Fraction(9, 10),)
THREE = (Fraction(1, 4), Fraction(1, 2), Fraction(4, 5))
PAIR = replace(ADD_REMOVE_ROW, columns=("person",), rows=2)
SUBSTITUTE_PAIR = PrivacyUnit(neighbors=Neighbors.SUBSTITUTE, columns=("person",), rows=2)
UNITS = {"row": ADD_REMOVE_ROW, "other row": SUBSTITUTE_ROW}
UNITS |= {"two rows": PAIR, "other two rows": SUBSTITUTE_PAIR}
ORDERS = (1.5, 2.0, 5.0, 30.0)


def histograms(rows: int) -> list[tuple[int, ...]]:
    """Return the histograms of at most this many rows."""
    return [each for each in itertools.product(range(rows + 1), repeat=CELLS) if sum(each) <= rows]


def neighbors(unit: PrivacyUnit) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of tiny histograms that differ in what one unit has."""
    parts = histograms(unit.rows)
    for rest in histograms(MOST_ROWS - unit.rows):
        # Also a row that a policy drops from one of the two.
        pairs = itertools.product(parts, parts if unit.substitutes else [(0,) * CELLS])
        for own, other in pairs:
            if own != other:
                yield _sum(rest, own), _sum(rest, other)


def _sum(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def largest_loss(one: Law, other: Law) -> float:
    """The largest logarithm of a ratio of probabilities."""
    assert one.keys() == other.keys()
    return max(abs(math.log(one[each] / other[each])) for each in one)


def largest_rho(one: Law, other: Law) -> float:
    """The largest Renyi divergence by its order."""
    pairs = [(float(one[each]), float(other[each])) for each in one]
    found = []
    for order in ORDERS:
        for a, b in ((0, 1), (1, 0)):
            power = math.fsum(p[a] ** order * p[b] ** (1 - order) for p in pairs)
            found.append(math.log(power) / (order - 1) / order)
    return max(found)


def worst(plan: ExponentialPlan) -> float:
    """The part of the budget that is lost at most, over all neighbors."""
    law = lru_cache(maxsize=None)(lambda counts: enumerated_law(counts, plan))
    lost = largest_loss if plan.budget.measure is Measure.EPSILON else largest_rho
    return max(lost(law(one), law(two)) for one, two in neighbors(plan.unit)) / float(
        plan.budget.amount
    )


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("quantiles", [MEDIAN, HIGH, THREE], ids=["median", "high", "three"])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_no_neighbours_lose_more_than_the_budget(
    unit: PrivacyUnit, quantiles: tuple[Fraction, ...], measure: Measure
) -> None:
    plan = make_plan(CELLS, quantiles, 2, measure, unit=unit)
    assert worst(plan) <= 1


# Cells without rows, just below the wanted rank: all that is likely moves one way.
EMPTY = 1500


def crafted(part: Fraction, unit: PrivacyUnit) -> tuple[np.ndarray, np.ndarray]:
    """A histogram and its neighbor where an unlikely cell reveals most: its distance falls by as
    much as that of all likely ones rises, or nearly."""
    beside = unit.rows
    below = 40 * part.denominator * part - beside
    above = 40 * part.denominator * (1 - part) - beside
    one = np.array([below, *(0,) * EMPTY, 2 * beside, 0, above], np.int64)
    two = one.copy()
    two[-1] += unit.rows
    two[0] -= unit.rows if unit.substitutes else 0
    return one, two


def single_loss(plan: ExponentialPlan, pair: tuple[np.ndarray, np.ndarray]) -> float:
    """The loss of a single choice, from the weights that the code has for it: for permute-and-
    flip they are integrals over u of w_j times the product of 1 - w_i u over the others."""
    seen: list[np.ndarray] = []

    def remembered(weights: np.ndarray, stream: object) -> Chosen:
        seen.append(weights)
        return Chosen(0, 1)

    with (
        patch.object(choosing, "weighed", remembered),
        patch.object(choosing, "flipped", remembered),
    ):
        for counts in pair:
            choosing.chosen_quantiles(counts, plan, RandomStream(bytes(32)))
    laws = [np.log(_flips(each) if plan.flips else each / each.sum()) for each in seen]
    return float(np.abs(laws[0] - laws[1]).max())


def _flips(weights: np.ndarray) -> np.ndarray:
    # Most of the integral is near 0: u is t^8.
    nodes, masses = np.polynomial.legendre.leggauss(200)
    t = (nodes + 1) / 2
    with np.errstate(divide="ignore"):
        each = np.log1p(-weights[:, None] * t**8)
    products = np.exp(each.sum(axis=0) - each)
    found = weights * (products @ (8 * t**7 * masses / 2))
    assert found.sum() == pytest.approx(1, rel=1e-6)
    return np.asarray(found)


@for_each("measure", Measure)
@for_each("part", [Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_a_rate_30_percent_too_large_is_found(
    unit: PrivacyUnit, part: Fraction, measure: Measure
) -> None:
    """Nearly all that is claimed is lost; more with a larger rate."""
    pair, amount = crafted(part, unit), Fraction(1, 2)
    plan = make_plan(len(pair[0]), (part,), amount, measure, unit=unit)
    # A choice that is e^2 / 8-zCDP has the range e.
    claimed = float(amount) if measure is Measure.EPSILON else math.sqrt(8 * amount)
    lost = single_loss(plan, pair) / claimed
    assert 0.8 < lost <= 1
    plan.__dict__["rates"] = {0: plan.rates[0] * 13 / 10}
    assert single_loss(plan, pair) / claimed > 1


def test_a_wanted_rank_that_seems_to_stand_still_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plant a fault: a sensitivity as if distances moved apart by one for each row."""
    monkeypatch.setattr(planning, "rank_sensitivity", lambda *_, **__: (Fraction(1), Fraction(1)))
    part = Fraction(9, 10)
    pair = crafted(part, ADD_REMOVE_ROW)
    assert single_loss(make_plan(len(pair[0]), (part,), Fraction(1, 2)), pair) > 1 / 2


def test_a_budget_spent_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a fault: a budget as if the choices of a path did not add up."""
    monkeypatch.setattr(planning, "_spent", lambda rank, left: dict.fromkeys(range(3), left))
    assert worst(make_plan(CELLS, THREE, 2)) > 1


def test_places_in_two_turns_lose_no_more() -> None:
    """A place of a run of a cell: four to a cell."""
    plan = make_plan(CELLS, (Fraction(2, 5), Fraction(1, 2)), 2)
    law = lru_cache(maxsize=None)(lambda counts: enumerated_law(counts, plan, levels=2))
    pairs = [pair for pair in neighbors(ADD_REMOVE_ROW) if sum(pair[0]) == MOST_ROWS]
    assert max(largest_loss(law(one), law(two)) for one, two in pairs) <= 2


def test_rates_by_which_clipped_distances_would_weigh_something_are_refused() -> None:
    """A unit of 2^20 rows beside cells of 2^36 rows would lose more than the choice's epsilon."""
    quantiles = (Fraction("0.25"), Fraction("0.49999"), Fraction("0.75"))
    unit = replace(PAIR, rows=2**20)
    with pytest.raises(Refusal, match="too small for the exponential mechanism"):
        make_plan(CELLS, quantiles, 4, unit=unit)
    rows = LARGEST // (LARGEST_OF_PLACES * PLACES)
    assert math.exp(-_LEAST_RATE * rows) < FLOOR * ERROR
    # Six numbers of two data sets, each off by a weight's error and that of the clip.
    assert 2 * 6 * 2 * ERROR * (1 + Fraction(1, 2**20)) < SLACK


@pytest.mark.parametrize("numerator", [1, 333, 500, 999])
def test_a_row_more_is_a_row_more_on_one_side(
    numerator: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(CELLS, THREE)
    for rows in range(50):
        sizes = []
        for own in (rows, rows + 1):
            share = Fraction(numerator, 1000)
            monkeypatch.setattr(choosing, "chosen_place", lambda *_: (Chosen(1, 1), share))  # noqa: B023
            cells, part = (
                Cells(0, np.array([0, 2, 2 + own, 5 + own])),
                QuantileGap(0, 2, 0, 5 + own),
            )
            found = choose_among(cells, part, plan.first, plan, RandomStream(bytes(32)))
            lower, upper = sides(part, found)
            assert lower.stop == upper.start == found.cut
            sizes.append((lower.stop - 2, upper.stop - 3 - upper.start))
            assert min(sizes[-1]) >= 0 and sum(sizes[-1]) == own
        moved = np.array(sizes[1]) - np.array(sizes[0])
        assert sorted(moved.tolist()) == [0, 1]


@for_each("part", [Fraction(1, 2), Fraction(1, 10), Fraction(7, 9)])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_sensitivity_is_that_of_all_distances(
    unit: PrivacyUnit, part: Fraction, whole: bool
) -> None:
    """Check the distances of cells, and of places in them; of two parts if not the whole."""

    def distances(counts: tuple[int, ...]) -> list[Fraction]:
        rank, found, before = part * sum(counts), [], 0
        for own in counts:
            found.append(max(before - rank, rank - before - own, Fraction(0)))
            found += [abs(before + own * Fraction(each, 4) - rank) for each in (1, 3)]
            before += own
        return found

    def apart(one: tuple[int, ...], other: tuple[int, ...]) -> Fraction:
        pairs = zip(distances(one), distances(other), strict=True)
        changes = [a - b for a, b in pairs]
        return max(*changes, Fraction(0)) - min(*changes, Fraction(0))

    l1, l2_squared = rank_sensitivity(unit, part, whole=whole, keyed=False)
    found = [apart(one, other) for one, other in neighbors(unit)]
    if not whole and unit.substitutes:
        # The rows of before and of after may lie in parts of their own.
        leave = replace(unit, neighbors=Neighbors.ADD_REMOVE)
        most = max(apart(one, other) for one, other in neighbors(leave))
        assert max(*found, 2 * most) <= l1
        assert max(max(found) ** 2, 2 * most**2) <= l2_squared
    else:
        assert max(found) <= l1 and max(found) ** 2 <= l2_squared
