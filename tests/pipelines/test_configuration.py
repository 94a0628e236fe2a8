"""Configurations: what is read from a file, what is refused and in which words, and the plan."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date, datetime, timezone
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dptrees.dpcore.adaptive.planner import plan_adaptive
from dptrees.dpcore.ordered.dates import DateDomain, TimestampDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, Neighbors, PrivacyUnit
from dptrees.dpcore.release.mechanism_choice import OrderedChoice
from dptrees.dpcore.uniform.plan import TreeSetting
from dptrees.pipelines.config.configuration import (
    Configuration,
    load_configuration,
    parse_configuration,
)
from dptrees.pipelines.config.release_section import (
    DEFAULT_CONFIDENCE,
    ReleaseSection,
    SeriesSection,
)
from dptrees.pipelines.kinds.hierarchies import HierarchyTree, MeasureSection, SparseTree
from dptrees.pipelines.kinds.ordered import OrderedTree
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections import rules as section
from dptrees.pipelines.sections.document import ConfigurationError, parse_document
from dptrees.pipelines.sections.input import InputSection
from dptrees.pipelines.sections.privacy import PrivacySection
from dptrees.pipelines.sections.public_tables import read_key_list
from dptrees.pipelines.sections.tree import BySection
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.csv_format import CsvFormat
from tests.pipelines.hierarchy.tables import write_tables_of_the_document

PROJECT = Path(__file__).resolve().parents[2]
FLIGHTS = PROJECT / "examples" / "flights.yaml"
DOCUMENT = PROJECT / "docs" / "configuration"  # a folder of pages

NUMBERS = "{column: x, lower: 0, upper: 10, cells: 20}"
SECTIONS = {
    "release": "ages-2024",
    "input": "{format: csv, path: ages/*.csv}",
    "output": "out/ages",
    "key_file": "release.key",
    "privacy": "{epsilon: 1, neighbors: add_remove}",
    "trees": f"[{{name: ages, domain: {NUMBERS}}}]",
}


def text_with(**changes: str | None) -> str:
    """Return a configuration in which some top-level sections are replaced, added or left out."""
    chosen = {key: value for key, value in (SECTIONS | changes).items() if value is not None}
    return "".join(f"{key}: {value}\n" for key, value in chosen.items())


def tree_with(**changes: str | None) -> str:
    """Return a configuration of one tree in which some keys are replaced, added or left out."""
    keys: dict[str, str | None] = {"name": "ages", "domain": NUMBERS}
    chosen = {key: value for key, value in (keys | changes).items() if value is not None}
    return text_with(trees="[{" + ", ".join(f"{k}: {v}" for k, v in chosen.items()) + "}]")


def refusal(text: str) -> str:
    """Return the sentence with which a configuration is refused."""
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(text, "x.yaml")
    return str(raised.value)


def only_domain(domain: str) -> object:
    return parse_configuration(tree_with(domain=domain)).trees[0].domain


# What is read.


def test_example_is_read() -> None:
    flights = load_configuration(str(FLIGHTS))
    assert flights.source == str(FLIGHTS)
    assert flights.release == "flights-2013"
    assert flights.input_format == "parquet"
    assert flights.input_paths == ("data/flights/*.parquet",)
    assert flights.output == "out/flights-2013"
    assert flights.key.reference == "file:release.key"
    assert flights.key.check_value == b""
    assert flights.terms.confidence == 0.95
    assert flights.terms.unit == PrivacyUnit(
        neighbors=Neighbors.ADD_REMOVE, columns=("tailnum",), rows=50, keys=2, rows_per_key=40
    )
    assert flights.guarantee.budget == Budget(measure=Measure.EPSILON, amount=Fraction(2))
    assert flights.guarantee.delta == Fraction(1, 10**6)
    assert (str(flights.ledger), flights.dataset) == ("sqlite:///budget.db", "flights")
    departure, arrival, distance = flights.trees
    assert departure.domain == IntegerDomain(
        column="dep_delay", lower=-60, upper=600, cells=660, outside="clamp", missing="drop"
    )
    assert departure.keys is not None
    assert departure.keys.size == 16
    assert departure.keys.column == "carrier"
    assert departure.chosen_quantiles == (0.1, 0.5, 0.9)
    assert arrival.keys is None
    assert arrival.chosen_quantiles == ()
    assert distance.domain == IntegerDomain(column="distance", lower=0, upper=5000, cells=500)


def test_smallest_configuration_has_the_documented_defaults() -> None:
    configuration = parse_configuration(text_with())
    tree = configuration.trees[0]
    assert configuration.terms.confidence == DEFAULT_CONFIDENCE
    assert (tree.chosen_objective, tree.weight) == ("cdf", Fraction(1))
    assert tree.keys is None
    assert tree.chosen_quantiles == ()
    assert tree.domain == NumberDomain(column="x", lower=0, upper=10, cells=20)


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("0.1", Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        ("1E+1", Fraction(10)),
        ("1.5e-1", Fraction(3, 20)),
        (".25", Fraction(1, 4)),
        ("2.", Fraction(2)),
        ("+3", Fraction(3)),
        ("0.30000000000000004", Fraction(30000000000000004, 10**17)),
        ("1e-15", Fraction(1, 10**15)),
        (
            "0.12345678901234567890123456789012345",
            Fraction(12345678901234567890123456789012345, 10**35),
        ),
    ],
)
def test_amounts_are_exactly_what_is_written(written: str, amount: Fraction) -> None:
    for measure in ("epsilon", "rho"):
        privacy = f"{{{measure}: {written}, neighbors: substitute}}"
        budget = parse_configuration(text_with(privacy=privacy)).guarantee.budget
        assert budget == Budget(measure=Measure(measure), amount=amount)
    assert parse_configuration(tree_with(weight=written)).trees[0].weight == amount


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (
            "{column: x, lower: 0.1, upper: 1e1, cells: 3, out_of_range: drop, missing: last}",
            NumberDomain(column="x", lower=0.1, upper=10, cells=3, outside="drop", missing="last"),
        ),
        (
            "{kind: ordered, type: integer, column: x, lower: -5, upper: 5}",
            IntegerDomain(column="x", lower=-5, upper=5),
        ),
        (
            "{column: x, lower: 2013-01-01, upper: 2014-01-01}",
            DateDomain(column="x", outside="drop", lower=date(2013, 1, 1), upper=date(2014, 1, 1)),
        ),
        (
            "{column: x, lower: 2013-01-01, upper: 2013-01-15, cells: 2}",
            DateDomain(
                column="x",
                outside="drop",
                lower=date(2013, 1, 1),
                upper=date(2013, 1, 15),
                days_per_cell=7,
            ),
        ),
        (
            "{column: x, type: date, lower: '2013-01-01', upper: '2013-01-03'}",
            DateDomain(column="x", outside="drop", lower=date(2013, 1, 1), upper=date(2013, 1, 3)),
        ),
        (
            "{column: x, lower: 2013-01-01 06:00:00, upper: 2013-01-01 18:00:00, cells: 12}",
            TimestampDomain(
                column="x",
                outside="drop",
                lower=datetime(2013, 1, 1, 6),
                upper=datetime(2013, 1, 1, 18),
                cells=12,
            ),
        ),
        (
            "{column: x, lower: 2013-01-01, upper: 2013-01-01 12:00:00, cells: 12}",
            TimestampDomain(
                column="x",
                outside="drop",
                lower=datetime(2013, 1, 1),
                upper=datetime(2013, 1, 1, 12),
                cells=12,
            ),
        ),
        (
            "{column: x, type: timestamp, lower: 2013-01-01, upper: 2013-01-02, cells: 24}",
            TimestampDomain(
                column="x",
                outside="drop",
                lower=datetime(2013, 1, 1),
                upper=datetime(2013, 1, 2),
                cells=24,
            ),
        ),
        (
            "{column: x, lower: 2013-01-01T00:00:00Z, upper: 2013-01-01T03:00:00+01:00, cells: 2}",
            TimestampDomain(
                column="x",
                outside="drop",
                lower=datetime(2013, 1, 1, tzinfo=timezone.utc),
                upper=datetime(2013, 1, 1, 2, tzinfo=timezone.utc),
                cells=2,
            ),
        ),
        (
            "{column: x, categories: [low, NO, 02134], unknown: first}",
            CategoryDomain(
                column="x", categories=("low", "NO", "02134"), unknown="first", ordered=False
            ),
        ),
        (
            "{column: x, type: category, categories: [3, 1, 2]}",
            CategoryDomain(column="x", categories=(3, 1, 2), ordered=False),
        ),
        (
            "{column: x, categories: [S, M, L], ordered: true}",
            CategoryDomain(column="x", categories=("S", "M", "L")),
        ),
    ],
)
def test_domains(domain: str, expected: object) -> None:
    assert only_domain(domain) == expected


def test_bounds_are_plain_floats() -> None:
    domain = only_domain("{column: x, lower: 0.5, upper: 2.5, cells: 2}")
    assert isinstance(domain, NumberDomain)
    assert type(domain.lower) is float
    assert type(domain.spec()["upper"]) is float


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("[AA, NO, on, 'true']", ("AA", "NO", "on", "true")),
        ("[007, 08, x]", ("007", "08", "x")),
        ("[7, -8]", (7, -8)),
    ],
)
def test_key_lists(keys: str, expected: tuple[object, ...]) -> None:
    by = f"{{column: c, keys: {keys}, unknown: other}}"
    key_list = parse_configuration(tree_with(group_by=by)).trees[0].keys
    assert key_list is not None
    assert key_list.keys == expected
    assert key_list.size == len(expected) + 1


def test_quantiles_default_only_for_the_objective_quantiles() -> None:
    def quantiles(**keys: str) -> tuple[float, ...]:
        return parse_configuration(tree_with(**keys)).plan().questions[0].quantiles

    assert quantiles() == ()
    assert quantiles(objective="quantiles") == (0.1, 0.25, 0.5, 0.75, 0.9)
    assert quantiles(objective="quantiles", quantiles="[1, 0, 0.5]") == (1.0, 0.0, 0.5)
    assert quantiles(objective="cdf", quantiles="[0.3]") == (0.3,)


@pytest.mark.parametrize(
    "keys, csv",
    [
        ("", CsvFormat()),
        (", newlines: true", CsvFormat(newlines=True)),
        (", newlines: false, malformed: fail", CsvFormat(malformed="fail")),
        (", malformed: drop", CsvFormat()),
    ],
)
def test_what_a_row_of_csv_is(keys: str, csv: CsvFormat) -> None:
    text = text_with(input=f"{{format: csv, path: a.csv{keys}}}")
    assert parse_configuration(text).input_options == {"csv": csv}
    text = text_with(input="{format: parquet, path: a.parquet}")
    assert parse_configuration(text).input_options == {}


def test_inputs_and_keys() -> None:
    text = text_with(input="{format: parquet, path: [a.parquet, b/*.parquet]}")
    assert parse_configuration(text).input_paths == ("a.parquet", "b/*.parquet")
    for reference in ("env:RELEASE_KEY", "file:/run/key"):
        configuration = parse_configuration(text_with(key_file=None, key=reference))
        assert configuration.key.reference == reference
    assert parse_configuration(text_with(confidence="0.9")).terms.confidence == 0.9


def test_anchors_and_merges() -> None:
    text = text_with(
        trees=f"[&first {{name: a, domain: {NUMBERS}, weight: 2}}, {{<<: *first, name: b}}]"
    )
    first, second = parse_configuration(text).trees
    assert (second.name, second.domain, second.weight) == ("b", first.domain, Fraction(2))


# What is refused, one by one.

TOP = [
    ("release", None, "x.yaml: release: is required"),
    ("input", None, "x.yaml: input: is required"),
    ("output", None, "x.yaml: output: is required"),
    ("privacy", None, "x.yaml: privacy: is required"),
    ("trees", None, "x.yaml: trees: is required"),
    ("release", "a/b", "x.yaml: release: 'a/b' must be 1 to 100 letters, digits, '.', '_' or '-'"),
    ("release", "a\\b", "release: 'a\\\\b' must be 1 to 100 letters"),
    ("release", "..", "release: '..' must be 1 to 100 letters"),
    ("release", "ä", "release: 'ä' must be"),
    ("release", "a" * 101, "release: 'aaa"),
    ("release", "'a\n\n'", "release: 'a\\n' must be"),
    ("release", "''", "release: must not be empty"),
    ("release", "2013", "release: 2013 must be a string; put it in quotes"),
    ("release", "2013-01-01", "release: 2013-01-01 must be a string; put it in quotes"),
    ("release", "true", "release: true must be a string; put it in quotes"),
    ("release", "", "release: has no value"),
    ("release", "[a]", "release: a list must be a string"),
    ("output", "' '", "output: must not be empty"),
    ("output", '"a\\0b"', "output: contains a character that a text file cannot contain"),
    ("output", '"\\uD800"', "output: contains a character that a text file cannot contain"),
    ("key_file", None, "x.yaml: needs exactly one of key_file and key"),
    ("key", "env:A", "x.yaml: needs exactly one of key_file and key"),
    ("confidence", "95", "confidence: 95 must be a number above 0 and at most 0.9999"),
    ("confidence", "0", "confidence: 0 must be"),
    ("confidence", "1e-999", "'1e-999' must be 0 or from 1e-400 to 1e400"),
    ("confidence", "true", "confidence: true must be"),
    ("confidence", "", "confidence: has no value"),
    ("relaese", "x", "x.yaml: relaese: unknown key; did you mean release?"),
    ("colour", "x", "x.yaml: colour: unknown key; known are release, input, output, key_file, key"),
    ("input", "data.csv", "x.yaml: input: 'data.csv' must be a section of keys and values"),
    ("input", "{format: bigquery, path: x}", "input.path: is for files only; for a "),
    ("input", "{format: kafka, path: x}", "input.format: kafka is a stream, which has no end"),
    ("input", "{format: csv, path: kafka://x/y}", "input.path: 'kafka://x/y' is a stream"),
    ("input", "{format: delta}", "input.table: is required"),
    ("input", "{format: delta, table: x, version: [1]}", "input.version: a list must be a number"),
    ("input", "{format: delta, table: x, version: -1}", "input.version: -1 must be a number"),
    ("input", "{format: delta, table: x, catalog: y}", "input.catalog: unknown key; "),
    ("input", "{format: bigquery, table: a.b}", "input.table: 'a.b' must be PROJECT.DATASET.TABLE"),
    (
        "input",
        "{format: excel, path: x}",
        "input.format: 'excel' must be parquet, csv, arrow, json, iceberg, delta, ",
    ),
    ("input", "{path: x}", "input.format: is required"),
    ("input", "{format: csv}", "input.path: is required"),
    ("input", "{format: csv, path: []}", "input.path: must have at least one value"),
    ("input", "{format: csv, path: [a, 5]}", "input.path[1]: 5 must be a string"),
    ("input", "{format: csv, path: {a: b}}", "input.path[0]: a section must be a string"),
    ("input", "{format: csv, path: [[a]]}", "input.path[0]: a list must be a string"),
    ("input", "{format: csv, paths: a}", "input.paths: unknown key; did you mean path?"),
    ("input", "{format: csv, path: a, newlines: 1}", "input.newlines: 1 must be true or false"),
    ("input", "{format: csv, path: a, malformed: x}", "input.malformed: 'x' must be drop or fail"),
    (
        "input",
        "{format: parquet, path: a, malformed: drop}",
        "input.malformed: goes with the formats csv and json only",
    ),
    (
        "input",
        "{format: parquet, path: a, newlines: false}",
        "input.newlines: goes with the format csv only",
    ),
    ("privacy", "{neighbors: add_remove}", "privacy: needs exactly one of epsilon and rho"),
    (
        "privacy",
        "{epsilon: 1, rho: 1, neighbors: add_remove}",
        "privacy: needs exactly one of epsilon and rho",
    ),
    ("privacy", "{epsilon: 1}", "privacy.neighbors: is required"),
    (
        "privacy",
        "{epsilon: 1, neighbors: swap}",
        "privacy.neighbors: 'swap' must be add_remove or substitute",
    ),
    (
        "privacy",
        "{epsilom: 1, neighbors: add_remove}",
        "x.yaml: privacy.epsilom: unknown key; did you mean epsilon?",
    ),
    (
        "privacy",
        "{rho: 1, delta: 1e-9, neighbors: add_remove}",
        "privacy.delta: goes with epsilon, not with rho",
    ),
    (
        "privacy",
        "{epsilon: 1, delta: 1, neighbors: add_remove}",
        "privacy.delta: 1 must be a number above 0 and below 1",
    ),
    (
        "privacy",
        "{epsilon: 1, unit: tailnum, neighbors: add_remove}",
        "privacy.max_rows: is required if the unit is not the row (tailnum): the number of its "
        "rows that a tree counts",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, max_rows: 5}",
        "privacy.max_rows: has no effect if the unit is the row; name the column of the unit",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, unit: tailnum, max_rows: 0}",
        "privacy.max_rows: 0 must be a whole number from 1 to 1048576",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, unit: [a, b, a], max_rows: 2}",
        "privacy.unit[2]: a is listed twice",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, unit: [], max_rows: 2}",
        "privacy.unit: must have at least one value",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, unit: a, max_rows: 2, null_unit: share}",
        "privacy.null_unit: 'share' must be drop or own",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, null_unit: own}",
        "privacy.null_unit: has no effect if the unit is the row",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, max_keys: 5}",
        "privacy.max_keys: has no effect if the unit is the row; name the column of the unit",
    ),
    (
        "privacy",
        "{epsilon: 1, neighbors: add_remove, unit: a, max_rows: 2, max_keys: 2}",
        "privacy.max_keys: has no effect: no tree has group_by",
    ),
    ("privacy", "", "privacy: has no value"),
    ("trees", "[]", "trees: must have at least one value"),
    ("trees", "{name: a}", "trees: a section must be a list"),
    ("trees", "[a]", "trees[0]: 'a' must be a section"),
    ("trees", "[]\nzone: 1", "zone: unknown key"),
    (
        "trees",
        f"[{{name: a, domain: {NUMBERS}}}, {{name: a, domain: {NUMBERS}}}]",
        "trees[1].name: a is the name of an earlier tree too",
    ),
]


@pytest.mark.parametrize(("key", "value", "sentence"), TOP)
def test_bad_section_is_refused(key: str, value: str | None, sentence: str) -> None:
    message = refusal(text_with(**{key: value}))
    assert sentence in message
    assert message.startswith("x.yaml: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    "value",
    [
        *("0", "-1", "0.0", "-0.5", "true", "false", ".nan", ".inf", "-.inf", "one", "'1'"),
        *(
            "[1]",
            "{a: 1}",
            "2013-01-01",
            "1/2",
            "0x10",
            "1:30",
            "010",
            "1_0",
            "1.2.3",
            "nan",
            "inf",
        ),
    ],
)
def test_bad_amount_is_refused(value: str) -> None:
    for measure in ("epsilon", "rho"):
        message = refusal(text_with(privacy=f"{{{measure}: {value}, neighbors: add_remove}}"))
        assert re.fullmatch(
            rf"x\.yaml: privacy\.{measure}: .+ must be a number above 0(; remove the quotes)?",
            message,
        )
    assert "trees[0].weight: " in refusal(tree_with(weight=value))


@pytest.mark.parametrize("value", ["1e-16", "1.1e15", "1e999999999", "1e-999999999", "9" * 5000])
def test_amount_out_of_reach_is_refused(value: str) -> None:
    message = refusal(text_with(privacy=f"{{epsilon: {value}, neighbors: add_remove}}"))
    assert len(message) < 150
    words = ("must be from 1e-15 to 1e15", "is not a whole number", "must be 0 or from 1e-400")
    assert any(each in message for each in words)


def test_number_with_an_exponent_beyond_all_is_refused() -> None:
    for value in ("1e9999999999999999999999", "1e-9999999999999999999999"):
        message = refusal(text_with(confidence=value))
        assert "not a number" in message or "must be a number" in message


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("name", None, "trees[0].name: is required"),
        ("name", "a b", "trees[0].name: 'a b' must be 1 to 100 letters"),
        ("domain", None, "trees[0].domain: is required"),
        ("mechanism", "privhp", "trees[0].mechanism: 'privhp' must be planned, tree, binary"),
        ("mechanism", "magic", "trees[0].mechanism: 'magic' must be planned, tree, binary"),
        ("objective", "mode", "counts, nodes or mean; docs/questions.md has more"),
        ("objective", "[cdf]", "trees[0].objective: a list must be cdf, quantiles, ranges,"),
        ("objective", "nodes", "trees[0].fanouts: is required for the objective nodes"),
        ("widths", "[3]", "trees[0].widths: belongs to the objective ranges"),
        ("widths", "[0]", "trees[0].widths[0]: 0 must be a whole number above 0"),
        ("level_weights", "[1, -1]", "trees[0].level_weights[1]: -1 must be a number from 0"),
        ("level_weights", "[0, 0]", "trees[0].level_weights: must contain a number above 0"),
        ("guess", "{rows: 5, below: [[3, 0.5]]}", "trees[0].guess.below: belongs to the objective"),
        ("guess", "{rows: 5, below: [3]}", "trees[0].guess.below[0]: 3 must be a pair"),
        ("guess", "{rows: 0, below: [[3, 0.5]]}", "trees[0].guess.rows: 0 must be a number above"),
        ("fanouts", "[2, 1.5]", "trees[0].fanouts[1]: 1.5 must be a whole number above 0"),
        ("level_budgets", "most", "trees[0].level_budgets: 'most' must be equal or optimal"),
        ("level_budgets", "[1, -1]", "trees[0].level_budgets[1]: -1 must be a number above 0"),
        ("estimation", "best", "trees[0].estimation: 'best' must be none, below, above, refined"),
        ("consistency", "l3", "trees[0].consistency: 'l3' must be top_down, l1, l2 or shrunk"),
        ("quantiles", "0.5", "trees[0].quantiles: 0.5 must be a list"),
        ("quantiles", "[]", "trees[0].quantiles: must have at least one value"),
        ("quantiles", "[0.5, 1.01]", "trees[0].quantiles[1]: 1.01 must be a number from 0 to 1"),
        ("quantiles", "[-0.1]", "trees[0].quantiles[0]: -0.1 must be a number from 0 to 1"),
        ("quantiles", "[.nan]", "trees[0].quantiles[0]: NaN must be a number from 0 to 1"),
        ("quantiles", "[true]", "trees[0].quantiles[0]: true must be a number from 0 to 1"),
        ("quantiles", "[0.5, 0.50]", "trees[0].quantiles[1]: 0.5 is listed twice"),
        ("quantile", "[0.5]", "trees[0].quantile: unknown key; did you mean quantiles?"),
        ("group_by", "", "trees[0].group_by: has no value"),
        ("group_by", "carrier", "trees[0].group_by: 'carrier' must be a section"),
        ("group_by", "{keys: [a]}", "trees[0].group_by.column: is required"),
        (
            "group_by",
            "{column: 5, keys: [a]}",
            "trees[0].group_by.column: 5 must be a string; put it in quotes",
        ),
        ("group_by", "{column: c}", "trees[0].group_by: needs exactly one of keys and keys_file"),
        (
            "group_by",
            "{column: c, keys: [a], keys_file: f}",
            "trees[0].group_by: needs exactly one of keys",
        ),
        (
            "group_by",
            "{column: c, keys: private}",
            "privacy.delta: is required next to epsilon if keys",
        ),
        (
            "group_by",
            "{column: c, keys: keys.txt}",
            "trees[0].group_by.keys: 'keys.txt' must be a list; for",
        ),
        (
            "group_by",
            "{column: c, keys: []}",
            "trees[0].group_by.keys: must have at least one value",
        ),
        (
            "group_by",
            "{column: c, keys: [a, 1]}",
            "trees[0].group_by.keys: must be all texts or all whole",
        ),
        (
            "group_by",
            "{column: c, keys: [1.5]}",
            "trees[0].group_by.keys: must be all texts or all whole",
        ),
        (
            "group_by",
            "{column: c, keys: [true, 1]}",
            "trees[0].group_by.keys: must be all texts or all whole",
        ),
        (
            "group_by",
            "{column: c, keys: [a, b, a]}",
            "trees[0].group_by.keys: hold 'a' more than once",
        ),
        (
            "group_by",
            "{column: c, keys: [9223372036854775808]}",
            "trees[0].group_by.keys: must be valid",
        ),
        (
            "group_by",
            "{column: c, keys: [a], unknown: clamp}",
            "group_by.unknown: 'clamp' must be drop or",
        ),
        (
            "group_by",
            "{column: c, keys: [other], unknown: other}",
            "trees[0].group_by.keys: must not hold 'other' when unknown is 'other'",
        ),
        (
            "group_by",
            "{column: c, key: [a]}",
            "trees[0].group_by.key: unknown key; did you mean keys?",
        ),
    ],
)
def test_bad_tree_is_refused(key: str, value: str | None, sentence: str) -> None:
    assert sentence in refusal(tree_with(**{key: value}))


@pytest.mark.parametrize(
    ("domain", "sentence"),
    [
        ("5", ": 5 must be a section"),
        ("{lower: 0, upper: 1, cells: 2}", ".column: is required"),
        ("{column: x, upper: 1, cells: 2}", ".lower: is required"),
        ("{column: x, lower: 0, cells: 2}", ".upper: is required"),
        ("{column: x, lower: 0, upper: 1}", ".cells: is required"),
        ("{column: 3, lower: 0, upper: 1, cells: 2}", ".column: 3 must be a string; put it in"),
        ("{column: '', lower: 0, upper: 1, cells: 2}", ".column: must not be empty"),
        ("{column: x, lower: 1, upper: 0, cells: 2}", ".lower: 1.0 must be less than upper 0.0"),
        ("{column: x, lower: 1, upper: 1, cells: 2}", ".lower: 1.0 must be less than upper 1.0"),
        ("{column: x, lower: a, upper: 1, cells: 2}", ".lower: 'a' must be a number"),
        ("{column: x, lower: true, upper: 1, cells: 2}", ".lower: true must be a number"),
        ("{column: x, lower: 2013-01-01, upper: 1, cells: 2}", ".lower: 2013-01-01 must be a num"),
        ("{column: x, lower: .nan, upper: 1, cells: 2}", ".lower: nan must be finite"),
        ("{column: x, lower: 0, upper: .inf, cells: 2}", ".upper: inf must be finite"),
        ("{column: x, lower: 0, upper: 1e400, cells: 2}", ".upper: inf must be finite"),
        ("{column: x, lower: 0, upper: 1, cells: 0}", ".cells: 0 must be a whole number from 1"),
        ("{column: x, lower: 0, upper: 1, cells: -4}", ".cells: -4 must be a whole number from 1"),
        ("{column: x, lower: 0, upper: 1, cells: 3.5}", ".cells: 3.5 must be a whole number from"),
        ("{column: x, lower: 0, upper: 1, cells: true}", ".cells: true must be a whole number"),
        (
            "{column: x, lower: 0, upper: 1, cells: 1099511627776}",
            ".cells: 1099511627776 cells must",
        ),
        (
            "{column: x, lower: 0, upper: 1, cells: 9999999999999}",
            ".cells: 9999999999999 must be a",
        ),
        ("{column: x, lower: 1, upper: 1.0000000000000002, cells: 9}", ".cells: 9 are too many"),
        (
            "{column: x, lower: 0, upper: 1, cells: 2, out_of_range: keep}",
            ".out_of_range: 'keep' must be one",
        ),
        ("{column: x, lower: 0, upper: 1, cells: 2, missing: 5}", ".missing: 5 must be one of"),
        ("{column: x, lower: 0, upper: 1, cells: , missing: drop}", ".cells: has no value"),
        ("{column: x, lower: 0, upper: 1, cels: 2}", ".cels: unknown key; did you mean cells?"),
        (
            "{column: x, lower: 0, upper: 1, cells: 2, unit: s}",
            ".unit: unknown key; known are kind,",
        ),
        (
            "{kind: hierarchy, columns: [a, b]}",
            ".table: is required with columns",
        ),
        (
            "{kind: hypercube, columns: [a, b]}",
            ".lower: is required beside names of columns",
        ),
        ("{kind: tree, column: x}", ".kind: 'tree' must be ordered"),
        (
            "{type: float, column: x}",
            ".type: 'float' must be number, integer, date, timestamp, time,",
        ),
        ("{type: [number], column: x}", ".type: a list must be number, integer"),
        ("{type: integer, column: x, lower: 0.5, upper: 2}", ".lower: 0.5 must be a whole number"),
        ("{type: integer, column: x, lower: 0, upper: 5, cells: 2}", ".cells: 2 must divide the 5"),
        ("{type: integer, column: x, lower: 5, upper: 0}", ".lower: 5 must be less than upper 0"),
        (
            "{type: date, column: x, lower: monday, upper: 2014-01-01}",
            ".lower: 'monday' must be an",
        ),
        (
            "{type: date, column: x, lower: 2013-01-01 05:00:00, upper: 2014-01-01}",
            ".lower: 2013-01-01 05:00:00 must be a date",
        ),
        (
            "{column: x, lower: 2014-01-01, upper: 2013-01-01}",
            ".lower: 2014-01-01 must be less than",
        ),
        (
            "{column: x, lower: 2013-01-01, upper: 2013-01-08, cells: 2}",
            ".cells: 2 must divide the",
        ),
        (
            "{column: x, lower: 2013-01-01, upper: 2013-01-08, days_per_cell: 2}",
            ".days_per_cell: 2",
        ),
        (
            "{column: x, lower: 2013-01-01 00:00:00, upper: 2013-01-02 00:00:00Z, cells: 2}",
            ".lower: 2013-01-01 00:00:00 and upper 2013-01-02 00:00:00+00:00 must both have",
        ),
        ("{column: x, categories: [a, a]}", ".categories: hold 'a' more than once"),
        ("{column: x, categories: a}", ".categories: must be"),
        ("{column: x, categories: [a], ordered: 1}", ".ordered: 1 must be true or false"),
        ("{column: x, lower: 0, upper: 1, cells: 2, ordered: true}", ".ordered: unknown key"),
        (
            "{column: x, categories: [a], out_of_range: drop}",
            ".out_of_range: unknown key; known are",
        ),
        ("{column: x, categories: [a], unknown: clamp}", ".unknown: 'clamp' must be one of drop"),
    ],
)
def test_bad_domain_is_refused(domain: str, sentence: str) -> None:
    assert f"x.yaml: trees[0].domain{sentence}" in refusal(tree_with(domain=domain))


def test_too_many_cells_over_all_keys_are_refused() -> None:
    domain = "{column: x, lower: 0, upper: 1, cells: 3000000000}"
    message = refusal(tree_with(domain=domain, group_by="{column: c, keys: [a, b]}"))
    assert "trees[0].domain.cells: 3000000000 cells times 2 keys must be at most 2^32" in message
    parse_configuration(tree_with(domain=domain))


def test_several_errors_are_counted() -> None:
    text = text_with(release="a/b", confidence="2", output="''")
    assert refusal(text).startswith("x.yaml: release: 'a/b' must be")
    assert refusal(text).endswith(" (and 2 more)")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("key", "dptrees-key-1:c2VjcmV0"),
        ("key", "file:dptrees-key-1:c2VjcmV0"),
        ("key", "env:dptrees-key-1:c2VjcmV0"),
        ("key", "c2VjcmV0"),
        ("key", "{c2VjcmV0: c2VjcmV0}"),
        ("key", "[c2VjcmV0]"),
        ("key", "'file:'"),
        ("key", "env:9X"),
        ("key_file", "dptrees-key-1:c2VjcmV0"),
        ("key_file", "[dptrees-key-1:c2VjcmV0]"),
    ],
)
def test_a_key_in_the_wrong_place_is_not_shown(key: str, value: str) -> None:
    message = refusal(text_with(key_file=None) + f"{key}: {value}\n")
    assert f"x.yaml: {key}: must be" in message
    assert "c2VjcmV0" not in message


# Files and YAML.


def written(folder: Path, content: bytes) -> str:
    path = folder / "bad.yaml"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"# nothing\n", "is empty"),
        (b"release: \xff\xfe", "is not UTF-8 text"),
        (b"PAR1\x00\x01", "line 1: contains a character that YAML does not allow"),
        (b"a: b\nc: \x07", "line 2: contains a character that YAML does not allow"),
        (b"- a\n- b\n", "a list must be a section of keys and values"),
        (b"release", "'release' must be a section of keys and values"),
        (
            b"release: a\noutput: b\nrelease: c\n",
            "line 3: the key release is given twice in one section",
        ),
        (
            b"input: {format: csv,\n  format: csv}",
            "line 2: the key format is given twice in one section",
        ),
        (b"1: a\n", "line 1: the key 1 must be a string"),
        (b"[a]: b\n", "line 1: the key a list must be a string"),
        (b"release: a\ninput: [b\n", "line 3: "),
        (b"release: a\n\tinput: b\n", "line 2: found character '\\t'"),
        (b"release: a: b\n", "line 1: mapping values are not allowed here"),
        (b"release: *a\n", "line 1: found undefined alias"),
        (b"release: a\n---\nrelease: b\n", "line 2: but found another document"),
        (b"release: !!python/object:os.system a\n", "line 1: could not determine a constructor"),
        (b"release: !!bool maybe\n", "contains a value that does not fit its tag"),
        (b"release: !!int maybe\n", "line 1: 'maybe' is not a whole number"),
        (b"release: !!float maybe\n", "line 1: 'maybe' is not a number"),
        (b"release: 2013-02-30\n", "line 1: '2013-02-30' is not a date or time"),
        (b"release: " + b"[" * 5000, "is nested too deeply"),
        (b"#" * (2**24 + 1), "is larger than 16 MiB"),
    ],
)
def test_bad_file_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ConfigurationError) as raised:
        load_configuration(path)
    assert str(raised.value).startswith(f"{path}: {sentence}")
    assert "\n" not in str(raised.value)


def test_a_path_without_a_file_is_refused(tmp_path: Path) -> None:
    for path, sentence in [
        (tmp_path / "absent.yaml", "there is no such file"),
        (tmp_path, "is a folder, not a configuration file"),
        (Path(written(tmp_path, b"")) / "x.yaml", "cannot be read: Not a directory"),
        (Path("a\0b"), "cannot be read: not a path"),
    ]:
        with pytest.raises(ConfigurationError, match=re.escape(f"{path}: {sentence}")):
            load_configuration(str(path))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + text_with().encode())
    assert load_configuration(path).release == "ages-2024"


def test_yaml_values() -> None:
    text = "[~, null, , true, False, yes, NO, on, 0, -7, 08, 0x1F, 1:30, 1_0, 1., e5, '1', -, 0o7]"
    values = parse_document(text.replace(", ,", ", '',"), "x")
    assert values == [
        *(None, None, "", True, False, "yes", "NO", "on", 0, -7, "08", "0x1F", "1:30", "1_0"),
        *(1, "e5", "1", "-", "0o7"),
    ]


def test_the_safe_loader_itself_is_unchanged() -> None:
    assert yaml.safe_load("[yes, 010, 1:30, 0.5]") == [True, 8, 90, 0.5]


# Files of keys.


@pytest.mark.parametrize(
    ("name", "content", "keys"),
    [
        ("keys.txt", b"AA\nUA\n", ("AA", "UA")),
        ("keys.txt", b"\xef\xbb\xbfAA\r\n\r\nUA", ("AA", "UA")),
        ("keys", b"a,b\n1\n", ("a,b", "1")),
        ("keys.txt", b"1\n-2\n0\n", (1, -2, 0)),
        ("keys.txt", b"02134\n10001\n", ("02134", "10001")),
        ("keys.csv", b'carrier\nAA\n"U,A"\n\n', ("AA", "U,A")),
        ("keys.csv", b"code\n7\n8\n", (7, 8)),
    ],
)
def test_key_files(
    tmp_path: Path, name: str, content: bytes, keys: tuple[str, ...] | tuple[int, ...]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert read_key_list(str(path)) == keys
    tree = parse_configuration(tree_with(group_by=f"{{column: c, keys_file: '{path}'}}")).trees[0]
    assert tree.keys is not None
    assert tree.keys.keys == keys


@pytest.mark.parametrize("column", [pa.array(["1", "2"]), pa.array([1, 2], pa.int16())])
def test_parquet_key_files_keep_the_type(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "keys.parquet"
    pyarrow.parquet.write_table(pa.table({"c": column}), path)
    assert read_key_list(str(path)) == tuple(column.to_pylist())


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("keys.txt", b"", "keys.txt holds no key"),
        ("keys.csv", b"carrier\n", "keys.csv holds no key"),
        ("keys.csv", b"a,b\n1,2\n", "keys.csv must have one column, but line 1 has 2"),
        ("keys.csv", b"a\n1\n1,2\n", "keys.csv must have one column, but line 3 has 2"),
        ("keys.csv", b'a\n"b\n', "keys.csv is not CSV in line"),
        ("keys.txt", b"\xff", "keys.txt is not UTF-8 text"),
        ("keys.parquet", b"PAR1", "keys.parquet is not a Parquet file"),
        ("keys.txt", b"a\na\n", "its keys hold 'a' more than once"),
    ],
)
def test_bad_key_file_is_refused(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    message = refusal(tree_with(group_by=f"{{column: c, keys_file: '{path}'}}"))
    assert message.startswith("x.yaml: trees[0].group_by.keys_file: ")
    assert sentence in message


def test_key_file_that_is_no_file_is_refused(tmp_path: Path) -> None:
    for path, sentence in [
        ("absent.txt", "does not exist"),
        ("", "cannot be read: Is a directory"),
    ]:
        message = refusal(tree_with(group_by=f"{{column: c, keys_file: '{tmp_path / path}'}}"))
        assert sentence in message
    wide = tmp_path / "wide.parquet"
    pyarrow.parquet.write_table(pa.table({"a": ["x"], "b": ["y"]}), wide)
    message = refusal(tree_with(group_by=f"{{column: c, keys_file: '{wide}'}}"))
    assert "wide.parquet must have one column, not 2" in message
    pyarrow.parquet.write_table(pa.table({"a": ["x", None]}), wide)
    message = refusal(tree_with(group_by=f"{{column: c, keys_file: '{wide}'}}"))
    assert "its keys must be all texts or all whole numbers" in message


# The plan.


def test_the_budget_is_split_exactly_by_weight() -> None:
    trees = "".join(
        f"  - {{name: t{weight}, weight: {weight}, domain: {NUMBERS}, consistency: top_down}}\n"
        for weight in ("1", "0.1", "3", "1e-2")
    )
    privacy = "{rho: 0.7, neighbors: add_remove}"
    plan = parse_configuration(text_with(privacy=privacy, trees="\n" + trees)).plan()
    amounts = [question.plan.budget.amount for question in plan.questions]
    assert sum(amounts) == plan.budget.amount == Fraction(7, 10)
    assert [amount / amounts[0] for amount in amounts] == [1, Fraction(1, 10), 3, Fraction(1, 100)]
    assert [sum(question.plan.level_amounts) for question in plan.questions] == amounts


@pytest.mark.parametrize(
    ("neighbors", "missing", "by", "public"),
    [
        ("substitute", "first", False, True),
        ("substitute", "drop", False, False),
        ("substitute", "first", True, False),
        ("add_remove", "first", False, False),
    ],
)
def test_the_total_is_public_only_where_it_cannot_change(
    neighbors: str, missing: str, by: bool, public: bool
) -> None:
    domain = f"{{column: x, lower: 0, upper: 10, cells: 20, missing: {missing}}}"
    keys = "{column: c, keys: [a], unknown: other}" if by else None
    text = tree_with(domain=domain, group_by=keys)
    text = text.replace("neighbors: add_remove", f"neighbors: {neighbors}")
    text = text.replace("format: csv", "format: parquet")
    configuration = parse_configuration(text)
    question = configuration.plan().questions[0]
    workload = configuration.trees[0].workload()
    assert isinstance(workload, OrderedChoice)
    assert workload.whole.public_total(configuration.terms) is public
    assert question.plan.public_total is public
    assert question.plan.keyed is by


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("estimation: refined", "trees[0].estimation: refined needs a public total, N less what"),
        ("fanouts: [3, 3]", "trees[0].fanouts: "),
        ("mechanism: binary, fanouts: [20]", "trees[0].fanouts: the mechanism binary has its own"),
        ("level_budgets: [0.5]", "trees[0].level_budgets: they need the fanouts of their levels"),
        ("fanouts: [4, 5], level_budgets: [0.9, 0.2]", "trees[0].level_budgets: they sum to 11/10"),
        ("fanouts: [4, 5], level_budgets: [1]", "trees[0].level_budgets: 1 of them for 2 levels"),
        (
            "fanouts: [4, 5], objective: nodes, level_weights: [1, 1]",
            "trees[0].level_weights: 2 of them for 3 levels",
        ),
        ("objective: ranges, widths: [21]", "trees[0].widths: 21 is more than the 20 cells"),
        (
            "objective: quantiles, guess: {rows: 9, below: [[10, 0.5]]}",
            "trees[0].guess: 10 must lie below the end of the domain",
        ),
        (
            "objective: quantiles, guess: {rows: 9, below: [[5.5, 0.5], [5, 0.6]]}",
            "trees[0].guess: its values must increase",
        ),
        (
            "objective: quantiles, guess: {rows: 9, below: [[monday, 0.5]]}",
            "trees[0].guess: monday is not a value of the domain",
        ),
    ],
)
def test_choices_that_do_not_fit_are_refused_at_their_key(more: str, sentence: str) -> None:
    text = text_with(trees=f"[{{name: ages, domain: {NUMBERS}, {more}}}]")
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(text, "x.yaml").plan()
    assert str(raised.value).startswith(f"x.yaml: {sentence}")


def test_too_many_cells_for_a_published_estimate() -> None:
    domain = "{column: x, lower: 0, upper: 10, cells: 131073}"
    text = text_with(trees=f"[{{name: ages, domain: {domain}, mechanism: independent}}]")
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(text, "x.yaml").plan()
    assert str(raised.value).startswith("x.yaml: trees[0].domain.cells: 131073 cells are too many")


def test_level_budgets_beside_a_delta() -> None:
    tree = f"{{name: ages, domain: {NUMBERS}, fanouts: [4, 5], level_budgets: [0.1, 0.2]}}"
    privacy = "{epsilon: 1, delta: 1e-6, neighbors: add_remove}"
    with pytest.raises(ConfigurationError, match="with a delta they must be equal or optimal"):
        parse_configuration(text_with(trees=f"[{tree}]", privacy=privacy)).plan()


def test_independent_prefixes_get_the_closest_cdf_by_default() -> None:
    for mechanism, consistency in (("independent", "l2"), ("planned", "top_down")):
        text = text_with(trees=f"[{{name: a, domain: {NUMBERS}, mechanism: {mechanism}}}]")
        (question,) = parse_configuration(text).plan().questions
        assert question.mechanism.consistency.value == consistency


def rows_of_flights(folder: Path) -> Path:
    """The example with pure epsilon, for rows."""
    text = re.sub(r"^ +(delta|max_\w+): .*\n", "", FLIGHTS.read_text(), flags=re.MULTILINE)
    text = text.replace("unit: tailnum", "unit: row").replace("epsilon: 2.0", "epsilon: 1.0")
    path = folder / "rows.yaml"
    path.write_text(text)
    return path


def test_the_plan_is_the_planners(tmp_path: Path) -> None:
    path = str(rows_of_flights(tmp_path))
    flights = load_configuration(path)
    plan = flights.plan()
    assert (plan.name, plan.budget, plan.unit) == (
        flights.release,
        flights.guarantee.budget,
        flights.terms.unit,
    )
    assert [question.name for question in plan.questions] == [
        "departure_delay",
        "arrival_delay",
        "distance",
    ]
    for question, tree in zip(plan.questions, flights.trees, strict=True):
        assert question.domain == tree.domain
        assert question.keys == tree.keys
        assert question.confidence == 0.95
        assert question.weight == 1
        assert question.plan == plan_adaptive(
            TreeSetting(
                leaves=tree.domain.cells,
                budget=Budget(measure=Measure.EPSILON, amount=Fraction(1, 3)),
                unit=ADD_REMOVE_ROW,
                keyed=tree.keys is not None,
            ),
            counts=True,
        )
    assert load_configuration(path).plan().digest == plan.digest


@pytest.mark.parametrize("measure", ["epsilon", "rho"])
def test_the_plan_keeps_its_digest_when_a_number_is_written_otherwise(measure: str) -> None:
    def digest(amount: str) -> bytes:
        privacy = f"{{{measure}: {amount}, neighbors: substitute}}"
        return parse_configuration(text_with(privacy=privacy)).plan().digest

    assert digest("0.1") == digest("1e-1")
    assert digest("0.1") != digest("0.10000000000000001")


def test_a_budget_that_no_noise_can_serve_is_refused() -> None:
    privacy = "{epsilon: 1e-13, neighbors: add_remove}"
    configuration = parse_configuration(text_with(privacy=privacy), "x.yaml")
    with pytest.raises(ConfigurationError) as raised:
        configuration.plan()
    assert str(raised.value).startswith(
        "x.yaml: privacy.epsilon: trees[0] cannot be planned with its fraction of the budget: scale"
    )


# What a plan must not wait for.

_TIMED = """
import sys, time
start = time.perf_counter()
from dptrees.pipelines.config.configuration import load_configuration
loaded = {name.partition(".")[0] for name in sys.modules}
imported = time.perf_counter()
configuration = load_configuration(sys.argv[1])
read = time.perf_counter()
configuration.plan()
print(imported - start, read - imported, time.perf_counter() - read, time.process_time())
print(*sorted(loaded & {"apache_beam", "scipy", "pandas"}))
"""


def test_nothing_slow_is_imported(tmp_path: Path) -> None:
    """Beside a delta a plan is searched several times, and takes some seconds."""
    command, took = [sys.executable, "-c", _TIMED, str(rows_of_flights(tmp_path))], []
    # A second is what `dptrees plan` may take of a processor; a slow one is given three times that,
    # and others share its caches.
    while len(took) < 3 and min(took, default=9.0) > 3:
        answer = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
        seconds, slow = answer.stdout.split("\n")[:2]
        print("import, load, plan, CPU:", seconds)
        took.append(float(seconds.split()[-1]))
        assert slow == ""
    assert min(took) <= 3


# The document.


def examples() -> list[str]:
    """Return the YAML examples of the document."""
    text = "".join(page.read_text(encoding="utf-8") for page in sorted(DOCUMENT.glob("*.md")))
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def as_whole(example: str) -> str:
    """Complete an example of some sections, or of one tree, to a configuration."""
    values = yaml.safe_load(example)
    if isinstance(values, list):
        return text_with(trees="\n" + example)
    absent = {key: value for key, value in SECTIONS.items() if key not in values}
    if "key" in values:
        del absent["key_file"]
    return example + "".join(f"{key}: {value}\n" for key, value in absent.items())


@pytest.mark.parametrize("example", examples())
def test_examples_of_the_document_are_valid(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("carriers.txt").write_text("AA\nUA\n", encoding="ascii")
    write_tables_of_the_document()
    configuration = parse_configuration(as_whole(example))
    assert isinstance(configuration, Configuration)
    assert configuration.plan().questions


def errors_in_the_document() -> list[tuple[str, str]]:
    """Return the rows of the document's table of errors: a bad line and its sentence."""
    text = (DOCUMENT / "index.md").read_text(encoding="utf-8").partition("## Errors")[2]
    return re.findall(r"^\| `(.+?)` \| `(.+?)` \|$", text, re.MULTILINE)


