"""Audits of chosen bounds, of units and of values: the exact law of the choice, from the rows of
neighboring tables on; see benchmarks/audit/choices.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.audit.choices import audit_bounds, losses
from dptrees.dpcore.choices import unit_bounds as planning
from dptrees.dpcore.choices import value_bounds as value_planning
from dptrees.dpcore.choices.unit_bounds import BoundPlan, BoundQuestion
from dptrees.dpcore.choices.value_bounds import DateBoundsQuestion, ValueBoundsQuestion
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.privacy.unit import Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.messages import Increments, RowIncrements
from tests.audit.faults import Patch

PLANS = 12


@pytest.mark.parametrize(("measure", "met"), [("epsilon", 0.95), ("rho", 0.3)])
def test_no_unit_reveals_more_about_bounds_than_is_claimed(measure: str, met: float) -> None:
    """A claim of rho is that of the worst choice of this range, which has even odds."""
    assert met < audit_bounds(measure, plans=PLANS, pairs=1).ratio <= 1 + 1e-9


# --- planted faults -------------------------------------------------------------------------------


def half_the_sensitivity(patch: Patch) -> None:
    patch.setattr(planning, "excess_sensitivity", lambda unit: Fraction(1, 2))


def rows_counted_in_place_of_units(patch: Patch) -> None:
    """A score of the rows beyond a bound, paid as one of units."""

    def increments(self: BoundQuestion, rows: np.ndarray) -> Increments:
        return Increments(np.repeat(self.plan.cell_ids(rows), rows))

    patch.setattr(BoundQuestion, "unit_increments", increments)


def distances_on_both_sides(patch: Patch) -> None:
    """|N(t) - m|, which moves up for some sizes and down for others."""

    def distances(self: BoundPlan, counts: np.ndarray) -> np.ndarray:
        above = counts[::-1].cumsum()[::-1][1:] * 2**16 - int(self.tolerated * 2**16)
        result: np.ndarray = np.abs(above) + self.handicaps
        return result - result.min()

    patch.setattr(BoundPlan, "distances", distances)


def a_rate_30_percent_too_large(patch: Patch) -> None:
    own = BoundPlan.__dict__["rate"].func
    patch.setattr(BoundPlan, "rate", property(lambda self: own(self) / Fraction(7, 10)))


def units_counted_twice_where_sizes_meet(patch: Patch) -> None:
    """Each unit counts once for its rows, and once as if it had one row more."""
    own = BoundQuestion.unit_increments

    def increments(self: BoundQuestion, rows: np.ndarray) -> Increments:
        return Increments(np.concatenate([own(self, rows).cells, own(self, rows + 1).cells]))

    patch.setattr(BoundQuestion, "unit_increments", increments)


def a_weight_of_the_data(patch: Patch) -> None:
    """Sizes that no unit has are left out."""
    own = BoundPlan.weights

    def weights(self: BoundPlan, counts: np.ndarray) -> np.ndarray:
        return np.where(counts[:-1] > 0, own(self, counts), 2.0**-60)

    patch.setattr(BoundPlan, "weights", weights)


@pytest.mark.parametrize(
    "fault",
    [
        half_the_sensitivity,
        rows_counted_in_place_of_units,
        distances_on_both_sides,
        a_weight_of_the_data,
        a_rate_30_percent_too_large,
        units_counted_twice_where_sizes_meet,
    ],
)
def test_planted_faults_are_found(monkeypatch: Patch, fault: Callable[[Patch], None]) -> None:
    """In the choices and tables that were found to keep their claims above."""
    fault(monkeypatch)
    assert audit_bounds("epsilon", plans=PLANS, pairs=1).ratio > 1.05


# --- bounds of values -----------------------------------------------------------------------------


@pytest.mark.parametrize(("measure", "met"), [(Measure.EPSILON, 0.99), (Measure.RHO, 0.99)])
def test_no_unit_reveals_more_about_values_than_is_claimed(measure: Measure, met: float) -> None:
    assert met < max(losses(measure)) <= 1


def half_the_sensitivity_of_values(patch: Patch) -> None:
    own = value_planning.level_law

    def law(unit: PrivacyUnit, budget: Budget, *, single_node: bool) -> NoiseLaw:
        return own(unit, replace(budget, amount=2 * budget.amount), single_node=single_node)

    patch.setattr(value_planning, "level_law", law)


def values_counted_in_place_of_units(patch: Patch) -> None:
    """Each row counts, paid as one unit."""
    unit = property(lambda self: replace(self.plan.unit, rows=9 if self.plan.unit.columns else 1))
    patch.setattr(ValueBoundsQuestion, "unit", unit)
    patch.setattr(PrivacyUnit, "holds", lambda self, other: True)


def a_unit_in_every_bin_below_its_value(patch: Patch) -> None:
    """Counts of units beyond each candidate, paid as one histogram."""

    def increments(self: ValueBoundsQuestion, columns: dict[str, Any]) -> RowIncrements:
        cells = self._value_cells(columns["x"])
        rows = np.repeat(np.arange(len(cells)), cells + 1)
        first = np.searchsorted(rows, rows)
        return RowIncrements(Increments(np.arange(len(rows)) - first), rows)

    patch.setattr(ValueBoundsQuestion, "row_increments", increments)


def a_date_in_two_bins(patch: Patch) -> None:
    """Each unit counts in its bin and in the first one."""
    own = ValueBoundsQuestion.row_increments

    def increments(self: DateBoundsQuestion, columns: dict[str, Any]) -> RowIncrements:
        (cells, *_), rows = own(self, columns)
        rows = np.arange(len(cells)) if rows is None else rows
        return RowIncrements(Increments(np.stack([cells, 0 * cells], 1).ravel()), rows.repeat(2))

    patch.setattr(DateBoundsQuestion, "row_increments", increments)


@pytest.mark.parametrize(
    "fault",
    [
        a_date_in_two_bins,
        half_the_sensitivity_of_values,
        values_counted_in_place_of_units,
        a_unit_in_every_bin_below_its_value,
    ],
)
def test_planted_faults_of_values_are_found(
    monkeypatch: Patch, fault: Callable[[Patch], None]
) -> None:
    """In the choices and tables that were found to keep their claims above."""
    fault(monkeypatch)
    assert any(each > 1.05 for each in losses(Measure.EPSILON))
