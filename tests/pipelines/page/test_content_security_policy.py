"""The page of a release runs its own scripts and no other; a real browser shows that it does."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.page.content_security_policy import content_security_policy
from tests.pipelines.chromium import PROGRAM, Chromium
from tests.pipelines.conftest import Workspace
from tests.pipelines.report_page import elements_of

CLOSING = "</script><!--<script>alert(1)</script>"
HANDLER = "\"><img src=x onerror=alert(2)>\n'"
LABELS = ["north", CLOSING, HANDLER, "a\\b/c", "{{7*7}}${7*7}", "$$x^2$$"]
ROWS = 400


class Labelled(Workspace):
    """Rows and configurations of every kind of tree, with labels that try to be more than text."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        random = np.random.default_rng(0)
        first, second = (random.choice(LABELS, ROWS) for _ in range(2))
        paths = [f"{one.replace('/', '_')}/{two}" for one, two in zip(first, second, strict=True)]
        columns = {"size": first, "to": second, "way": paths}
        self.write_rows(**{name: pa.array(values) for name, values in columns.items()})
        routes = [(one, two) for one in LABELS for two in LABELS]
        table = {"size": [one for one, _ in routes], "to": [two for _, two in routes]}
        pq.write_table(pa.table(table), folder / "routes.parquet")

    @property
    def settings(self) -> dict[str, Any]:
        numbers = {"column": "x", "lower": 0, "upper": 100, "cells": 64}
        # As a configuration writes them: ${ begins a parameter.
        written = [label.replace("${", "$${") for label in LABELS]
        by = {"column": "size", "keys": written}
        trees = [
            {"name": "numbers", "domain": numbers, "quantiles": [0.5]},
            {"name": "keyed", "domain": dict(numbers), "by": by},
            {"name": "sizes", "domain": {"column": "size", "categories": written}},
            *self.trees_of_nodes,
        ]
        privacy = {"epsilon": 8, "delta": 1e-6, "neighbors": "add_remove"}
        return super().settings | {"privacy": privacy, "trees": trees}

    @property
    def trees_of_nodes(self) -> list[dict[str, Any]]:
        """Trees without charts."""
        table = str(self.folder / "routes.parquet")
        routes = {"kind": "hierarchy", "columns": ["size", "to"], "table": table}
        return [
            {"name": "routes", "domain": routes},
            {"name": "keyed-routes", "domain": dict(routes)}
            | {"by": {"column": "place", "keys": ["north", "south"]}},
            {"name": "ways", "domain": {"kind": "sparse", "column": "way", "depth": 3}},
        ]


