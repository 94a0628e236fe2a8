"""The section of an ordered domain: bounds, defaults, categories without an order, labels."""

from __future__ import annotations

import json
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.pipelines.kinds.domains import ordered_schema, read_domain
from dptrees.pipelines.sections.document import ConfigurationError, RuleBroken
from tests.pipelines.conftest import FILES, ROWS, Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused


def test_values_name_the_first_and_the_last() -> None:
    stars = read_domain({"column": "stars", "values": [1, 5]})
    assert stars == read_domain({"column": "stars", "type": "integer", "lower": 1, "upper": 6})
    assert stars.cells == 5
    month = read_domain({"column": "day", "values": ["2013-02-01", date(2013, 2, 28)]})
    bounds = {"lower": date(2013, 2, 1), "upper": date(2013, 3, 1)}
    assert month == read_domain({"column": "day", **bounds})


def test_other_values_are_refused() -> None:
    days = [datetime(2013, 1, 1), datetime(2013, 1, 2)]
    rows: list[tuple[dict[str, Any], str]] = [
        ({"values": [1, 5], "upper": 5}, ".values: replaces lower and upper; leave upper out"),
        ({"values": [1, 2, 3]}, ".values: ...must be the first and the last value"),
        ({"values": 5}, ".values: ...must be the first and the last value"),
        ({"values": [0.5, 1]}, ".values: ...must be two integers or two dates"),
        ({"values": [1, 5], "type": "number"}, ".values: ...of type number say lower and upper"),
        ({"values": [True, 5]}, ".values: ...must be two integers or two dates"),
        ({"values": [1, date(2013, 1, 1)]}, ".values: ...must be two integers or two dates"),
        ({"values": days}, ".values: ...must be two integers or two"),
    ]
    assert not not_refused(lambda given: read_domain({"column": "x", **given}), rows, RuleBroken)


def test_values_go_with_the_schema() -> None:
    schema = Draft202012Validator(ordered_schema())
    assert schema.is_valid({"column": "stars", "type": "integer", "values": [1, 5]})
    assert schema.is_valid({"column": "stars", "type": "integer", "lower": 1, "upper": 6})
    both = {"column": "stars", "type": "integer", "values": [1, 5], "lower": 1, "upper": 6}
    assert not schema.is_valid(both)


def test_dates_and_times_outside_are_dropped_by_default() -> None:
    """The days of February are requested: the other eleven months are not the 28th."""
    days = {"column": "x", "lower": date(2013, 2, 1), "upper": date(2013, 3, 1)}
    assert read_domain(days).drops_rows and not read_domain(days).clamps
    assert read_domain(days | {"out_of_range": "clamp"}).clamps
    hours = {"column": "x", "lower": datetime(2013, 1, 1), "upper": datetime(2013, 1, 2)}
    assert not read_domain(hours | {"cells": 24}).clamps
    numbers = {"column": "x", "lower": 0, "upper": 8, "cells": 8}
    assert read_domain(numbers).clamps


# --- categories without an order ---


PLACES = ["east", "north", "south", "west", *(f"none {index}" for index in range(12))]
DOMAIN = {"column": "place", "categories": PLACES, "unknown": "drop"}


def nominal(settings: dict[str, Any]) -> None:
    settings["trees"] = [
        {"name": "places", "domain": dict(DOMAIN)},
        {"name": "ranks", "domain": DOMAIN | {"ordered": True}},
    ]


@pytest.mark.parametrize("privacy", [{"epsilon": 1}, {"rho": 0.5}], ids=["epsilon", "rho"])
def test_all_of_the_budget_goes_into_the_counts(
    workspace: Workspace, privacy: dict[str, Any]
) -> None:
    def change(settings: dict[str, Any]) -> None:
        nominal(settings)
        settings["trees"][1]["consistency"] = "top_down"
        settings["privacy"] = privacy | {"neighbors": "add_remove"}

    outcome = workspace.run("plan", workspace.configure(change), "--json")
    places, ranks = json.loads(outcome.out)["trees"]
    (measure,) = privacy
    assert [level[measure] for level in places["levels"]] == [0, privacy[measure] / 2]
    assert places["fanouts"] == [16] and len(ranks["levels"]) > 2
    assert set(places["predicted"]) == {"counts_rmse"} and "cdf_rmse" in ranks["predicted"]
    planned = places["candidates"][-1]
    assert all(
        planned["predicted"]["counts_rmse"] <= each["predicted"]["counts_rmse"]
        for each in places["candidates"]
    )


