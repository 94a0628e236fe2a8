"""What a release in Python gives besides answers: rows, checks of itself, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dptrees
from dptrees.pipelines.python import release as releases
from dptrees.transforms.held import KEPT_FILES
from tests.golden.hashes import said
from tests.pipelines.python.conftest import fixed, read_config
from tests.pipelines.python.test_making import MINUTES, PRIVACY

RNG = np.random.default_rng(3)
ROWS = pa.table({"x": RNG.random(2_000), "y": RNG.random(2_000), "minutes": np.arange(2_000) % 300})
AXES = [{"column": name, "lower": 0, "upper": 1, "cells": 8} for name in "xy"]
BOX = {"name": "box", "domain": {"kind": "hypercube", "columns": AXES}}
TABLE = {"name": "table", "domain": {"kind": "table", "columns": AXES}}
LINE = {"name": "line", "domain": MINUTES}


def made(*trees: Any) -> dptrees.Release:  # type: ignore[name-defined]
    return dptrees.release(ROWS.slice(0), {"privacy": PRIVACY, "trees": list(trees)})


def test_rows_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    release = made(BOX, LINE)
    rows = release.sample(50, seed=7)
    assert rows.column_names == ["x", "y"] and rows.num_rows == 50
    release.save("saved")
    assert said(
        "sample", "saved", "-n", "50", "--seed", "7", "--output", "rows.parquet"
    ).startswith("0 ")
    assert rows.equals(pq.read_table("rows.parquet"))
    assert dptrees.open("saved").sample(50, seed=7).equals(rows)
    assert abs(release.sample().num_rows - 2_000) < 100
    assert not release.sample(50).equals(release.sample(50))


def test_which_tree_gives_rows() -> None:
    release = made(BOX, TABLE)
    with pytest.raises(dptrees.Error, match=r"from box, table; choose one by tree=$"):
        release.sample(5)
    assert release.sample(5, tree="table").num_rows == 5
    with pytest.raises(dptrees.Error, match=r"no tree 'cube'; it has box, table$"):
        release.sample(5, tree="cube")
    with pytest.raises(
        dptrees.Error, match=r"no tree has synthetic rows; use a domain of kind hypercube or"
    ):
        made(LINE).sample(5)
    with pytest.raises(dptrees.Error, match=r"neither a hypercube nor a table"):
        made(LINE).sample(5, tree="line")


def test_numbers_of_rows_that_cannot_be_drawn() -> None:
    release = made(BOX)
    for rows in (0, -1, releases.MOST_SAMPLED + 1):
        with pytest.raises(dptrees.Error, match=rf"rows: {rows} must be from 1 to 100,000,000"):
            release.sample(rows)


def test_a_release_in_memory_verifies_and_a_changed_one_does_not() -> None:
    release = made(LINE)
    found = release.verify()
    assert {each["ok"] for each in found} == {True}
    assert {"manifest", "guarantee", "noise", "files"} <= {each["check"] for each in found}
    name = next(
        each for each in KEPT_FILES.objects if each.startswith(release.place) and "cdf" in each
    )
    number, data = KEPT_FILES.objects[name]
    KEPT_FILES.objects[name] = (number, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(dptrees.Error, match="files"):
        release.verify()


def test_a_release_is_replayed_from_its_rows(work: Path) -> None:
    config = read_config("categories")
    release = fixed("rows.parquet", config, output="out")
    found = release.verify(key="release.key", data="rows.parquet")
    assert [each["ok"] for each in found if each["check"] in ("key", "replay")] == [True, True]
    beside = {"input": {"format": "parquet", "path": "rows.parquet"}}
    beside |= {"output": "out", "key_file": "release.key"}
    Path("config.yaml").write_text(yaml.safe_dump(config | beside))
    assert release.verify(data=["config.yaml"])[-1]["check"] == "replay"
    pq.write_table(pq.read_table("rows.parquet").slice(100), "fewer.parquet")
    with pytest.raises(dptrees.Error, match="replay"):
        release.verify(key="release.key", data="fewer.parquet")
    with pytest.raises(dptrees.Error, match=r"^data: files of rows need key, the release's key$"):
        release.verify(data="rows.parquet")
    with pytest.raises(dptrees.Error, match=r"^set: goes with data CONFIG$"):
        release.verify(set={"a": 1})


def test_the_page(tmp_path: Path) -> None:
    release = made(LINE)
    saved = Path(release.save(tmp_path / "saved"))
    page = release.report()
    assert page == (saved / "report.html").read_text()
    path = tmp_path / "page.html"
    assert release.report(path) == str(path) and path.read_text() == page
    with pytest.raises(dptrees.Error, match=r"page.html cannot be written \(File exists\)"):
        release.report(path)


def test_bounds_are_compared_by_a_release_of_units(tmp_path: Path) -> None:
    rows = {"who": np.arange(3_000) // 3, "minutes": np.arange(3_000) % 300}
    unit = {"epsilon": 1, "neighbors": "add_remove", "unit": "who"}
    units = dptrees.release(
        rows,
        {
            "privacy": unit | {"max_rows": 1},
            "trees": [{"name": "u", "domain": {"column": "who", "type": "unit_rows", "most": 50}}],
        },
    )
    config = {"privacy": unit | {"max_rows": 10}, "trees": [LINE]}
    plan = dptrees.plan(config, units=units)
    assert plan.max_rows in (2, 3, 4)
    assert "max_rows  rows left out" in plan.text and "from a release in memory" in plan.text
    saved = units.save(tmp_path / "units")
    assert dptrees.plan(config, units=saved).max_rows == plan.max_rows
    with pytest.raises(dptrees.Error, match=r"max_rows: give plan"):
        _ = dptrees.plan(config).max_rows