@pytest.mark.parametrize(("bad", "sentence"), errors_in_the_document())
def test_errors_of_the_document_are_what_is_said(bad: str, sentence: str) -> None:
    key, _, value = bad.partition(": ")
    text = (
        text_with(**{key: value}) if key in SECTIONS or key == "key" else tree_with(**{key: value})
    )
    if key == "key":
        text = text.replace("key_file: release.key\n", "")
    assert refusal(text) == f"x.yaml: {sentence}"


def test_the_document_has_examples_and_errors() -> None:
    assert len(examples()) >= 5
    assert len(errors_in_the_document()) >= 5


@pytest.mark.parametrize(
    "section",
    [
        ReleaseSection,
        InputSection,
        PrivacySection,
        OrderedTree,
        HierarchyTree,
        MeasureSection,
        SparseTree,
        BySection,
        SeriesSection,
    ],
)
def test_every_key_is_documented(section: type[section.Section]) -> None:
    pages = (
        *sorted(DOCUMENT.glob("*.md")),
        *map(DOCUMENT.with_name, ("csv.md", "parameters.md", "series.md", "verify.md")),
    )
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    first = (DOCUMENT / "index.md").read_text(encoding="utf-8")
    contents = first.partition("## Where every key")[2].partition("\n## ")[0]
    for name, each in section.model_fields.items():
        key = f"`{each.alias or name}`"
        assert re.search(rf"^\| [^|]*{key}[^|]* \|", text, re.MULTILINE), name
        assert key in contents, name


