"""What a query makes of an answer: stated roundings, sums, keys side by side, orders, CSV."""

from __future__ import annotations

import csv
import io
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import ROWS, Change, Outcome, Workspace, assert_refused, update
from tests.pipelines.test_querying import query_json

KEYS = ("k1", "k2", "=k10")
ROADS = ("a/r2", "a/r10", "b/r1", "c10/r1", "c9/r1")


@pytest.fixture(scope="module")
def queried(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A release of weeks, of a calendar, of a hierarchy, of a sparse tree, and of keys."""
    made, rng = Workspace(tmp_path_factory.mktemp("asked")), np.random.default_rng(1)
    roads = [road.split("/") for road in rng.choice(ROADS, ROWS)]
    made.write_rows(
        x=pa.array(rng.normal(50, 20, ROWS)),
        place=pa.array(rng.choice(KEYS, ROWS)),
        day=pa.array(np.datetime64("2024-01-01") + rng.integers(0, 366, ROWS)),
        area=pa.array([area for area, _ in roads]),
        road=pa.array([road for _, road in roads]),
    )
    listed = [road.split("/") for road in ROADS]
    names = {"area": [area for area, _ in listed], "road": [road for _, road in listed]}
    pq.write_table(pa.table(names), made.folder / "roads.parquet")
    made.make(use_trees(made))
    return made


def use_trees(made: Workspace) -> Change:
    year = {"column": "day", "lower": date(2024, 1, 1)}
    weeks = year | {"upper": date(2024, 12, 30), "days_per_cell": 7}
    days = year | {"kind": "hierarchy", "calendar": ["month", "day"], "upper": date(2025, 1, 1)}
    roads = {"kind": "hierarchy", "columns": ["area", "road"]}
    numbers = {"column": "x", "lower": 0, "upper": 100, "cells": 16}
    trees = [
        {"name": "weeks", "domain": weeks},
        {"name": "days", "domain": days},
        {"name": "roads", "domain": roads | {"table": str(made.folder / "roads.parquet")}},
        {"name": "heavy", "domain": {"kind": "sparse", "columns": ["area", "road"]}},
        {"name": "keyed", "domain": numbers, "group_by": {"column": "place", "keys": list(KEYS)}},
    ]
    privacy = {"epsilon": 8, "delta": 1e-6, "neighbors": "add_remove"}
    return update(trees=trees, privacy=privacy)


def answers(made: Workspace, *question: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query_json(made, *question)["answers"]
    return found


def asked(made: Workspace, *question: object) -> Outcome:
    return made.run("query", made.output, *question)


# --- roundings ------------------------------------------------------------------------------------

ROUNDED = {
    "weeks": (("range", "2024-06-01", "2024-09-01"), "[2024-05-27, 2024-08-26)"),
    "below": (("cdf", "2024-06-01"), "[2024-01-01, 2024-05-27)"),
    "cut off": (("range", "2023-12-01", "2024-01-08"), "[2024-01-01, 2024-01-08)"),
    "noon": (("range", "2024-01-01T12:00", "2024-01-08"), "[2024-01-01, 2024-01-08)"),
}
EXACT = {
    "weeks": ("range", "2024-06-03", "2024-09-02"),
    "ends": ("range", "2024-01-01", "2024-12-30"),
    "below": ("cdf", "2024-06-03", "2024-12-30", "2024-01-01"),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_what_is_rounded_is_said_and_can_be_refused(queried: Workspace, name: str) -> None:
    (kind, *values), label = ROUNDED[name]
    (row,) = answers(queried, kind, *values, "--tree", "weeks")
    expected = f"[{values[0]}, {values[1]})" if kind == "range" else f"below {values[0]}"
    assert (row["asked"], row["answered"], row["label"]) == (expected, label, label)
    outcome = asked(queried, kind, *values, "--tree", "weeks")
    assert outcome.out.split()[:2] == ["requested", "answered"]
    assert expected in outcome.err and label in outcome.err and outcome.err.count("\n") == 1
    refused = asked(queried, kind, *values, "--tree", "weeks", "--exact")
    assert_refused(queried, refused, f"exact: requested {expected}", label)


@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_needs_no_word(queried: Workspace, name: str) -> None:
    question = (*EXACT[name], "--tree", "weeks", "--exact")
    assert asked(queried, *question).err == ""
    assert all(
        row["asked"] == row["answered"] == row["label"] for row in answers(queried, *question)
    )


def test_numbers_are_edges_or_not(queried: Workspace) -> None:
    for value, exact in (("25", True), ("26", False), ("100.5", False)):
        rows = answers(queried, "cdf", value, "--tree", "keyed", "--key", "k1")
        assert (rows[0]["asked"] == rows[0]["answered"]) == exact


# --- calendars ------------------------------------------------------------------------------------


def test_a_range_of_a_calendar_is_the_sum_of_its_days(queried: Workspace) -> None:
    (row,) = answers(queried, "range", "2024-01-30", "2024-04-02", "--tree", "days")
    days = [f"2024-{day}" for day in ("01-30", "01-31", "02", "03", "04-01")]
    (summed,) = answers(queried, "sum", "--tree", "days", "--paths", *days)
    assert row["label"] == "[2024-01-30, 2024-04-02)"
    for name in ("estimate", "std_error", "ci_low", "ci_high", "count"):
        assert row[name] == pytest.approx(summed[name], rel=1e-9)
    whole, before = answers(queried, "cdf", "2025-01-01", "2024-02", "--tree", "days")
    (root,) = answers(queried, "node", "--path", "", "--tree", "days")
    assert (whole["estimate"], whole["ci_high"]) == (root["estimate"], root["ci_high"])
    (january,) = answers(queried, "node", "--path", "2024-01", "--tree", "days")
    assert before["count"] == january["count"]


def test_a_moment_within_a_day_is_rounded_down(queried: Workspace) -> None:
    (row,) = answers(queried, "cdf", "2024-06-15T12:00", "--tree", "days")
    assert row["asked"] == "before 2024-06-15T12:00"
    assert row["answered"] == "[2024-01-01, 2024-06-15)"
    (row,) = answers(queried, "range", "2024-06-15", "2024-06-15", "--tree", "days")
    assert (row["label"], row["estimate"], row["count"]) == ("nothing", 0, 0)


# --- sums -----------------------------------------------------------------------------------------


def test_a_sum_of_nodes(queried: Workspace) -> None:
    paths = ("a/r2", "c10", "/c9/r1")
    (row,) = answers(queried, "sum", "--tree", "roads", "--paths", *paths)
    parts = [answers(queried, "node", "--tree", "roads", "--path", path)[0] for path in paths]
    assert row["label"] == "a/r2 + c10 + /c9/r1"
    assert row["count"] == sum(part["count"] for part in parts)
    assert row["estimate"] == pytest.approx(sum(part["estimate"] for part in parts))
    # What the levels above add makes the estimates of nodes apart not positively correlated.
    apart = np.sqrt(sum(part["std_error"] ** 2 for part in parts))
    assert 0 < row["std_error"] < apart * (1 + 1e-9)
    (root,) = answers(queried, "node", "--tree", "roads", "--path", "")
    (all_,) = answers(queried, "sum", "--tree", "roads", "--paths", *ROADS)
    assert all_["std_error"] == pytest.approx(root["std_error"], rel=1e-9)
    assert all_["estimate"] == pytest.approx(root["estimate"], rel=1e-9)


def test_paths_of_a_file(queried: Workspace) -> None:
    listed = queried.folder / "paths.txt"
    listed.write_text("a/r2\n\nb/r1\n")
    question = ("sum", "--tree", "heavy", "--paths-file", listed)
    paths = ("sum", "--tree", "heavy", "--paths")
    expected = answers(queried, *paths, "a/r2", "b/r1")
    assert answers(queried, *question) == answers(queried, *paths, f"@{listed}") == expected
    for option, name in (("--paths", "@none.txt"), ("--paths-file", "none.txt")):
        missing = asked(queried, "sum", "--tree", "heavy", option, name)
        assert_refused(queried, missing, f"{option} none.txt: cannot be read")


def test_a_sum_of_published_nodes(queried: Workspace) -> None:
    (row,) = answers(queried, "sum", "--tree", "heavy", "--paths", "a", "b/r1", "c9/r1")
    parts = [
        answers(queried, "node", "--tree", "heavy", "--path", p)[0] for p in ("a", "b/r1", "c9/r1")
    ]
    errors = [part["std_error"] for part in parts]
    assert row["std_error"] == pytest.approx(np.sqrt(np.square(errors).sum()))
    assert row["estimate"] == sum(part["estimate"] for part in parts)
    assert row["ci_low"] <= sum(part["ci_low"] for part in parts)
    assert row["ci_high"] >= sum(part["ci_high"] for part in parts)


def test_a_sum_of_cells(queried: Workspace) -> None:
    paths = ("2024-01-03", "[2024-01-08, 2024-01-22)", "[2024-03-04, 2024-04-01)")
    (row,) = answers(queried, "sum", "--tree", "weeks", "--paths", *paths)
    assert row["asked"] == " + ".join(paths)
    assert row["answered"].startswith("[2024-01-01, 2024-01-08) + [2024-01-08, ")
    (first,) = answers(queried, "range", "2024-01-01", "2024-01-22", "--tree", "weeks")
    (second,) = answers(queried, "range", "2024-03-04", "2024-04-01", "--tree", "weeks")
    assert row["count"] == first["count"] + second["count"]
    assert row["estimate"] == pytest.approx(first["estimate"] + second["estimate"])
    (alone,) = answers(queried, "sum", "--tree", "weeks", "--paths", *paths[:2])
    for name in ("estimate", "std_error", "ci_low", "count"):
        assert alone[name] == first[name]


REFUSED_SUMS = [
    ("roads", ("a", "a/r2"), "'a/r2' lies within 'a', so its rows would count twice"),
    ("roads", ("a", "b", "a"), "'a' is there twice"),
    ("roads", ("a", "/a"), "'a' and '/a' are the same"),
    ("roads", ("a", ""), "'a' lies within ''"),
    ("roads", ("a", "x"), "path 'x': the universe has no node of this path"),
    ("heavy", ("a", "a/r2"), "'a/r2' lies within 'a'"),
    ("heavy", ("a", "/a"), "'a' is there twice"),
    ("heavy", ("a", "x"), "path 'x': no node of this path was published"),
    ("weeks", ("[2024-01-01, 2024-01-15)", "2024-01-09"), "lies within"),
    ("weeks", ("[2024-01-01, 2024-01-15)", "[2024-01-08, 2024-02-05)"), "overlaps with"),
    ("weeks", ("2025-01-09",), "is not in [2024-01-01, 2024-12-30)"),
]


def test_sums_that_are_refused(queried: Workspace) -> None:
    for tree, paths, words in REFUSED_SUMS:
        outcome = asked(queried, "sum", "--tree", tree, "--paths", *paths)
        assert_refused(queried, outcome, words)


# --- keys, orders, CSV ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        ("cdf", "25", "50"),
        ("quantile", "0.5"),
        ("range", "25", "50"),
        ("node", "--level", "0", "--node", "0"),
        ("top", "-n", "2"),
        ("sum", "--paths", "[0, 25)", "[50, 75)"),
    ],
)
def test_all_keys_are_the_answers_of_each(queried: Workspace, question: tuple[str, ...]) -> None:
    rows = answers(queried, *question, "--tree", "keyed", "--key", "all")
    apart = [
        {"key": key} | row
        for key in KEYS
        for row in answers(queried, *question, "--tree", "keyed", "--key", key)
    ]
    assert rows == apart
    printed = asked(queried, *question, "--tree", "keyed", "--key", "all")
    assert printed.out.split()[0] == "key"


def test_all_keys_where_they_cannot_be(queried: Workspace) -> None:
    question = ("cdf", "25", "50", "--tree", "keyed", "--key", "all", "--wide")
    for form in ("--json", "--csv"):
        assert_refused(queried, asked(queried, *question, form), "--wide: goes with --key all")
    outcome = asked(queried, "cdf", "2024-01-08", "--tree=weeks", "--key", "all")
    assert_refused(queried, outcome, "key: tree weeks has no keys")


@pytest.mark.parametrize("tree", ["roads", "heavy"])
def test_children_and_the_largest_below_a_node(queried: Workspace, tree: str) -> None:
    _, *areas = answers(queried, "node", "--path", "", "--children", "--tree", tree)
    assert [row["label"] for row in areas] == ["a", "b", "c9", "c10"]
    _, *roads = answers(queried, "node", "--path", "/a", "--children", "--tree", tree)
    assert [row["label"] for row in roads] == ["a/r2", "a/r10"]
    by_count = ("--children", "--by", "count", "--tree", tree)
    _, *largest = answers(queried, "node", "--path", "", *by_count)
    assert largest == sorted(areas, key=lambda row: -row["count"])
    # The level below the path, also where there are more below it.
    assert answers(queried, "top", "--path", "", "--tree", tree) == largest
    below = answers(queried, "top", "--path", "a", "--tree", tree)
    assert below == sorted(roads, key=lambda row: -row["count"])
    assert answers(queried, "top", "--path", "a", "-n", "1", "--tree", tree) == below[:1]
    refused = asked(queried, "top", "--path=a/r2", "--level=1", "--tree", tree)
    assert_refused(queried, refused, "level: area is not below path 'a/r2'")


def test_days_stay_in_the_order_of_time(queried: Workspace) -> None:
    _, *days = answers(queried, "node", "--path", "2024-02", "--children", "--tree", "days")
    assert [row["label"] for row in days] == [f"2024-02-{day:02d}" for day in range(1, 30)]


def test_csv_is_safe_in_a_spreadsheet(queried: Workspace) -> None:
    question = ("quantile", "0.5", "--tree", "keyed", "--key", "all", "--csv")
    rows = list(csv.reader(io.StringIO(asked(queried, *question).out)))
    assert [row[0] for row in rows] == ["key", "k1", "k2", "'=k10"]
    both = asked(queried, *question, "--json")
    assert both.code == 2 and "not allowed with argument" in both.err
