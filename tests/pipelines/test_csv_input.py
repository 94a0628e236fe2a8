"""CSV dialects by the command: what `input` may say, and releases of files in them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.run import releasing
from dptrees.pipelines.sections.document import ConfigurationError
from dptrees.transforms.readers import csv_rows
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_values import CsvTexts
from dptrees.transforms.readers.read import FileSplit
from tests.pipelines.conftest import FILES, NONCE, ROWS, Outcome, Workspace
from tests.pipelines.test_bad_input import assert_refused, contents, csv_input

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "csv.md"
TEXT = """
release: small
input: {{format: csv, path: a.csv{keys}}}
output: out
key_file: release.key
privacy: {{epsilon: 1, neighbors: add_remove}}
trees:
  - name: x
    domain: {{column: x, lower: 0, upper: 8, cells: 8}}
"""


@pytest.mark.parametrize(
    "keys, csv",
    [
        ('separator: ";"', CsvFormat(separator=";")),
        ('separator: "\\t"', CsvFormat(separator="\t")),
        ("separator: '\\t'", CsvFormat(separator="\t")),
        ("separator: tab", CsvFormat(separator="\t")),
        ("quote: false", CsvFormat(quote=None)),
        ('quote: "\'"', CsvFormat(quote="'")),
        ("encoding: Windows-1252", CsvFormat(encoding="cp1252")),
        ("header: true", CsvFormat()),
        ("header: false, columns: [x, y]", CsvFormat(columns=("x", "y"))),
        ('decimal: ",", thousands: "."', CsvFormat(texts=CsvTexts(decimal=",", thousands="."))),
        ('thousands: " "', CsvFormat(texts=CsvTexts(thousands=" "))),
        ("trim: true", CsvFormat(texts=CsvTexts(trim=True))),
        ("null_values: NA", CsvFormat(texts=CsvTexts(null_values=("NA",)))),
        ('null_values: [NA, ""]', CsvFormat(texts=CsvTexts(null_values=("NA", "")))),
        (
            "null_values: {x: [NA, '-']}",
            CsvFormat(texts=CsvTexts(null_values={"x": ("NA", "-")})),
        ),
        ("escape: '\\'", CsvFormat(escape="\\")),
        ("skip_lines: 3, comment: '#'", CsvFormat(skip_lines=3, comment="#")),
        ("skip_lines: 0, trailing_separator: true", CsvFormat(trailing_separator=True)),
        ("date_format: '%d.%m.%Y'", CsvFormat(texts=CsvTexts(date_format="%d.%m.%Y"))),
    ],
)
def test_a_dialect(keys: str, csv: CsvFormat) -> None:
    configuration = parse_configuration(TEXT.format(keys=f", {keys}"))
    assert configuration.input_options == {"csv": csv}
    assert configuration.plan().spec().get("dialect", {}) == csv.spec()
    assert CsvFormat.from_spec(csv.spec()) == csv


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ("seperator: ';'", "input.seperator: unknown key; did you mean separator?"),
        ("separator: ';;'", "input.separator: ';;' must be one character of ASCII, and no letter"),
        ("separator: 1", "input.separator: 1 must be a string; put it in quotes"),
        ("separator: '\"'", "input.quote: '\"' is the separator too"),
        ("quote: true", "input.quote: true must be a string"),
        ("quote: false, newlines: true", "input.newlines: true needs a quote, around values"),
        ("escape: '\"'", "input.escape: '\"' is the quote too"),
        ("escape: ','", "input.escape: ',' is the separator too"),
        ("escape: tab, comment: tab", "input.comment: '\\t' is the escape too"),
        ("comment: 7", "input.comment: 7 must be a string; put it in quotes"),
        ("skip_lines: -1", "input.skip_lines: -1 must not be negative"),
        ("skip_lines: 1.5", "input.skip_lines: 1.5 must be a whole number"),
        ("trailing_separator: 1", "input.trailing_separator: 1 must be true or false"),
        (
            "comment: '#', escape: '~', newlines: true",
            "input.comment: does not go with both newlines: true and an escape",
        ),
        ("header: no", "input.header: 'no' must be true or false"),
        ("header: false", "input.columns: is required with header: false: the names of all"),
        ("columns: [x]", "input.columns: goes with header: false; a header names them"),
        ("header: false, columns: [x, x]", "input.columns: 'x' is listed twice"),
        (
            "header: false, columns: [x, 7]",
            "input.columns[1]: 7 must be a string; put it in quotes",
        ),
        ("encoding: latin-9x", "input.encoding: 'latin-9x' is not an encoding that is read; did"),
        ("encoding: utf-32", "input.encoding: 'utf-32' is not an encoding that is read; "),
        ("decimal: ';'", "input.decimal: ';' must be '.' or ','"),
        ("thousands: '.'", "input.thousands: '.' is the decimal mark too"),
        ("thousands: x", "input.thousands: 'x' must be one of"),
        (
            "null_values: [NA, -999]",
            "input.null_values[1]: -999 must be a string; put it in quotes",
        ),
        ("null_values: {x: [7]}", "input.null_values.x[0]: 7 must be a string; put it in quotes"),
        ("null_values: []", "input.null_values: must have at least one value"),
        ("date_format: '%d/%m'", "input.date_format: '%d/%m' must contain %Y or %y, the year"),
        ("date_format: {x: '%q'}", "input.date_format: '%q' has %q; known are %Y"),
        ("date_format: {x: 7}", "input.date_format.x: 7 must be a string; put it in quotes"),
    ],
)
def test_dialects_that_are_refused(keys: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(TEXT.format(keys=f", {keys}"), "a.yaml")
    assert str(caught.value).startswith(f"a.yaml: {sentence}")


@pytest.mark.parametrize(
    "keys, sentence",
    [
        ("date_format: {x: '%Y'}", "input.date_format.x: the column is read as double"),
        ("date_format: {y: '%Y'}", "input.date_format.y: no tree reads such a column"),
        ("null_values: {y: NA}", "input.null_values.y: no tree reads such a column"),
    ],
)
def test_dialects_that_do_not_go_with_the_trees(keys: str, sentence: str) -> None:
    """They are refused before any file is read."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(TEXT.format(keys=f", {keys}"), "a.yaml").plan()
    assert str(caught.value).startswith(f"a.yaml: {sentence}")


