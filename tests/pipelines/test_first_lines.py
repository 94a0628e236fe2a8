"""A first line that is a row is shown nowhere: not printed, logged, sent or written."""

from __future__ import annotations

import re
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

import dptrees
from dptrees.transforms.beam.collection import row_schema
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.file_columns import columns_found, may_show
from tests.pipelines.conftest import Workspace, update

# Each holds words that nothing else says; the configuration reads x and place.
ROWS = {
    "JSON lines": '{"quxanna": "wobbleflu", "y": 3}',
    "JSON array": '[{"quxanna": "wobbleflu"}]',
    "pretty-printed JSON": '{\n  "quxanna": "wobbleflu"\n}',
    "XML": '<quxanna illness="wobbleflu"/>',
    "key=value": "user=quxanna illness=wobbleflu x=1",
    "INI": "[quxanna]",
    "YAML": "quxanna: wobbleflu",
    "mail": "From: Quxanna Example <quxanna@wobbleflu.org>",
    "people": "Quxanna Example,Bern,wobbleflu positive",
    "words": "quxanna,bern,wobbleflu",
    "one word": "quxanna",
    "near names": "places,xs,quxanna",
    "sentence": "Our quxanna has, since May, place by place, wobbleflu.",
    "address": "Quxanna Street 5,3011 Wobbleflu",
    "phone": "quxanna,+41 31 322 11 11",
    "email": "quxanna@wobbleflu.org,1",
    "quoted": '"quxanna, wobble","flu"',
    "a column beside values": "x,quxanna,2024-01-01",
    "a column beside a date": "quxanna,2024-01-01,place",
    "semicolons": "Quxanna;x;wobbleflu",
    "tabs": "Quxanna\tplaces\twobbleflu",
    "a long one": "quxanna" * 30,
    "no UTF-8": "quxanna\udcff,wobbleflu",
    "control": "quxanna\x01,wobbleflu",
    "empty fields": ",,quxanna",
}
SECRET = re.compile(r"quxanna|wobble", re.IGNORECASE)


def check_silent(text: str) -> None:
    found = SECRET.search(text)
    assert found is None, text[max(0, found.start() - 200) : found.end() + 200]


@pytest.fixture(params=ROWS.values(), ids=ROWS)
def line(request: pytest.FixtureRequest) -> str:
    """A row that a file begins with."""
    return str(request.param)


@pytest.mark.parametrize("format", ["csv", "json"])
def test_no_command_shows_a_row(workspace: Workspace, line: str, format: str) -> None:
    rows = workspace.folder / "one.csv"
    rows.write_bytes(f"{line}\n{line}\n".encode(errors="surrogateescape"))

    path = workspace.configure(update(input={"format": format, "path": str(rows)}))
    draft = ("init", workspace.folder / "draft.yaml", "--input", rows)
    outcomes = [
        workspace.run("release", path),
        workspace.run("release", path, "--log-format", "json"),
        workspace.run("check", path, "--no-rows"),
        workspace.run("check", path),
        workspace.run("check", path, "--json"),
        workspace.run("plan", path),
        workspace.run("plan", path, "--json"),
        workspace.run(*draft),
        workspace.run(*draft, "--header"),
        workspace.run("init", workspace.folder / "header.yaml", "--input", rows, "--header"),
    ]
    # Objects without the columns are rows of JSON lines, whose values are missing.
    is_object = format == "json" and line == ROWS["JSON lines"]
    assert outcomes[0].code == (0 if is_object else 2) and outcomes[-3].code == 0
    for outcome in outcomes[:-1]:
        check_silent(outcome.out + outcome.err)
    # Three words may be names; the user said so.
    names = outcomes[-1]
    assert names.code == 2 or re.fullmatch(r"[\w ,]+", line)
    (workspace.folder / "header.yaml").unlink(missing_ok=True)
    for file in workspace.folder.rglob("*"):
        if file.is_file() and file != rows:
            check_silent(file.read_bytes().decode(errors="replace"))


def test_no_frame_shows_a_row(line: str) -> None:
    pandas = pytest.importorskip("pandas")
    names = line.replace("\udcff", "").split(",")
    columns = {name: [1] for name in names}
    domain = {"column": "y", "lower": 0, "upper": 1, "cells": 4}
    privacy = {"epsilon": 1, "neighbors": "add_remove"}
    config = {"privacy": privacy, "trees": [{"name": "y", "domain": domain}]}
    frames = [columns, [dict.fromkeys(names, 1)], pa.table(columns), pandas.DataFrame(columns)]
    for rows in frames:
        with pytest.raises(dptrees.Error, match="has no column 'y'") as caught:
            dptrees.release(rows, config)
        check_silent(str(caught.value))
    if all(map(str.isidentifier, names)):
        fields = beam.typehints.row_type.RowTypeConstraint.from_fields(
            [(each, int) for each in names]
        )
        with pytest.raises(InputError, match="has no column 'y'") as raised:
            row_schema(fields, ["y"])
        check_silent(str(raised.value))


def test_names_of_a_header_are_shown() -> None:
    found = "its columns are Order Date, amount (CHF), city; did you mean amount (CHF)?"
    names = ["Order Date", "amount (CHF)", "city"]
    assert columns_found("amount", names, ["amount", "order_date"]) == found
    assert not may_show(names, ["amount", "date"]) and not may_show([], ["amount"])
    # A schema states its names, whatever they look like.
    listed = columns_found("x", ["a@b", "=1"], ["x"], in_schema=True)
    assert listed == "its columns are a@b, =1"


def test_init_copies_names_that_are_declared(workspace: Workspace, tmp_path: Path) -> None:
    rows, file = tmp_path / "rows.csv", tmp_path / "new.yaml"
    pa_csv.write_csv(pa.table({"age": [1], "city": ["kumquat"]}), rows)
    assert "add --header" in workspace.succeed("init", file, "--input", rows).out
    assert "age" not in file.read_text() and "<fill in a column>" in file.read_text()
    file.unlink()
    workspace.succeed("init", file, "--input", rows, "--header")
    assert "column: age" in file.read_text() and "kumquat" not in file.read_text()
