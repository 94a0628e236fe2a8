"""What a column is called where a person reads it: its label and its unit, where it has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

Q = TypeVar("Q")


def column_titles(manifest: Mapping[str, object]) -> dict[str, str]:
    """The titles of columns, by name, of a release whose configuration gave some.

    Args:
        manifest: of the release.

    >>> column_titles({"report": {"columns": '{"d": {"label": "delay", "unit": "minutes"}}'}})
    {'d': 'delay (minutes)'}
    """
    report = manifest.get("report")
    written = report.get("columns") if isinstance(report, Mapping) else None
    given: dict[str, dict[str, str]] = json.loads(written) if isinstance(written, str) else {}
    return {column: _title(column, each) for column, each in given.items()}


def _title(column: str, given: Mapping[str, str]) -> str:
    label = given.get("label", column)
    return f"{label} ({given['unit']})" if "unit" in given else label


def titled(question: Q, titles: Mapping[str, str]) -> Q:
    """The same question with titles in place of the names of its columns, to be shown.

    Args:
        question: whose column, keys of one column and summed column may have titles.
        titles: of `column_titles`.
    """
    shown: Any = question
    for part in ("domain", "keys", "measure"):
        owner: Any = getattr(shown, part, None)
        column = getattr(owner, "column", None)
        if isinstance(column, str) and column in titles:
            shown = replace(shown, **{part: replace(owner, column=titles[column])})
    result: Q = shown
    return result
