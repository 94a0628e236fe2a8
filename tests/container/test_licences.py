"""The page of licences is of the packages that are locked, and a new kind of licence is told."""

from __future__ import annotations

import pytest
from packaging.utils import canonicalize_name

from tests.container.locks import PROJECT, locked, program

FOLDER = PROJECT / "deploy" / "container"


licences = program("licences")


def rows() -> dict[str, tuple[str, str]]:
    """Version and licence of each package on the page."""
    lines = (FOLDER / "licences.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("|")]
    return {canonicalize_name(name): (version, told) for _, name, version, told, _ in cells[2:]}


def test_page_lists_what_is_locked() -> None:
    tools = {"pip": locked("3.11", name="tools")["pip"]}
    listed = {name: version for name, (version, _) in rows().items()}
    assert listed == locked("3.11") | tools, "run make licences after make locks"


def test_each_licence_was_looked_at() -> None:
    known = licences.PERMISSIVE | set(licences.COPYLEFT)
    assert all(licences.parts_of(told) <= known and told for _, told in rows().values())


def bill(licence: str) -> dict[str, object]:
    """A list of one package."""
    licences = [{"license": {"id": licence}}]
    return {"components": [{"name": "new", "version": "1", "licenses": licences}]}


def test_new_kind_of_licence_is_told() -> None:
    assert "| new | 1 | MIT |" in licences.page(bill("MIT"), "3.11")
    assert "- MPL-2.0: new (" in licences.page(bill("MPL-2.0"), "3.11")
    with pytest.raises(ValueError, match=r"^new has the licence AGPL-3.0-only: look at it\.$"):
        licences.page(bill("AGPL-3.0-only"), "3.11")
    with pytest.raises(ValueError, match=r"\(none told\)"):
        licences.page({"components": [{"name": "new", "version": "1"}]}, "3.11")
