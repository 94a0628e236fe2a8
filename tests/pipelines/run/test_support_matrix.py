"""The versions in docs/engines.md are the tested ones, and the tests that it names exist."""

from __future__ import annotations

import re

import pytest

from tests.pipelines.conftest import PROJECT

PAGE = "docs/engines.md"
TABLE = "| what | version | which tests run it |"


def rows(text: str, header: str) -> dict[str, list[str]]:
    """The cells of a table's rows by their first cell.

    >>> rows("| what | version |\\n|---|---|\\n| Java | 17 |\\n\\nMore", "| what | version |")
    {'Java': ['17']}
    """
    _, found, below = text.partition(header)
    assert found, f"no table {header}"
    lines = below.split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first: others for first, *others in cells}


def missing_tests(text: str) -> list[str]:
    """The files of tests and the targets of make that a text names and that do not exist."""
    recipes = (PROJECT / "Makefile").read_text("utf-8") + (PROJECT / ".ci/fetch.mk").read_text(
        "utf-8"
    )
    targets = {
        target
        for line in re.findall(r"^[a-z][^:=\n]*:", recipes, re.MULTILINE)
        for target in line.rstrip(":").split()
    }
    files = [
        name for name in re.findall(r"`(tests/[\w/.]+)`", text) if not (PROJECT / name).is_file()
    ]
    named = [name for each in re.findall(r"`make ([^`=]+)`", text) for name in each.split()]
    return files + [name for name in named if name not in targets]


@pytest.fixture
def page() -> str:
    return (PROJECT / PAGE).read_text(encoding="utf-8")


def test_versions_are_those_that_the_tests_run(page: str) -> None:
    matrix = {what: cells[0] for what, cells in rows(page, TABLE).items()}
    index = (PROJECT / "docs" / "deploy" / "index.md").read_text(encoding="utf-8")
    tested = {
        what: cells[0] for what, cells in rows(index, "| what | version | named in |").items()
    }
    assert matrix == tested | {"Dataflow": "not run at Google"}


def test_each_row_names_tests_that_exist(page: str) -> None:
    assert all(re.search("tests?", cells[1]) for cells in rows(page, TABLE).values())
    assert missing_tests(page) == []


def test_a_planted_file_and_target_are_missing() -> None:
    planted = "`tests/planted.py`, `make planted test`, `tests/conftest.py`"
    assert missing_tests(planted) == ["tests/planted.py", "planted"]
