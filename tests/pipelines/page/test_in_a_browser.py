"""The page in a real browser: what it draws, says, folds and gives away, for eyes and for hands."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dptrees.pipelines.show.figures import interval
from tests.chromium import Chromium
from tests.pipelines.page.conftest import CLOSING, LABELS

BLOBS = """
window.blobs = [];
if (!window.kept) { window.kept = URL.createObjectURL;
  URL.createObjectURL = (blob) => { blobs.push(blob); return kept.call(URL, blob); }; }
"""
WAIT = "new Promise((done) => setTimeout(() => done(true), 50))"


def key(chromium: Chromium, name: str) -> None:
    """Press a key."""
    for kind in ("keyDown", "keyUp"):
        code = {"Tab": 9, "ArrowRight": 39, "ArrowDown": 40}[name]
        chromium.call("Input.dispatchKeyEvent", type=kind, key=name, windowsVirtualKeyCode=code)


def figures(chromium: Chromium) -> dict[str, Any]:
    """The data of all figures, by the ids of their elements."""
    return {
        f"figure-{place}-{name}": data
        for place, tree in enumerate(chromium.value("page.release.trees"))
        for name, data in tree["figures"].items()
    }


def test_charts_are_drawn(opened: Chromium) -> None:
    ids = opened.value(
        "[...document.querySelectorAll('[data-figure]:not([data-series])')].map((each) => each.id)"
    )
    assert ids == list(figures(opened))
    for each in ids:
        shapes = f"[...document.getElementById('{each}').querySelectorAll('g:not(.off) path')]"
        boxes = opened.value(f"{shapes}.map((each) => each.getBoundingClientRect().toJSON())")
        assert any(box["width"] > 100 and box["height"] > 10 for box in boxes), each
    panels = "document.querySelectorAll('.panels path').length"
    assert opened.value(panels) == 2 * len(LABELS)


def test_the_mouse_and_the_arrow_keys_report_points(opened: Chromium) -> None:
    (name,) = [each for each in figures(opened) if each == "figure-0-cdf"]
    (series,) = figures(opened)[name]["series"]
    opened.value(f"document.getElementById('{name}').scrollIntoView({{block: 'center'}})")
    box = opened.value(f"document.getElementById('{name}').getBoundingClientRect().toJSON()")
    opened.mouse("mouseMoved", box["left"] + box["width"] / 2, box["top"] + 20)
    said = f"document.getElementById('{name}-read').textContent"
    middle = min(range(len(series["at"])), key=lambda place: abs(series["at"][place] - 500))
    assert f"below {series['texts'][middle]}: {series['count'][middle]:,} rows" in opened.value(
        said
    )
    opened.value(f"document.getElementById('{name}').focus()")
    key(opened, "ArrowRight")
    opened.wait(f"{said}.includes('below {series['texts'][middle + 1]}:')")
    assert opened.complaints() == []


ENDS = ((12.34, 1034.6), (144690.8, 146671.8), (-4.2, 9.9), (7.0, 7.0), (0.0, 20.41), (3.0, None))


def test_the_script_rounds_as_the_terminal(opened: Chromium) -> None:
    for low, high in ENDS:
        ends, digits = f"{low}, {'null' if high is None else high}", 0 if high is None else 6
        rounded = interval(low, math.inf if high is None else high, None)
        assert opened.value(f"page.interval({ends}, {digits})") == rounded


def test_keys_come_and_go_and_their_labels_are_text(opened: Chromium) -> None:
    layers = "document.querySelectorAll('#figure-1-shares g:not(.off)').length"
    assert opened.value(layers) == 3
    opened.value("document.querySelectorAll('#controls-1 [type=checkbox]')[5].click()")
    opened.value("document.querySelectorAll('#controls-1 [type=checkbox]')[0].click()")
    opened.value("document.querySelectorAll('#controls-1 [type=checkbox]')[1].click()")
    assert opened.value(layers) == 2
    opened.value("document.getElementById('figure-1-shares').focus()")
    said = "document.getElementById('figure-1-shares-read').textContent"
    seen = set()
    for _ in range(2):
        key(opened, "ArrowDown")
        seen.add(opened.value(said).rsplit(", below", 1)[0])
    assert len(seen) == 2
    assert CLOSING in opened.value("document.querySelector('#controls-1').textContent")
    assert opened.complaints() == []


def parse_csv(text: str) -> list[list[str]]:
    return list(csv.reader(text.splitlines())) if "\n" in text else []


def test_tables_are_downloaded_as_they_stand(opened: Chromium, tmp_path: Path) -> None:
    opened.value(BLOBS)
    buttons = "[...document.querySelectorAll('button.csv')]"
    count = opened.value(f"{buttons}.length")
    opened.value(f"{buttons}.forEach((each) => each.click())")
    texts = opened.value("Promise.all(blobs.map((each) => each.text()))")
    assert len(texts) == count > 10
    names = opened.value(f"{buttons}.map((each) => each.getAttribute('aria-label'))")
    found = dict(zip(names, texts, strict=True))
    cdf = figures(opened)["figure-0-cdf"]["series"][0]
    (own,) = [text for name, text in found.items() if name.endswith("Rows below each value of x")]
    lines = list(csv.DictReader(own.splitlines()))
    assert [line["below"] for line in lines] == cdf["texts"]
    assert [int(line["count"]) for line in lines] == cdf["count"]
    assert [float(line["ci_low"]) for line in lines] == cdf["low"]
    # A table, cell by cell.
    rows = "document.querySelector('[aria-label=\"Quantiles of numbers\"] table').rows"
    cells = "[...row.cells].map((cell) => cell.innerText.trim())"
    quantiles = opened.value(f"[...{rows}].map((row) => {cells})")
    (text,) = [text for name, text in found.items() if name.endswith("Quantiles of numbers")]
    assert list(csv.reader(text.splitlines())) == quantiles
    # The nodes of a tree of labels, by their paths.
    (nodes,) = [text for name, text in found.items() if name.endswith("Nodes of routes")]
    assert any(row["path"] == "north/north" for row in csv.DictReader(nodes.splitlines()))
    assert opened.complaints() == [] or all("blob:" in each for each in opened.complaints())


def test_a_download_is_a_file(opened: Chromium, tmp_path: Path) -> None:
    opened.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    opened.value("document.querySelector('#tree-0 button.csv').click()")
    opened.wait(WAIT)
    for _ in range(100):
        if any(each.suffix == ".csv" for each in tmp_path.iterdir()):
            break
        opened.wait(WAIT)
    (file,) = tmp_path.glob("*.csv")
    assert file.read_text().count("\n") > 10


def test_cells_that_spreadsheets_would_run_are_texts(opened: Chromium) -> None:
    rows = json.dumps([["=1+1", "-5", "-x", "@a", 'a"b,c', 3, None]])
    assert opened.value(f"page.csvText({rows})") == '\'=1+1,-5,\'-x,\'@a,"a""b,c",3,\r\n'


def test_links_open_what_is_folded(opened: Chromium) -> None:
    assert not opened.value("document.getElementById('guarantee').open")
    opened.value("document.querySelector('.glance a').click()")
    opened.wait("document.getElementById('guarantee').open")
    opened.value("dispatchEvent(new Event('beforeprint'))")
    assert opened.value("document.querySelectorAll('main details.more:not([open])').length") == 0
    opened.value("dispatchEvent(new Event('afterprint'))")
    assert opened.value("document.querySelectorAll('main details.more[open]').length") == 0


def test_bars_change_their_order(opened: Chromium) -> None:
    names = (
        "[...document.querySelectorAll('#tree-3 .bars tbody tr')].map((row) => ({...row.dataset}))"
    )
    counts = [int(each["count"]) for each in opened.value(names)]
    assert counts == sorted(counts, reverse=True)
    opened.value("document.querySelector('#tree-3 .orders [value=given]').click()")
    assert [int(each["place"]) for each in opened.value(names)] == list(range(len(LABELS)))


def test_the_keyboard_reaches_everything(opened: Chromium) -> None:
    can = "a[href], button:not([hidden]), input, select, summary, [tabindex='0']"
    visible = f"[...document.querySelectorAll(`{can}`)].filter((each) => each.checkVisibility())"
    expected = opened.value(f"{visible}.filter((e) => e.type !== 'radio' || e.checked).length")
    opened.value(
        "window.reached = new Set(); addEventListener('focusin', (e) => reached.add(e.target))"
    )
    for _ in range(expected + 3):
        key(opened, "Tab")
    missed = opened.value(
        f"{visible}.filter((e) => (e.type !== 'radio' || e.checked) && !reached.has(e))"
        ".map((e) => e.outerHTML.slice(0, 120))"
    )
    assert missed == []


# For eyes


@pytest.fixture
def emulated(opened: Chromium) -> Iterator[Chromium]:
    """The browser, whose screen a test changes."""
    yield opened
    opened.call("Emulation.clearDeviceMetricsOverride")
    opened.call("Emulation.setEmulatedMedia", media="", features=[])


def screen(chromium: Chromium, *, width: int = 1300, scheme: str = "light") -> None:
    chromium.call(
        "Emulation.setDeviceMetricsOverride",
        **{"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.call("Emulation.setEmulatedMedia", media="", features=features)


def test_a_phone_needs_no_scrolling_sideways(emulated: Chromium) -> None:
    screen(emulated, width=390)
    emulated.value(
        "document.querySelectorAll('main > section details').forEach((e) => e.open = true)"
    )
    assert emulated.value("document.documentElement.scrollWidth") <= 390
    labels = "getComputedStyle(document.querySelector('.cards td'), '::before').content"
    assert emulated.value(labels) not in ("none", "normal")
    # A result is on the first screen.
    assert emulated.value("document.querySelector('.figure').getBoundingClientRect().bottom") < 844


CONTRAST = """
(() => {
  const channels = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, place) => sum + c * [.2126, .7152, .0722][place], 0);
  const behind = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const color = channels(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  const poor = [];
  for (const each of document.querySelectorAll("body *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const passed = ["SCRIPT", "NOSCRIPT", "title", "desc", "OPTION"].includes(each.tagName);
    if (!own || passed || !each.checkVisibility()) continue;
    const style = getComputedStyle(each), svg = each.namespaceURI.includes("svg");
    const inks = [channels(svg ? style.fill : style.color), behind(each)];
    const [one, other] = inks.map(light).sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.7 && style.fontWeight >= 700);
    const ratio = (one + .05) / (other + .05);
    if (ratio < (large ? 3 : 4.5)) poor.push(each.outerHTML.slice(0, 80) + ratio.toFixed(2));
  }
  return [...new Set(poor)];
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_contrast(emulated: Chromium, scheme: str) -> None:
    screen(emulated, scheme=scheme)
    ground = emulated.value("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 20, 26)"}[scheme]
    assert emulated.value(CONTRAST) == []


def test_everything_has_a_name(opened: Chromium) -> None:
    nameless = opened.value(
        "[...document.querySelectorAll('button, input, select, [role=img], [role=region], a')]"
        ".filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length))"
        ".map((e) => e.outerHTML.slice(0, 100))"
    )
    assert nameless == []
    assert opened.value("document.querySelectorAll('h1').length") == 1
