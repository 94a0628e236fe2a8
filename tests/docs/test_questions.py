"""docs/questions.md: its commands and lines of Python are answered, and the others are refused."""

from __future__ import annotations

import datetime
import re
import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dptrees
from dptrees.pipelines.cli.command import main
from tests.docs.pages import DOCS

PAGE = (DOCS / "questions.md").read_text(encoding="utf-8")
ANSWERED, REFUSED = PAGE.split("## What you cannot query")
_SPAN = re.compile(r"`([^`]+)`")
_TREE = re.compile(r'^rel\["(\w+)"\]')
_QUERY = re.compile(
    r"(top|above|node|range|share|sum|cdf|median|quantile|mean|variance|std|total|describe|box)"
    r"(?: |$)"
)
AGE = {"column": "age", "values": [0, 99]}
PAY = {"column": "pay", "lower": 0, "upper": 5000, "cells": 50}
BY = {"column": "work", "keys": ["private", "public"]}
STATES = {"columns": ["state", "county"], "leaves": [["NY", "Albany"], ["NJ", "Essex"]]}
PAIRS = {"columns": ["sex", "school"], "leaves": [["f", "yes"], ["f", "no"], ["m", "yes"]]}
YEAR = {"lower": datetime.date(2024, 1, 1), "upper": datetime.date(2025, 1, 1)}
BOX = [
    {"column": "age", "type": "integer", "lower": 0, "upper": 128},
    {"column": "pay", "lower": 0, "upper": 5000},
]


def trees() -> dict[str, dict[str, Any]]:
    """Return the trees that the page names."""
    days = {"kind": "hierarchy", "column": "day", "calendar": ["year", "month", "day"]}
    measured = {"measure": {"column": "pay", "lower": 0, "upper": 5000}}
    return {
        "age": {"domain": AGE, "optimize_for": "estimates"},
        "age_by_work": {"domain": AGE, "group_by": BY},
        "work": {"domain": {"column": "work", "categories": ["private", "public"]}},
        "pay": {"domain": PAY, "quantiles": [0.25, 0.5, 0.75]},
        "pay_by_work": {
            "domain": PAY,
            "group_by": BY,
            "metrics": ["count", "mean", "median", "p90"],
        },
        "place": {"domain": {"kind": "hierarchy", **STATES}},
        "pay_by_state": {"domain": {"kind": "hierarchy", **STATES}, **measured},
        "people": {"domain": {"kind": "distinct", "column": "person"}},
        "city": {"domain": {"kind": "distinct", "column": "county"}},
        "u": {"domain": {"type": "unit_rows", "column": "person", "most": 20}},
        "product": {"domain": {"kind": "sparse", "column": "county"}},
        "queries": {"domain": {"kind": "sketch", "column": "county"}, "width": 256},
        "pairs": {"domain": {"kind": "hierarchy", **PAIRS}},
        "both": {"domain": {"kind": "hypercube", "columns": BOX}},
        "days": {"domain": days | YEAR},
    }


def table() -> pa.Table:
    """Return made-up rows with the columns of these trees."""
    row = np.arange(4_000)
    place = row * row % 3 > 0
    return pa.table(
        {
            "age": pa.array(10 + row * 37 % 80),
            "pay": pa.array((row * 7919 % 5000).astype(float)),
            "work": pa.array(np.where(row % 3 == 0, "public", "private")),
            "state": pa.array(np.where(place, "NY", "NJ")),
            "county": pa.array(np.where(place, "Albany", "Essex")),
            "sex": pa.array(np.where(row % 2 == 0, "f", "m")),
            "school": pa.array(["yes"] * len(row)),
            "person": pa.array([f"p{each % 1_000}" for each in row]),
            "day": pa.array(np.datetime64("2024-01-01") + row % 366),
        }
    )


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> dptrees.Release:
    """A release with the trees of the page, in a folder OUT."""
    privacy = {"epsilon": 100, "delta": 1e-6, "neighbors": "add_remove"}
    privacy |= {"unit": "person", "max_rows": 4}
    named = [{"name": name, **tree} for name, tree in trees().items()]
    made = dptrees.release(table(), {"privacy": privacy, "trees": named})
    return dptrees.open(made.save(tmp_path_factory.mktemp("page") / "OUT"))


def rows_of_tables() -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each row as its query, the code of its command and the code of its Python."""
    for line in ANSWERED.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == 4 and cells[0] != "query":
            yield cells[0].lstrip("| "), _SPAN.findall(cells[1]), _SPAN.findall(cells[2])


ROWS = list(rows_of_tables())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("query", "commands", "lines"), ROWS, ids=[row[0] for row in ROWS])
def test_a_query_is_answered(
    query: str,
    commands: list[str],
    lines: list[str],
    release: dptrees.Release,
    capsys: pytest.CaptureFixture[str],
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    names = {"rel": release, "df": table(), "dptrees": dptrees}
    found = [match for line in lines if (match := _TREE.match(line)) is not None]
    for line in lines:
        code = f"{found[0][0]}{line}" if line.startswith(".") else line
        if code.startswith(("rel", "dptrees.of")):
            assert eval(code, names) is not None
    for command in filter(_QUERY.match, commands if found else ()):
        words = shlex.split(command)
        exit_code = main(["query", str(release.path), *words, "--tree", found[0][1]])
        assert exit_code == 0, capsys.readouterr().err


def test_the_tables_are_read() -> None:
    assert len(ROWS) > 25
    assert sum(len(commands) for _, commands, _ in ROWS) > 25


@pytest.mark.parametrize("metric", ["max", "min", "mode", "correlation"])
def test_other_statistics_are_refused(metric: str, release: dptrees.Release) -> None:
    assert not hasattr(release["age"], metric)
    with pytest.raises(dptrees.Error, match="must be cdf, quantiles"):
        dptrees.plan(
            {
                "privacy": {"epsilon": 1, "neighbors": "add_remove"},
                "trees": [{"name": "age", "domain": AGE, "objective": metric}],
            }
        )


@pytest.mark.parametrize(
    ("tree", "query"),
    [
        ("days", "mean"),
        ("work", "mean"),
        ("both", "mean"),
        ("work", "cdf"),
        ("work", "median"),
    ],
)
def test_refused_queries(tree: str, query: str, release: dptrees.Release) -> None:
    with pytest.raises(dptrees.Error):
        getattr(release[tree], query)()


def test_there_is_no_filter() -> None:
    assert "there is no `where`" in REFUSED
    with pytest.raises(dptrees.Error, match="unknown key"):
        dptrees.plan(
            {
                "privacy": {"epsilon": 1, "neighbors": "add_remove"},
                "trees": [{"name": "age", "domain": AGE, "where": "age > 3"}],
            }
        )
