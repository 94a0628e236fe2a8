"""The exact audit of series that protect all rows of a unit, and the faults that it must find.

Nothing is left to chance: series and data sets are drawn under fixed seeds, and losses under
epsilon and rho are compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest

from benchmarks.audit import units
from benchmarks.audit.units import audit_series
from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.bounding.unit_ids import UnitIds, Units
from dptrees.dpcore.privacy import sensitivity
from dptrees.dpcore.release import released
from dptrees.dpcore.series import runs
from dptrees.dpcore.series.totals_to_date import ClosedNode, PeriodSums
from tests.audit.faults import Patch

PLANS, PAIRS, SEED = 10, 4, 1


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
def test_no_unit_loses_more_than_is_claimed(measure: str) -> None:
    found = audit_series(measure, plans=PLANS, pairs=PAIRS, seed=SEED)
    assert found.pairs == PLANS * PAIRS and not found.leaks
    # The worst unit meets the claim: a row of one period more would break it.
    assert found.ratio == 1


def weighted_sums_alone(patch: Patch) -> None:
    """Every tree that weighted sums can measure is measured by them, in however many periods a unit
    is counted."""
    patch.setattr(PeriodSums, "mean_error", lambda self, most, window=None: 0.5)


def test_no_unit_moves_weighted_sums_by_more(monkeypatch: Patch) -> None:
    weighted_sums_alone(monkeypatch)
    found = audit_series("rho", plans=2 * PLANS, pairs=PAIRS, seed=SEED + 1)
    assert found.ratio <= 1 and not found.leaks


def one_period_too_many(patch: Patch) -> None:
    own = CountedUnits.admit
    patch.setattr(CountedUnits, "admit", lambda self, ids, most: own(self, ids, most + 1))


def earlier_periods_forgotten(patch: Patch) -> None:
    """Each run counts every unit as if it were the first."""
    patch.setattr(released, "_earlier_units", lambda before, key: iter(()))


def state_rolled_back(patch: Patch) -> None:
    """The second run hands on what the first did."""
    own, calls = released._earlier_units, count()
    kept: list[Any] = []

    def rolled(before: Any, key: Any) -> Any:
        if next(calls) % 2 == 0 or not kept:
            kept[:] = list(own(before, key))
        return iter(kept)

    patch.setattr(released, "_earlier_units", rolled)


def budget_of_one_period(patch: Patch) -> None:
    patch.setattr(runs, "periods_sensitivity", lambda most, span: (1, 1))


def periods_of_one_node_added_as_squares(patch: Patch) -> None:
    """The L2 sensitivity of a temporal node that holds several periods of a unit."""
    patch.setattr(runs, "periods_sensitivity", lambda most, span: (most, most))


def a_rest_forgotten(patch: Patch) -> None:
    own = sensitivity.periods_sensitivity
    patch.setattr(
        runs,
        "periods_sensitivity",
        lambda most, span: own(max(1, most // span * span), span),
    )


def weighted_sums_of_one_period(patch: Patch) -> None:
    """The noise of weighted sums is for a unit of one period, however many it is counted in."""
    weighted_sums_alone(patch)
    own = PeriodSums.sensitivities
    patch.setattr(PeriodSums, "sensitivities", lambda self, most: own(self, 1))


def the_shortest_column(patch: Patch) -> None:
    """The noise of weighted sums is for a unit of the period that moves them least."""

    def shortest(self: PeriodSums, most: int) -> tuple[int, int]:
        norms = (self.strategy.dense() ** 2).sum(axis=0)
        return 1, most * most * int(norms.min())

    patch.setattr(PeriodSums, "sensitivities", shortest)


def ids_of_each_run(patch: Patch) -> None:
    """A unit has another id in every run."""
    own, calls = UnitIds.row_ids, count(1)

    def other(self: UnitIds, columns: Any) -> Units:
        ids, missing = own(self, columns)
        return ids ^ np.uint64(next(calls)), missing

    patch.setattr(UnitIds, "row_ids", other)


def counted_by_what_others_do(patch: Patch) -> None:
    """A run counts at most two units, the first that it finds."""
    own, make, found = CountedUnits.admit, units.release_rows, [0]

    def admit(self: CountedUnits, ids: Any, most: int) -> Any:
        counted, after = own(self, ids, most)
        found[0] += int(counted.sum())
        return counted & (found[0] <= 2), after

    def run(*arguments: Any, **named: Any) -> Any:
        found[0] = 0
        return make(*arguments, **named)

    patch.setattr(CountedUnits, "admit", admit)
    patch.setattr(units, "release_rows", run)


def noise_30_percent_too_small(patch: Patch) -> None:
    """The budget of every level is as if the claim were larger."""
    own = runs.Series.level_budgets

    def budgets(self: runs.Series, budget: Any, split: Any) -> Any:
        larger = Fraction(10, 7) ** (1 if budget.measure.value == "epsilon" else 2)
        return tuple(
            type(each)(measure=each.measure, amount=each.amount * larger)
            for each in own(self, budget, split)
        )

    patch.setattr(runs.Series, "level_budgets", budgets)
    # The plan would refuse it: it adds up what its trees spend.
    patch.setattr("dptrees.dpcore.release.plan.ReleasePlan._check_budgets", lambda self: None)


def noise_of_earlier_periods_drawn_again(patch: Patch) -> None:
    """A later run draws other noise for the periods that it goes on from."""

    def source(self: ClosedNode, noise: Any) -> Any:
        return replace(noise, spec_digest=self.seeds[0], own_digest=b"")

    patch.setattr(ClosedNode, "source", source)


FAULTS: tuple[tuple[Callable[[Patch], None], str], ...] = (
    (one_period_too_many, "epsilon"),
    (one_period_too_many, "rho"),
    (earlier_periods_forgotten, "epsilon"),
    (state_rolled_back, "epsilon"),
    (budget_of_one_period, "epsilon"),
    (periods_of_one_node_added_as_squares, "rho"),
    (a_rest_forgotten, "rho"),
    (ids_of_each_run, "epsilon"),
    (counted_by_what_others_do, "epsilon"),
    (noise_30_percent_too_small, "epsilon"),
    (noise_30_percent_too_small, "rho"),
    (noise_of_earlier_periods_drawn_again, "epsilon"),
    (noise_of_earlier_periods_drawn_again, "rho"),
    (weighted_sums_of_one_period, "rho"),
    (the_shortest_column, "rho"),
)


@pytest.mark.parametrize(("fault", "measure"), FAULTS)
def test_planted_faults_are_found(
    fault: Callable[[Patch], None], measure: str, monkeypatch: Patch
) -> None:
    fault(monkeypatch)
    if fault in (budget_of_one_period, periods_of_one_node_added_as_squares, a_rest_forgotten):
        monkeypatch.setattr(
            "dptrees.dpcore.release.plan.ReleasePlan._check_budgets", lambda self: None
        )
    plans = 2 * PLANS if fault is a_rest_forgotten else PLANS  # of rare series
    assert audit_series(measure, plans=plans, pairs=PAIRS, seed=SEED).ratio > 1


def test_a_plan_that_spends_more_than_it_states_is_refused(monkeypatch: Patch) -> None:
    budget_of_one_period(monkeypatch)
    with pytest.raises(ValueError, match="budgets sum to"):
        audit_series("epsilon", plans=PLANS, pairs=1, seed=SEED)
