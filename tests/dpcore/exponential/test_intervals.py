"""Intervals of quantiles that were chosen: what they hold, what they cost, how wide they are."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dptrees.dpcore.exponential.plan import ExponentialPlan
from dptrees.dpcore.exponential.quantiles import (
    chosen_ends,
    chosen_quantiles,
    most_pairs,
    pair_distances,
    reach,
    run_edges,
)
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.privacy.sensitivity import rank_sensitivity
from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit
from dptrees.dpcore.specification import Refusal
from tests.dpcore.cases import for_each
from tests.dpcore.exponential.plans import make_plan
from tests.dpcore.exponential.test_privacy import CELLS as TINY
from tests.dpcore.exponential.test_privacy import UNITS, neighbors, worst

CELLS, ROWS, CONFIDENCE = 500, 800, 0.8
MIDDLE, HIGH = Fraction(1, 2), Fraction(9, 10)
THREE = (Fraction(1, 4), MIDDLE, HIGH)
GENERATOR = np.random.default_rng(4)
SHAPES = {
    "uniform": GENERATOR.uniform(0, CELLS, ROWS),
    "gamma": GENERATOR.gamma(2, 40, ROWS),
    "spiky": GENERATOR.choice(GENERATOR.integers(0, CELLS, 12), ROWS),
    "atom": np.where(GENERATOR.random(ROWS) < 0.6, 77, GENERATOR.gamma(2, 40, ROWS)),
    "few": np.array([3, 77, 78, 300]),
}


def interval_plan(measure: Measure, amount: Fraction = Fraction(1)) -> ExponentialPlan:
    return make_plan(CELLS, THREE, amount, measure, share=Fraction(1, 2), confidence=CONFIDENCE)


def make_counts(shape: str) -> np.ndarray:
    cells = np.clip(SHAPES[shape], 0, CELLS - 1).astype(np.int64)
    return np.bincount(cells, minlength=CELLS)


def held(counts: np.ndarray, plan: ExponentialPlan, draws: int) -> int:
    """How many of the intervals hold the quantile: the cell of the wanted row."""
    upto, found = np.cumsum(counts), 0
    ranks = [max(1, -(-each.numerator * int(upto[-1]) // each.denominator)) for each in THREE]
    cells = np.searchsorted(upto, ranks)
    for number in range(draws):
        ends = chosen_quantiles(counts, plan, public_stream("held", number)).ends
        assert ends is not None
        found += int(((ends[0] <= cells) & (cells <= ends[1])).sum())
    return found


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("shape", SHAPES)
def test_they_hold_as_often_as_stated(shape: str, measure: Measure) -> None:
    draws = 40
    found = held(make_counts(shape), interval_plan(measure), draws)
    # Three of a draw depend on each other: as if a third of them were independent.
    assert stats.binom.cdf(found / 3, draws, CONFIDENCE) > 1e-6


def test_a_reach_too_short_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals that end at the wanted rank itself hold it by chance."""
    monkeypatch.setattr("dptrees.dpcore.exponential.quantiles.reach", lambda *_: 0)
    found = held(make_counts("spiky"), interval_plan(Measure.EPSILON), 40)
    assert stats.binom.cdf(found / 3, 40, CONFIDENCE) < 1e-6


@pytest.mark.parametrize("measure", Measure)
def test_ends_are_at_the_ranks_that_they_reach_for(measure: Measure) -> None:
    """Check the ends with a large budget, so that noise moves no rank."""
    counts, plan = np.full(CELLS, 1000), interval_plan(measure, Fraction(2000))
    ends = chosen_quantiles(counts, plan, public_stream("reach")).ends
    assert ends is not None and max(reach(plan, place) for place in range(3)) < 1000
    for place, quantile in enumerate(THREE):
        cell = int(quantile * CELLS)
        assert cell - 2 <= ends[0, place] <= cell <= ends[1, place] + 1 <= cell + 3


def worst_failure(plan: ExponentialPlan, rows: int) -> float:
    """By the definition: of all pairs one is at no distance, the others at so many rows."""
    pairs = most_pairs(plan.cells)
    weight = math.exp(-float(plan.interval_rate(0)) * rows)
    if plan.budget.measure is Measure.EPSILON:
        # In random order, each is taken with its weight: the mean over the place of the best.
        taken_before = -np.expm1(np.arange(pairs) * math.log1p(-weight))
        return float(taken_before.mean())
    return (pairs - 1) * weight / (1 + (pairs - 1) * weight)


