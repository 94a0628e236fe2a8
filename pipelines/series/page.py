"""A tree over a series on the page of a run: its own period, as the page of any tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import Lateness, select_span
from dptrees.pipelines.page.extent import clip
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.policies import DROPPED
from dptrees.pipelines.page.tree_page import PageRoom, TreePage


def period_tree(
    release: ReleasedTables,
    question: SeriesQuestion,
    room: PageRoom,
    own: Callable[[ReleasedTables, Any, PageRoom], TreePage],
) -> TreePage:
    """The period of a run on its page.

    Args:
        release: the run.
        question: the tree, at this run.
        room: of the page.
        own: of the tree of one period.
    """
    mine = _OwnPeriod(release, question) if question.released_spans else release
    page = own(mine, question.shown(0), room)
    if question.lateness is None:
        return page
    said: dict[str, Any] = dict(page.said)
    said["policies"] = [*said["policies"], _late_rows(question.name, question.lateness)]
    return replace(page, said=said)


def _late_rows(tree: str, lateness: Lateness) -> dict[str, str]:
    """The row of the table of unusual values: of dates out of time."""
    late = f"late by more than {lateness.periods} periods, or ahead of the period: {DROPPED}"
    return {
        "column": clip(lateness.column),
        "tree": clip(tree),
        "outside": late,
        "missing": DROPPED,
        "unknown": "",
    }


class _OwnPeriod:
    """The tables of a run, of its own period alone.

    Args:
        release: the run.
        question: the tree, at this run.
    """

    def __init__(self, release: ReleasedTables, question: SeriesQuestion) -> None:
        self._release = release
        self._span = question.temporal.find_span(0, question.period)

    @property
    def plan(self) -> ReleasePlan:
        """The specification of the run."""
        return self._release.plan

    @property
    def manifest(self) -> Mapping[str, object]:
        """Manifest of the run."""
        return self._release.manifest

    def batches(
        self, kind: str, tree: str, *, keys: int | None = None, levels: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the period."""
        # Rows are in the order of nodes, so none may be left out before the period's are found.
        for batch in self._release.batches(kind, tree, keys=keys):
            mine = select_span(pa.Table.from_batches([batch]), self._span)
            yield from mine.to_batches()

    def part(self, kind: str, tree: str, key: int, index: int) -> pa.Table:
        """The rows of the period in a part."""
        return select_span(self._release.part(kind, tree, key, index), self._span)

    def quantiles(self) -> pa.Table | None:
        """Quantiles of the period."""
        table = self._release.quantiles()
        return None if table is None else select_span(table, self._span)
