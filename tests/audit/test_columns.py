"""The exact audit of means and of numbers of different values in its short form, and planted faults
that it must find; see benchmarks/audit/tables.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.audit.tables import WORKLOADS, audit_columns
from dptrees.dpcore import distinct, mean
from dptrees.dpcore.mean import MeanQuestion
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.messages import Increments
from tests.audit.test_exact_losses import is_found
from tests.audit.test_units import _bounds, bounded_in_each_batch, one_row_too_many

Patch = pytest.MonkeyPatch
PLANS, PAIRS = 14, 4


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("kind", WORKLOADS)
def test_no_pair_of_tables_loses_more_than_is_claimed(kind: str, measure: str) -> None:
    found = audit_columns(kind, measure, plans=PLANS, pairs=PAIRS)
    assert found.pairs == PLANS * PAIRS
    assert found.ratio == 1 and not found.leaks


# --- planted faults -------------------------------------------------------------------------------


def half_the_sensitivity_of_means(patch: Patch) -> None:
    own = mean.split_sensitivity

    def half(*arguments: Any, **named: Any) -> tuple[int, int]:
        one, two = own(*arguments, **named)
        return -(-one // 2), -(-two // 4)

    patch.setattr(mean, "split_sensitivity", half)


def values_without_their_number(patch: Patch) -> None:
    """The noise of one value, however many of a unit count."""
    own = distinct.distinct_sensitivity
    patch.setattr(
        distinct,
        "distinct_sensitivity",
        lambda unit, values, *, keyed: own(unit, 1, keyed=keyed),
    )


def keys_that_a_unit_may_change_forgotten(patch: Patch) -> None:
    own = distinct.distinct_sensitivity
    patch.setattr(
        distinct,
        "distinct_sensitivity",
        lambda unit, values, *, keyed: own(unit, values, keyed=False),
    )


def a_row_at_both_bounds(patch: Patch) -> None:
    """A row counts whole at b, and what it has left at a."""
    own = MeanQuestion.regrouped

    def regrouped(self: MeanQuestion, increments: Increments) -> Increments:
        found = own(self, increments)
        assert found.values is not None
        values = found.values.copy()
        values[len(values) // 2 :] = self.plan.parts
        return Increments(found.cells, values)

    patch.setattr(MeanQuestion, "regrouped", regrouped)


def noise_30_percent_too_small(patch: Patch) -> None:
    for module in (mean, distinct):
        own = module.noise_law

        def law(budget: Budget, *sensitivity: int, own: Any = own) -> Any:
            return own(replace(budget, amount=budget.amount * 10 / 7), *sensitivity)

        patch.setattr(module, "noise_law", law)


def one_value_too_many(patch: Patch) -> None:
    _bounds(
        patch,
        rows=lambda own: own.rows + 1,
        keys=lambda own: own.keys and own.keys + 1,
    )


OF_MEANS = (half_the_sensitivity_of_means, a_row_at_both_bounds)
OF_VALUES = (
    values_without_their_number,
    keys_that_a_unit_may_change_forgotten,
    one_value_too_many,
)
OF_BOTH = (noise_30_percent_too_small, bounded_in_each_batch)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        *(("means", fault) for fault in (*OF_MEANS, *OF_BOTH, one_row_too_many)),
        *(("different values", fault) for fault in (*OF_VALUES, *OF_BOTH)),
    ],
)
def test_planted_faults_are_found(
    monkeypatch: Patch, kind: str, fault: Callable[[Patch], None]
) -> None:
    fault(monkeypatch)
    assert is_found(lambda: audit_columns(kind, "epsilon", plans=2 * PLANS, pairs=PAIRS))