@pytest.mark.parametrize(
    "form, zone, sentence",
    [
        ("%Y %z", "", "'%Y %z' has %z, and the column 'x' is read as times without a zone"),
        ("%Y", "Z", "'%Y' has no %z, and the column 'x' is read as times with a zone"),
    ],
)
def test_zones_of_formats_and_of_bounds(form: str, zone: str, sentence: str) -> None:
    days = f"2024-01-01 00:00:00{zone}, upper: 2024-02-01 00:00:00{zone}, cells: 31"
    text = TEXT.format(keys=f", date_format: {{x: '{form}'}}")
    text = text.replace("0, upper: 8, cells: 8", days)
    with pytest.raises(ConfigurationError, match=sentence):
        parse_configuration(text).plan()
    dates = text.replace(days, "2024-01-01, upper: 2024-02-01")
    assert parse_configuration(dates).plan().dialect == {"date_format": {"x": form}}


def test_a_stage_reads_fewer_columns_than_the_dialect_names() -> None:
    text = TEXT.format(keys=", null_values: {x: NA}").replace(
        "epsilon: 1,", "epsilon: 1, delta: 1e-6,"
    )
    configuration = parse_configuration(f"{text}    group_by: {{column: key, keys: private}}\n")
    first, trees = configuration.selection, configuration.plan()
    assert first is not None and first.columns == ("key",) and trees.columns == ("x", "key")
    assert first.dialect == trees.dialect == {"null_values": {"x": ["NA"]}}
    csv = configuration.input_options["csv"]
    data = io.BytesIO(b"x,key\n1,a\n")
    read = csv_rows.batches(data, FileSplit("x.csv", 0, 0, 0), first, csv)
    assert [batch.to_pydict() for batch in read] == [{"key": ["a"]}]


