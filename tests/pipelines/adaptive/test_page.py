"""The page of adaptive trees: a part that was not divided is one bar, and said to be one."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.chromium import Chromium
from tests.pipelines.adaptive.test_command import TREE, changed
from tests.pipelines.conftest import ROWS, Workspace
from tests.pipelines.report_page import parse_elements

DAYS = {
    "name": "days",
    "domain": {"column": "day", "type": "date", "lower": "2024-01-01", "upper": "2032-01-01"},
    "mechanism": "adaptive",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("drawn"))
    days = np.random.default_rng(1).normal(20_000, 20, ROWS).astype(np.int32)
    workspace.write_rows(day=pa.array(days, pa.date32()))
    workspace.make(changed(TREE, DAYS))
    return workspace


def read_rows(workspace: Workspace) -> list[dict[str, Any]]:
    folder = ReleaseFolder(str(workspace.output))
    rows: list[dict[str, Any]] = pa.Table.from_batches(folder.batches("nodes", "delay")).to_pylist()
    return rows


def undivided_rows(workspace: Workspace) -> list[dict[str, Any]]:
    return [row for row in read_rows(workspace) if row["ended"] == row["level"] < 3]


def test_a_part_that_was_not_divided_is_one_bar(made: Workspace) -> None:
    trees = parse_elements((made.output / "report.html").read_text()).data["trees"]
    (series,) = trees[0]["figures"]["density"]["series"]
    undivided = undivided_rows(made)
    texts = dict(zip(series["texts"], series["count"], strict=True))
    assert undivided and len(texts) == len(series["texts"])
    for row in undivided:
        # Its ends count the values beyond them too.
        first, last = row["label"].strip("[)").split(", ")
        ends = {"0": f"below {last}", "512": f"{first} and above"}
        assert texts[ends.get(first) or ends.get(last) or row["label"]] == row["count"]
    (total,) = [row["count"] for row in read_rows(made) if row["level"] == 0]
    assert sum(texts.values()) == total


def test_over_time_it_is_a_level_stretch(made: Workspace) -> None:
    trees = parse_elements((made.output / "report.html").read_text()).data["trees"]
    (series,) = trees[1]["figures"]["density"]["series"]
    shapes = trees[1]["figures"]["density"]
    assert shapes["draws"] == "line" and len(series["texts"]) < 800
    ends = [text.strip("[)").split(", ") for text in series["texts"]]
    lasted = {date.fromisoformat(stop) - date.fromisoformat(start) for start, stop in ends}
    assert len(lasted) > 2 and [start for start, _ in ends[1:]] == [stop for _, stop in ends[:-1]]


def test_its_nodes_say_which_were_not_split(made: Workspace, chromium: Chromium) -> None:
    chromium.open(made.output / "report.html")
    for _ in range(3):
        chromium.value("document.querySelectorAll('details').forEach((one) => one.open = true)")
        chromium.value("new Promise((done) => setTimeout(() => done(true), 50))")
    nodes = "[...document.querySelectorAll('#nodes-0 .node')]"
    reported = chromium.value(f"{nodes}.map((each) => each.textContent)")
    undivided = undivided_rows(made)
    assert sum("not split" in text for text in reported) == len(undivided)
    assert not any("inside a node" in text for text in reported)
    assert chromium.complaints() == []