def test_rules_name_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="needs exactly one of a and b"):
        rules.exactly_one(a=None, b=None)


@pytest.mark.parametrize(
    ("source", "public"),
    [
        ("{format: parquet, path: x}", True),
        ("{format: csv, path: x}", False),
        ("{format: csv, path: x, malformed: fail}", True),
    ],
)
@pytest.mark.parametrize("kind", ["ordered", "hierarchy"])
def test_the_number_of_rows_is_not_public_where_the_reader_drops_some(
    kind: str, source: str, public: bool
) -> None:
    domains = {
        "ordered": "{column: x, type: integer, lower: 0, upper: 9, missing: last}",
        "hierarchy": "{kind: hierarchy, column: x, calendar: [year, month], lower: 2020-01-01, "
        "upper: 2021-01-01, unknown: other, missing: other}",
    }
    plan = parse_configuration(
        f"""
        release: small
        input: {source}
        output: out
        key_file: release.key
        privacy: {{epsilon: 1, neighbors: substitute}}
        trees: [{{name: one, domain: {domains[kind]}}}]
        """
    ).plan()
    assert plan.questions[0].public_total is public


DATES = "{column: x, lower: 2013-01-01, upper: 2014-01-01}"
WORDS = "{column: x, categories: [a, b]}"
WHOLE = "{column: x, type: integer, lower: 0, upper: 9}"


