"""The tables of all items of the papers: every function, key and command in them exists."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path

import pytest

import dptrees.papers
from dptrees.dpcore.numbers import DistinctDomain
from dptrees.pipelines.cli.command import command_parser
from dptrees.pipelines.kinds.numbers import DistinctTree
from tests.docs.commands import _leaves

PROJECT = Path(__file__).resolve().parents[2]
STATUSES = ("as published", "corrected", "replaced", "not done")
# Checks of arguments and steps of the functions that are listed: no items.
HELPERS = {
    *("check_shape", "checked_leaves", "exact_budget", "positive"),
    "public_root",
}


def items(page: str) -> list[list[str]]:
    """The cells of all rows of the tables."""
    lines = page.split("## Every item of the papers")[1].splitlines()
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line[:2] == "| "]
    return [row for row in rows if len(row) == 5 and row[0] != "item"]


ITEMS = items((PROJECT / "docs" / "reproduction.md").read_text(encoding="utf-8"))


def code(cell: str) -> list[str]:
    """The names in code of a cell."""
    return re.findall(r"`([^`]+)`", cell)


def resolve(name: str) -> object:
    """The object of a name, in `dptrees.papers` if it has no package in front."""
    path = name.split(".")
    if path[0] not in ("dptrees", "benchmarks"):
        path = ["dptrees", "papers", *path]
    for length in range(len(path) - 1, 0, -1):
        try:
            found: object = importlib.import_module(".".join(path[:length]))
        except ModuleNotFoundError:
            continue
        for part in path[length:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def schema_keys() -> dict[str, set[str]]:
    """Each key of a configuration, with the words that its value may be."""
    keys: dict[str, set[str]] = {}

    def words(node: object) -> set[str]:
        if isinstance(node, dict):
            own = [*node.get("enum", ()), node.get("const")]
            return set(map(str, own)).union(*map(words, node.values()))
        return set().union(*map(words, node)) if isinstance(node, list) else set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            for key, value in node.get("properties", {}).items():
                keys.setdefault(key, set()).update(words(value))
        for value in node.values() if isinstance(node, dict) else node:
            if isinstance(value, dict | list):
                walk(value)

    walk(json.loads((PROJECT / "docs" / "configuration.schema.json").read_text(encoding="utf-8")))
    return keys


KEYS = schema_keys()
COMMANDS = {
    " ".join(word for word in names if not word.isupper())
    for names, _, _ in _leaves(("dptrees",), "", command_parser())
}


def is_reachable(name: str) -> bool:
    """Whether users have a key, a value of a key, a command, or a target of make."""
    if name.startswith("make "):
        return f"\n{name[5:]}:" in (PROJECT / "Makefile").read_text(encoding="utf-8")
    if name.startswith("dptrees "):
        return name in COMMANDS
    if name.startswith("dptrees."):
        return resolve(name) is not None
    key, _, value = name.partition(": ")
    return all(part in KEYS for part in key.split(".")) and (not value or value in KEYS[key])


def test_there_are_all_items() -> None:
    assert len(ITEMS) >= 110
    assert all(row[0] and row[1] and row[2] and row[4].startswith(STATUSES) for row in ITEMS)
    # "replaced" and "not done" say by what, or why.
    assert all(len(row[4]) > 20 for row in ITEMS if row[4].startswith(("replaced", "not done")))


@pytest.mark.parametrize("row", ITEMS, ids=lambda row: row[0])
def test_functions_keys_and_commands_exist(row: list[str]) -> None:
    assert code(row[2])
    for name in code(row[2]):
        assert resolve(name) is not None
    for name in code(row[3]):
        assert is_reachable(name), name


def test_every_public_function_of_the_papers_is_in_the_tables() -> None:
    listed = {name for row in ITEMS for name in code(row[2])}
    for module_name in dptrees.papers.__all__:
        module = importlib.import_module(f"dptrees.papers.{module_name}")
        public = {
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
            if inspect.isfunction(value) or inspect.isclass(value)
        }
        missing = public - HELPERS - {name.partition(".")[2] for name in listed}
        assert not missing, (module_name, missing)


def test_a_key_of_units_is_in_the_row_of_the_class_that_counts_them() -> None:
    (row,) = (each for each in ITEMS if "to_date" in code(each[3]))
    domain = DistinctDomain(column="person")
    tree = DistinctTree.model_construct(name="t", domain=domain, to_date=True, noise="best")
    made = tree.workload().domain  # type: ignore[attr-defined]
    assert [resolve(name) for name in code(row[2])] == [type(made)]


def test_what_does_not_exist_is_found() -> None:
    with pytest.raises(AttributeError):
        resolve("rameshwar.coverings")
    for name in ("mechanism: trees", "dptrees queries", "privacy.eps", "make reproduction"):
        assert not is_reachable(name)
