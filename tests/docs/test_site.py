"""The site: every page is in the navigation, and it builds without a warning or another host."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chromium import Chromium

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
SITE = yaml.safe_load((PROJECT / "mkdocs.yml").read_text(encoding="utf-8"))
# Pages that docs/site/hook.py makes of files outside docs/.
TAKEN = {"changes.md"}


def pages_in(nav: list[Any]) -> Iterator[str]:
    """The pages of a navigation."""
    for entry in nav:
        inner = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from pages_in(inner) if isinstance(inner, list) else (inner,)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(pages_in(SITE["nav"]))
    assert len(listed) == len(set(listed))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    notes = {name for name in written if re.match(r"decisions/\d{4}-", name)}
    assert written - notes - set(listed) == set(), "add them to nav in mkdocs.yml"


def find_links(path: Path) -> list[str]:
    """Targets of the links of a page, but for those within blocks of code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.S | re.M)
    return re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", text)


def test_links_of_the_folder_lead_somewhere() -> None:
    """The project is also read without the site, and a page names no host."""
    links = [
        (path, target)
        for path in (PROJECT / "README.md", *DOCS.rglob("*.md"))
        for target in find_links(path)
    ]
    assert len(links) > 100
    wrong = [
        f"{path}: {target}"
        for path, target in links
        if "://" in target or not (path.parent / target).exists()
    ]
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly: a warning fails."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*build, "--site-dir", str(folder)],
        cwd=PROJECT,
        env={"PATH": "", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    return folder


def test_the_site_loads_from_no_other_host(site: Path) -> None:
    loads = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="(?:https?:)?//([^"]+)"')
    for page in site.rglob("*.html"):
        assert loads.findall(page.read_text(encoding="utf-8")) == [], page


# Terms of the field, and a page that a search for each must find.
SEARCHED = {
    "mean": "means.html",
    "median": "questions.html",
    "clamping": "glossary.html",
    "contribution bounding": "bounding.html",
    "partition selection": "keys.html",
    "confidence interval": "quantiles.html",
    "zCDP": "guarantee.html",
    "matrix mechanism": "factorised.html",
}
TYPE = """(term => {
  const input = document.querySelector(".md-search__input")
  input.focus()
  input.value = term
  input.dispatchEvent(new Event("input", { bubbles: true }))
  input.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }))
})"""
HITS = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"


@pytest.mark.parametrize("width", [390, 1300])
def test_the_search_works_from_a_disk(site: Path, chromium: Chromium, width: int) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    chromium.call("Emulation.setDeviceMetricsOverride", **size)
    chromium.open(site / "cookbook" / "index.html")
    search = "getComputedStyle(document.querySelector('.md-search')).display"
    assert chromium.value(search) != "none"
    for term, page in SEARCHED.items():
        chromium.value(f"{TYPE}({json.dumps(term)})")
        chromium.wait(f"{HITS}.some(link => link.includes({json.dumps(page)}))")
    assert chromium.complaints() == []
    chromium.call("Emulation.clearDeviceMetricsOverride")
