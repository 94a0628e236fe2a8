"""An audit of chosen bounds of values, and the faults that it must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.audit.choices import losses
from dptrees.dpcore.choices import value_bounds as planning
from dptrees.dpcore.choices.value_bounds import ValueBoundsPlan, ValueBoundsQuestion
from dptrees.dpcore.privacy.unit import Measure, PrivacyUnit

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize(("measure", "met"), [(Measure.EPSILON, 0.6), (Measure.RHO, 0.4)])
def test_no_unit_reveals_more_about_values_than_is_claimed(measure: Measure, met: float) -> None:
    assert met < max(losses(measure)) <= 1 + 1e-9


# --- planted faults -------------------------------------------------------------------------------


def half_the_sensitivity(patch: Patch) -> None:
    patch.setattr(planning, "tail_sensitivity", lambda unit: 1)


def rows_counted_in_place_of_units(patch: Patch) -> None:
    """Each row counts, paid as one unit."""
    unit = property(lambda self: replace(self.plan.unit, rows=9 if self.plan.unit.columns else 1))
    patch.setattr(ValueBoundsQuestion, "unit", unit)
    patch.setattr(PrivacyUnit, "holds", lambda self, other: True)


def a_distance_in_parts_of_all_units(patch: Patch) -> None:
    """A tolerated part of the units in place of a tolerated number of them."""
    own = ValueBoundsPlan.distances

    def distances(self: ValueBoundsPlan, side: str, counts: Any, first: int = 0) -> Any:
        return own(self, side, counts, first) * (1 + counts.sum())

    patch.setattr(ValueBoundsPlan, "distances", distances)


def a_weight_of_the_data(patch: Patch) -> None:
    """Candidates that no value lies near are left out."""
    own = ValueBoundsPlan.weights

    def weights(self: ValueBoundsPlan, side: str, counts: Any, first: int = 0) -> np.ndarray:
        result = own(self, side, counts, first)
        near = counts[:-1][first : first + len(result)] > 0
        return np.where(near, result, 2.0**-60)

    patch.setattr(ValueBoundsPlan, "weights", weights)


@pytest.mark.parametrize(
    "fault",
    [
        half_the_sensitivity,
        rows_counted_in_place_of_units,
        a_distance_in_parts_of_all_units,
        a_weight_of_the_data,
    ],
)
def test_planted_faults_are_found(monkeypatch: Patch, fault: Callable[[Patch], None]) -> None:
    """In the choices and tables that were found to keep their claims above."""
    fault(monkeypatch)
    assert any(each > 1.05 for each in losses(Measure.EPSILON))