@pytest.mark.parametrize("measure", Measure)
def test_the_reach_is_what_the_confidence_needs_and_no_more(measure: Measure) -> None:
    plan = replace(interval_plan(measure, Fraction(1, 50)), confidence=0.99)
    rows = reach(plan, 0)
    assert worst_failure(plan, rows) <= 0.01 < 1.02 * worst_failure(plan, rows - 1)


@given(st.integers(1, 3000), st.data())
def test_runs_are_all_cells(cells: int, data: st.DataObject) -> None:
    cell = data.draw(st.integers(0, cells - 1))
    edges = run_edges(cell, cells)
    widths = np.diff(edges)
    assert edges[0] == 0 and edges[-1] == cells and widths.min() >= 1
    assert cell in edges and cell + 1 in edges
    away = np.maximum(edges[:-1] - cell, cell + 1 - edges[1:])
    assert np.all(widths <= np.maximum(1, away / 4 + 1))
    assert len(widths) * (len(widths) + 1) // 2 <= most_pairs(cells)


def test_few_pairs_of_many_cells() -> None:
    assert most_pairs(2**12) < 2**12 and most_pairs(2**26) < 2**15


# Each unit with both measures and both quantiles, and both measures with both quantiles.
@pytest.mark.parametrize(
    ("unit", "measure", "quantile"),
    [
        pytest.param(unit, measure, quantile, id=f"{name}-{measure}")
        for place, (name, unit) in enumerate(UNITS.items())
        for measure, quantile in zip(
            Measure, (MIDDLE, HIGH) if place % 2 else (HIGH, MIDDLE), strict=True
        )
    ],
)
def test_no_neighbours_lose_more_than_the_budget(
    unit: PrivacyUnit, measure: Measure, quantile: Fraction
) -> None:
    plan = make_plan(TINY, (quantile,), 2, measure, unit=unit, share=Fraction(3, 4))
    assert worst(plan) <= 1


def test_intervals_that_spend_more_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(TINY, (MIDDLE,), 2, share=Fraction(3, 4))
    monkeypatch.setattr(ExponentialPlan, "interval_amount", Fraction(6))
    assert worst(plan) > 1


@for_each("quantile", [Fraction(1, 2), Fraction(1, 10), Fraction(7, 9)])
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_sensitivity_is_that_of_pairs_too(unit: PrivacyUnit, quantile: Fraction) -> None:
    """Search all pairs of neighboring tiny histograms, and all reaches that matter in them."""
    most, found = rank_sensitivity(unit, quantile, whole=True, keyed=False)[0], 0
    for one, two in neighbors(unit):
        for rows in (0, 1, 3):
            changes = np.subtract(
                *(
                    pair_distances(np.array([0, *np.cumsum(each)]), quantile, rows)
                    for each in (one, two)
                )
            )
            found = max(found, int(max(*changes, 0) - min(*changes, 0)))
    assert Fraction(3, 4) * most <= Fraction(found, quantile.denominator) <= most


def test_what_is_refused() -> None:
    plan = interval_plan(Measure.EPSILON)
    for changed, sentence in (
        ({"interval_share": Fraction(1)}, "at least 0 and below 1"),
        ({"quantiles": (Fraction("0.1234567"),)}, "at most six decimals"),
        ({"interval_share": Fraction(1, 10**5)}, "share of the budget is too small"),
    ):
        with pytest.raises(Refusal, match=sentence):
            replace(plan, **changed)


def test_no_rows_give_an_interval_all_the_same() -> None:
    plan, edges = interval_plan(Measure.EPSILON), run_edges(3, CELLS)
    ranks = np.zeros(len(edges), np.int64)
    assert chosen_ends(ranks, edges, plan, 0, public_stream("none"))[0] >= 0


def test_of_as_many_rows_as_there_can_be() -> None:
    """Ranks in units of their denominators do not overflow."""
    plan = replace(interval_plan(Measure.RHO), cells=4, quantiles=(Fraction(1, 2**22 - 1),))
    counts = np.array([1, 2**39, 2**39, 5])
    ends = chosen_quantiles(counts, plan, public_stream("most")).ends
    assert ends is not None and ends[0, 0] <= 1 <= ends[1, 0]
