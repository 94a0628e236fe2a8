"""What a released box answers: exact where noise is nothing, with an interval where a part is cut,
and a sentence for what it cannot answer."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.pipelines.conftest import NONCE, Workspace
from tests.pipelines.hypercube.conftest import (
    AGE,
    KIND,
    ROWS,
    box,
    rows,
    write_inputs,
)


def answers(workspace: Workspace, *arguments: object) -> list[dict[str, Any]]:
    """The answers of `dptrees query`."""
    kind, *rest = arguments
    outcome = workspace.succeed("query", workspace.output, kind, *rest, "--json")
    found: list[dict[str, Any]] = json.loads(outcome.out)["answers"]
    return found


def counted(**inside: tuple[Any, Any]) -> int:
    """The rows whose columns are from one value to, and without, another; None is open."""
    kept = rows()
    for name, (lower, upper) in inside.items():
        if lower is not None:
            kept = kept.filter(pc.greater_equal(kept[name], pa.scalar(lower)))
        if upper is not None:
            kept = kept.filter(pc.less(kept[name], pa.scalar(upper)))
    return len(kept)


BOXES: list[tuple[list[str], dict[str, tuple[Any, Any]]]] = [
    (["day", "2020-03-01", "2020-03-20"], {"day": (date(2020, 3, 1), date(2020, 3, 20))}),
    (["age", "", "33"], {"age": (None, 33)}),
    (["kind", "beta", "gamma"], {"kind": ("beta", "gamma")}),
    (["kind", "gamma", ""], {"kind": ("gamma", None)}),
    (
        ["at", "2024-03-02T05:00:00", "2024-03-04"],
        {"at": (datetime(2024, 3, 2, 5), datetime(2024, 3, 4))},
    ),
    (["age", "-5", "500"], {}),
    (["age", "10", "10"], {"age": (10, 10)}),
]


def test_a_box_of_a_column_holds_its_rows(boxes: Workspace) -> None:
    for side, inside in BOXES:
        (found,) = answers(boxes, "box", "--tree", "four", "--side", *side)
        true = counted(**inside)
        assert found["count"] == true, side
        assert found["ci_low"] <= true + 1e-6 and true - 1e-6 <= found["ci_high"]
        assert found["fraction"] == pytest.approx(true / ROWS)


def test_a_side_that_is_cut_off_or_rounded_is_said(boxes: Workspace) -> None:
    (exact,) = answers(boxes, "box", "--tree", "four", "--side", "age", "10", "20", "--exact")
    assert exact["asked"] == exact["answered"] == exact["label"]
    question = ("box", "--tree", "four", "--side", "age", "10.5", "500")
    (found,) = answers(boxes, *question)
    assert found["asked"] == "age [10.5, 500)" and found["answered"].startswith("age [10, ")
    outcome = boxes.run("query", boxes.output, *question, "--exact")
    assert outcome.code == 2 and "exact: requested age [10.5, 500)" in outcome.err


def test_a_box_of_four_columns(boxes: Workspace) -> None:
    sides = (
        *("--side", "day", "2020-02-01", "2020-09-01"),
        *("--side", "at", "2024-03-03", "2024-03-09"),
        *("--side", "kind", "", "gamma"),
        *("--side", "age", "20", "70"),
    )
    (found,) = answers(boxes, "box", "--tree", "four", *sides)
    true = counted(
        day=(date(2020, 2, 1), date(2020, 9, 1)),
        at=(datetime(2024, 3, 3), datetime(2024, 3, 9)),
        kind=(None, "gamma"),
        age=(20, 70),
    )
    # Parts of no rows are not divided, so some of them are cut; they add nothing.
    assert abs(found["count"] - true) <= 1 and found["ci_low"] <= true <= found["ci_high"]
    assert found["label"].startswith("day [2020-02-01, 2020-09-01), at [2024-03-03")


def test_a_box_that_cuts_parts_has_an_interval_from_none_of_their_rows_to_all(
    workspace: Workspace,
) -> None:
    tree = box("cut", [AGE], mechanism="privhp", depth=2, counts="dense")
    assert workspace.run("release", write_inputs(workspace, rows(), tree), *NONCE).code == 0
    (cut,) = answers(workspace, "box", "--side", "age", "0", "10")
    (part,) = answers(workspace, "box", "--side", "age", "0", "32")
    assert (cut["ci_low"], cut["ci_high"]) == (0.0, pytest.approx(part["estimate"], abs=3.0))
    assert cut["std_error"] is None and part["std_error"] is not None
    assert cut["estimate"] == pytest.approx(part["estimate"] * 10 / 32)


COLUMNS = [
    ("one", "day", "2020-07-01"),
    ("two", "age", "50"),
    ("four", "day", "2020-07-01"),
    ("four", "at", "2024-03-05T00:00:00"),
    ("four", "kind", "beta"),
    ("four", "age", "50"),
]


def test_the_cdf_and_ranges_of_a_column_are_boxes(boxes: Workspace) -> None:
    for tree, column, value in COLUMNS:
        at = ("--tree", tree, "--column", column)
        (below,) = answers(boxes, "cdf", *at, value)
        (same,) = answers(boxes, "box", "--tree", tree, "--side", column, "", value)
        (first,) = answers(boxes, "range", *at, value, value)
        assert below == same and first["count"] == 0, (tree, column)


@pytest.mark.parametrize("tree", ["one", "four"])
def test_quantiles_of_dates(boxes: Workspace, tree: str) -> None:
    found = answers(boxes, "quantile", "--tree", tree, "--column", "day", 0, 0.25, 0.5, 1)
    days = np.sort(rows()["day"].to_numpy())
    for each in found:
        place = min(int(each["q"] * ROWS), ROWS - 1)
        near = days[max(0, place - 20)], days[min(ROWS - 1, place + 20)]
        assert near[0] <= np.datetime64(each["value"]) <= near[1]
        assert each["ci_low"] <= each["value"] <= each["ci_high"]


def test_quantiles_of_categories_times_and_ages(boxes: Workspace) -> None:
    at = ("quantile", "--tree", "four", "--column")
    assert [each["value"] for each in answers(boxes, *at, "kind", 0, 0.5, 0.8, 1)] == [
        *("alpha", "alpha", "beta", "gamma"),
    ]
    (middle,) = answers(boxes, *at, "age", 0.5)
    assert middle["value"] == pytest.approx(np.median(rows()["age"].to_numpy()), abs=1)
    (half,) = answers(boxes, *at, "at", 0.5)
    assert half["value"].startswith(("2024-03-05", "2024-03-06"))


def test_the_only_column_needs_no_name(boxes: Workspace) -> None:
    for query in (("cdf", "2020-05-05"), ("range", "2020-05-05", "2020-06-05"), ("quantile", 0.5)):
        named = answers(boxes, *query, "--tree", "one", "--column", "day")
        assert answers(boxes, *query, "--tree", "one") == named


def test_nodes_and_the_largest_of_a_level(boxes: Workspace) -> None:
    (root,) = answers(boxes, "top", "--tree", "four", "--level", 0)
    assert root["count"] == ROWS and root["fraction"] == 1.0
    (same,) = answers(boxes, "node", "--tree", "four", "--level", 0, "--node", 0)
    assert same == root
    leaves = answers(boxes, "top", "--tree", "one", "-n", 500)
    assert sum(each["count"] for each in leaves) <= ROWS
    assert [each["count"] for each in leaves] == sorted((e["count"] for e in leaves), reverse=True)
    true = max(pc.value_counts(rows()["day"]).field("counts").to_pylist())
    assert leaves[0]["count"] == true


REFUSED = [
    ("box --side x 1 2", "'x' is none of day, at, kind, age"),
    ("box --side age 1 2 --side age 3 9", "side: a column is given twice"),
    ("box --side age 5 2", "box: 5 is above 2"),
    ("box --side day x 2020-02-01", "'x' must be a date"),
    ("box --side age nan 9", "'nan' must be "),
    ("box --side kind zeta gamma", "'zeta' is not a listed category"),
    ("cdf 5", "cdf: say of which column; there are day, at, kind, age"),
    ("quantile 0.5", "quantile: say of which column"),
    ("cdf --column y 5", "column: 'y' is none of day, at, kind, age"),
    ("quantile --column age 2", "2.0 is not between 0 and 1"),
    ("quantile --column age x", "'x' is not a number"),
    ("cdf --column age 5 --simultaneous", "no simultaneous band"),
    ("box --side age 1 2 --key a", "tree four has no keys"),
    ("top --level 99", "level: 99 is none of 0, "),
    ("node --level 0 --value 5", "value: the tree has several columns; query a box"),
    ("node --level 0 --node 7", "did not look at node 7 of level 0"),
    ("node --path a", "tree four is no hierarchy"),
    ("sum --paths a b", "is a partition, whose nodes have no paths; query a box"),
    ("top --path a", "tree four is no hierarchy"),
    ("box --side age 1 2 --confidence 1", "confidence: 1.0"),
]


def test_what_cannot_be_answered(boxes: Workspace) -> None:
    for query, words in REFUSED:
        outcome = boxes.run("query", boxes.output, *query.split(), "--tree", "four")
        assert outcome.code == 2 and outcome.out == "", outcome
        assert words in outcome.err and outcome.err.count("\n") == 1, outcome.err


def test_intervals_are_as_wide_as_requested(workspace: Workspace) -> None:
    tree = box("ages", [AGE], mechanism="privhp", counts="sparse")
    path = write_inputs(workspace, rows(), tree)
    path = workspace.configure(
        lambda s: s.update(trees=[tree], privacy={"rho": 0.001, "neighbors": "add_remove"})
    )
    assert workspace.run("release", path, *NONCE).code == 0
    widths = []
    for confidence in (0.5, 0.95, 0.9999):
        (found,) = answers(workspace, "box", "--side", "age", "", "64", "--confidence", confidence)
        widths.append(found["ci_high"] - found["ci_low"])
    # Of Gaussian noise: by the quantiles of the normal distribution.
    assert np.array(widths) / widths[1] == pytest.approx([0.3441, 1.0, 1.985], rel=0.03)


def test_under_a_public_total_no_interval_passes_it(workspace: Workspace) -> None:
    tree = box("ages", [{**AGE, "missing": "first"}], mechanism="privhp", counts="dense")
    write_inputs(workspace, rows(), tree)
    privacy = {"epsilon": 0.5, "neighbors": "substitute"}
    path = workspace.configure(lambda s: s.update(trees=[tree], privacy=privacy))
    assert workspace.run("release", path, *NONCE).code == 0
    (everything,) = answers(workspace, "box", "--side", "age", "", "")
    assert (everything["ci_low"], everything["ci_high"]) == pytest.approx((ROWS, ROWS))
    for stop in range(1, 100, 7):
        (found,) = answers(workspace, "box", "--side", "age", "", stop)
        assert 0 <= found["ci_low"] <= found["ci_high"] <= ROWS


# Unusual values


def test_values_outside_and_missing_ones_follow_their_policies(workspace: Workspace) -> None:
    values = [-7.0, -math.inf, 0.5, 8.5, math.inf, math.nan, None]
    table = pa.table({"x": pa.array(values, from_pandas=False)})
    column = {"column": "x", "lower": 0, "upper": 10, "cells": 10}
    expected: list[tuple[dict[str, str], tuple[int, int]]] = [
        ({}, (3, 2)),
        ({"out_of_range": "drop"}, (1, 1)),
        ({"missing": "first"}, (5, 2)),
        ({"missing": "last", "out_of_range": "drop"}, (1, 3)),
    ]
    trees = [
        box(f"t{place}", [column | policies], counts="dense")
        for place, (policies, _) in enumerate(expected)
    ]
    workspace.succeed("release", write_inputs(workspace, table, *trees), *NONCE)
    for place, (policies, counts) in enumerate(expected):
        (low,) = answers(workspace, "box", "--tree", f"t{place}", "--side", "x", "", "5")
        (high,) = answers(workspace, "box", "--tree", f"t{place}", "--side", "x", "5", "")
        assert (low["count"], high["count"]) == counts, policies


def test_a_row_that_one_column_drops_is_not_counted_at_all(workspace: Workspace) -> None:
    table = pa.table({"age": [1, 2, None, 4], "kind": ["alpha", "none such", "beta", None]})
    path = write_inputs(workspace, table, box("both", [AGE, KIND], counts="dense"))
    assert workspace.run("release", path, *NONCE).code == 0
    (found,) = answers(workspace, "top", "--level", 0)
    assert found["count"] == 1


def test_a_column_of_another_type_is_refused(workspace: Workspace) -> None:
    table = pa.table({"age": ["a", "b"] * 4})
    outcome = workspace.run("release", write_inputs(workspace, table, box("ages", [AGE])), *NONCE)
    assert outcome.code == 2 and "column 'age' has type string" in outcome.err
    assert outcome.err.count("\n") == 1 and not (workspace.output / "manifest.json").exists()


# --- adaptive boxes ---

PRIVACIES: list[dict[str, Any]] = [
    {"epsilon": 1, "neighbors": "add_remove"},
    {"rho": 0.1, "neighbors": "substitute"},
    {"epsilon": 1, "delta": "1e-6", "neighbors": "add_remove"},
]


@pytest.mark.parametrize("privacy", PRIVACIES, ids=str)
def test_adaptive_boxes_are_released_queried_and_verified(
    workspace: Workspace, privacy: dict[str, Any]
) -> None:
    columns = [AGE, {"column": "x", "lower": -3, "upper": 3, "cells": 64}]
    tree = box("box", columns, mechanism="adaptive", optimize_for="estimates", rows=ROWS)
    write_inputs(workspace, rows(), tree)
    path = workspace.configure(lambda s: s.update(trees=[tree], privacy=privacy))
    workspace.succeed("release", path, *NONCE)
    (answer,) = answers(workspace, "box", "--tree", "box", "--side", "age", "0", "64")
    assert abs(answer["count"] - counted(age=(None, 64))) < 400
    assert answer["ci_low"] < answer["ci_high"]
    workspace.succeed("verify", workspace.output)
