"""The table of events in docs/operations.md is what the code reports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "operations.md"


def reported() -> Iterator[tuple[str, frozenset[str]]]:
    """The events of all modules, by the calls that log them, and the events of libraries."""
    yield "log", frozenset({"logger", "message"})
    for path in (PROJECT / "pipelines").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "event":
                (name,) = node.args
                assert isinstance(name, ast.Constant), f"{path}: an event without a name"
                fields = {str(each.arg) for each in node.keywords} - {"level"}
                yield str(name.value), frozenset(fields)


def test_the_table_has_every_event_with_all_its_fields() -> None:
    table = PAGE.read_text(encoding="utf-8").split("| event | fields | when |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table, re.M)
    shown = {(name, frozenset(re.findall(r"`(\w+)`", fields))) for name, fields in rows}
    assert shown == set(reported())
