"""Code of a page or a notebook, run as its reader would run it."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[3]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"-?\d[\d,]*(\.\d+)?|(?<=\s)-(?=\s|$)")


def blocks(text: str) -> Iterator[tuple[str, str | None]]:
    """The code of a page, each with the output that follows it."""
    found = [match.groups() for match in _BLOCK.finditer(text)]
    for place, (language, code) in enumerate(found):
        if language == "python":
            following = found[place + 1] if place + 1 < len(found) else ("python", "")
            yield code, following[1] if following[0] == "" else None


def run(code: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What code prints, its last expression included; and the value of that."""
    *body, last = ast.parse(code).body
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        if not isinstance(last, ast.Expr):
            body, last = [*body, last], None  # type: ignore[list-item]
        exec(compile(ast.Module(body, []), "page", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "page", "eval"), names)
            if value is not None:
                print(repr(value))
    return printed.getvalue(), value


def shape(text: str) -> list[list[str]]:
    """A text without its numbers, which noise changes, and without how wide they are."""
    return [_NUMBER.sub("#", line).split() for line in text.strip().splitlines()]
