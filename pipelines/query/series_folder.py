"""The folder of a series, and a window of its periods as one release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.released import NODES, Released
from dptrees.dpcore.release.kinds import kind_named
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.released import WindowTables
from dptrees.dpcore.series.runs import select_span
from dptrees.dpcore.series.temporal import Span, Window
from dptrees.dpcore.series.totals_to_date import AccumulatedPeriods
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.query.release_folder import FolderError, ReleaseFolder, holds_release
from dptrees.transforms.folder.names import run_folder

# Runs that are open at once: a window reads few of them, or each once.
_OPEN = 512


class SeriesFolder:
    """The runs of a series, as far as they have come.

    Args:
        path: the folder that holds the runs' folders.

    Raises:
        FolderError: there is no first run in it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        if not holds_release(run_folder(path, 1)):
            raise FolderError(f"{path}: holds no series (there is no run of period 1)")
        run = self.run(1).plan.run
        if run is None:
            raise FolderError(f"{run_folder(path, 1)}: is a release that is part of no series")
        self.periods = run.periods

    @property
    def arrived(self) -> int:
        """The last period that is released."""
        period = 1
        while period < self.periods and holds_release(run_folder(self.path, period + 1)):
            period += 1
        return period

    @lru_cache(maxsize=_OPEN)  # noqa: B019 - a folder lives as long as the command
    def run(self, period: int) -> ReleaseFolder:
        """One of the runs.

        Raises:
            FolderError: it is not released, cannot be read, or is of another series.
        """
        result = ReleaseFolder(run_folder(self.path, period))
        if period > 1 and _without_period(result) != _without_period(self.run(1)):
            raise FolderError(f"{result.path}: is a run of another series than that of period 1")
        return result

    def window(
        self, first: int, last: int | None = None, arrived: int | None = None
    ) -> WindowFolder:
        """Some periods in a row.

        Args:
            first: of them.
            last: of them; None: the last that is used.
            arrived: the last period that is used; None: the last that is released.

        Raises:
            FolderError: they are not all released.
        """
        there = self.arrived
        known = there if arrived is None else arrived
        try:
            if known > there:
                raise Refusal("to-date", f"period {known} is not released; the last one is {there}")
            window = Window(first=first, last=known if last is None else last, arrived=known)
        except Refusal as refusal:
            raise FolderError(f"{self.path}: {refusal}") from None
        return WindowFolder(self, window)


def _without_period(run: ReleaseFolder) -> dict[str, object]:
    """The specification of a run, but for what may differ from run to run."""
    spec = run.manifest["spec"]
    assert isinstance(spec, dict)
    trees = [{name: each[name] for name in each if name != "period"} for each in spec["trees"]]
    return {**spec, "trees": trees}


class WindowFolder:
    """Periods in a row as one release: what a query reads of it.

    Args:
        series: the runs.
        window: the periods.
    """

    def __init__(self, series: SeriesFolder, window: Window) -> None:
        self._series, self.window, self.path = series, window, series.path

    @property
    def plan(self) -> ReleasePlan:
        """Plan of the last run whose estimates are used: it names the trees and the guarantee."""
        return self._series.run(self.window.arrived).plan

    @property
    def trees(self) -> list[str]:
        """The names of the trees."""
        return self._series.run(self.window.arrived).trees

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of that run."""
        return self._series.run(self.window.arrived).manifest

    @property
    def release(self) -> WindowFolder:
        """Itself: what gives the answers."""
        return self

    def lookup(self, tree: str) -> None:
        """Quantiles over periods are computed."""

    @lru_cache(maxsize=8)  # noqa: B019 - a folder lives as long as the command
    def tables(self, name: str) -> WindowTables:
        """The tables of a tree over the periods."""
        question = self.plan.question(name)
        if not isinstance(question, SeriesQuestion):
            raise FolderError(f"{self._series.path}: tree {name} is of no series")
        if not question.adds_up:
            raise FolderError(
                f"{self._series.path}: the periods of tree {name} do not add up; query one of "
                f"them, as {run_folder(self._series.path, self.window.last)}"
            )

        def read(span: Span, key: int, index: int) -> pa.Table:
            return select_span(self._series.run(span.last).part(NODES, name, key, index), span)

        return WindowTables(question, self.window, read)

    def tree(self, name: str, *, concluded: bool = False) -> Released:
        """The answers about a tree over the periods.

        Args:
            name: of the tree.
            concluded: with the quantiles that the tree releases, for which all of it is read.
        """
        question = self.plan.question(name)
        if isinstance(question, AccumulatedPeriods):
            return self._accumulated(name)
        tables = self.tables(name)
        question = tables.question
        return kind_named(question.kind).released(
            question,
            lambda kind, tree, key, index: tables.part(kind, key, index),
            tables.concluded if concluded else {},
        )

    def _accumulated(self, name: str) -> Released:
        """The answers about a box: of all periods to date, or of nodes of time, added up."""
        first, last = self.window.first, self.window.last
        question = self._series.run(last).plan.question(name)
        assert isinstance(question, AccumulatedPeriods)
        span = question.find_released(first)
        spans = question.temporal.cover(first, last) if span is None else [span]
        found = [self._released(name, each) for each in spans]
        return found[0] if len(found) == 1 else found[0].with_others(found[1:])

    def _released(self, name: str, span: Span) -> Released:
        """The answers about periods that a run released together."""
        run = self._series.run(span.last)
        question = run.plan.question(name)
        assert isinstance(question, AccumulatedPeriods)
        tree = question.released_tree(span)
        return kind_named(tree.kind).released(
            tree,
            lambda kind, tree, key, index: select_span(run.part(kind, tree, key, index), span),
            {},
        )

    def part_tables(self, name: str) -> Iterator[tuple[Part, pa.Table]]:
        """Yield every part of a tree over the periods, with its rows."""
        question = self.plan.question(name)
        if isinstance(question, AccumulatedPeriods):
            run = self._series.run(self.window.last)
            for part in question.levels[0].parts():
                table = run.part(part.kind, name, part.key, part.index)
                yield part, select_span(table, question.to_date)
            return
        tables = self.tables(name)
        for part in tables.question.parts():
            yield part, tables.part(part.kind, part.key, part.index)

    def concluded(self, name: str) -> Mapping[str, pa.Table]:
        """The tables of a whole tree over the periods, by name."""
        if isinstance(self.plan.question(name), AccumulatedPeriods):
            return {}
        return self.tables(name).concluded