@pytest.mark.parametrize("key", ["separator: tab", "header: true", "trim: false", "decimal: '.'"])
def test_other_formats_have_no_dialect(key: str) -> None:
    text = TEXT.format(keys=f", {key}").replace("format: csv", "format: parquet")
    with pytest.raises(ConfigurationError, match=r"input\.\w+: goes with the format csv only"):
        parse_configuration(text)


@pytest.mark.parametrize(
    "domain",
    [
        "{column: x, lower: '2024-01-01', upper: \"2024-02-01\"}",
        "{column: x, lower: 2024-01-01, upper: '2024-02-01 00:00:00', cells: 31}",
        "{kind: hierarchy, column: x, calendar: [day], lower: '2024-01-01', upper: '2024-02-01'}",
        "{kind: hypercube, columns: [x], lower: ['2024-01-01'], upper: ['2024-02-01']}",
    ],
)
def test_dates_in_quotes_are_dates(domain: str) -> None:
    text = TEXT.format(keys="").replace("{column: x, lower: 0, upper: 8, cells: 8}", domain)
    quoted, plain = (parse_configuration(each) for each in (text, re.sub("['\"]", "", text)))
    assert quoted.plan().spec() == plain.plan().spec()


def test_a_text_that_is_no_date_stays_one() -> None:
    domain = "{column: x, lower: 'January', upper: '2024-02-01'}"
    text = TEXT.format(keys="").replace("{column: x, lower: 0, upper: 8, cells: 8}", domain)
    with pytest.raises(ConfigurationError, match=r"trees\[0\]\.domain"):
        parse_configuration(text)


# Releases.


def as_german(workspace: Workspace) -> None:
    """The rows as a program in Germany writes them."""
    places = {"north": "Köln", "south": "Zürich"}
    for index in range(FILES):
        rows = pq.read_table(workspace.file(index)).to_pylist()
        lines = [
            f"{7 + row['x'] * 1000:_.3f}".replace(".", ",").replace("_", ".")
            + f";{places.get(row['place'], 'k. A.')};{1 + number % 28}.7.2024"
            for number, row in enumerate(rows)
        ]
        data = "\r\n".join(["Betrag;Ort;Tag", *lines]).encode("cp1252")
        workspace.file(index).with_suffix(".csv").write_bytes(data)


def german(settings: dict[str, Any]) -> None:
    csv_input(settings)
    settings["input"] |= {"separator": ";", "decimal": ",", "thousands": ".", "encoding": "cp1252"}
    settings["input"] |= {"date_format": "%d.%m.%Y", "null_values": {"Ort": ["k. A."]}}
    settings["privacy"]["epsilon"] = 150
    amounts = {"column": "Betrag", "lower": -50_000, "upper": 200_000, "cells": 5}
    amounts |= {"out_of_range": "drop"}
    places = {"column": "Ort", "type": "category", "categories": ["Köln", "Zürich"]}
    july = {"column": "Tag", "lower": "2024-07-01", "upper": "2024-08-01"}
    settings["trees"] = [
        {"name": "amounts", "domain": amounts},
        {"name": "places", "domain": places | {"unknown": "drop"}},
        {"name": "july", "domain": july},
    ]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "write_report", lambda output: None)  # tested elsewhere


def reported_total(outcome: Outcome, tree: str) -> int:
    """The rows of a tree, as the summary reports them."""
    found = re.search(rf"^{tree} .*\n  rows ([0-9,]+) ", outcome.out, re.MULTILINE)
    assert found is not None, outcome.out
    return int(found.group(1).replace(",", ""))


