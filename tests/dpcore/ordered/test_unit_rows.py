"""How many rows privacy units have: units counted, each once, however many rows they have."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.ordered.steps import UnitRowsDomain
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    Budget,
    Measure,
    Neighbors,
    NullUnits,
    PrivacyUnit,
)
from dptrees.dpcore.release.composition import Guarantee, TreeRefused, plan_release
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import release_rows
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.specification import Refusal

KEY = ReleaseKey(bytes(range(32)))
MOST = 12


def make_plan(
    *, nulls: NullUnits = NullUnits.DROP, epsilon: Fraction = Fraction(10**9), **choices: Any
) -> ReleasePlan:
    """A plan whose noise is 0 but for a probability of e^-100000."""
    unit = PrivacyUnit(
        neighbors=Neighbors.ADD_REMOVE,
        columns=("person",),
        rows=choices.pop("rows", 2),
        nulls=nulls,
    )
    domain = UnitRowsDomain(column="person", most=MOST)
    return plan_release(
        "people",
        Guarantee(unit=unit, budget=Budget(measure=Measure.EPSILON, amount=epsilon)),
        [OrderedWorkload(name="rows", domain=domain, **choices)],
    )


def released_counts(plan: ReleasePlan, people: list[str | None], batches: int = 3) -> list[int]:
    """The units with 1, 2, ..., MOST rows or more, as released."""
    table = pa.table({"person": pa.array(people, pa.string())})
    parts = table.to_batches(max_chunksize=max(1, len(people) // batches))
    tree = release_rows(plan, parts, KEY).tree("rows")
    return [tree.range(rows, rows + 1).count for rows in range(1, MOST + 1)]


def draw_people(rng: np.random.Generator, units: int) -> list[str]:
    sizes = rng.integers(1, 3 * MOST, units)
    people = [f"p{unit}" for unit, size in enumerate(sizes) for _ in range(size)]
    return [people[place] for place in rng.permutation(len(people))]


def test_units_are_counted_by_all_their_rows_whatever_the_bound_of_other_trees() -> None:
    people = draw_people(np.random.default_rng(1), 40)
    sizes = Counter(min(size, MOST) for size in Counter(people).values())
    expected = [sizes[rows] for rows in range(1, MOST + 1)]
    for rows in (1, 2, 50):
        assert released_counts(make_plan(rows=rows), people) == expected
    assert released_counts(make_plan(), people[::-1], batches=7) == expected


def test_rows_without_a_unit_are_left_out_or_units_of_one_row() -> None:
    people = [None, "a", None, "a", "b", None]
    assert released_counts(make_plan(), people)[:3] == [1, 1, 0]
    assert released_counts(make_plan(nulls=NullUnits.OWN), people)[:3] == [4, 1, 0]


def test_a_heavy_unit_moves_one_count_by_one() -> None:
    people = draw_people(np.random.default_rng(2), 20)
    plan = make_plan()
    before, after = (
        released_counts(plan, people),
        released_counts(plan, people + ["heavy"] * 10_000),
    )
    assert np.abs(np.subtract(after, before)).sum() == 1
    tree = plan.questions[0]
    assert level_sensitivity(tree.unit, single_node=False) == (1, 1)
    assert plan.unit.rows == 2 and tree.unit.rows == 1 and plan.unit.holds(tree.unit)


def test_specifications_come_back() -> None:
    plan = make_plan(epsilon=Fraction(1))
    assert plan_from_spec(plan.spec()) == plan
    domain = UnitRowsDomain(column="person", most=MOST)
    assert make_domain(domain.spec()) == domain
    assert domain.labels(0, 2).to_pylist() == ["1", "2"]
    assert (domain.find_cell(3), domain.find_boundary("3"), domain.find_boundary(99)) == (
        2,
        2,
        MOST,
    )


def test_what_is_no_unit_is_refused() -> None:
    with pytest.raises(TreeRefused, match="goes with no by"):
        make_plan(keys=KeyList(column="sex", keys=("f", "m")))
    workload = OrderedWorkload(name="rows", domain=UnitRowsDomain(column="person", most=MOST))
    for unit in (
        ADD_REMOVE_ROW,
        PrivacyUnit(neighbors=Neighbors.SUBSTITUTE, columns=("home",), rows=3),
    ):
        with pytest.raises(TreeRefused, match="person is no column of the privacy unit"):
            plan_release(
                "people",
                Guarantee(unit=unit, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))),
                [workload],
            )
    for most in (1, True, 2**21):
        with pytest.raises(Refusal, match="most"):
            UnitRowsDomain(column="person", most=most)
