"""The configuration's section `report`: checked, kept in the manifest, shown on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace

from dptrees.pipelines.config.configuration import parse_configuration
from tests.pipelines.configuration_text import refusal, text_with
from tests.pipelines.conftest import update
from tests.pipelines.report_page import parse_elements

REPORT = {"title": "Ages & <b>places</b>", "source": "a survey", "contact": "me@example.org"}


def with_report(section: str) -> str:
    return f"{text_with()}report: {section}"


def test_it_is_read_and_may_be_left_out() -> None:
    plain = parse_configuration(text_with())
    assert plain.report == {}
    read = parse_configuration(with_report("{title: Ages, date: 2024-02-03}"))
    assert read.report == {"title": "Ages", "date": "2024-02-03"}
    assert read.plan() == plain.plan()


def test_what_it_cannot_be() -> None:
    line = "must be one line of at most 200 characters"
    for section, sentence in (
        ("{}", "must hold title, source, contact, date or columns"),
        ("{title: 5}", "report.title"),
        ('{source: "two\\nlines"}', line),
        (f"{{contact: {'a' * 201}}}", line),
    ):
        assert sentence in refusal(with_report(section))


def test_the_manifest_keeps_it_and_the_page_reports_it(
    workspace: Workspace, released: Workspace
) -> None:
    workspace.make(update(report=REPORT))
    manifest, plain = workspace.manifest(), released.manifest()
    assert manifest["report"] == REPORT and "report" not in plain
    for name in ("spec", "record", "nonce"):
        assert manifest[name] == plain[name]
    page = (workspace.output / "report.html").read_text()
    elements = parse_elements(page)
    assert elements.text.count(REPORT["title"]) == 2
    assert "Source: a survey" in elements.text and "Contact: me@example.org" in elements.text
    assert "b" not in {tag for tag, _ in elements.tags}
    workspace.succeed("report", workspace.output)
    assert (workspace.output / "report.html").read_text() == page
    workspace.succeed("verify", workspace.output)
    other = workspace.release(update(report=REPORT | {"title": "b"}))
    assert other.code == 0 and "the page keeps the report section of the first run" in other.err
    assert workspace.manifest() == manifest
