"""The exact audits of wide tables, and of means and numbers of different values, in their short
forms, and planted faults that they must find; see benchmarks/audit/tables.py."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from benchmarks.audit import choices
from benchmarks.audit.tables import TABLE_UNITS, WORKLOADS, audit_columns, audit_tables
from dptrees.dpcore import numbers
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise import source as noise
from dptrees.dpcore.noise.laws import DiscreteGaussian
from dptrees.dpcore.numbers import MeanQuestion
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.messages import Increments
from dptrees.dpcore.sketched import question as sketches
from dptrees.dpcore.tables import plan as planning
from dptrees.dpcore.tables import question
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.estimates import pair_groups
from dptrees.dpcore.tables.plan import MarginalsPlan
from tests.audit.faults import (
    Patch,
    bounded_in_each_batch,
    is_found,
    noise_that_does_not_hang_on_the_data,
    one_keystream_for_all_levels,
    one_row_too_many,
    wrong_bounds,
)

PLANS, PAIRS, SEED = 6, 4, 1
OF_SEVERAL_ROWS = [unit for unit in TABLE_UNITS if unit.rows > 1]


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
def test_no_pair_of_tables_loses_more_than_is_claimed(measure: str) -> None:
    """Nearly all of a claim is lost where most of it is for one kind of step."""
    found = audit_tables(measure, plans=PLANS, pairs=PAIRS, seed=SEED)
    assert found.pairs == PLANS * PAIRS
    assert 0.95 < found.ratio <= 1 + 1e-9 and not found.leaks


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
def test_named_pairs_lose_no_more_than_is_claimed(measure: str, monkeypatch: Patch) -> None:
    """And rounds that all have the budget of pairs are found."""
    found = audit_tables(measure, plans=PLANS, pairs=PAIRS, seed=SEED, named=True)
    assert 0.9 < found.ratio <= 1 + 1e-9 and not found.leaks
    both_rounds_given_the_budget_of_pairs(monkeypatch)
    assert is_found(lambda: audit_tables(measure, plans=PLANS, pairs=PAIRS, seed=SEED, named=True))


def test_the_examples_of_the_laws_hold() -> None:
    tried = doctest.testmod(choices)
    assert tried.attempted and not tried.failed


# --- planted faults -------------------------------------------------------------------------------


def noise_30_percent_too_small(patch: Patch) -> None:
    def smaller(law: Any) -> Any:
        if isinstance(law, DiscreteGaussian):
            return replace(law, sigma_squared=law.sigma_squared * Fraction(49, 100))
        return replace(law, scale=law.scale * Fraction(7, 10))

    patch.setattr(
        question,
        "add_noise",
        lambda law, *rest, **more: noise.add_noise(smaller(law), *rest, **more),
    )


def choices_of_twice_the_rate(patch: Patch) -> None:
    own = MarginalsPlan.choice_rate
    patch.setattr(MarginalsPlan, "choice_rate", lambda self, design: 2 * own(self, design))


def every_choice_given_the_budget_of_all(patch: Patch) -> None:
    own = MarginalsPlan.choice_rate
    patch.setattr(
        MarginalsPlan,
        "choice_rate",
        lambda self, design: own(
            replace(self, choice_amount=self.choice_amount * self.choices(design)), design
        ),
    )
    patch.setattr(MarginalsPlan, "__post_init__", lambda self: None)


def both_rounds_given_the_budget_of_pairs(patch: Patch) -> None:
    own = question._rounds
    patch.setattr(
        question,
        "_rounds",
        lambda plan, design: [each._replace(amount=plan.pair_amount) for each in own(plan, design)],
    )


def every_pair_given_the_budget_of_a_round(patch: Patch) -> None:
    patch.setattr(
        question, "cell_amounts", lambda cells, budget: tuple(budget.amount for _ in cells)
    )


def budget_moved_to_columns_and_kept(patch: Patch) -> None:
    """Pairs have what a design gives to columns and choices."""
    own = question._rounds

    def rounds(plan: MarginalsPlan, design: Any) -> Any:
        kept = 1 - design.moved_part
        return [each._replace(amount=each.amount / kept) for each in own(plan, design)]

    patch.setattr(question, "_rounds", rounds)


def the_narrowest_column_grows_too(patch: Patch) -> None:
    """Its share of what a design gives to columns is spent twice."""
    own = MarginalsPlan.column_amounts

    def amounts(self: MarginalsPlan, design: Any) -> Any:
        more = 1 + design.column_part * self.pair_amount / self.column_amount
        first = self.first_columns[0] if self.column_parts else -1
        return tuple(
            each * more if column == first else each
            for column, each in enumerate(own(self, design))
        )

    patch.setattr(MarginalsPlan, "column_amounts", amounts)
    patch.setattr(MarginalsPlan, "__post_init__", lambda self: None)


def a_unit_paid_as_one_row(patch: Patch) -> None:
    patch.setattr(planning, "level_sensitivity", lambda unit, **_: (1, 1))


def distances_of_a_unit_paid_as_of_one_row(patch: Patch) -> None:
    patch.setattr(planning, "distance_sensitivity", lambda unit: 1)


def held_counts(patch: Patch) -> list[Integers]:
    """The exact counts, as far as a fault looks at them where only noisy ones may be seen."""
    held: list[Integers] = []
    own = question.measure_tables

    def measured(counts: Integers, *rest: Any) -> Any:
        held[:] = [counts]
        return own(counts, *rest)

    patch.setattr("dptrees.dpcore.tables.question.measure_tables", measured)
    return held


def groups_that_exact_counts_decide(patch: Patch) -> None:
    held = held_counts(patch)

    def groups(measured: Any, model: Any, noise: float) -> Any:
        shape, bases = measured.plan.shape, measured.base_groups

        def exact(column: int) -> Any:
            return shape.column_counts(held[0], column) + 1e-3

        return {
            (first, second): pair_groups(
                (bases[first], bases[second]),
                (exact(first), exact(second)),
                (shape.is_ordered(first), shape.is_ordered(second)),
                noise,
            )
            for first, second in shape.pairs
            if second not in model.graph.neighbors[first]
        }

    patch.setattr(question, "_groups", groups)


def a_design_that_the_exact_number_of_rows_decides(patch: Patch) -> None:
    held = held_counts(patch)

    def design(self: MarginalsPlan, first: Any) -> Any:
        rows = int(self.shape.column_counts(held[0], 0).sum())
        return self.designs[rows % len(self.designs)]

    patch.setattr(MarginalsPlan, "design", design)


def predictions_from_exact_counts(patch: Patch) -> None:
    """The rows are known exactly, so that the predicted tables move with them."""
    held = held_counts(patch)
    own = question.grouped_estimates

    def estimates(table: Any, *labels: Any) -> Any:
        return own(table * (held[0].sum() + 1) / (table.sum() + 1), *labels)

    patch.setattr(question, "grouped_estimates", estimates)


def rows_counted_twice_in_the_last_cell(patch: Patch) -> None:
    """A row in the last cell of the first column counts as two."""
    own = TableDomain.row_codes

    def codes(self: TableDomain, columns: Any) -> Any:
        found, kept = own(self, columns)
        number = len(found[0])
        twice = np.repeat(np.arange(number), np.where(found[0] == self.sizes[0] - 1, 2, 1))
        places = np.arange(number) if kept is None else kept
        return [each[twice] for each in found], places[twice]

    patch.setattr(TableDomain, "row_codes", codes)


# A fault, the measure, and a seed whose first plans show it: the audit itself looks at many more.
FAULTS: list[tuple[Callable[[Patch], None], str, int]] = [
    (noise_30_percent_too_small, "epsilon", 4),
    (noise_30_percent_too_small, "rho", 4),
    (choices_of_twice_the_rate, "epsilon", 12),
    (choices_of_twice_the_rate, "rho", 8),
    (every_choice_given_the_budget_of_all, "epsilon", 9),
    (every_choice_given_the_budget_of_all, "rho", 1),
    (both_rounds_given_the_budget_of_pairs, "epsilon", 9),
    (both_rounds_given_the_budget_of_pairs, "rho", 8),
    (budget_moved_to_columns_and_kept, "epsilon", 3),
    (budget_moved_to_columns_and_kept, "rho", 6),
    (the_narrowest_column_grows_too, "epsilon", 1),
    (the_narrowest_column_grows_too, "rho", 6),
    (every_pair_given_the_budget_of_a_round, "epsilon", 4),
    (every_pair_given_the_budget_of_a_round, "rho", 2),
    (a_unit_paid_as_one_row, "epsilon", 4),
    (a_unit_paid_as_one_row, "rho", 1),
    (distances_of_a_unit_paid_as_of_one_row, "epsilon", 11),
    (distances_of_a_unit_paid_as_of_one_row, "rho", 1),
    (groups_that_exact_counts_decide, "epsilon", 2),
    (groups_that_exact_counts_decide, "rho", 1),
    (a_design_that_the_exact_number_of_rows_decides, "epsilon", 12),
    (predictions_from_exact_counts, "epsilon", 1),
    (predictions_from_exact_counts, "rho", 4),
    (rows_counted_twice_in_the_last_cell, "epsilon", 9),
    (rows_counted_twice_in_the_last_cell, "rho", 7),
    (noise_that_does_not_hang_on_the_data, "epsilon", 1),
    (one_keystream_for_all_levels, "epsilon", 1),
    (one_row_too_many, "epsilon", 2),
    (one_row_too_many, "rho", 5),
    (bounded_in_each_batch, "epsilon", 1),
    (bounded_in_each_batch, "rho", 3),
]


@pytest.mark.parametrize(("fault", "measure", "seed"), FAULTS)
def test_planted_faults_are_found(
    monkeypatch: Patch, fault: Callable[[Patch], None], measure: str, seed: int
) -> None:
    """Faults of bounding among units of several rows."""
    fault(monkeypatch)
    units = OF_SEVERAL_ROWS if fault in (one_row_too_many, bounded_in_each_batch) else TABLE_UNITS
    assert is_found(lambda: audit_tables(measure, plans=3, pairs=PAIRS, seed=seed, units=units))


@pytest.mark.parametrize("seed", [1, 4, 9])
@pytest.mark.parametrize("measure", ["epsilon", "rho"])
def test_without_a_fault_nothing_is_found(measure: str, seed: int) -> None:
    """In plans that show the faults above."""
    assert audit_tables(measure, plans=3, pairs=PAIRS, seed=seed).keeps_the_claim


# --- means and numbers of different values -------------------------------------------------------

COLUMN_PLANS = 14


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
@pytest.mark.parametrize("kind", WORKLOADS)
def test_no_pair_of_columns_loses_more_than_is_claimed(kind: str, measure: str) -> None:
    found = audit_columns(kind, measure, plans=COLUMN_PLANS, pairs=PAIRS)
    assert found.pairs == COLUMN_PLANS * PAIRS
    assert found.ratio == 1 and not found.leaks


def half_the_sensitivity_of_means(patch: Patch) -> None:
    own = numbers.split_sensitivity

    def half(*arguments: Any, **named: Any) -> tuple[int, int]:
        one, two = own(*arguments, **named)
        return -(-one // 2), -(-two // 4)

    patch.setattr(numbers, "split_sensitivity", half)


def values_without_their_number(patch: Patch) -> None:
    """The noise of one value, however many of a unit count."""
    own = numbers.distinct_sensitivity
    patch.setattr(
        numbers,
        "distinct_sensitivity",
        lambda unit, values, *, keyed: own(unit, 1, keyed=keyed),
    )


def keys_that_a_unit_may_change_forgotten(patch: Patch) -> None:
    own = numbers.distinct_sensitivity
    patch.setattr(
        numbers,
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
        values[len(values) // 2 :] = self.row_parts
        return Increments(found.cells, values)

    patch.setattr(MeanQuestion, "regrouped", regrouped)


def noise_of_columns_30_percent_too_small(patch: Patch) -> None:
    own = numbers.noise_law

    def law(budget: Budget, *sensitivity: int) -> Any:
        return own(replace(budget, amount=budget.amount * 10 / 7), *sensitivity)

    patch.setattr(numbers, "noise_law", law)


def one_value_too_many(patch: Patch) -> None:
    wrong_bounds(
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


def a_hash_function_forgotten(patch: Patch) -> None:
    own = sketches.sketch_sensitivity
    patch.setattr(
        sketches,
        "sketch_sensitivity",
        lambda unit, rows, *, signed: own(unit, max(1, rows - 1), signed=signed),
    )


OF_BOTH = (noise_of_columns_30_percent_too_small, bounded_in_each_batch)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        *(("means", fault) for fault in (*OF_MEANS, *OF_BOTH, one_row_too_many)),
        *(("different values", fault) for fault in (*OF_VALUES, *OF_BOTH)),
        *(("sketches", fault) for fault in (a_hash_function_forgotten, *OF_BOTH)),
    ],
)
def test_planted_faults_of_columns_are_found(
    monkeypatch: Patch, kind: str, fault: Callable[[Patch], None]
) -> None:
    fault(monkeypatch)
    assert is_found(lambda: audit_columns(kind, "epsilon", plans=2 * COLUMN_PLANS, pairs=PAIRS))
