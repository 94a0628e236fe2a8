"""docs/inputs.md: what its tables say of types and values is what happens."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
import yaml

from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.transforms.readers import json_rows
from dptrees.transforms.readers.read import FileSplit
from tests.pipelines.configuration_text import text_with
from tests.pipelines.conftest import PROJECT

PAGE = (PROJECT / "docs" / "inputs.md").read_text()

DOMAINS = {
    "number": {"lower": 0, "upper": 10, "cells": 10},
    "integer": {"type": "integer", "lower": 0, "upper": 10},
    "texts": {"type": "category", "categories": ["a", "true"]},
    "integers": {"type": "category", "categories": [1]},
    "date": {"type": "date", "lower": "2024-01-01", "upper": "2025-01-01"},
    "timestamp": {"type": "timestamp", "lower": "2024-01-01", "upper": "2025-01-01", "cells": 366},
    "time": {"type": "time", "cells": 24},
    "duration": {"type": "duration", "lower": 0, "upper": 10},
}
TYPES = {
    "integers": [pa.int8(), pa.uint64()],
    "floats": [pa.float16(), pa.float64()],
    "decimals": [pa.decimal32(5, 2), pa.decimal128(9, 2), pa.decimal256(50, 0)],
    "truth values": [pa.bool_()],
    "texts, bytes": [pa.string(), pa.large_string(), pa.string_view(), pa.binary()],
    "dates": [pa.date32(), pa.date64()],
    "timestamps without a zone": [pa.timestamp("s"), pa.timestamp("ns")],
    "timestamps in UTC": [pa.timestamp("us", "UTC")],
    "timestamps of another zone": [pa.timestamp("us", "Asia/Tokyo")],
    "times of day": [pa.time32("s"), pa.time64("ns")],
    "durations": [pa.duration("s"), pa.duration("ns")],
    "lists, maps": [pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8())],
}


def table(name: str) -> list[list[str]]:
    """The cells of a table of the page, without its head."""
    text = PAGE.partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]
    rows = [line.strip("| ").split(" | ") for line in text.strip().splitlines()]
    return [[cell.strip() for cell in row] for row in rows[:1] + rows[2:]]


def named_domain(name: str) -> OrderedDomain:
    return make_domain({"column": "x", **DOMAINS[name]})


HEAD, *KINDS = table("types")


def test_the_table_of_types_has_every_kind() -> None:
    assert [cell.strip("`") for cell in HEAD[1:]] == list(DOMAINS)
    assert [row[0] for row in KINDS] == list(TYPES)


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row[0])
def test_types_are_read_as_the_page_says(row: list[str]) -> None:
    for type in [*TYPES[row[0]], *(pa.dictionary(pa.int8(), each) for each in TYPES[row[0]])]:
        for name, documented in zip(DOMAINS, row[1:], strict=True):
            try:
                named_domain(name).check_type(type)
                is_read = "yes"
            except ValueError:
                is_read = "-"
            assert is_read == documented, (type, name)


@pytest.mark.parametrize("row", table("json")[1:], ids=lambda row: row[0])
def test_values_of_json_become_what_the_page_says(row: list[str]) -> None:
    kinds = ("number", "integer", "texts", "date")
    for name, documented in zip(kinds, row[1:], strict=True):
        (value,) = json_values(named_domain(name), row[0][1:-1])
        shown = f"`{value}`" if isinstance(value, str) else f"{value}".removesuffix(".0")
        assert ("missing" if value is None else shown) == documented, name


def json_values(domain: OrderedDomain, literal: str) -> list[object]:
    settings = yaml.safe_dump({"trees": [{"name": "x", "domain": _plain(domain)}]})
    text = text_with(input="{format: json, path: a/}", trees=None) + settings
    plan = parse_configuration(text).plan()
    file = io.BytesIO(f'{{"x": {literal}}}'.encode())
    batches = json_rows.batches(file, FileSplit("a.jsonl", 0, 0, 1), plan)
    return [value for batch in batches for value in batch.column("x").to_pylist()]


def _plain(domain: OrderedDomain) -> dict[str, object]:
    fields = {
        "out_of_range" if name == "outside" else name: value
        for name, value in domain.spec().items()
        if name not in ("kind", "map_version", "days_per_cell")
    }
    if domain.kind == "date":
        fields |= {"lower": domain.lower, "upper": domain.upper}  # type: ignore[attr-defined]
    return fields


def test_the_examples_of_the_page_are_configurations() -> None:
    (trees,) = [part for part in PAGE.split("```yaml\n")[1:] if part.startswith("trees")]
    sources = [part for part in PAGE.split("```yaml\n")[1:] if part.startswith("input")]
    rest = text_with(input=None, trees=None)
    assert len(sources) == 3
    for source in sources:
        text = rest + source.partition("```")[0] + trees.partition("```")[0]
        plan = parse_configuration(text).plan()
        assert [question.domain.cells for question in plan.questions] == [32, 48]