@pytest.mark.parametrize(
    ("one", "other", "fits"),
    [
        (NUMBERS, DATES, False),
        (WORDS, NUMBERS, False),
        (WORDS, DATES, False),
        (
            DATES,
            "{column: y, lower: 0, upper: 1, cells: 2}, group_by: {column: x, keys: [a]}",
            False,
        ),
        (WHOLE, NUMBERS, True),
        (WHOLE, "{column: x, categories: [1, 2]}", True),
        (DATES, "{kind: hierarchy, column: x, calendar: [weekday]}", True),
        (DATES, "{column: y, lower: 0, upper: 1, cells: 2}", True),
    ],
)
def test_a_column_that_no_type_makes_fit_for_two_trees(one: str, other: str, fits: bool) -> None:
    trees = f"[{{name: one, domain: {one}}}, {{name: other, domain: {other}}}]"
    parquet = "{format: parquet, path: x.parquet}"
    configuration = parse_configuration(text_with(trees=trees, input=parquet), "x.yaml")
    if fits:
        configuration.plan()
        return
    with pytest.raises(ConfigurationError, match=r"x.yaml: trees\[[01]\]: ") as refused:
        configuration.plan()
    assert "column 'x'" in str(refused.value) and "column of" in str(refused.value)


def test_a_column_of_csv_that_two_trees_read_as_two_types() -> None:
    codes = "{column: x, categories: [1, 2]}"
    trees = f"[{{name: one, domain: {NUMBERS}}}, {{name: other, domain: {codes}}}]"
    with pytest.raises(InputError, match="'x' is read as double by tree one and as int64 by tree"):
        parse_configuration(text_with(trees=trees)).plan()


