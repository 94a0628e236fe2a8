"""The site: every page is in the navigation, and it builds without a warning or another host."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def test_site_builds_without_a_warning_and_queries_no_other_host(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*build, "--site-dir", str(tmp_path / "site")],
        cwd=PROJECT,
        env={"PATH": "", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    loads = re.compile(r'<(?:script|img|iframe|link)\b[^>]*?(?:src|href)="(?:https?:)?//([^"]+)"')
    for page in (tmp_path / "site").rglob("*.html"):
        assert loads.findall(page.read_text(encoding="utf-8")) == [], page
