"""The packages of dpcore: imports point to lower floors, and only at names of a public API."""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.rooms import (
    FLOOR,
    LARGEST_ROOM,
    PROJECT,
    Crossing,
    all_crossings,
    climbs,
    find_crossings,
    line_count,
    public_names,
    redrawn,
)


@cache
def crossings() -> list[Crossing]:
    """All imports from packages of dpcore, read once."""
    return all_crossings()


def unfaced(crossings: list[Crossing]) -> list[Crossing]:
    """Imports of names that are in no public API."""
    faces = {room: public_names(room) for room in FLOOR}
    return [each for each in crossings if each.name not in faces[each.room].get(each.module, ())]


def circles(modules: dict[str, set[str]]) -> list[str]:
    """Modules on an import circle: those left once what imports nothing left is taken away."""
    left = dict(modules)
    while free := [module for module, uses in left.items() if not uses & left.keys()]:
        for module in free:
            del left[module]
    while free := [module for module in left if not any(module in uses for uses in left.values())]:
        for module in free:
            del left[module]
    return sorted(left)


def run_imports(path: Path) -> set[str]:
    """The modules of dpcore that a file imports when it runs; those for annotations alone aside."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dptrees.dpcore"):
            found.add(str(node.module))
    return found


def test_every_room_is_on_a_floor() -> None:
    rooms = {path.parent.name for path in (PROJECT / "dpcore").glob("*/__init__.py")}
    assert rooms == set(FLOOR)
    loose = {path.name for path in (PROJECT / "dpcore").glob("*.py")}
    assert loose == {"__init__.py", "arrays.py", "codec.py", "refusal.py"}


def test_no_import_climbs() -> None:
    assert [each for each in crossings() if climbs(each)] == []


def test_no_imports_go_in_a_circle() -> None:
    modules = {}
    for path in (PROJECT / "dpcore").rglob("*.py"):
        name = ".".join(["dptrees", *path.relative_to(PROJECT).with_suffix("").parts])
        modules[name] = run_imports(path)
    assert circles(modules) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]


def test_only_what_a_face_names_crosses() -> None:
    assert unfaced(crossings()) == []


@pytest.mark.parametrize("room", FLOOR)
def test_a_face_names_what_is_there_and_used(room: str) -> None:
    used = {(each.module, each.name) for each in crossings() if each.room == room}
    for module, names in public_names(room).items():
        inside = import_module(f"dptrees.dpcore.{room}.{module}")
        for name in names:
            assert hasattr(inside, name), f"{module}.{name}"
            assert not name.startswith("_")
            assert (module, name) in used, f"nobody outside uses {module}.{name}"


@pytest.mark.parametrize("room", FLOOR)
def test_a_room_is_small_and_says_what_it_is_for(room: str) -> None:
    assert line_count(room) <= LARGEST_ROOM
    words = import_module(f"dptrees.dpcore.{room}").__doc__ or ""
    assert f"Floor {FLOOR[room]}" in words


PLANTED = {
    "climbs": ("dpcore/noise/laws.py", "from dptrees.dpcore.trees.shapes import Tree", climbs),
    "climbs to its own floor": (
        "dpcore/noise/laws.py",
        "from dptrees.dpcore.rows.keys import KeyList",
        climbs,
    ),
    "is not in the face": (
        "transforms/steps/draw.py",
        "from dptrees.dpcore.noise.laws import _secret",
        lambda crossing: bool(unfaced([crossing])),
    ),
    "is a whole module": (
        "pipelines/report/report.py",
        "from dptrees.dpcore.noise import digit_tables",
        lambda crossing: bool(unfaced([crossing])),
    ),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_imports_are_found(kind: str) -> None:
    path, source, found = PLANTED[kind]
    (crossing,) = find_crossings(path, source)
    assert found(crossing)


def test_the_page_of_the_house_is_as_drawn() -> None:
    page = (PROJECT / "docs" / "architecture.md").read_text()
    assert redrawn(page) == page
