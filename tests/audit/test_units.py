"""The white-box audit between tables that differ in one privacy unit of many rows, worst placed.

Rows pass through bounding and the questions' own maps, and all noise is recorded where it is added;
see benchmarks/audit/units.py. The planted faults concern bounding and noise that is made
for less than a unit. Nothing here is left to chance: plans and tables are drawn under fixed seeds,
and losses under epsilon and rho are compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.audit.exact import KINDS_OF_UNITS, MEASURES, Finding, audit_units
from benchmarks.audit.trees import UNITS
from benchmarks.audit.units import audit_sparse_units, audit_threshold_units
from dptrees.dpcore.bounding import row_choice
from dptrees.dpcore.bounding.row_choice import RowChoice
from dptrees.dpcore.bounding.unit_ids import UnitIds, Units
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.sparse import plan as sparse_plan
from tests.audit.faults import (
    Patch,
    bounded_in_each_batch,
    half_the_noise,
    is_found,
    one_row_too_many,
    wrong_bounds,
)

ORDERED, COUNTS, SUMS = "ordered trees, planned", "hierarchies", "hierarchies, sums"
SEVERAL, BOXES = "several trees", "boxes, exact counts"
SINGLE = [kind for kind in KINDS_OF_UNITS if "several" not in kind]
TIGHT = {"epsilon", "rho"}
PAIRS, SEED = 5, 1


def plan_count(kind: str, measure: str) -> int:
    """Number of random plans of a kind to check: plans of several trees take longer, and so
    does the composition under (epsilon, delta); the worst units are rarer in ordered trees."""
    if "several" in kind:
        return 2 if measure in TIGHT else 1
    if measure not in TIGHT:
        return 2
    return 8 if "ordered" in kind else 5


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("kind", KINDS_OF_UNITS)
def test_no_unit_loses_more_than_is_claimed(kind: str, measure: str) -> None:
    plans = plan_count(kind, measure)
    found = audit_units(kind, measure, plans=plans, pairs=PAIRS, seed=SEED)
    assert found.pairs == plans * PAIRS
    assert found.ratio <= 1 and not found.leaks
    # The worst unit meets the claim: one row of it more would break it.
    assert found.ratio == 1 if measure in TIGHT and kind in SINGLE else found.ratio > 0.4


# Laws of larger units have more outcomes to enumerate.
SMALL = [unit for unit in UNITS if unit.rows <= 4]


def sparse() -> Finding:
    """Audit sparse trees by the exact law of what is published."""
    return audit_sparse_units(plans=6, pairs=3, seed=SEED, units=SMALL)


def searches() -> Finding:
    """Audit threshold searches that count a unit once, by the exact law of the release."""
    return audit_threshold_units(plans=8, pairs=3, seed=SEED)


@pytest.mark.parametrize("run", [sparse, searches])
def test_no_unit_loses_more_than_its_epsilon_and_delta(run: Callable[[], Finding]) -> None:
    found = run()
    assert 0.4 < found.ratio <= 1 + 1e-9 and not found.leaks


# --- planted faults -------------------------------------------------------------------------------


def one_key_too_many(patch: Patch) -> None:
    wrong_bounds(patch, keys=lambda own: None if own.keys is None else own.keys + 1)


def one_row_too_many_under_a_key(patch: Patch) -> None:
    wrong_bounds(patch, rows_per_key=lambda own: own.rows_per_key and own.rows_per_key + 1)


def rows_under_a_key_not_bounded(patch: Patch) -> None:
    wrong_bounds(patch, rows_per_key=lambda own: None)


def keys_not_bounded(patch: Patch) -> None:
    wrong_bounds(patch, keys=lambda own: None)


def noise_made_for_a_row(patch: Patch) -> None:
    patch.setattr(PrivacyUnit, "heaviest", lambda self, keyed: (1, 1, 0))


def noise_made_for_a_key(patch: Patch) -> None:
    """Plant a fault: calibrate the noise as if a unit had rows under one key only."""
    own = PrivacyUnit.heaviest
    patch.setattr(PrivacyUnit, "heaviest", lambda self, keyed: (1, own(self, keyed=keyed)[1], 0))


def a_rest_forgotten(patch: Patch) -> None:
    """The rows of a unit that do not fill a node."""
    own = PrivacyUnit.heaviest
    patch.setattr(PrivacyUnit, "heaviest", lambda self, keyed: (*own(self, keyed=keyed)[:2], 0))


def a_unit_in_two_shards(patch: Patch) -> None:
    """Each keeps as many rows of it as there may be in all."""

    def by_place(ids: Any, shards: int) -> Any:
        return (np.arange(len(ids)) % 2).astype(np.uint16)

    patch.setattr(row_choice, "shard_numbers", by_place)


def rows_chosen_by_what_others_have(patch: Patch) -> None:
    """Which rows of a unit stay depends on how many those have that it shares a shard with."""
    own = RowChoice._hashes
    patch.setattr(row_choice, "shard_numbers", lambda ids, _: np.zeros(len(ids), np.uint16))

    def hashes(self: RowChoice, runs: Any, over: Any, run: Any, occurrence: Any) -> Any:
        found = own(self, runs, over, run, occurrence)
        return found[::-1] if runs.counts.sum() % 2 else found

    patch.setattr(RowChoice, "_hashes", hashes)


def every_row_a_unit_of_its_own(patch: Patch) -> None:
    own = UnitIds.row_ids

    def of(self: UnitIds, columns: Any) -> Units:
        ids, _ = own(self, columns)
        return ids, np.ones(len(ids), np.bool_)

    patch.setattr(UnitIds, "row_ids", of)


FAULTS: list[tuple[Callable[[Patch], None], str, str]] = [
    *((one_row_too_many, kind, "rho") for kind in SINGLE),
    *((one_row_too_many, kind, "epsilon") for kind in (ORDERED, COUNTS, BOXES)),
    *((noise_made_for_a_row, kind, "epsilon") for kind in KINDS_OF_UNITS),
    *((one_key_too_many, kind, "epsilon") for kind in (ORDERED, COUNTS, SUMS)),
    *((one_key_too_many, kind, "rho") for kind in (COUNTS, SUMS)),
    *((one_row_too_many_under_a_key, kind, "rho") for kind in (ORDERED, COUNTS, SUMS)),
    *((rows_under_a_key_not_bounded, kind, "rho") for kind in (ORDERED, COUNTS, SUMS)),
    (keys_not_bounded, SEVERAL, "epsilon"),
    (noise_made_for_a_row, SUMS, "rho"),
    (noise_made_for_a_row, ORDERED, "rho"),
    (noise_made_for_a_key, ORDERED, "epsilon"),
    (noise_made_for_a_key, COUNTS, "rho"),
    (a_rest_forgotten, ORDERED, "epsilon"),
    (a_rest_forgotten, COUNTS, "rho"),
    (a_unit_in_two_shards, ORDERED, "epsilon"),
    (bounded_in_each_batch, ORDERED, "epsilon"),
    (bounded_in_each_batch, BOXES, "rho"),
    (rows_chosen_by_what_others_have, COUNTS, "epsilon"),
    (every_row_a_unit_of_its_own, ORDERED, "epsilon"),
    (half_the_noise, SUMS, "epsilon"),
]
OF_KEYS = (
    one_key_too_many,
    one_row_too_many_under_a_key,
    rows_under_a_key_not_bounded,
    keys_not_bounded,
    noise_made_for_a_key,
    a_rest_forgotten,
)


@pytest.mark.parametrize(("fault", "kind", "measure"), FAULTS)
def test_planted_faults_are_found(
    monkeypatch: Patch, fault: Callable[[Patch], None], kind: str, measure: str
) -> None:
    """Bounds of keys among units that have them."""
    fault(monkeypatch)
    units = [unit for unit in UNITS if unit.rows_per_key] if fault in OF_KEYS else UNITS
    assert is_found(
        lambda: audit_units(kind, measure, plans=28, pairs=PAIRS, seed=SEED, units=units)
    )


def noise_of_a_sparse_tree_made_for_a_row(patch: Patch) -> None:
    own = sparse_plan.truncated_laplace
    patch.setattr(sparse_plan, "truncated_laplace", lambda *budget, **_: own(*budget))


@pytest.mark.parametrize(
    ("fault", "run"),
    [
        (one_row_too_many, sparse),
        (noise_of_a_sparse_tree_made_for_a_row, sparse),
        (a_unit_in_two_shards, sparse),
        (one_row_too_many, searches),
        (every_row_a_unit_of_its_own, searches),
    ],
)
def test_planted_faults_of_sparse_trees_and_searches_are_found(
    monkeypatch: Patch, fault: Callable[[Patch], None], run: Callable[[], Finding]
) -> None:
    fault(monkeypatch)
    assert is_found(run)