@pytest.fixture(scope="module", params=[True, False], ids=["charts", "no charts"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a release with charts, or of one without."""
    workspace = Labelled(tmp_path_factory.mktemp("labelled"))

    def change(settings: dict[str, Any]) -> None:
        if not request.param:
            settings["trees"] = workspace.trees_of_nodes

    outcome = workspace.release(change)
    assert (outcome.code, outcome.err) == (0, "")
    return workspace.output / "report.html"


def directives(page: str) -> dict[str, list[str]]:
    (content,) = [tag["content"] for _, tag in elements_of(page).tags if tag.get("http-equiv")]
    assert content is not None
    parts = [directive.split(" ") for directive in content.split("; ")]
    return {name: values for name, *values in parts}


def has_charts(page: Path) -> bool:
    return any(tag.get("class") == "figure" for _, tag in elements_of(page.read_text()).tags)


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_hashes_are_those_of_the_scripts_that_stand_in_the_page(page: Path) -> None:
    text = page.read_bytes().decode()
    assert "\r" not in text and "\0" not in text
    policy, charts = directives(text), has_charts(page)
    scripts = re.findall("^<script>(.*?)</script>", text, re.DOTALL | re.MULTILINE)
    assert len(scripts) == (2 if charts else 1)
    assert policy["script-src"] == [hashed(script) for script in scripts]
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    assert policy["style-src"] == (["'unsafe-inline'"] if charts else [hashed(style)])
    for name in ("default-src", "base-uri", "form-action"):
        assert policy[name] == ["'none'"]


def test_only_styles_of_charts_are_unsafe(page: Path) -> None:
    policy = directives(page.read_text())
    unsafe = {name for name, values in policy.items() if "unsafe" in " ".join(values)}
    assert unsafe == ({"style-src"} if "style-src-attr" in policy else set())
    assert policy.get("style-src-attr", ["'none'"]) == ["'none'"]
    assert ("trusted-types" in policy) == ("style-src-attr" not in policy)


def test_the_policy_stands_before_all_that_it_rules(page: Path) -> None:
    tags = [tag for tag, _ in elements_of(page.read_text()).tags]
    assert tags[:4] == ["html", "head", "meta", "meta"]
    assert dict(elements_of(page.read_text()).tags[2][1]) == {"charset": "utf-8"}


def test_labels_are_text(page: Path) -> None:
    elements = elements_of(page.read_text())
    assert "img" not in {tag for tag, _ in elements.tags}
    assert not [name for _, tag in elements.tags for name in tag if name.startswith("on")]


def test_a_carriage_return_is_refused() -> None:
    for scripts, style in (["a\r\nb"], ""), ([], "a\rb"):
        with pytest.raises(ValueError, match="carriage return"):
            content_security_policy(scripts, style, charts=True)


# ---------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if PROGRAM is None:
        pytest.skip("no chromium here")
    started = Chromium(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture
def opened(chromium: Chromium, page: Path) -> Chromium:
    """The browser with the page, whose scripts have run and whose charts are drawn."""
    chromium.open(page)
    chromium.wait("[...document.querySelectorAll('.nodes')].every((each) => each.firstChild)")
    if has_charts(page):
        chromium.wait(DRAWN.format(figures=3))
    return chromium


# What Bokeh has written beside its canvases.
SHADOWS = "everything().map((each) => each.shadowRoot?.textContent).join()"
# As many charts as there are figures have something on a canvas.
DRAWN = """
[...document.querySelectorAll(".figure")].filter((figure) => everything(figure).some((each) =>
  each.tagName === "CANVAS" && each.width > 0 &&
  each.getContext("2d").getImageData(0, 0, each.width, each.height).data.some((byte) => byte > 0)
)).length === {figures}
"""


def test_nothing_is_refused(opened: Chromium) -> None:
    assert opened.complaints() == []


PLANTED = """
(() => {
  const script = document.createElement("script");
  try { script.textContent = "alert(3)"; document.body.append(script); } catch {}
  try {
    document.body.insertAdjacentHTML("beforeend", '<p id="planted" style="color: red"' +
      ' onclick="alert(4)"><img src="data:," onerror="alert(5)"></p>');
  } catch {}
  document.getElementById("planted")?.click();
})()
"""


def test_what_a_label_might_bring_does_not_run(opened: Chromium) -> None:
    """Planted: a script, a handler and a style attribute in the page; each is refused."""
    opened.value(PLANTED)
    opened.wait("refused.length >= 2")
    opened.wait("new Promise((done) => setTimeout(() => done(true), 300))")
    assert opened.value("alerts.length") == 0
    planted = "document.getElementById('planted')"
    assert opened.value(f"!{planted} || getComputedStyle({planted}).color !== 'rgb(255, 0, 0)'")


def test_choosers_of_nodes_work(opened: Chromium) -> None:
    """A path is found, siblings change their order, a node opens."""
    place = opened.value("page.release.trees.findIndex((tree) => tree.name === 'routes')")
    opened.value(
        f"(() => {{ const form = document.getElementById('controls-{place}');"
        "form.elements.path.value = 'north/north'; form.requestSubmit();"
        "form.elements.order.value = 'given';"
        "form.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )
    opened.wait(f"document.getElementById('found-{place}').textContent.startsWith('north/north: ')")
    shown = f"[...document.querySelectorAll('#nodes-{place} .label')].map((each) => each.innerText)"
    assert CLOSING in "".join(opened.value(shown))
    bars = f"document.querySelectorAll('#nodes-{place} .bar > span')"
    assert opened.value(f"[...{bars}].some((each) => each.getBoundingClientRect().width > 20)")
    assert opened.complaints() == []


def test_choosers_of_charts_work(opened: Chromium) -> None:
    """Rows turn to shares, keys come and go, and a tooltip shows a label as text."""
    if opened.value("document.querySelector('.figure') === null"):
        pytest.skip("a page without charts")
    renderers = "[...Bokeh.documents][0].roots()[1].renderers"
    shown = f"{renderers}.filter((each) => each.visible).length"
    before = opened.value(shown)
    opened.value("document.querySelectorAll('#controls-1 [name=scale]')[1].click()")
    opened.value("document.querySelector('#controls-1 .keys input').click()")
    assert opened.value(shown) < before
    assert "share" in opened.value(f"{renderers}.at(-1).glyph.y.field")
    assert not opened.value("document.getElementById('share-note-1').hidden")
    figure = "document.getElementById('figure-2')"
    opened.value(f"{figure}.scrollIntoView()")
    box = opened.value(f"{figure}.getBoundingClientRect().toJSON()")
    for label in (CLOSING, HANDLER.strip("\n'")):
        for step in range(40):
            x, y = box["left"] + box["width"] * (step + 1) / 42, box["top"] + box["height"] / 2
            opened.mouse("mouseMoved", x, y)
            opened.wait("new Promise((done) => requestAnimationFrame(() => done(true)))")
            if label in opened.value(SHADOWS):
                break
        else:
            raise AssertionError(f"no tooltip with {label}")
    assert opened.value("everything().filter((each) => each.tagName === 'IMG').length") == 0
    assert opened.complaints() == []
