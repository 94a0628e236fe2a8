"""Sets of cells of a column as strings: for programs, and for people."""

from __future__ import annotations

import re

import numpy as np

from dptrees.dpcore.arrays import Integers

_FORM = re.compile(r"\d+(-\d+)?( \d+(-\d+)?)*")
# The most categories of a group that its label lists.
_LISTED = 8


def cell_runs(cells: Integers) -> list[tuple[int, int]]:
    """Runs [start, stop) of neighboring cells, in order.

    Args:
        cells: (n,) rising.

    >>> cell_runs(np.array([0, 1, 2, 5]))
    [(0, 3), (5, 6)]
    """
    if not len(cells):
        return []
    breaks = np.flatnonzero(np.diff(cells) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(cells, breaks)]


def cells_text(cells: Integers) -> str:
    """Cells as a text.

    Args:
        cells: (n,) rising.

    >>> cells_text(np.array([0, 1, 2, 5]))
    '0-2 5'
    """
    return " ".join(
        f"{start}" if stop == start + 1 else f"{start}-{stop - 1}"
        for start, stop in cell_runs(cells)
    )


def text_cells(text: str) -> Integers:
    """The cells of a text that `cells_text` wrote, (n,).

    Raises:
        ValueError: it is none.

    >>> text_cells("0-2 5").tolist()
    [0, 1, 2, 5]
    """
    if not _FORM.fullmatch(text):
        raise ValueError(f"cells: {text!r} are no runs of cells")
    ends = (part.split("-") for part in text.split(" "))
    return np.concatenate([np.arange(int(each[0]), int(each[-1]) + 1) for each in ends])


def listed(names: list[str]) -> str:
    """Names as one text; of many the first.

    >>> listed(["red", "blue"]), listed([f"{n}" for n in range(20)])
    ('red or blue', '0 or 1 or 2 or 3 or 4 or 5 or 6 or 7 or one of 12 more')
    """
    shown = names[:_LISTED]
    if len(names) > _LISTED:
        shown.append(f"one of {len(names) - _LISTED} more")
    return " or ".join(shown)
