"""The part of a page that a command writes: what is between two marks in comments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_marked(path: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what is between the marks of a page.

    Args:
        path: of the page, in Markdown.
        name: of the marks, ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
        lines: to be written between them.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    text = path.read_text(encoding="utf-8")
    before, after = text.split(begin)[0], text.split(end)[1]
    path.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n\n{end}{after}", encoding="utf-8")
