"""Labels of tables, keys and rows are shown on the terminal, and never steer it."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.terminal_text import escaped, print_json, print_line
from tests.pipelines.conftest import Outcome, Workspace, update

# Clears the screen, sets the title of the window, forges a line, and turns what follows around.
EVIL = "\x1b[2J\x1b]0;title\x07\r\n\x9b7m\x7f\u202egpj.\u2066\u2028\u2029"
SHOWN = r"\x1b[2J\x1b]0;title\x07\r\n\x9b7m\x7f\u202egpj.\u2066\u2028\u2029"
ROWS = 3 * 400
TREES = ("sizes", "keyed", "places", "paths", "heavy")


def test_control_characters_are_escaped_and_nothing_else() -> None:
    overrides = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
    for code in range(0x110000):
        sign = chr(code)
        steers = unicodedata.category(sign) in ("Cc", "Zl", "Zp", "Cs") or code in overrides
        assert (escaped(sign) != sign) == steers, hex(code)
        assert not steers or (escaped(sign).isascii() and escaped(sign).isprintable())


def test_escaping_twice_is_escaping_once() -> None:
    assert escaped(EVIL) == SHOWN == escaped(SHOWN)
    assert escaped("Zürich / \\ 東京 👩‍👩‍👧 שלום") == "Zürich / \\ 東京 👩‍👩‍👧 שלום"


def test_lines_and_json_are_of_visible_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(EVIL)
    print_line()
    assert capsys.readouterr().out == f"{SHOWN}\n\n"
    print_json({EVIL: [EVIL]})
    out = capsys.readouterr().out
    assert out.rstrip("\n").isprintable() and out.isascii()
    assert json.loads(out) == {EVIL: [EVIL]}


class Hostile(Workspace):
    """A release whose categories, keys, labels, levels, columns and paths hold control characters.

    The rows of the sparse tree bring their own.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        labels = pa.array(["north", EVIL] * (ROWS // 6))
        self.write_rows(x=pa.nulls(400), place=pa.nulls(400), **{"size": labels, EVIL: labels})
        pq.write_table(pa.table({EVIL: ["north", EVIL]}), folder / "places.parquet")
        pq.write_table(pa.table({"size": ["north", EVIL]}), folder / "paths.parquet")

    @property
    def settings(self) -> dict[str, Any]:
        sizes = {"column": "size", "categories": ["north", EVIL], "ordered": True}
        place = {"kind": "hierarchy", "columns": [EVIL]}
        path = {"kind": "hierarchy", "column": "size", "separator": "/"}
        trees = [
            {"name": "sizes", "domain": sizes, "quantiles": [0.9]},
            {"name": "keyed", "domain": dict(sizes)}
            | {"group_by": {"column": EVIL, "keys": ["north", EVIL]}},
            {"name": "places", "domain": place | {"table": str(self.folder / "places.parquet")}},
            {"name": "paths", "domain": path | {"table": str(self.folder / "paths.parquet")}},
            {"name": "heavy", "domain": {"kind": "sparse", "columns": [EVIL]}},
        ]
        privacy = {"epsilon": 8, "delta": 1e-6, "neighbors": "add_remove"}
        return super().settings | {"trees": trees, "privacy": privacy}


def check(outcome: Outcome, code: int = 0) -> list[str]:
    """Every line that was printed is visible as it is; return the lines."""
    assert outcome.code == code, outcome.err
    lines = (outcome.out + outcome.err).split("\n")
    assert all(line.isprintable() for line in lines)
    return lines


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The release and what it printed. Tests only read it."""
    workspace = Hostile(tmp_path_factory.mktemp("hostile"))
    return workspace, workspace.release()


def test_the_summary(made: tuple[Hostile, Outcome]) -> None:
    workspace, outcome = made
    lines = check(outcome)
    assert sum(line.startswith(f"    {SHOWN} ") for line in lines) == 3  # the largest nodes
    assert any(line.startswith(f"  {SHOWN}rows ") for line in lines)
    assert any(f"  {SHOWN}  [" in line for line in lines)
    check(workspace.release())


def test_the_plan(made: tuple[Hostile, Outcome]) -> None:
    workspace, _ = made
    lines = check(workspace.run("plan", workspace.configure()))
    levels = [line for line in lines if line.startswith("  level 1 ") and SHOWN in line]
    assert len(levels) == 2
    (root,) = [line for line in lines if line.startswith("  level 0 root ") and "nodes" in line][:1]
    assert root.index(" 1 nodes") == levels[0].index(" 2 nodes")
    check(workspace.run("plan", workspace.configure(), "--json"))


def test_the_table_of_a_query_is_aligned(made: tuple[Hostile, Outcome]) -> None:
    workspace, _ = made
    for tree in TREES:
        key = ("--key", EVIL) if tree == "keyed" else ()
        requested = ("query", workspace.output, "top", "--tree", tree, *key)
        heading, *lines = check(workspace.run(*requested))[:-2]
        assert len(lines) == 2
        assert sum(SHOWN in line for line in lines) == 1
        assert {len(line) for line in (heading, *lines)} == {len(heading)}
        assert heading.startswith("node".ljust(len(SHOWN)))
        out = workspace.run(*requested, "--json")
        check(out)
        assert EVIL in {row["label"] for row in json.loads(out.out)["answers"]}


QUESTIONS = {
    "tree": ("node", "--tree", EVIL, "--path", ""),
    "path": ("node", "--tree", "places", "--path", EVIL + "x"),
    "sparse path": ("node", "--tree", "heavy", "--path", EVIL + "x"),
    "level": ("top", "--tree", "places", "--level", EVIL + "x"),
    "levels": ("top", "--tree", "places", "--level", "none"),
    "key": ("cdf", "north", "--tree", "keyed", "--key", EVIL + "x"),
    "value": ("cdf", EVIL + "x", "--tree", "sizes"),
    "command line": ("top", "--tree", "sizes", EVIL),
}


def test_refusals(made: tuple[Hostile, Outcome]) -> None:
    workspace, _ = made
    for name, question in QUESTIONS.items():
        lines = check(workspace.run("query", workspace.output, *question), code=2)
        assert any(r"\x1b[2J" in line for line in lines), name


def test_a_configuration_with_a_hostile_name(workspace: Workspace) -> None:
    outcome = workspace.run("plan", workspace.configure(update(**{EVIL: 1})))
    (line, _) = check(outcome, code=2)
    assert r"\x1b[2J" in line
    check(workspace.run("plan", f"{EVIL}.yaml"), code=2)
    check(workspace.run("report", f"{EVIL}\udcff"), code=2)
