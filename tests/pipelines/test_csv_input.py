"""CSV dialects by the command: what `input` may say, and releases of files in them."""

from __future__ import annotations

import io
import re
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
from tests.pipelines.configuration_text import NUMBERS, PURE, check_refusals, tree_with
from tests.pipelines.conftest import (
    FILES,
    NONCE,
    PROJECT,
    ROWS,
    Change,
    Outcome,
    Workspace,
    assert_refused,
    both,
    read_files,
)
from tests.pipelines.test_bad_input import csv_input

DOCUMENT = PROJECT / "docs" / "csv.md"


def text_of(keys: str, domain: str = NUMBERS) -> str:
    """A configuration whose input has more keys."""
    return tree_with(domain=domain).replace("format: csv", f"format: csv, {keys}")


DIALECTS = {
    'separator: ";"': CsvFormat(separator=";"),
    'separator: "\\t"': CsvFormat(separator="\t"),
    "separator: '\\t'": CsvFormat(separator="\t"),
    "separator: tab": CsvFormat(separator="\t"),
    "quote: false": CsvFormat(quote=None),
    'quote: "\'"': CsvFormat(quote="'"),
    "encoding: Windows-1252": CsvFormat(encoding="cp1252"),
    "header: true": CsvFormat(),
    "header: false, columns: [x, y]": CsvFormat(columns=("x", "y")),
    'decimal: ",", thousands: "."': CsvFormat(texts=CsvTexts(decimal=",", thousands=".")),
    'thousands: " "': CsvFormat(texts=CsvTexts(thousands=" ")),
    "trim: true": CsvFormat(texts=CsvTexts(trim=True)),
    "null_values: NA": CsvFormat(texts=CsvTexts(null_values=("NA",))),
    'null_values: [NA, ""]': CsvFormat(texts=CsvTexts(null_values=("NA", ""))),
    "null_values: {x: [NA, '-']}": CsvFormat(texts=CsvTexts(null_values={"x": ("NA", "-")})),
    "escape: '\\'": CsvFormat(escape="\\"),
    "skip_lines: 3, comment: '#'": CsvFormat(skip_lines=3, comment="#"),
    "skip_lines: 0, trailing_separator: true": CsvFormat(trailing_separator=True),
    "date_format: '%d.%m.%Y'": CsvFormat(texts=CsvTexts(date_format="%d.%m.%Y")),
}


def test_dialects() -> None:
    for keys, csv in DIALECTS.items():
        configuration = parse_configuration(text_of(keys))
        assert configuration.input_options == {"csv": csv}
        assert configuration.plan().spec().get("dialect", {}) == csv.spec()
        assert CsvFormat.from_spec(csv.spec()) == csv


STRING = "must be a string; put it in quotes"
REFUSED = {
    "seperator: ';'": "seperator: unknown key; did you mean separator?",
    "separator: ';;'": "separator: ';;' must be one character of ASCII, and no letter",
    "separator: 1": f"separator: 1 {STRING}",
    "separator: '\"'": "quote: '\"' is the separator too",
    "quote: true": "quote: true must be a string",
    "quote: false, newlines: true": "newlines: true needs a quote, around values",
    "escape: ','": "escape: ',' is the separator too",
    "escape: tab, comment: tab": "comment: '\\t' is the escape too",
    "comment: 7": f"comment: 7 {STRING}",
    "skip_lines: 1.5": "skip_lines: 1.5 must be a whole number",
    "trailing_separator: 1": "trailing_separator: 1 must be true or false",
    "comment: '#', escape: '~', newlines: true": "comment: does not go with both newlines: true",
    "header: no": "header: 'no' must be true or false",
    "columns: [x]": "columns: goes with header: false; a header names them",
    "header: false, columns: [x, x]": "columns: 'x' is listed twice",
    "header: false, columns: [x, 7]": f"columns[1]: 7 {STRING}",
    "encoding: latin-9x": "encoding: 'latin-9x' is not an encoding that is read; did",
    "encoding: utf-32": "encoding: 'utf-32' is not an encoding that is read; ",
    "thousands: '.'": "thousands: '.' is the decimal mark too",
    "thousands: x": "thousands: 'x' must be one of",
    "null_values: [NA, -999]": f"null_values[1]: -999 {STRING}",
    "null_values: {x: [7]}": f"null_values.x[0]: 7 {STRING}",
    "null_values: []": "null_values: must have at least one value",
    "date_format: '%d/%m'": "date_format: '%d/%m' must contain %Y or %y, the year",
    "date_format: {x: '%q'}": "date_format: '%q' has %q; known are %Y",
    "date_format: {x: 7}": f"date_format.x: 7 {STRING}",
}
# They are refused before any file is read.
REFUSED_PLANS = {
    "date_format: {x: '%Y'}": "date_format.x: the column is read as double",
    "date_format: {y: '%Y'}": "date_format.y: no tree reads such a column",
    "null_values: {y: NA}": "null_values.y: no tree reads such a column",
}


def test_dialects_that_are_refused() -> None:
    for refused, planned in ((REFUSED, False), (REFUSED_PLANS, True)):
        cases = [(text_of(keys), f"input.{sentence}") for keys, sentence in refused.items()]
        check_refusals(cases, planned=planned)
    other = tree_with().replace("format: csv", "format: parquet, {}")
    for key in ("separator: tab", "header: true", "trim: false", "decimal: '.'"):
        name = key.partition(":")[0]
        said = f"input.{name}: goes with the format csv only"
        check_refusals([(other.replace("{}", key), said)])