def test_a_specification_of_before_is_in_order() -> None:
    before = {"kind": "ordered", "type": "category", "map_version": 1, "column": "c"}
    before |= {"categories": ["a", "b"], "unknown": "drop", "missing": "drop"}
    domain = make_domain(before)
    assert domain.is_ordered and domain.spec() == before


def test_what_needs_an_order() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"objective": "cdf"}, "trees[0].objective: cdf needs categories in order; if the list"),
        ({"quantiles": [0.5]}, "trees[0].quantiles: needs categories in order"),
        ({"mechanism": "binary"}, "trees[0].mechanism: binary needs categories in order"),
        ({"estimation": "none"}, "trees[0].estimation: none needs categories in order"),
        ({"consistency": "l2"}, "trees[0].consistency: l2 needs categories in order"),
    ]

    def attempt(choice: dict[str, Any]) -> None:
        plan_of({"name": "places", "domain": DOMAIN} | choice)

    assert not not_refused(attempt, rows, ConfigurationError)


# --- labels ---


CODES = {"column": "sex", "categories": [0, 1]}
BY = {"column": "sex", "keys": [0, 1]}
NUMBERS = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
LABELS = [["women", "men"], {"0": "women", "1": "men"}]


def trees(labels: Any) -> list[dict[str, Any]]:
    return [
        {"name": "sex", "domain": CODES | {"labels": labels}},
        {"name": "x", "domain": NUMBERS, "group_by": BY | {"labels": labels, "unknown": "other"}},
        {
            "name": "mean",
            "domain": NUMBERS,
            "group_by": BY | {"labels": labels},
            "objective": "mean",
        },
    ]


@pytest.mark.parametrize("labels", LABELS)
def test_labels_are_in_answers_tables_and_the_page(workspace: Workspace, labels: Any) -> None:
    workspace.write_rows(sex=pa.array([0, 1, 1, 2] * (ROWS // 4)))
    change = {"trees": trees(labels), "privacy": {"epsilon": 60, "neighbors": "add_remove"}}
    workspace.make(lambda settings: settings.update(change))
    counts = workspace.run("query", workspace.output, "top", "--tree", "sex", "--json")
    found = {each["label"]: each["count"] for each in json.loads(counts.out)["answers"]}
    assert found == {"women": FILES * ROWS // 4, "men": FILES * ROWS // 2}
    for name, others in (("x", ["other"]), ("mean", [])):
        means = workspace.run(
            "query", workspace.output, "mean", "--tree", name, "--key", "all", "--json"
        )
        keys = [each["key"] for each in json.loads(means.out)["answers"]]
        assert keys == ["women", "men", *others]
    for key in ("men", "1"):
        assert (
            workspace.run("query", workspace.output, "median", "--tree", "x", "--key", key).code
            == 0
        )
    page = (workspace.output / "report.html").read_text()
    assert "women" in page and "men" in page
    assert workspace.run("verify", workspace.output).code == 0


def test_labels_that_are_refused() -> None:
    rules: list[tuple[Any, str]] = [
        (["women"], "labels: must be 2, one for each value, not 1"),
        (["a", "a"], "labels: hold 'a' more than once"),
        (["1", "0"], "labels: '1' is another value of the list"),
        ({"0": "women"}, "labels: has none of 1; each listed value needs one"),
        ({"0": "a", "1": "b", "2": "c"}, "labels: 2 is not listed; each listed value needs one"),
        ("women", "labels: 'women' must be a list"),
        (["women", " "], "labels[1]: must not be empty"),
        (["women", "m\nen"], "labels: 'm\\nen' must be a line of text"),
    ]
    rows: list[tuple[dict[str, Any], str]] = []
    for labels, rule in rules:
        by = {"domain": NUMBERS, "group_by": BY | {"labels": labels}}
        rows += [
            ({"domain": CODES | {"labels": labels}}, f"trees[0].domain.{rule}"),
            (by, f"trees[0].group_by.{rule}"),
        ]
    # Labels are of the listed values of a tree.
    columns = [CODES | {"labels": ["a", "b"]}, NUMBERS]
    private = {"column": "place", "keys": "private", "labels": ["a"]}
    rows += [
        ({"domain": NUMBERS | {"labels": ["a"]}}, "labels: "),
        ({"domain": {"kind": "hypercube", "columns": columns}}, "labels: "),
        ({"domain": {"kind": "table", "columns": columns}}, "labels: "),
        (
            {"domain": NUMBERS, "group_by": private},
            "trees[0].group_by.labels: goes with the listed keys of one column",
        ),
    ]
    privacy = {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}

    def attempt(tree: dict[str, Any]) -> None:
        plan_of({"name": "t"} | tree, **privacy)

    assert not not_refused(attempt, rows, ConfigurationError)
