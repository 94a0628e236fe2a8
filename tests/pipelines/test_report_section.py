"""The configuration's section `report`: checked, kept in the manifest, shown on the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace

from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.report_page import parse_elements

REPORT = {"title": "Ages & <b>places</b>", "source": "a survey", "contact": "me@example.org"}
TEXT = """
release: ages
input: {format: csv, path: ages.csv}
output: out
key_file: release.key
privacy: {epsilon: 1, neighbors: add_remove}
trees: [{name: age, domain: {column: age, type: integer, lower: 0, upper: 120}}]
"""


def test_it_is_read_and_may_be_left_out() -> None:
    assert parse_configuration(TEXT).report == {}
    read = parse_configuration(TEXT + "report: {title: Ages, date: 2024-02-03}")
    assert read.report == {"title": "Ages", "date": "2024-02-03"}
    assert read.plan() == parse_configuration(TEXT).plan()


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("{}", "must hold title, source, contact, date or columns"),
        ("{titel: a}", "titel"),
        ("{title: 5}", "report.title"),
        ("{title: ''}", "report.title: must not be empty"),
        ('{source: "two\\nlines"}', "must be one line of at most 200 characters"),
        (f"{{contact: {'a' * 201}}}", "must be one line of at most 200 characters"),
    ],
)
def test_what_it_cannot_be(section: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(f"{TEXT}report: {section}", "x.yaml")
    assert sentence in str(raised.value) and "\n" not in str(raised.value)


def test_the_manifest_keeps_it_and_the_page_reports_it(
    workspace: Workspace, released: Workspace
) -> None:
    outcome = workspace.release(lambda settings: settings.update(report=REPORT))
    assert outcome.code == 0, outcome.err
    manifest = json.loads((workspace.output / "manifest.json").read_text())
    plain = json.loads((released.output / "manifest.json").read_text())
    assert manifest["report"] == REPORT and "report" not in plain
    same: dict[str, Any] = {"spec": None, "record": None, "nonce": None}
    for name in same:
        assert manifest[name] == plain[name]
    page = (workspace.output / "report.html").read_text()
    elements = parse_elements(page)
    assert elements.text.count(REPORT["title"]) == 2
    assert "Source: a survey" in elements.text and "Contact: me@example.org" in elements.text
    assert "b" not in {tag for tag, _ in elements.tags}
    assert workspace.run("report", workspace.output).code == 0
    assert (workspace.output / "report.html").read_text() == page
    assert workspace.run("verify", workspace.output).code == 0
    other = workspace.release(lambda settings: settings.update(report=REPORT | {"title": "b"}))
    assert other.code == 0 and "the page keeps the report section of the first run" in other.err
    assert json.loads((workspace.output / "manifest.json").read_text()) == manifest
