"""A table of nodes by keys, where both are few."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dptrees.pipelines.answers.figures import figure, interval
from dptrees.pipelines.page.extent import clip

MAX_COLUMNS = 12
MAX_ROWS = 100


def crosstab(
    noun: str, labels: pa.ChunkedArray, keys: Sequence[str], columns: Sequence[pa.Table]
) -> dict[str, object]:
    """The titles and rows of a table of counts.

    Args:
        noun: what the nodes are.
        labels: of the nodes.
        keys: the names of the columns.
        columns: for each key the rows of the nodes.
    """
    cells = [list(map(_cell, *(each[name].to_pylist() for name in _NAMES))) for each in columns]
    rows = [
        [clip(label), *(column[place] for column in cells)]
        for place, label in enumerate(labels.to_pylist())
    ]
    return {"titles": [noun, *keys], "rows": rows}


_NAMES = ("count", "ci_low", "ci_high", "std_error")


def _cell(count: int, low: float, high: float, error: float | None) -> dict[str, str]:
    known = 0.0 if error == 0 else None
    return {"value": figure(count, (high - low) / 4), "interval": interval(low, high, known)}