@pytest.mark.parametrize(
    "form, zone, sentence",
    [
        ("%Y %z", "", "'%Y %z' has %z, and the column 'x' is read as times without a zone"),
        ("%Y", "Z", "'%Y' has no %z, and the column 'x' is read as times with a zone"),
    ],
)
def test_zones_of_formats_and_of_bounds(form: str, zone: str, sentence: str) -> None:
    keys = f"date_format: {{x: '{form}'}}"
    ends = f"2024-01-01 00:00:00{zone}, upper: 2024-02-01 00:00:00{zone}"
    with pytest.raises(ConfigurationError, match=sentence):
        parse_configuration(text_of(keys, f"{{column: x, lower: {ends}, cells: 31}}")).plan()
    dates = parse_configuration(text_of(keys, "{column: x, lower: 2024-01-01, upper: 2024-02-01}"))
    assert dates.plan().dialect == {"date_format": {"x": form}}


def test_a_stage_reads_fewer_columns_than_the_dialect_names() -> None:
    text = tree_with(group_by="{column: key, keys: private}")
    text = text.replace("format: csv", "format: csv, null_values: {x: NA}")
    configuration = parse_configuration(text.replace(PURE, f"{PURE}, delta: 1e-6"))
    first, trees = configuration.selection, configuration.plan()
    assert first is not None and first.columns == ("key",) and trees.columns == ("x", "key")
    assert first.dialect == trees.dialect == {"null_values": {"x": ["NA"]}}
    csv = configuration.input_options["csv"]
    data = io.BytesIO(b"x,key\n1,a\n")
    read = csv_rows.batches(data, FileSplit("x.csv", 0, 0, 0), first, csv)
    assert [batch.to_pydict() for batch in read] == [{"key": ["a"]}]


def test_dates_in_quotes_are_dates() -> None:
    for domain in (
        "{column: x, lower: '2024-01-01', upper: \"2024-02-01\"}",
        "{column: x, lower: 2024-01-01, upper: '2024-02-01 00:00:00', cells: 31}",
        "{kind: hierarchy, column: x, calendar: [day], lower: '2024-01-01', upper: '2024-02-01'}",
        "{kind: hypercube, columns: [x], lower: ['2024-01-01'], upper: ['2024-02-01']}",
    ):
        texts = (tree_with(domain=each) for each in (domain, re.sub("['\"]", "", domain)))
        quoted, plain = (parse_configuration(text).plan() for text in texts)
        assert quoted.spec() == plain.spec()
    january = tree_with(domain="{column: x, lower: 'January', upper: '2024-02-01'}")
    check_refusals([(january, "trees[0].domain")])


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


def input_keys(**keys: Any) -> Change:
    """The change that sets keys of the input."""
    return lambda settings: settings["input"].update(keys)


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
    outcome = workspace.succeed("release", workspace.configure(german), *NONCE)
    # The noise of 50 a tree is below one row.
    rows = FILES * ROWS
    assert reported_total(outcome, "amounts") == rows
    assert reported_total(outcome, "places") == rows - FILES
    assert reported_total(outcome, "july") == rows
    assert workspace.manifest()["spec"]["dialect"]["separator"] == ";"

    # It is a part of what was released, and is verified by the files alone.
    csvs = sorted(workspace.rows.glob("*.csv"))
    verify = ("verify", workspace.output, "--key", workspace.key, "--data", *csvs)
    assert "replay" in workspace.succeed(*verify).out

    before = read_files(workspace.output)
    another = workspace.release(both(german, input_keys(thousands=" ")))
    assert_refused(workspace, another, "another configuration: input.thousands was .,")
    assert read_files(workspace.output) == before


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "change, words",
    [
        ({"separator": ","}, ["its first line has 1 field", 'with separator: ";" it has']),
        ({"header": False, "columns": ["a", "b", "c"]}, ["input.columns: has no 'Betrag'"]),
        ({"encoding": "utf-16"}, ["is not in utf-16, which begins with a byte order mark"]),
    ],
)
def test_releases_that_are_refused(workspace: Workspace, change: Any, words: list[str]) -> None:
    as_german(workspace)
    assert_refused(workspace, workspace.release(both(german, input_keys(**change))), *words)
    assert read_files(workspace.output).keys() <= {"nonce.json", "plan.json"}


@pytest.mark.usefixtures("quick")
def test_the_configuration_of_the_page(workspace: Workspace, monkeypatch: Any) -> None:
    """It is released unchanged, of the rows that the page shows."""
    monkeypatch.chdir(workspace.folder)
    text = DOCUMENT.read_text()
    (workspace.folder / "orders").mkdir()
    header = re.search(r"below the header `(.*?)`", text).group(1)
    line = re.search(r"Lines such as `(.*?)`", text).group(1)
    data = "\n".join([header, *[line] * 500]).encode("cp1252")
    (workspace.folder / "orders" / "1.csv").write_bytes(data)
    yaml = text.split("```yaml\n")[1].split("```")[0]
    (workspace.folder / "a.yaml").write_text(yaml)
    outcome = workspace.succeed("release", "a.yaml", *NONCE)
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
