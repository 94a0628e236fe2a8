"""The order of the packages: no circle, floors of pipelines, sizes, imports inside functions."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import PurePosixPath

import pytest

from tests.order import PROJECT, floors, purpose, redrawn
from tests.size import circles, edges, inside_functions, present_sources

SOURCES = present_sources(PROJECT)
MODULES = {path: text for path, text in SOURCES.items() if not path.endswith("__init__.py")}

# A package of pipelines imports from those before it only.
PIPELINES: tuple[str, ...] = (
    *("terminal_text", "process", "sections", "show", "kinds", "kind_pages", "config", "query"),
    *("monitoring", "ledger", "report", "proof", "run", "beam_yaml", "check", "python", "cli"),
    "spark",
)
# Imports inside functions, and why they are not at the top.
INSIDE: dict[str, tuple[int, str]] = {
    "pipelines/check/verifying.py": (1, "a check of a release without its rows makes no release"),
    "pipelines/config/configuration.py": (1, "most configurations are no series"),
    "pipelines/proof/keygen.py": (1, "a release key needs no signatures"),
    "pipelines/proof/tables.py": (
        2,
        "pages and totals to date are checked where a release has them",
    ),
    "pipelines/python/calls.py": (1, "import dptrees starts at once"),
    "pipelines/report/summary.py": (2, "a page needs jinja"),
    "pipelines/run/metrics.py": (1, "only a ledger needs SQLAlchemy"),
    "pipelines/run/stage.py": (1, "only a ledger needs SQLAlchemy"),
    "pipelines/sections/input.py": (2, "most inputs are no queries"),
    "pipelines/show/adaptive.py": (1, "most adaptive trees are no hierarchies"),
    "pipelines/show/mechanisms.py": (1, "most plans have no target error"),
    "pipelines/spark/release.py": (1, "import dptrees.spark starts at once"),
}
MOST_INSIDE = 25
MOST_FILES = 10
LONGEST = 650
# What a registry names: a module, a colon and a name in it, from these packages.
PLACE = re.compile(r"[a-z_.]+:[A-Za-z_]\w*")
NAMED_FROM = {
    "dpcore/release/kinds.py": "dptrees.dpcore",
    "pipelines/show/mechanisms.py": "dptrees.pipelines.show",
}


def climbing(below: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Return the imports from a floor of pipelines to the same or a higher one."""
    height = {f"pipelines.{name}": place for place, name in enumerate(PIPELINES)}
    return [
        (name, each)
        for name in height
        for each in below.get(name, ())
        if each in height and height[each] >= height[name]
    ]


def test_no_packages_import_each_other() -> None:
    assert circles(edges(SOURCES)) == []
    with pytest.raises(ValueError, match="import each other"):
        floors({"a": {"b"}, "b": {"a"}})


def test_no_import_of_pipelines_climbs() -> None:
    below = edges(SOURCES)
    packages = {name.partition(".")[2] for name in below if name.startswith("pipelines.")}
    assert packages - {"__init__"} == set(PIPELINES)
    assert climbing(below) == []
    first, second = PIPELINES[:2]
    assert climbing({f"pipelines.{first}": {f"pipelines.{second}"}})


def test_imports_inside_functions_are_few_and_have_a_reason() -> None:
    assert inside_functions(SOURCES) == {path: count for path, (count, _) in INSIDE.items()}
    assert sum(count for count, _ in INSIDE.values()) <= MOST_INSIDE
    planted = {"dpcore/a.py": "", "dpcore/b.py": "def f():\n    from dptrees.dpcore.a import x\n"}
    assert inside_functions(planted) == {"dpcore/b.py": 1}


def test_everything_that_a_registry_names_exists() -> None:
    named = [
        (path, node.value)
        for path, text in MODULES.items()
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if call.func.id in ("Later", "_later", "_kind")
        for node in call.args
        if isinstance(node, ast.Constant)
    ]
    assert len(named) > 70
    for path, place in named:
        assert PLACE.fullmatch(place), f"{path}: {place}"
        module, _, name = place.partition(":")
        inside = import_module(f"{NAMED_FROM.get(path, 'dptrees.pipelines')}.{module}")
        assert hasattr(inside, name), f"{path}: {place}"


def test_packages_and_files_have_the_size_of_one_subject() -> None:
    packages: dict[str, int] = {}
    for path in MODULES:
        folder = PurePosixPath(path).parent.as_posix()
        packages[folder] = packages.get(folder, 0) + 1
    assert {name: files for name, files in packages.items() if files > MOST_FILES} == {}
    lengths = {path: text.count("\n") for path, text in MODULES.items()}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [path for path, text in SOURCES.items() if not purpose(text)] == []


def test_the_page_of_the_architecture_is_as_drawn() -> None:
    page = (PROJECT / "docs" / "architecture.md").read_text()
    assert redrawn(page, SOURCES) == page
