"""The description of a plan: its three writers show the same values, and mechanisms share words."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.release.kinds import MECHANISMS as READERS
from dptrees.pipelines.show.description import (
    Column,
    Description,
    Errors,
    Noise,
    Table,
    Unit,
    level_noise,
    page_values,
    plan_entry,
    plan_lines,
    spent_columns,
    table_entries,
)
from dptrees.pipelines.show.mechanisms import MECHANISMS
from tests.dpcore.hierarchy_questions import hierarchy_question

BUDGET = Budget(measure=Measure.EPSILON, amount=Fraction(1))
LAW = DiscreteLaplace(scale=Fraction(2))
SPENT = spent_columns(
    (1, 1200),
    (Fraction(0), Fraction(1)),
    (level_noise(None, public=False), level_noise(LAW, public=False)),
    BUDGET,
    keyed=False,
)
SPLIT = Column("Split from, in rows", (7, None), Unit.COUNT, "split from {}", "split_from")
TABLE = Table(columns=(*SPENT, SPLIT), note="Levels differ.")
DESCRIPTION = Description(
    entry=lambda: {"levels": table_entries(TABLE), "error": 2.5},
    errors=lambda entry: Errors(heading="errors", rows=[("own", [entry["error"], None], "2^3")]),
    size="1,200 leaves",
    method=", measured",
    budget=BUDGET,
    table=TABLE,
    facts={"Planned for": "a guess"},
    domain_facts={"Leaves": "all of them"},
)


def test_json_has_numbers_and_what_a_level_lacks_is_left_out() -> None:
    entry = plan_entry(hierarchy_question("digits"), DESCRIPTION)
    scale = {"law": "discrete Laplace", "scale": "2"}
    assert entry["levels"] == [
        {"level": 0, "epsilon": 0.0, "scale": None, "split_from": 7},
        {"level": 1, "epsilon": 1.0, "scale": scale},
    ]


def test_the_terminal_shows_levels_facts_and_errors() -> None:
    question = hierarchy_question("digits")
    lines = list(plan_lines(question, DESCRIPTION, plan_entry(question, DESCRIPTION)))
    unmeasured = "not measured; estimated from the measured levels"
    assert lines == [
        "",
        f"{question.name}: 1,200 leaves, measured",
        f"  level 0:            1 nodes, epsilon 0.0000, {unmeasured}, split from 7",
        "  level 1:        1,200 nodes, epsilon 1.0000, std error 2.799",
        "  Levels differ.",
        "  planned for: a guess",
        "  errors:",
        f"    {'own':<26} {'2.5':>10} {'-':>10}   2^3",
    ]


def test_the_page_shows_them_too() -> None:
    values = page_values(hierarchy_question("digits"), DESCRIPTION, BUDGET)
    assert list(values["facts"]) == ["Leaves", "Planned for", "Budget", "Intervals"]
    levels = values["levels"]
    assert levels["titles"][-2:] == ["Noise, standard deviation", "Split from, in rows"]
    assert levels["rows"] == [
        ["0", "1", "none", "0", "not measured", "", "7"],
        ["1", "1,200", "all", "1", "discrete Laplace, scale 2", "2.799", ""],
    ]


def test_several_laws_are_shown_from_the_least_noise_to_the_most() -> None:
    noise = Noise(laws=(LAW, DiscreteLaplace(scale=Fraction(4))))
    table = Table(columns=(Column("Noise", [noise], Unit.DEVIATION, "std error {}"),))
    description = Description(entry=dict, table=table)
    question = hierarchy_question("digits")
    lines = list(plan_lines(question, description, {}))
    assert lines[-1] == "  level 0: std error 2.799 to 5.642"


@pytest.mark.parametrize("domain", READERS)
def test_every_mechanism_of_dpcore_is_described(domain: str) -> None:
    assert {imported().__name__ for imported in READERS[domain].values()} <= set(MECHANISMS)
