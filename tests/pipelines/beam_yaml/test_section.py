"""The section of a step: the rules and sentences of a file, whatever Beam's YAML makes of it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
import yaml

from dptrees.dpcore.release.guarantee import plan_manifest
from dptrees.pipelines.beam_yaml import check_rows, configuration_of_text, section_text
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.refusals import not_refused

SECTION = """
release: visits
output: out/visits
key_file: release.key
privacy: {epsilon: 0.1, delta: 1e-6, neighbors: add_remove}
trees:
  - {name: minutes, domain: {column: minutes, lower: 0, upper: 120, cells: 120}}
  - {name: codes, domain: {column: code, type: category, categories: ["1e3", north]}}
"""


def as_beam_reads(text: str) -> dict[str, Any]:
    """By YAML 1.1, with floats."""
    section = yaml.safe_load(text)
    assert isinstance(section, dict)
    return section


def test_a_section_is_what_a_file_would_be() -> None:
    read = as_beam_reads(SECTION)
    assert read["privacy"]["delta"] == "1e-6"  # a text to YAML 1.1
    ours, theirs = configuration_of_text(SECTION), configuration_of_text(section_text(read))
    assert plan_manifest(ours.plan()) == plan_manifest(theirs.plan())
    assert ours.guarantee.budget.amount * 10 == 1 and ours.guarantee.delta * 10**6 == 1


def test_days_are_reported_as_strings() -> None:
    assert section_text({"from": date(2013, 1, 31)}) == '{"from": "2013-01-31"}'
    with pytest.raises(ConfigurationError, match=r"DPTree: <object object at .* is no value"):
        section_text({"from": object()})


def test_what_is_impossible_is_reported_in_one_sentence() -> None:
    tables = "DPTree: input: tables do not go with DPTree"
    rows = [
        ("ledger: sqlite:///x.db", "DPTree: ledger: does not go with DPTree, which does nothing b"),
        ("signing_key: x.pem", "DPTree: signing_key: does not go with DPTree, which does nothing"),
        ("input: {format: delta, table: lake/x}", f"{tables}; dptrees"),
        ("input: {format: iceberg, table: shop.x}", tables),
        ("input: {format: bigquery, table: a.b.c}", tables),
        ("input: {format: postgresql, table: x, connection: env:URL}", tables),
        ("colour: red", "DPTree: colour: unknown key"),
        ("confidence: 2", "DPTree: confidence: 2 must be a number above 0 and at most 0.9999"),
    ]

    def attempt(added: str) -> None:
        configuration_of_text(SECTION + added)

    assert not not_refused(attempt, rows, ConfigurationError)


def test_private_keys_take_a_release_of_their_own() -> None:
    section = as_beam_reads(SECTION)
    section["trees"] = section["trees"][:1]
    section["trees"][0]["group_by"] = {"column": "ward", "type": "text", "keys": "private"}
    with pytest.raises(ConfigurationError, match=r"^DPTree: trees: keys: private does not go"):
        configuration_of_text(section_text(section))


def test_rows_come_from_one_place() -> None:
    rows = configuration_of_text(SECTION)
    files = configuration_of_text(SECTION + "input: {format: csv, path: x}")
    check_rows(rows, given=True)
    check_rows(files, given=False)
    with pytest.raises(ConfigurationError, match=r"^DPTree: input: does not go with a step before"):
        check_rows(files, given=True)
    with pytest.raises(
        ConfigurationError, match=r"^DPTree: input: is required, since there is no step"
    ):
        check_rows(rows, given=False)
