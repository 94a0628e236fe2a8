"""`dptrees check`: what it reports about the rows, and that it writes nothing."""

from __future__ import annotations

import json
import random
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.pipelines.conftest import Outcome, Workspace

ROWS = 1000
TREES: list[dict[str, Any]] = [
    {
        "name": "day",
        "domain": {"column": "day", "lower": date(2024, 1, 1), "upper": date(2025, 1, 1)},
    },
    {
        "name": "price",
        "domain": {"column": "price", "lower": 0, "upper": 5000, "cells": 50},
        "group_by": {"column": "city", "keys": ["Oslo", "Bergen"]},
    },
    {"name": "age", "domain": {"column": "age", "type": "integer", "lower": 0, "upper": 100}},
]


def check(workspace: Workspace, settings: dict[str, Any], *options: str) -> Outcome:
    path = workspace.folder / "check.yaml"
    base: dict[str, Any] = {
        "release": "seen",
        "input": {"format": "csv", "path": str(workspace.folder / "a.csv")},
        "output": str(workspace.output),
        "key_file": str(workspace.folder / "there-is-none.key"),
        "privacy": {"epsilon": 1, "neighbors": "add_remove"},
        "trees": TREES,
    }
    path.write_text(yaml.safe_dump(base | settings))
    before = sorted(workspace.folder.rglob("*"))
    outcome = workspace.run("check", path, *options)
    assert sorted(workspace.folder.rglob("*")) == before
    assert not workspace.output.exists()
    return outcome


def write_odd_csv(folder: Path) -> None:
    draw = random.Random(0)
    lines = ["day,price,age,city"]
    for row in range(ROWS):
        day = f"{draw.randrange(1, 13):02}/{draw.randrange(1, 29):02}/2024"
        age = "" if row % 10 == 0 else str(row % 120 - 5)
        lines.append(
            f'{day},"{1 + row % 3},{row % 1000:03}.50",{age},{("Oslo", "Bergen ")[row % 2]}'
        )
    lines += ["one field alone", 'an "odd" line,1,2,3,4', ""]
    (folder / "a.csv").write_text("\n".join(lines))


def test_dates_and_numbers_that_are_none_are_reported(workspace: Workspace) -> None:
    write_odd_csv(workspace.folder)
    outcome = check(workspace, {})
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("NOT PRIVATE: ")
    for words in (
        "a.csv: 1 file of csv, ",
        "    day: text\n",
        "1,000 rows read\n2 malformed rows left out\n",
        "day (day)\n             0 counted\n         1,000 dropped: day is not a value of the type",
        'they look like: "99/99/9999"',
        "input.date_format",
        'they look like: "9,999.99"',
        "input.thousands",
        "500 dropped: city is not a listed value of the tree\n                 they look "
        'like: "a "',
        "input.trim",
        "no row is counted: a release of day would be noise alone",
        "           100 dropped: age is missing",
        "counted in the nearest cell: age is below lower",
        "counted in the nearest cell: age is at or above upper",
    ):
        assert words in outcome.out
    assert "07/04" not in outcome.out  # what values look like, and no value


SECRET = "miriam-4711"
MALFORMED = {
    f"{SECRET},1,": (
        "a,b,",
        "the header has 2 fields, these have 3, the last empty\n",
        "input.trailing_separator: true",
    ),
    f"{SECRET},1,2": ("a,b,c", "the header has 2 fields, these have 3\n", "input.escape"),
    f"{SECRET},1,2,3,4,5,": ("a,b,c,d,...,e", "the header has 2 fields, these have 7\n", ""),
    SECRET: ("a", "the header has 2 fields, these have 1\n", "input.skip_lines and input.comment"),
    f'1,"{SECRET}': ('a,"b', "a quote is not closed", "input.newlines"),
    f"{SECRET},\udcff": ("a,\ufffd", "these have bytes that are not utf-8", "input.encoding"),
    f"1,{SECRET}{'x' * 2**24}": ("a,bbb...", "these are longer than 16 MiB", "input.quote"),
}


