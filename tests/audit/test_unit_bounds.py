"""An audit of chosen bounds: the exact law of the choice, from the rows of neighboring tables on;
see benchmarks/audit/choices.py."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.audit.choices import audit_bounds
from dptrees.dpcore.choices import unit_bounds as planning
from dptrees.dpcore.choices.unit_bounds import BoundPlan

Patch = pytest.MonkeyPatch
PLANS = 12


@pytest.mark.parametrize(("measure", "met"), [("epsilon", 0.95), ("rho", 0.3)])
def test_no_unit_reveals_more_about_bounds_than_is_claimed(measure: str, met: float) -> None:
    """A claim of rho is that of the worst choice of this range, which has even odds."""
    assert met < audit_bounds(measure, plans=PLANS, pairs=1).ratio <= 1 + 1e-9


# --- planted faults -------------------------------------------------------------------------------


def half_the_sensitivity(patch: Patch) -> None:
    patch.setattr(planning, "excess_sensitivity", lambda unit: Fraction(1, 2))


def a_rate_30_percent_too_large(patch: Patch) -> None:
    own = BoundPlan.__dict__["rate"].func
    patch.setattr(BoundPlan, "rate", property(lambda self: own(self) / Fraction(7, 10)))


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
        a_weight_of_the_data,
        a_rate_30_percent_too_large,
    ],
)
def test_planted_faults_are_found(monkeypatch: Patch, fault: Callable[[Patch], None]) -> None:
    """In the choices and tables that were found to keep their claims above."""
    fault(monkeypatch)
    assert audit_bounds("epsilon", plans=PLANS, pairs=1).ratio > 1.05
