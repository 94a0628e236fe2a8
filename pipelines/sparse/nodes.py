"""The nodes of a sparse tree in its report: the largest counts, and the requested paths.

The number of published nodes is not known before the tables are read, and may be very large: nodes
are read some at a time, and a bounded number is kept. A node's count is at most its parent's, so
the nodes with the largest counts (of equal counts the upper level first) come with all their
ancestors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.sparse.domain import SparseDomain
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.pipelines.page.extent import MAX_CHOSEN_NODES
from dptrees.pipelines.page.nodes import ReleasedTables, shorten_labels
from dptrees.pipelines.page.tree_page import PageRoom
from dptrees.pipelines.sparse.paths import ancestor_paths, own_labels

COLUMNS = ("level", "label", "estimate", "ci_low", "ci_high", "count")


@dataclass(frozen=True, kw_only=True)
class ShownNodes:
    """What the page holds of a sparse tree.

    Args:
        levels: of each level from the root the rows on the page, in the order of the tables;
            without empty levels at the end.
        children: for each of these rows, how many nodes right below it were published.
        children_counts: the sum of these nodes' counts.
        published: of every level, how many nodes were published.
    """

    levels: list[pa.Table]
    children: list[Integers]
    children_counts: list[Integers]
    published: list[int]

    @property
    def total(self) -> int:
        """How many nodes the page holds."""
        return sum(map(len, self.levels))


def check_sparse_paths(release: ReleasedTables, question: SparseQuestion, room: PageRoom) -> None:
    """Refuses paths that a page cannot show.

    Raises:
        ValueError: no node of one was published, or they are too many.
    """
    paths = room.paths
    lines = [ancestor_paths(question.domain, path) for path in paths]
    nodes = sum(map(len, lines))
    if nodes > MAX_CHOSEN_NODES:
        raise ValueError(
            f"path: {len(paths):,} of them are too many for one page, with their ancestors "
            f"{nodes:,} nodes: at most {MAX_CHOSEN_NODES:,}"
        )
    for path, line in zip(paths, lines, strict=True):
        labels = release.part(NODES, question.name, 0, len(line) - 1)["label"]
        if not pc.any(pc.equal(labels, line[-1])).as_py():
            raise ValueError(
                f"path {path!r}: no node of this path was published, so it has at most "
                f"{question.unpublished_most(len(line) - 1):,} rows"
            )


def shown_nodes(
    release: ReleasedTables, question: SparseQuestion, room: int, paths: Sequence[str]
) -> ShownNodes:
    """Return the nodes of the page.

    Args:
        release: the tables; they are read twice.
        question: the tree.
        room: how many nodes fit, beside the requested ones.
        paths: the requested paths, which `check_sparse_paths` has checked: they come with their
            ancestors and, the largest first, their children.
    """
    published = [0] * (question.plan.height + 1)
    nodes = _ChosenNodes(question.domain, paths)
    upper: list[pa.Table] = []
    for level, rows in _level_rows(release, question):
        places = pa.array(np.arange(published[level], published[level] + len(rows)))
        published[level] += len(rows)
        rows = rows.append_column("place", places)
        upper = [_first(pa.concat_tables([*upper, rows]), room)]
        nodes.add(level, rows)
    levels = _by_level(pa.concat_tables([*upper, *nodes.rows]))
    children, counts = _children(release, question, levels)
    return ShownNodes(levels=levels, children=children, children_counts=counts, published=published)


def node_columns(domain: SparseDomain, shown: ShownNodes) -> list[dict[str, object]]:
    """Return the page's nodes as its script reads them: columns of JSON values for each level.

    ``rest`` is a node's count minus the counts of its published children.
    """
    result = []
    for level, rows in enumerate(shown.levels):
        count, children = rows["count"].to_numpy(), shown.children[level]
        rest = np.where(children > 0, count - shown.children_counts[level], 0)
        columns: dict[str, object] = {
            "labels": shorten_labels(
                own_labels(domain, level, _text(rows)) if level else rows["label"]
            ),
            "count": count.tolist(),
            "children": children.tolist(),
            "rest": rest.tolist(),
        }
        names = {"estimate": "estimate", "low": "ci_low", "high": "ci_high"}
        # Noisy counts and the ends of intervals are whole.
        columns |= {name: rows[own].cast(pa.int64()).to_pylist() for name, own in names.items()}
        if level:
            above = shown.levels[level - 1]
            columns["parent"] = _parent_places(domain, level, rows, above).tolist()
        result.append(columns)
    return result


class _ChosenNodes:
    """The nodes requested: they and their ancestors, and of their children the largest."""

    def __init__(self, domain: SparseDomain, paths: Sequence[str]) -> None:
        self._domain = domain
        levels = range(domain.height + 1)
        lines = [ancestor_paths(domain, path) for path in paths]
        self._lines = [_texts({line[n] for line in lines if len(line) > n}) for n in levels]
        self._ends = [_texts({line[n] for line in lines if len(line) == n + 1}) for n in levels]
        self._room = MAX_CHOSEN_NODES - sum(map(len, self._lines))
        self._found: list[pa.Table] = []
        self._below: list[pa.Table] = []

    @property
    def rows(self) -> list[pa.Table]:
        """Rows found so far."""
        return [*self._found, *self._below]

    def add(self, level: int, rows: pa.Table) -> None:
        """Sees some rows of a level."""
        if len(self._lines[level]):
            self._found.append(rows.filter(pc.is_in(_text(rows), self._lines[level])))
        if level and len(self._ends[level - 1]):
            parents = self._domain.parent_paths(level, _text(rows))
            below = rows.filter(pc.is_in(parents, self._ends[level - 1]))
            self._below = [_first(pa.concat_tables([*self._below, below]), self._room)]


def _level_rows(
    release: ReleasedTables, question: SparseQuestion
) -> Iterator[tuple[int, pa.Table]]:
    """The rows of the tables, some of one level at a time."""
    for batch in release.batches(NODES, question.name):
        rows = pa.Table.from_batches([batch]).select(COLUMNS)
        level = rows["level"].to_numpy()
        for each in np.unique(level).tolist():
            yield each, rows.filter(pa.array(level == each))


def _first(rows: pa.Table, room: int) -> pa.Table:
    """Return the rows with the largest counts; of equal ones the upper level, then the first."""
    if len(rows) <= room:
        return rows
    names = ("place", "level", "count")
    place, level, count = (rows[name].to_numpy() for name in names)
    return rows.take(pa.array(np.lexsort((place, level, -count))[: max(0, room)]))


def _by_level(rows: pa.Table) -> list[pa.Table]:
    """The rows of each level, each once and in the order of the tables."""
    level, place = rows["level"].to_numpy(), rows["place"].to_numpy()
    levels = []
    for each in range(int(level.max()) + 1):
        inside = np.flatnonzero(level == each)
        _, first = np.unique(place[inside], return_index=True)
        levels.append(rows.take(pa.array(inside[first])))
    return levels


def _children(
    release: ReleasedTables, question: SparseQuestion, levels: Sequence[pa.Table]
) -> tuple[list[Integers], list[Integers]]:
    """Return how many children of the page's nodes were published, and the sums of their counts."""
    numbers = [np.zeros(len(rows), np.int64) for rows in levels]
    sums = [np.zeros(len(rows), np.int64) for rows in levels]
    for level, rows in _level_rows(release, question):
        if not 1 <= level <= len(levels):
            continue
        places = _parent_places(question.domain, level, rows, levels[level - 1])
        inside = np.flatnonzero(places >= 0)
        np.add.at(numbers[level - 1], places[inside], 1)
        np.add.at(sums[level - 1], places[inside], rows["count"].to_numpy()[inside])
    return numbers, sums


def _parent_places(domain: SparseDomain, level: int, rows: pa.Table, above: pa.Table) -> Integers:
    """The places of the parents of the rows of a level among some rows above, -1 for others."""
    parents = domain.parent_paths(level, _text(rows))
    places = pc.index_in(parents, _text(above)).fill_null(-1)
    return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)


def _text(rows: pa.Table) -> pa.Array:
    return rows["label"].cast(pa.large_string()).combine_chunks()


def _texts(texts: Iterable[str]) -> pa.Array:
    return pa.array(list(texts), pa.large_string())
