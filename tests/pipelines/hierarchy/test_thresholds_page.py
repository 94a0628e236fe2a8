"""The report of hierarchies by thresholds: true to the tables, clear on what an estimate means."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.relative_errors import RelativeObjective
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.pipelines.report.report import check_chosen_paths, write_report_html
from dptrees.pipelines.show.irregular import (
    LOWEST_SHOWN,
    irregular_level_errors,
    threshold_description,
)
from tests.dpcore.hierarchy_questions import hierarchy_question, make_release_plan
from tests.dpcore.mechanisms import changed
from tests.dpcore.threshold_questions import (
    make_stated_plan,
    threshold_question,
    whole_plan,
)
from tests.pipelines.node_pages import page_words
from tests.pipelines.report_page import ReleaseTables, parse_elements

WHOLE = threshold_question("paths", plan=whole_plan())


def make_tables(plan: ReleasePlan) -> ReleaseTables:
    counts = {
        each.name: 90 * np.arange(each.key_count * each.domain.cells) for each in plan.questions
    }
    return ReleaseTables(release_counts(plan, counts, ReleaseKey(bytes(32))))


def make_page(*questions: Question) -> str:
    return write_report_html(make_tables(make_stated_plan(*questions)))


@pytest.fixture(scope="module")
def whole_page() -> str:
    """The page of the whole plan, which has many rounds."""
    return make_page(WHOLE)


@pytest.mark.parametrize("form", ["digits", "columns", "paths"])
def test_nodes_are_the_released_rows(form: str) -> None:
    keys = ("white", "black") if form == "columns" else ()
    question = threshold_question(form, keys=keys)
    tables = make_tables(make_stated_plan(question))
    (tree,) = parse_elements(write_report_html(tables)).data["trees"]
    assert tree["kind"] == "hierarchy"
    rows = tables.rows(NODES, question.name).to_pylist()
    for place, key in enumerate(tree["keys"]):
        for level, columns in enumerate(key["levels"]):
            own = [
                row for row in rows if row["level"] == level and row["key"] in (None, key["name"])
            ]
            assert columns["count"] == [row["count"] for row in own]
            assert "exact" not in columns
            shown = zip(columns["estimate"], columns["low"], columns["high"], strict=True)
            for (estimate, low, high), row in zip(shown, own, strict=True):
                assert estimate == pytest.approx(row["estimate"], abs=0.5)
                assert low == row["ci_low"]
                assert high == (None if np.isinf(row["ci_high"]) else row["ci_high"])
        assert place < 2


def test_the_lowest_estimates_and_the_highest_are_listed(whole_page: str) -> None:
    table = threshold_description(WHOLE).table
    _, low, high = (column.values for column in table.columns)
    rounds = len(WHOLE.plan.thresholds.rounds)
    assert table.rows == [
        "no round",
        *(f"round {number}" for number in range(1, LOWEST_SHOWN)),
        f"round {rounds}",
    ]
    assert high[-1] == np.inf and low[1] == WHOLE.plan.thresholds.rounds[0].floor
    assert high[0] == WHOLE.widths.high[0]
    assert "any number" in page_words(whole_page)
    cells = re.findall(r"<tr><th scope=.row.>((?:no )?round.*?)</td></tr>", whole_page)
    assert len(cells) == LOWEST_SHOWN + 1
    assert f"{rounds - LOWEST_SHOWN} between the last two are left out." in page_words(whole_page)
    short = threshold_question("paths")
    assert len(threshold_description(short).table) == min(
        LOWEST_SHOWN + 1, len(short.plan.thresholds.rounds) + 1
    )


def test_a_declared_bound_of_the_rows_is_reported() -> None:
    own = changed(WHOLE, plan=replace(WHOLE.plan, rows_at_most=12_345))
    assert "at most 12,345, as declared beforehand" in page_words(make_page(own))


def test_requested_paths_are_on_the_page() -> None:
    tables = make_tables(make_stated_plan(WHOLE))
    check_chosen_paths(tables, WHOLE, ["usr/bin"])
    data = parse_elements(write_report_html(tables, {WHOLE.name: ["usr/bin"]})).data["trees"][0]
    assert data["asked"] == ["usr/bin"]
    with pytest.raises(ValueError, match="has no node of this path"):
        check_chosen_paths(tables, WHOLE, ["usr/nothing"])


def test_beside_trees_that_share_a_rho() -> None:
    own = threshold_question("digits")
    rho = Budget(measure=Measure.RHO, amount=Fraction(1, 100))
    shared = hierarchy_question("bushy", name="shared", budget=rho, estimation="none")
    epsilon, delta = own.spending.own
    plan = ReleasePlan(
        name="both",
        unit=own.unit,
        budget=rho,
        questions=(own, shared),
        stated=(epsilon + 2, delta + Fraction(1, 10**6)),
    )
    page = write_report_html(make_tables(plan))
    text = page_words(page)
    assert "the sum of the budgets of trees with their own budget" in text
    assert "Budget (rho)" in text
    assert "k squared times rho" not in text
    assert (
        "It may not be centered on the estimate, and a consistent count may be outside it." in text
    )
    assert [tree["kind"] for tree in parse_elements(page).data["trees"]] == ["hierarchy"] * 2


# --- hierarchies read as they were measured, and planned for relative errors ---


def page_of_hierarchy(**fields: Any) -> str:
    question = hierarchy_question("digits", **fields)
    return write_report_html(make_tables(make_release_plan(question)))


def test_no_estimation_is_reported_with_the_errors_of_measurements() -> None:
    text = page_words(page_of_hierarchy(estimation="none"))
    sentence = "none: an estimate is the node's own noisy count"
    assert sentence in text
    question = hierarchy_question("digits", estimation="none")
    laws = [question.plan.law(level, 0) for level in range(4)]
    largest = [law.variance**0.5 for law in laws if law is not None]
    assert irregular_level_errors(question) == pytest.approx(largest)
    assert max(irregular_level_errors(hierarchy_question("digits"))) < max(largest)
    assert sentence not in page_words(page_of_hierarchy())


def test_the_predicted_error_of_a_relative_objective_is_reported() -> None:
    objective = RelativeObjective(metric="rel_kappa", kappa=10.0)
    text = page_words(page_of_hierarchy(objective=objective))
    error = hierarchy_question("digits", objective=objective).mechanism.predicted_error
    assert f"Predicted error{error:,.4g} part of the count" in text
    assert f"Planned for{objective.reads}" in text
    assert "Predicted error" not in page_words(page_of_hierarchy())
