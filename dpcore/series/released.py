"""The answers of one run of a series: of its own period alone, by the noise of that period.

Several periods together are read through the series, `dpcore.series.window_tables`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from dptrees.dpcore.questions.released import ReadPart, Released
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.spans import select_span

# Of a tree, what makes its answers from its parts and what it concluded.
MakeReleased = Callable[[Any, ReadPart, Mapping[str, pa.Table]], Released]


def own_period(
    question: SeriesQuestion,
    read: ReadPart,
    tables: Mapping[str, pa.Table],
    released: Callable[[TreeQuestion[Any]], MakeReleased],
) -> Released:
    """The answers about the period of a run.

    Args:
        question: the tree over the series, at this run.
        read: gives the rows of a part of the run.
        tables: that the run concluded.
        released: what makes the answers of a tree of a temporal level.
    """
    span, own = question.temporal.find_span(0, question.period), question.shown(0)
    if not question.released_spans:
        return released(own)(own, read, tables)

    def read_own(kind: str, tree: str, key: int, index: int) -> pa.Table:
        return select_span(read(kind, tree, key, index), span)

    mine = {name: select_span(table, span) for name, table in tables.items()}
    return released(own)(own, read_own, mine)
