"""Requests build the configuration that a person would write, and one release of it."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import dptrees
from tests.pipelines.refusals import not_refused

ROWS = 6_000
HOURS = np.random.default_rng(1).integers(0, 81, ROWS)
SEX = np.where(np.arange(ROWS) % 3 == 0, "f", "m")
TABLE = pa.table({"hours": HOURS, "sex": SEX, "person": np.arange(ROWS) // 2})
BY = {"column": "sex", "keys": ["f", "m"]}
DAYS = (datetime.date(2024, 1, 1), datetime.date(2024, 12, 31))


def begun(**more: Any) -> Any:
    return dptrees.of(TABLE, **{"epsilon": 1, **more})


HOURS_IN_CELLS = {"column": "hours", "values": [0, 80]}
HOURS_IN_BOUNDS = {"column": "hours", "lower": 0, "upper": 80}
CITIES = {"columns": ["sex", "city"], "keys": {"sex": ["f"], "city": ["x"]}}
NAMED = {0: "women", 1: "men"}
LABELS = {"labels": ["women", "men"]}
QUANTILES = {"quantiles": [0.1], "objective": "quantiles", "weight": 2}
QUESTIONS = [
    (begun().cdf("hours", (0, 80)), {"name": "hours", "domain": HOURS_IN_CELLS}),
    (
        begun().cdf("pay", (0.0, 9.5)),
        {"name": "pay", "domain": {"column": "pay", "lower": 0.0, "upper": 9.5, "cells": 1024}},
    ),
    (
        begun().cdf("day", DAYS, name="days"),
        {"name": "days", "domain": {"column": "day", "values": list(DAYS)}},
    ),
    (
        begun().by("sex", ["f", "m"]).mean("hours", (0, 80)),
        {"name": "hours", "domain": HOURS_IN_BOUNDS, "group_by": BY, "objective": "mean"},
    ),
    (
        begun().quantiles("hours a week", [0.1], (0, 80), weight=2),
        {"name": "hours_a_week", "domain": HOURS_IN_CELLS | {"column": "hours a week"}} | QUANTILES,
    ),
    (
        begun().median("hours", (0, 80), optimize_for="quantiles", weight=2),
        {"name": "hours", "domain": HOURS_IN_CELLS, "optimize_for": "quantiles"}
        | QUANTILES
        | {"quantiles": [0.5]},
    ),
    (
        begun().by("sex", ["f", "m"]).count(),
        {"name": "sex", "domain": {"column": "sex", "categories": ["f", "m"]}},
    ),
    (
        begun().by(["sex", "city"], CITIES["keys"]).distinct("person"),
        {"name": "person", "domain": {"column": "person", "kind": "distinct"}, "group_by": CITIES},
    ),
    (
        begun().by("sex", NAMED).count(),
        {"name": "sex", "domain": {"column": "sex", "categories": [0, 1]} | LABELS},
    ),
    (
        begun().by("sex", NAMED).mean("hours", (0, 80)),
        {"name": "hours", "domain": HOURS_IN_BOUNDS, "objective": "mean"}
        | {"group_by": {"column": "sex", "keys": [0, 1]} | LABELS},
    ),
    (
        begun(delta=1e-8).by("sex", ["f"]).by().most_frequent("city"),
        {"name": "city", "domain": {"column": "city", "kind": "sparse"}},
    ),
    (
        begun().metrics("hours", ["mean", "p90"], (0, 80)),
        {"name": "hours", "domain": HOURS_IN_CELLS, "metrics": ["mean", "p90"]},
    ),
]


def test_a_question_is_a_tree() -> None:
    for request, tree in QUESTIONS:
        assert request.config["trees"] == [tree]
        assert len(request.plan().entries["trees"]) == 1
        assert yaml.safe_load(str(request)) == yaml.safe_load(yaml.safe_dump(request.config))


def test_questions_share_one_release() -> None:
    request = (
        begun(epsilon=400)
        .by("sex", ["f", "m"])
        .mean("hours", (0, 80))
        .count()
        .median("hours", (0, 80))
        .by()
        .distinct("person")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = request.release()
    assert list(release) == ["hours", "sex", "hours_quantiles", "person"]
    assert release.guarantee == "epsilon = 400 per row, neighbors add_remove"
    means = release["hours"].mean().to_dicts()
    true = [HOURS[key == SEX].mean() for key in ("f", "m")]
    assert [each["value"] for each in means] == pytest.approx(true, abs=0.01)
    assert [each["count"] for each in release["sex"].top().to_dicts()] == [4_000, 2_000]
    middle = release["hours_quantiles"].quantiles().to_dicts()
    assert [each["value"] for each in middle] == [
        np.quantile(HOURS[key == SEX], 0.5, method="inverted_cdf") for key in ("f", "m")
    ]
    assert release["person"].top().to_dicts()[0]["count"] == ROWS // 2


def test_a_plan_says_what_would_be_closer() -> None:
    request = begun().median("hours", (0, 80))
    closer = "optimize_for: quantiles would be closer: with about "
    assert closer in request.plan().text
    alone = begun().median("hours", (0, 80), optimize_for="quantiles").plan()
    assert alone.entries["trees"][0]["mechanism"] == "exponential" and closer not in alone.text
    with pytest.raises(dptrees.Error, match="optimize_for: 'speed' must be counts"):
        begun().median("hours", (0, 80), optimize_for="speed").plan()


def test_people_are_protected_where_a_unit_says_so() -> None:
    request = begun(unit="person", max_rows=1).count("sex", ["f", "m"])
    assert "per person (at most 1 row of each)" in request.plan().guarantee


def test_a_request_is_not_changed_by_its_questions() -> None:
    first = begun().mean("hours", (0, 80))
    first.count("sex", ["f", "m"])
    assert len(first.trees) == 1
    assert repr(begun()) == "<Request without queries>"
    assert repr(first).startswith("<Request, nothing spent:\nprivacy: {")


def test_a_session_pays_for_it() -> None:
    session = dptrees.Session(epsilon=1.5)
    request = begun().count("sex", ["f", "m"])
    request.release(session=session)
    assert session.left == 0.5
    with pytest.raises(dptrees.Error, match="more than what is left of the session"):
        request.release(session=session)
    with pytest.raises(dptrees.Error, match="output: a session makes releases in memory"):
        request.release(session=session, output="out")


def test_a_check_of_the_rows() -> None:
    assert begun().count("sex", ["f"]).check().rows == ROWS


MISTAKES: list[tuple[Callable[[], object], str]] = [
    (lambda: begun().config, ": nothing is requested yet"),
    (lambda: begun().by("sex"), ": by: list the groups of sex as keys="),
    (lambda: begun().count("sex"), ": count: list the values of sex"),
    (lambda: begun().count(), ": count: give a column and its values, or groups"),
    (lambda: begun().by("sex", "private").count(), ": count: give a column and its values"),
    (lambda: begun().count("sex", "male"), ": count: values must be a list, as ['male']"),
    (lambda: begun().by("sex", "male"), ": by: keys must be a list"),
    (lambda: begun().cdf("hours", 80), ": bounds: must be the first and the last value"),
    (lambda: begun().mean("hours", (0, 1, 2)), ": bounds: must be the first and the last"),
    (lambda: begun().cdf("day", DAYS, cells=8), ": cells: dates have a cell each"),
    (lambda: begun().by("sex", ["f"]).most_frequent("c"), ": most_frequent: goes without"),
    (
        lambda: begun().cdf("hours", (0, 80)).mean("hours", (0, 80), name="hours"),
        ": name: there is a query called 'hours' already",
    ),
    (lambda: dptrees.of(TABLE).count("sex", ["f"]).plan(), "exactly one of epsilon and rho"),
]


def test_mistakes_have_one_sentence() -> None:
    assert not not_refused(lambda wrong: wrong(), MISTAKES, dptrees.Error)


LARGE = pa.table({"count": pa.array([1, 10**7]), "pay": pa.array([1.5, 1e7])})


def test_a_cell_for_each_of_many_whole_numbers_is_written_out() -> None:
    large = dptrees.of(LARGE, epsilon=1)
    for request in (
        large.cdf("count", (0, 10**9)),
        large.quantiles("count", [0.5], (0, 10**7)),
        large.metrics("count", ["mean", "median"], (0, 10**7)),
        large.cdf("pay", (0, 10**7)),
    ):
        with pytest.raises(dptrees.Error, match=r"domain\.cells: is required"):
            dptrees.check(LARGE, request.config)
    for request in (
        large.cdf("count", (0, 10**9), cells=100),
        large.cdf("pay", (0, 10**7), cells=100),
        large.cdf("count", (1, 10**6)),
        large.mean("count", (0, 10**9)),
        large.metrics("pay", ["mean", "count"], (0, 10**9)),
    ):
        dptrees.check(LARGE, request.config)


def test_the_share_of_a_category_has_an_interval() -> None:
    release = begun(epsilon=9).count("sex", ["f", "m"]).release()
    share = release["sex"].share("f").to_dicts()[0]
    assert share["value"] == pytest.approx(1 / 3, abs=1e-2)
    assert share["ci_low"] <= share["value"] <= share["ci_high"]
    for bounds in ((), ("f", "m"), ("x",)):
        with pytest.raises(dptrees.Error, match=r"share: (name one category|column 'sex')"):
            release["sex"].share(*bounds)
