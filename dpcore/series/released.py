"""Answers of one run of a series about its own period, and tables of a window of periods.

    released estimates of nodes, weights -> estimates of the window -> consistent counts, tables

Post-processing: it costs no budget, and gives the same to everyone. The tables are those that the
tree would have if the window had been released as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.forest import IrregularForest
from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.released import ReadPart, Released
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.rows.columns import pack
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import counts_new_units, select_span
from dptrees.dpcore.series.temporal import Span, Window
from dptrees.dpcore.trees.chunks import SPINE, Chunk
from dptrees.dpcore.trees.forests import Known, LevelSolution, LinearForest, RootSolutions
from dptrees.dpcore.uniform.plan import UniformForest

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


class _GivenUniform(UniformForest):
    def estimate_chunk(
        self, chunk: Chunk, measurements: Known, roots: RootSolutions
    ) -> list[Floats]:
        return _estimates(measurements)


class _GivenIrregular(IrregularForest):
    def estimate_chunk(
        self, chunk: Chunk, measurements: Known, roots: RootSolutions
    ) -> list[Floats]:
        return _estimates(measurements)


def _estimates(measurements: Known) -> list[Floats]:
    return [each.astype(float) for each in measurements if each is not None]


def take_estimates(question: TreeQuestion[Any]) -> LinearForest:
    """Let a question take estimates in place of measurements.

    Args:
        question: one of `SeriesQuestion.window_tree`.

    Returns:
        its forest.
    """
    keys, leaves, plan = question.key_count, question.chunk_leaves, question.forest.plan  # type: ignore[attr-defined]
    if isinstance(question.forest, UniformForest):
        shrunk = question.forest.shrunk
        result: LinearForest = _GivenUniform(plan, keys=keys, chunk_leaves=leaves, shrunk=shrunk)
    else:
        result = _GivenIrregular(
            plan,
            keys=keys,
            chunk_leaves=leaves,
            signed=question.is_signed,
            fewest=question.forest.fewest,  # type: ignore[attr-defined]
        )
    question.__dict__["forest"] = result
    return result


# The rows of one temporal node in a part of the table of nodes, from (node, key, index).
ReadSpan = Callable[[Span, int, int], pa.Table]
# The estimates of the parents of a level's nodes.
Above = Callable[[], Floats]


class WindowTables:
    """One tree over a window of periods.

    Args:
        series: the tree over the series.
        window: of periods.
        read: gives what was released of a temporal node.
    """

    def __init__(self, series: SeriesQuestion, window: Window, read: ReadSpan) -> None:
        weights = series.window_weights(window)
        # Run by run: one after the other is opened, and read once.
        self.weights = dict(sorted(weights.items(), key=lambda each: each[0].last))
        self._series, self._window, self._read = series, window, read
        # The tables of a place are requested one after the other.
        self._latest: tuple[Place, tuple[dict[str, pa.Table], bytes]] | None = None
        self._groups: dict[int, tuple[dict[Place, RootSolutions], list[LevelSolution]]] = {}

    @cached_property
    def question(self) -> TreeQuestion[Any]:
        """The tree as one over the window, for the errors of its answers."""
        question = self._series.window_tree(self._window)
        if counts_new_units(question):
            own: Any = question
            periods = (self._window.first, self._window.last)
            question = replace(own, domain=replace(own.domain, periods=periods))
        self._forest = take_estimates(question)
        return question

    def part(self, kind: str, key: int, index: int) -> pa.Table:
        """The rows of a part, as `dpcore.questions.released.ReadPart` gives them."""
        if index == SPINE:
            solutions, levels = self._group(key)
            return self.question.spine_table(key, _joined(solutions), levels)
        return self._answer(Place(key, index))[0][kind]

    @cached_property
    def concluded(self) -> dict[str, pa.Table]:
        """The tables of the whole tree."""
        question, notes = self.question, {}
        for part in question.parts():
            if part.index != SPINE and part.kind == question.tables[-1]:
                _, note = self._answer(Place(part.key, part.index))
                if note:
                    notes[part] = note
        return dict(question.conclude(notes))

    def _answer(self, place: Place) -> tuple[dict[str, pa.Table], bytes]:
        latest = self._latest  # another thread may replace it meanwhile
        if latest is not None and latest[0] == place:
            return latest[1]
        chunk = self._chunk(place)
        solutions, _ = self._group(self.question.gathered_by(place))
        answer = self.question.chunk_answer(chunk, self._levels(chunk, place), solutions[place])  # type: ignore[arg-type]
        result = answer.tables, b"" if answer.note is None else pack(answer.note)
        self._latest = place, result
        return result

    def _chunk(self, place: Place) -> Chunk:
        chunking = self.question.forest.chunking
        return chunking[chunking.number(*place)]

    def _group(self, group: int) -> tuple[dict[Place, RootSolutions], list[LevelSolution]]:
        """The solutions above the chunks of a key."""
        if group not in self._groups:
            question = self.question
            places = sorted(p for p in question.places if question.gathered_by(p) == group)
            roots = [self._levels(self._chunk(place), place)[0].reshape(-1) for place in places]
            last = np.concatenate(roots).reshape(-1, self._forest.chunking.spine.leaves)
            upper = self._spine(group)
            solutions, levels = self._forest.resolve_spine(group, [*upper, last])
            stops = np.cumsum([len(each) for each in roots]).tolist()
            parts = {
                place: solutions.slice(stop - len(own), stop)
                for place, own, stop in zip(places, roots, stops, strict=True)
            }
            self._groups[group] = parts, levels
        return self._groups[group]

    def _spine(self, group: int) -> list[Floats]:
        """(1, n) the window's estimates of each level above the chunks of a key."""
        if not self._forest.chunking.spine.height:
            return []
        chunk = self._forest.chunking.spine_chunk(group, 1)
        ranges = self._forest.chunking.node_ranges(chunk)[:-1]
        estimates, values = self._estimates(Place(group, SPINE))
        levels: list[Floats] = []
        for level, nodes in enumerate(ranges):
            above = partial(chunk.tree.to_children, level - 1, levels[-1]) if level else None
            levels.append(self._filled(level, nodes, values[estimates == level][None], above))
        return levels

    def _levels(self, chunk: Chunk, place: Place) -> list[Floats]:
        """(rows, n) the window's estimates of each level of a chunk."""
        estimates, values = self._estimates(place)
        split, levels = self._forest.chunking.split_level, list[Floats]()
        for depth, nodes in enumerate(self._forest.chunking.node_ranges(chunk)):
            mine = values[estimates == split + depth].reshape(chunk.rows, -1)
            if depth:
                above: Above = partial(chunk.tree.to_children, depth - 1, levels[-1])
            else:
                above = partial(self._above, place, nodes)
            levels.append(self._filled(split + depth, nodes, mine, above))
        return levels

    def _above(self, place: Place, nodes: tuple[int, int]) -> Floats:
        """(1, n) what the parents of a chunk's roots have."""
        level = self._forest.chunking.split_level - 1
        upper = self._spine(self.question.gathered_by(place))
        return self._forest.chunking.spine.to_children(level, upper[-1])[:, slice(*nodes)]

    def _filled(
        self, level: int, nodes: tuple[int, int], estimates: Floats, above: Above | None
    ) -> Floats:
        """The estimates of a level; a node that only repeats a leaf above it has that leaf's."""
        listed = self.question.listed(level, np.arange(*nodes))
        if listed.all() or above is None:
            return estimates
        whole: Floats = above().copy()
        whole[:, listed] = estimates
        return whole

    def _estimates(self, place: Place) -> tuple[Integers, Floats]:
        """(n,) the level and the window's estimate of every row of a part."""
        levels, total = np.zeros(0, np.int64), np.zeros(0)
        for number, (span, weight) in enumerate(self.weights.items()):
            table = self._read(span, *place)
            values = weight * table["estimate"].to_numpy()
            total = total + values if number else values
            levels = table["level"].to_numpy()
        return levels, total


def _joined(solutions: dict[Place, RootSolutions]) -> RootSolutions:
    """The solutions of all chunks of a key."""
    arrays = [solutions[place].to_array() for place in sorted(solutions)]
    return RootSolutions.from_array(np.concatenate(arrays, axis=1))