@pytest.mark.parametrize("line", MALFORMED, ids=lambda line: line[:24])
def test_each_class_of_malformed_lines_is_explained(workspace: Workspace, line: str) -> None:
    rows = 3 if len(line) < 1000 else 1
    text = "\n".join(["age,more", *[line, "1,2"] * rows]).encode(errors="surrogateescape")
    (workspace.folder / "a.csv").write_bytes(text)
    shape, reason, advice = MALFORMED[line]
    for policy, code, becomes in (("drop", 0, "left out"), ("fail", 2, "refused")):
        source = {"format": "csv", "path": str(workspace.folder / "a.csv"), "malformed": policy}
        settings = {"input": source, "trees": [TREES[2]]}
        outcome = check(workspace, settings)
        assert outcome.code == code
        first = f"{rows} malformed row{'s' * (rows > 1)} {becomes}\n"
        assert f'{first}             {rows} like "{shape}": {reason}' in outcome.out
        assert advice in outcome.out and SECRET not in outcome.out + outcome.err
        [found] = json.loads(check(workspace, settings, "--json").out)["malformed_classes"]
        assert found["rows"] == rows and SECRET not in str(found)


def test_classes_of_malformed_lines_in_another_dialect(workspace: Workspace) -> None:
    """They are known whatever the encoding, and where quoted values hold line ends."""
    text = '#\na;age\n"x\ny";1\n1;2;3\n1;2;3;4\nx;"\n'
    (workspace.folder / "a.csv").write_bytes(text.encode("utf-16"))
    keys = {"encoding": "utf-16", "separator": ";", "skip_lines": 1, "escape": "\\"}
    source = {"format": "csv", "path": str(workspace.folder / "a.csv"), "newlines": True} | keys
    found = json.loads(check(workspace, {"input": source, "trees": [TREES[2]]}, "--json").out)
    assert (found["rows"], found["malformed"]) == (1, 3)
    assert [
        (each["rows"], each["like"], each["reason"]) for each in found["malformed_classes"]
    ] == [
        (2, "a;b;c", "the header has 2 fields, these have 3 to 4"),
        (1, 'a;"b', "a quote is not closed, or an escape is before the line end"),
    ]


def test_the_same_for_programs(workspace: Workspace) -> None:
    write_odd_csv(workspace.folder)
    found = json.loads(check(workspace, {}, "--json").out)
    assert (found["private"], found["rows"], found["malformed"]) == (False, ROWS, 2)
    day, price, age = found["trees"]
    assert day["causes"] == [
        {
            "column": "day",
            "cause": "unreadable",
            "policy": "drop",
            "rows": ROWS,
            "looks_like": ["99/99/9999"],
        }
    ]
    assert (day["counted"], price["counted"], age["counted"]) == (0, 0, 900)
    assert len(day["advice"]) == 2


def test_only_the_first_rows(workspace: Workspace) -> None:
    write_odd_csv(workspace.folder)
    outcome = check(workspace, {}, "--rows", "10")
    assert "10 rows read, not all\n" in outcome.out
    assert "malformed" not in outcome.out
    for wrong in ("0", "-1", "many"):
        assert check(workspace, {}, "--rows", wrong).code == 2


def test_parquet_units_and_names(workspace: Workspace) -> None:
    table = {
        "who": pa.array(["a", None, "b", "b"]),
        "x": pa.array([1.0, 2.0, None, 200.0]),
        "place": pa.array(["north", "south", "east", None]),
        "Plaice": pa.nulls(4, pa.string()),
        "more": pa.array([{"y": 1}] * 4),
    }
    pq.write_table(pa.table(table), workspace.folder / "a.parquet")
    x = {"column": "x", "lower": 0, "upper": 100, "cells": 4, "out_of_range": "drop"}
    other = {
        "name": "of",
        "domain": {"column": "Plaice", "categories": ["a"]},
        "group_by": {"column": "place", "keys": ["north"], "unknown": "other"},
    }
    settings = {
        "input": {"format": "parquet", "path": str(workspace.folder / "*.parquet")},
        "privacy": {"epsilon": 1, "neighbors": "add_remove", "unit": "who", "max_rows": 3},
        "trees": [{"name": "x", "domain": x}, other],
    }
    outcome = check(workspace, settings)
    assert outcome.code == 0, outcome.err
    for words in (
        "    more.y: int64  (not read)",
        "4 rows read\n1 row left out, without a who\n",
        "x (x)\n             1 counted\n",
        "1 dropped: x is missing",
        "1 dropped: x is at or above upper",
        "2 counted as 'other': place is not a listed value of the tree",
        "advice: no row has a value of Plaice",
        "A release counts at most 3 rows of each who: the numbers here",
    ):
        assert words in outcome.out


