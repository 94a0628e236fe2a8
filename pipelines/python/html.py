"""Tables for notebooks: plain HTML, with every string escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dptrees.pipelines.terminal_text import escaped


def table_html(caption: str, heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table with its caption.

    >>> table_html("age", ["label"], [["<b>"]])
    '<table><caption>age</caption><tr><th>label</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    return (
        f"<table><caption>{_text(caption)}</caption>{_row('th', heading)}"
        f"{''.join(_row('td', row) for row in rows)}</table>"
    )


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return escape(escaped(text))
