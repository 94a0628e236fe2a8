"""The nodes that hold at least so many rows: verdicts that follow from a release's intervals.

A node surely holds at least t rows where the least whole number in its interval is at least t, and
surely does not where the largest is below t; else it is undecided. Of one true count only one of
the two verdicts can be false, and only where the interval misses the count: so a verdict is false
with at most the probability that the confidence leaves. For m verdicts at once each interval has
the confidence 1 - (1 - c) / m, so that all hold together with confidence c (Bonferroni's
inequality). In a sparse tree m is the number of published nodes: given which nodes were published,
the noise of each depends on its own publication alone. All of it is post-processing.

Source: derived here. Ghazi, Kamath, Kumar, Manurangsi, Wu pose the classification of nodes by one
threshold (Problem 4.2) and thresholds of their own for each node (Problem 3.1, about estimates).
"""

from __future__ import annotations

import csv
import io
import math
import numbers
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from dptrees.dpcore.questions.released import Answer, Released
from dptrees.pipelines.process import UserError

SURELY, UNDECIDED, SURELY_NOT = "surely", "undecided", "surely not"
# One threshold for all nodes of a level; or one for each, by its path, value or label.
Thresholds: TypeAlias = "float | Mapping[str, float]"
# All nodes of a level.
_ALL = 1 << 62
# An end of an interval is known but for rounding.
_ROUNDING = 1e-6


class Statement(NamedTuple):
    """A verdict about one node.

    Attributes:
        threshold: in rows.
        answer: of the node.
    """

    threshold: float
    answer: Answer

    @property
    def verdict(self) -> str:
        """Whether the node holds at least so many rows: surely, surely not, or undecided.

        >>> node = Answer(label="a", estimate=510.0, std_error=5.0, ci_low=499.5, ci_high=520.5,
        ...     count=510, fraction=None)
        >>> [Statement(rows, node).verdict for rows in (500, 500.5, 520.5)]
        ['surely', 'undecided', 'surely not']
        """
        least = math.ceil(self.threshold)
        if self.answer.ci_low > least - 1 + _ROUNDING:
            return SURELY
        return SURELY_NOT if self.answer.ci_high < least - _ROUNDING else UNDECIDED

    @property
    def about(self) -> dict[str, object]:
        """The columns in front of the answer."""
        return {"threshold": self.threshold, "verdict": self.verdict}


def statements(
    tree: Released,
    keys: Sequence[object],
    rows: Thresholds,
    level: str | None = None,
    path: str | None = None,
    *,
    among: int = 0,
) -> list[list[Statement]]:
    """Return the verdicts about nodes of a tree, for each key.

    Args:
        tree: at a confidence.
        keys: of a tree with keys; else [None].
        rows: the thresholds.
        level: of nodes of one threshold, by its name or number; None: the leaves, or the level
            below the path. The largest nodes come first, what was not published last.
        path: only nodes below this one; None: all.
        among: of how many such queries all verdicts hold together; 0: each verdict by itself.

    Raises:
        ValueError: no such node, level or key; thresholds that are not numbers or that every count
            reaches; a tree without intervals; or too many nodes for verdicts that hold together.
    """
    if isinstance(rows, Mapping) and (not rows or level is not None or path is not None):
        raise ValueError("by: must name at least one node; leave level and path out")
    signed = getattr(tree.question, "is_signed", False)
    if isinstance(rows, Mapping):
        rows = {name: _threshold(each, signed) for name, each in rows.items()}
    else:
        rows = _threshold(rows, signed)

    def stated(tree: Released, key: object) -> list[Statement]:
        if isinstance(rows, Mapping):
            return [Statement(each, tree.named(name, key)) for name, each in rows.items()]
        number = None if level is None else tree.find_level(level)
        if path is not None:
            found, rest = tree.top_below(path, _ALL, number, key), tree.unpublished(number, path)
        else:
            number = tree.height if number is None else number
            rest = tree.unpublished(number)  # refuses where nodes cannot be listed
            found = tree.top(_ALL, number, key)
        return [Statement(rows, answer) for answer in (*found, *rest)]

    found = [stated(tree, key) for key in keys]
    if any(each.answer.ci_low == -math.inf for own in found for each in own):
        raise ValueError(f"above: tree {tree.question.name} states no intervals")
    if (count := among * sum(map(len, found))) > 1:
        tree = tree.simultaneous(count)
        found = [stated(tree, key) for key in keys]
    return found


def read_rows(threshold: str | None, file: str | None) -> Thresholds:
    """Return the thresholds of a command: one number, or a CSV file with a path, value or label and
    a number on each line.

    Raises:
        UserError: the file cannot be read.
        ValueError: both are given or neither; a line has not two fields, or the name of a line
            before; or what must be a number is none.

    >>> read_rows("500", None), read_rows("0.5", None)
    (500, 0.5)
    """
    if threshold is not None and file is None:
        return _number(threshold, "threshold")
    if threshold is not None or file is None:
        raise ValueError("above: needs either a number of rows, or --by and a file of thresholds")
    result: dict[str, float] = {}
    lines = csv.reader(io.StringIO(_text("--by", file), newline=""), strict=True)
    try:
        for fields in filter(None, lines):
            where = f"by: line {lines.line_num} of {file}"
            if len(fields) != 2:
                raise ValueError(f"{where}: has {len(fields)} fields; it must be PATH,THRESHOLD")
            if fields[0] in result:
                raise ValueError(f"{where}: {fields[0]!r} is there twice")
            result[fields[0]] = _number(fields[1], where)
    except csv.Error as error:
        raise ValueError(f"by: line {lines.line_num} of {file}: is not CSV: {error}") from None
    return result


def _threshold(value: object, signed: bool) -> float:
    """A number of rows of any type, NumPy's too, as one that every output can hold."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"threshold: {value!r} is not a number of rows")
    number = math.inf
    with suppress(OverflowError):
        number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"threshold: {number} is not a number of rows")
    if number <= 0 and not signed:
        raise ValueError(f"threshold: {number:g} must be above 0: every count is at least 0")
    return int(value) if isinstance(value, numbers.Integral) and abs(number) < 2**53 else number


def _number(text: str, field: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{field}: {text!r} is not a number of rows") from None
    return int(number) if number.is_integer() else number


def read_lines(option: str, file: str) -> list[str]:
    """Return the lines of a text file that are not empty; they end in LF, CR LF or CR.

    Args:
        option: how messages name the file.
        file: its path.

    Raises:
        UserError: it cannot be read.
    """
    text = io.StringIO(_text(option, file), newline=None).read()
    return [line for line in text.split("\n") if line.strip()]


def _text(option: str, file: str) -> str:
    """The text of a file, with its line ends."""
    try:
        return Path(file).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"{option} {file}: cannot be read: {why}") from None