@pytest.mark.usefixtures("quick")
def test_a_release_of_a_german_file(workspace: Workspace) -> None:
    as_german(workspace)
    outcome = workspace.release(german)
    assert outcome.code == 0, outcome.err
    # The noise of 50 a tree is below one row.
    rows = FILES * ROWS
    assert reported_total(outcome, "amounts") == rows
    assert reported_total(outcome, "places") == rows - FILES
    assert reported_total(outcome, "july") == rows
    manifest = json.loads((workspace.output / "manifest.json").read_text())
    assert manifest["spec"]["dialect"]["separator"] == ";"

    # It is a part of what was released, and is verified by the files alone.
    csvs = sorted(workspace.rows.glob("*.csv"))
    reported = workspace.run("verify", workspace.output, "--key", workspace.key, "--data", *csvs)
    assert reported.code == 0 and "replay" in reported.out, reported

    def another(settings: dict[str, Any]) -> None:
        german(settings)
        settings["input"]["thousands"] = " "

    before = contents(workspace.output)
    assert_refused(
        workspace, workspace.release(another), "another configuration: input.thousands was .,"
    )
    assert contents(workspace.output) == before


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "change, words",
    [
        ({"separator": ","}, ["its first line has 1 field", 'with separator: ";" it has']),
        ({"header": False, "columns": ["a", "b", "c"]}, ["input.columns: has no 'Betrag'"]),
        ({"date_format": {"Datum": "%Y"}}, ["input.date_format.Datum: no tree reads such"]),
        ({"date_format": {"Ort": "%Y"}}, ["input.date_format.Ort: the column is read as string"]),
        ({"encoding": "utf-16"}, ["is not in utf-16, which begins with a byte order mark"]),
    ],
)
def test_releases_that_are_refused(workspace: Workspace, change: Any, words: list[str]) -> None:
    as_german(workspace)

    def changed(settings: dict[str, Any]) -> None:
        german(settings)
        settings["input"] |= change

    outcome = workspace.release(changed)
    assert_refused(workspace, outcome, *words)
    assert contents(workspace.output).keys() <= {"nonce.json", "plan.json"}


def test_the_configuration_of_the_page(workspace: Workspace, monkeypatch: Any) -> None:
    """It is released unchanged, of the rows that the page shows."""
    monkeypatch.setattr(releasing, "write_report", lambda output: None)
    monkeypatch.chdir(workspace.folder)
    text = DOCUMENT.read_text()
    (workspace.folder / "orders").mkdir()
    header = re.search(r"below the header `(.*?)`", text).group(1)
    line = re.search(r"Lines such as `(.*?)`", text).group(1)
    data = "\n".join([header, *[line] * 500]).encode("cp1252")
    (workspace.folder / "orders" / "1.csv").write_bytes(data)
    yaml = text.split("```yaml\n")[1].split("```")[0]
    (workspace.folder / "a.yaml").write_text(yaml)
    outcome = workspace.run("release", "a.yaml", *NONCE)
    assert outcome.code == 0, outcome.err
    assert abs(reported_total(outcome, "day") - 500) < 60

    # And what it says where a column is not found.
    sentences = [each for each in text.splitlines() if each.startswith("dptrees: input: orders/")]
    plain = "\n".join(each for each in yaml.splitlines() if "separator" not in each)
    wrong = yaml.replace("column: amount", "column: Amount")
    for sentence, configuration in zip(sentences[:2], (plain, wrong), strict=True):
        (workspace.folder / "b.yaml").write_text(configuration.replace("out/orders", "out/b"))
        reported = workspace.run("release", "b.yaml")
        assert (reported.code, reported.err) == (2, f"{sentence}\n")
    (workspace.folder / "orders" / "1.csv").write_bytes(data.split(b"\n", 1)[1])
    (workspace.folder / "b.yaml").write_text(yaml.replace("out/orders", "out/b"))
    reported = workspace.run("release", "b.yaml")
    assert (reported.code, reported.err) == (2, f"{sentences[2]}\n")