def test_a_column_of_csv_that_two_trees_read_as_numbers() -> None:
    trees = f"[{{name: one, domain: {NUMBERS}}}, {{name: other, domain: {WHOLE}}}]"
    assert len(parse_configuration(text_with(trees=trees)).plan().questions) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("privacy: {epsilon:1, neighbors: add_remove}", "privacy.epsilon:1: unknown key"),
        ("privacy: epsilon:1", "privacy: 'epsilon:1' must be a section of keys and values"),
        ("privacy:\n  epsilon:1\n  neighbors: add_remove", "line 3: mapping values are not"),
        ("privacy:{epsilon: 1}", "privacy:{epsilon: unknown key"),
        ("privacy:\n  neighbors: add_remove\n  epsilon:1", "line 4: could not find expected"),
    ],
)
def test_a_space_that_is_missing_is_reported(text: str, sentence: str) -> None:
    name = "privacy" if text.startswith("privacy:{") else "epsilon"
    said = refusal(f"{text}\n" + text_with(privacy=None))
    assert sentence in said and f"; a space is missing after {name}:" in said


def test_a_text_with_a_colon_lacks_no_space() -> None:
    assert "space" not in refusal(text_with(input="gs://bucket/x"))
    assert "space" not in refusal(text_with(privacy="{epsilon: 1"))
