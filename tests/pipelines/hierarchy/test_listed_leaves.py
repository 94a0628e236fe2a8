"""Leaves that are listed in the configuration give the hierarchy that a table of them gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.pipelines.kinds.hierarchy_domain import read_hierarchy
from dptrees.pipelines.python.config import plain
from dptrees.pipelines.sections.document import RuleBroken

PAIRS = [["f", "a"], ["f", "b"], ["m", "a"], ["m", "b"]]
TWO = {"columns": ["sex", "work"]}


def read(domain: Any, **more: Any) -> Any:
    return read_hierarchy({"kind": "hierarchy", **domain, **more})


def test_combinations_and_lists_are_the_table(tmp_path: Path) -> None:
    path = tmp_path / "leaves.parquet"
    columns = {name: [leaf[place] for leaf in PAIRS] for place, name in enumerate(("sex", "work"))}
    pq.write_table(pa.table(columns), path)
    table = read(TWO, table=str(path))
    for leaves in (PAIRS, {"sex": ["f", "m"], "work": ["a", "b"]}, {"work": "ab", "sex": "fm"}):
        if isinstance(leaves, dict):
            leaves = {name: list(values) for name, values in leaves.items()}
        assert read(TWO, leaves=leaves).spec() == table.spec()


@pytest.mark.parametrize(
    ("domain", "leaves", "sizes"),
    [
        ({"column": "p", "separator": "/"}, ["a", "b/c", "b/d"], (1, 2, 3)),
        ({"column": "c", "digits": [1, 2], "levels": ["x", "y"]}, [101, 102, 205], (1, 2, 3)),
        ({"column": "c", "digits": [1, 2], "levels": ["x", "y"]}, ["101", "205"], (1, 2, 2)),
        ({"columns": ["sex"]}, [0, 1], (1, 2)),
    ],
)
def test_leaves_of_one_column(domain: Any, leaves: Any, sizes: tuple[int, ...]) -> None:
    assert read(domain, leaves=leaves).tree.level_sizes == sizes


@pytest.mark.parametrize(
    ("domain", "at", "message"),
    [
        (TWO | {"leaves": {"sex": ["f"]}}, ".leaves", "values of sex, work, and of no others"),
        (TWO | {"leaves": ["f", "m"]}, ".leaves", "each must be a list of 2"),
        (TWO | {"leaves": [["f", "a"], [1, "b"]]}, ".leaves", "sex must have strings, or whole"),
        (TWO | {"leaves": [["f", "a"]] * 2}, ".leaves", "'f/a' is listed more than once"),
        (TWO | {"leaves": []}, ".leaves", "at least one"),
        (TWO, ".table", "is required with columns, or leaves that are listed"),
        (TWO | {"leaves": PAIRS, "table": "t"}, ".table", "does not go with leaves"),
        ({"column": "n", "parent": "p", "leaves": ["a"]}, ".leaves", "need a table"),
        ({"column": "d", "calendar": ["day"], "leaves": ["a"]}, ".leaves", "goes with columns"),
        (
            TWO | {"leaves": {"sex": list(range(400)), "work": list(range(400))}},
            ".leaves",
            "are 160,000; more than 131,072 are read from a table",
        ),
    ],
)
def test_leaves_that_are_refused(domain: Any, at: str, message: str) -> None:
    with pytest.raises(RuleBroken, match=message) as caught:
        read(domain)
    assert caught.value.at.startswith(at)


def test_a_frame_of_leaves_in_python() -> None:
    frame = pa.table({"sex": ["f", "m", "m"], "work": ["a", "a", "b"]})
    assert plain({"leaves": frame}) == {"leaves": [["f", "a"], ["m", "a"], ["m", "b"]]}
    pandas = pytest.importorskip("pandas")
    odd = frame.to_pandas().iloc[[2, 0, 1]]
    assert plain({"leaves": odd})["leaves"] == [["m", "b"], ["f", "a"], ["m", "a"]]
    assert plain({"leaves": pandas.DataFrame({"code": [3, 4]})}) == {"leaves": [3, 4]}
    domain = {"kind": "hierarchy", **TWO, "leaves": odd}
    config = {
        "privacy": {"epsilon": 5, "neighbors": "add_remove"},
        "trees": [
            {"name": "t", "domain": domain, "measure": {"column": "x", "lower": 0, "upper": 9}}
        ],
    }
    rows = {"sex": ["m"] * 3_000, "work": ["b"] * 3_000, "x": [2] * 3_000}
    release = dptrees.release(rows, config)
    assert abs(release["t"].node("m/b").estimate - 6_000) < 100
