"""First lines of docstrings can be read without the name above them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("dpcore", "transforms", "pipelines", "tests", "benchmarks", "deploy")
# A preposition or a pronoun in place of the noun.
RIDDLE = re.compile(r"(Of|As|That|Those|Whose)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def riddles(source: str) -> list[str]:
    """Return the names whose docstrings begin with a word that needs the name."""
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, DOCUMENTED))
    return [
        getattr(node, "name", "module")
        for node in nodes
        if RIDDLE.match(ast.get_docstring(node) or "")
    ]


def test_first_lines_can_be_read_alone() -> None:
    paths = [path for each in PACKAGES for path in sorted((PROJECT / each).rglob("*.py"))]
    found = {str(path.relative_to(PROJECT)): riddles(path.read_text()) for path in paths}
    assert {path: names for path, names in found.items() if names} == {}
    assert riddles('def widths():\n    """Of the intervals."""\n') == ["widths"]
    assert riddles('def widths():\n    """Half-widths of the intervals."""\n') == []
