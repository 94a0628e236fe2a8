"""The README: three screens, and what it shows of the demo is what the demo prints."""

from __future__ import annotations

import re
import subprocess

from tests.docs.blocks import agrees
from tests.docs.demo import README, demo, require_flights, shown_demo

# Of 40 lines each.
SCREENS = 3


def test_it_keeps_to_three_screens() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= SCREENS * 40


def test_the_demo_prints_what_it_shows() -> None:
    require_flights()
    printed = demo()
    assert agrees(shown_demo().text, printed), printed


def test_no_page_installs_dptrees_from_the_index() -> None:
    """No such distribution is there: who registers the name could run code beside the key."""
    named = re.compile(r"(pip|pipx|uv) +(pip +)?install\s+(-\S+ +)*['\"]?dptrees(\[|['\"`\s]|$)")
    listed = subprocess.run(
        ["git", "ls-files", "README.md", "docs", "deploy", "examples", "pipelines", "transforms"],
        cwd=README.parent,
        capture_output=True,
        check=True,
        text=True,
    )
    found = []
    for name in listed.stdout.splitlines():
        path = README.parent / name
        if path.suffix in {".md", ".py", ".yaml", ".yml", ".service", ".html", ".ipynb", ".txt"}:
            found += [name] if named.search(path.read_text(encoding="utf-8")) else []
    assert not found
    assert named.search("pip install 'dptrees[gcp]'") and not named.search("pip install '.[gcp]'")
