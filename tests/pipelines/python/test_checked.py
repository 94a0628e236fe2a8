"""`dptrees.check` says of rows in memory what the command says of the same rows in files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dptrees
from tests.golden.hashes import said
from tests.pipelines.python.test_making import PRIVACY

ROWS = {"age": [1, 2, 300, None] * 10, "work": ["public", "self", " self", None] * 10}
AGE = {"column": "age", "lower": 0, "upper": 100, "cells": 10, "out_of_range": "drop"}
WORK = {"column": "work", "categories": ["public", "self"]}
CONFIG = {
    "privacy": PRIVACY,
    "trees": [{"name": "age", "domain": AGE}, {"name": "work", "domain": WORK}],
}


def test_the_same_findings_as_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table(ROWS), "rows.parquet")
    beside = {"release": "r", "output": "out", "key_file": "key"}
    beside |= {"input": {"format": "parquet", "path": "rows.parquet"}}
    Path("config.yaml").write_text(yaml.safe_dump(CONFIG | beside))
    reported = said("check", "config.yaml", "--json")
    expected = json.loads(reported[reported.index("{") : reported.rindex("}") + 1])
    for rows in (ROWS, pa.table(ROWS), "rows.parquet"):
        found = dptrees.check(rows, CONFIG).entries
        assert found["trees"] == expected["trees"]
        assert found["rows"] == 40 and found["private"] is False


def test_what_is_left_out_and_what_to_do() -> None:
    found = dptrees.check(ROWS, CONFIG)
    assert found.rows == 40 and found.counted("age") == found.counted("work") == 20
    assert found.advice == ["work has values with blanks around them"]
    assert repr(found).startswith("NOT PRIVATE: exact results")
    assert "10 dropped: age is at or above upper" in found.text
    with pytest.raises(dptrees.Error, match=r"no tree 'hours'; there are age, work$"):
        found.counted("hours")


def test_some_rows_alone() -> None:
    found = dptrees.check(ROWS, CONFIG, most=3)
    assert found.rows == 3 and found.entries["all_rows"] is False
    assert dptrees.check(ROWS, CONFIG, most=40).entries["all_rows"] is True
    with pytest.raises(dptrees.Error, match="most: 0 must be a whole number from 1 on"):
        dptrees.check(ROWS, CONFIG, most=0)


def test_a_column_that_is_not_there_or_cannot_be_read() -> None:
    with pytest.raises(dptrees.Error, match=r"has no column 'age'"):
        dptrees.check({"Age": [1], "work": ["self"]}, CONFIG)
    with pytest.raises(dptrees.Error, match=r"Convert strings first"):
        dptrees.check({"age": ["1"], "work": ["self"]}, CONFIG)


def test_nothing_is_spent(recwarn: pytest.WarningsRecorder) -> None:
    rows = pa.table(ROWS)
    for _ in range(2):
        dptrees.check(rows, CONFIG)
    assert not [each for each in recwarn if "together" in str(each.message)]


def test_a_weak_guarantee_gives_a_warning() -> None:
    weak = CONFIG | {"privacy": {"epsilon": 1000, "neighbors": "add_remove"}}
    with pytest.warns(UserWarning, match="epsilon"):
        dptrees.check(ROWS, weak)