def test_json_lines_report_names_that_no_line_has(workspace: Workspace) -> None:
    lines = [json.dumps({"agee": row, "place": "x", "at": {"zip": "x"}}) for row in range(50)]
    (workspace.folder / "a.jsonl").write_text("\n".join([*lines, "{"]))
    outcome = check(
        workspace,
        {
            "input": {"format": "json", "path": str(workspace.folder / "a.jsonl")},
            "trees": [
                TREES[2],
                {"name": "where", "domain": {"column": "place", "categories": ["x"]}},
            ],
        },
    )
    assert outcome.code == 0, outcome.err
    for words in (
        "agee: number  (not read)",
        "at.zip: text  (not read)",
        "50 rows read\n1 malformed row left out",
        "advice: no row has a value of age; did you mean agee?",
    ):
        assert words in outcome.out


def test_private_keys_a_box_and_a_series(workspace: Workspace) -> None:
    table = {"x": pa.array([1.0, None, 5.0]), "k": pa.array(["a", "b", None])}
    pq.write_table(pa.table(table), workspace.folder / "a.parquet")
    source = {"format": "parquet", "path": str(workspace.folder / "a.parquet")}
    x = {"column": "x", "lower": 0, "upper": 100, "cells": 4}
    private = {"name": "keyed", "domain": x, "group_by": {"column": "k", "keys": "private"}}
    box = {"name": "box", "domain": {"kind": "hypercube", "columns": [x]}}
    sparse = {"name": "sparse", "domain": {"kind": "sparse", "columns": ["k"]}}
    privacy = {"epsilon": 1, "delta": 1e-6, "neighbors": "add_remove"}
    trees = [private, box, sparse]
    outcome = check(workspace, {"input": source, "privacy": privacy, "trees": trees})
    assert outcome.code == 0, outcome.err
    assert "1 dropped: k is missing" in outcome.out
    assert outcome.out.count("2 counted\n") == 2


def test_mistakes_are_reported_in_one_sentence(workspace: Workspace) -> None:
    (workspace.folder / "empty.csv").touch()
    (workspace.folder / "other.csv").write_text("a,b\n1,2\n")
    for path, sentence in (
        ("none.csv", "no file matches"),
        ("empty.csv", "is empty, without even a header"),
        ("other.csv", "has no column 'day'"),
    ):
        outcome = check(
            workspace, {"input": {"format": "csv", "path": f"{workspace.folder}/{path}"}}
        )
        assert outcome.code == 2
        assert sentence in outcome.err and outcome.err.count("\n") == 1


def test_two_spellings_of_one_id_are_reported(workspace: Workspace) -> None:
    """Each is a unit of its own unless the configuration says that they are integers."""
    lines = ["id,age", *(f"{number},1" for number in (7, 8, 9)), "7.0,1", "x,1"]
    (workspace.folder / "a.csv").write_text("\n".join(lines))
    privacy = {"epsilon": 1, "neighbors": "add_remove", "unit": "id", "max_rows": 1}
    age = {"name": "age", "domain": {"column": "age", "type": "integer", "lower": 0, "upper": 9}}
    given = {"privacy": privacy, "trees": [age]}
    assert "set privacy.unit_type: integer" in check(workspace, given).out
    declared = check(workspace, given | {"privacy": privacy | {"unit_type": "integer"}}).out
    assert "unit_type" not in declared
    assert "1 row left out, without a id" in declared
    (workspace.folder / "a.csv").write_text("\n".join(lines[:4]))
    assert "unit_type" not in check(workspace, given).out


def test_a_refused_row_is_in_the_conclusion(workspace: Workspace) -> None:
    (workspace.folder / "a.csv").write_text("age,city,day,price\n1,Oslo,2024-01-01,2\n1\n")
    given = {
        "input": {"format": "csv", "path": str(workspace.folder / "a.csv"), "malformed": "fail"},
        "key_file": str(workspace.key),
    }
    outcome = check(workspace, given)
    assert outcome.code == 2
    assert outcome.out.splitlines()[-1] == "the release would not start: exit code 2"
    found = json.loads(check(workspace, given, "--json").out)
    assert (found["would_start"], found["exit_code"], found["malformed"]) == (False, 2, 1)
