"""A sparse tree in the report: its levels and thresholds, its largest nodes, and requested paths.

The number of published nodes is not known before the tables are read, so nodes are read some at
a time and a bounded number is kept. A node's count is at most its parent's, so the nodes with
the largest counts (of equal counts the upper level first) come with all their ancestors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain, last_labels
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.pruning import pruning_in_words
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.pipelines.kinds.hierarchies import sparse_description
from dptrees.pipelines.show.charts import Bars
from dptrees.pipelines.show.description import Column, Description, Unit, described_page
from dptrees.pipelines.show.figures import counted_noun
from dptrees.pipelines.show.page_nodes import (
    MAX_CHOSEN_NODES,
    MAX_NODES,
    ReleasedTables,
    clip,
    count_bars,
    headline_total,
    largest_node,
    largest_rows,
    left_out,
    paths_in_words,
    shorten_labels,
)
from dptrees.pipelines.show.tree_page import (
    DROPPED,
    STANDARD_ERROR,
    Headline,
    PageRoom,
    TreePage,
    consistent_count,
    interval,
)


def root_path(domain: SparseDomain) -> str:
    """How the root is written.

    >>> root_path(CodeDomain(column="address", widths=(8, 24))), root_path(PathDomain(
    ...     column="url", depth=2))
    ('0.0.0.0/0', '')
    """
    return str(domain.paths(0, domain.root_keys)[0])


def own_labels(domain: SparseDomain, level: int, paths: pa.Array) -> pa.Array:
    """What the path of a node adds to its parent's: the last label; a prefix of a code is whole.

    >>> domain = LabelDomain(label_columns=("origin", "dest"))
    >>> own_labels(domain, 2, pa.array(["JFK/A\\\\/B", "LGA/LAX"])).to_pylist()
    ['A/B', 'LAX']
    """
    texts = paths.cast(pa.large_string())
    if isinstance(domain, CodeDomain):
        return texts
    if level > 1:
        assert isinstance(domain, (LabelDomain, PathDomain))
        texts = last_labels(texts, domain.path_separator)
    if isinstance(domain, LabelDomain):
        texts = pc.replace_substring_regex(texts, r"(?s)\\(.)", r"\1")
    return texts


def ancestor_paths(domain: SparseDomain, path: str) -> list[str]:
    """The paths of a node and its ancestors, the root first, whether published or not.

    Args:
        domain: of the tree.
        path: as released; "" is the root.

    Raises:
        ValueError: the tree can have no node of this path.

    >>> ancestor_paths(PathDomain(column="url", depth=3), "a/b")
    ['', 'a', 'a/b']
    >>> ancestor_paths(PathDomain(column="url", depth=1), "a/b")
    Traceback (most recent call last):
    ...
    ValueError: path 'a/b': it has 2 labels, and the tree 1 below its root
    """
    level = domain.level_of_path(path)
    line = [path] if level else [root_path(domain)]
    for below in range(level, 0, -1):
        line.append(str(domain.parent_paths(below, pa.array([line[-1]]))[0]))
    return line[::-1]


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


_BARS = 20
_GIVEN_ORDER = "as in the tables"
_NOTES = (
    (
        "estimate",
        "The node's own noisy count, which is unbiased before it is compared with a threshold.",
    ),
    *consistent_count("The counts of a node's children add up to at most its own."),
    *interval("It accounts for the threshold, and may not be centered on the estimate."),
    STANDARD_ERROR,
)


def sparse_tree(release: ReleasedTables, question: SparseQuestion, room: PageRoom) -> TreePage:
    """A sparse tree on the page; `check_sparse_paths` has seen its paths."""
    paths = room.paths
    shown = shown_nodes(release, question, MAX_NODES // room.trees, paths)
    description = replace(sparse_description(question), domain_facts=_facts(question))
    return described_page(
        release,
        question,
        _with_published(description, shown),
        {
            "pruning": pruning_in_words(question.prune_below, question.confidence),
            "nodes_shown": _nodes_shown(shown, paths),
            "keyed": False,
            "noun": "count",
            "in_order": False,
            "given_order": _GIVEN_ORDER,
            "policies": [_policies(question)],
            "node_bars": _node_bars(question, shown),
        },
        data=_data(question)
        | {
            "asked": list(dict.fromkeys(paths)),
            "keys": [{"name": None, "levels": node_columns(question.domain, shown)}],
        },
        template="sparse/page.html.j2",
        headline=_headline(question, shown),
        scripts=("page/paths.js", "sparse/page.js"),
        notes=_NOTES,
    )


# What the template says


def _headline(question: SparseQuestion, shown: ShownNodes) -> Headline:
    """The largest node of the finest level that has any: the heaviest that was found."""
    noun = clip(counted_noun(question))
    total = headline_total(shown.levels[0], noun)
    found = f"{sum(shown.published) - 1:,} heavy nodes were published"
    if len(shown.levels) == 1:
        return Headline(figure=total["rows"], label=f"{noun}; no node was published", **total)
    name, figure = largest_node(shown.levels[-1])
    level = clip(question.plan.levels[len(shown.levels) - 1].name)
    label = f"{noun} of {name}, the largest {level}; {found}"
    return Headline(figure=figure, label=label, **total)


def _node_bars(question: SparseQuestion, shown: ShownNodes) -> Bars | None:
    """A bar for each of the largest nodes of the first level that has several."""
    results = [level for level, number in enumerate(shown.published) if number > 1]
    if not results or results[0] >= len(shown.levels):
        return None
    level = results[0]
    rows = largest_rows(shown.levels[level], _BARS)
    name = clip(question.plan.levels[level].name)
    note = left_out(len(rows), shown.published[level], f"published {name} nodes", "largest")
    labels = rows["label"].to_pylist()
    return count_bars(question, name, rows, labels, noun="rows", note=note, given=_GIVEN_ORDER)


def _policies(question: SparseQuestion) -> dict[str, str]:
    """The row of the table of policies."""
    outside, missing = "", DROPPED
    if isinstance(question.domain, CodeDomain):
        outside = f"no code of {question.domain.bits} bits: {DROPPED}"
    else:
        missing += "; likewise strings that are empty or not UTF-8"
    return {
        "column": clip(", ".join(question.columns)),
        "tree": clip(question.name),
        "outside": outside,
        "missing": missing,
        "unknown": "no values are listed; rows of unpublished nodes are counted in the nodes above",
    }


def _facts(question: SparseQuestion) -> dict[str, str]:
    """What the tree is, name by name."""
    domain, plan = question.domain, question.plan
    columns = ", ".join(clip(name) for name in question.columns)
    leaves = "not listed"
    if domain.leaves is not None:
        leaves = f"2^{domain.leaves.bit_length() - 1}, too many to release each"
    return {
        "Counted": "rows" if plan.unit.is_row else f"rows, at most {plan.unit.rows:,} of a unit",
        "Column" if len(question.columns) == 1 else "Columns": f"{columns}: {_form(question)}",
        "Leaves": leaves,
        "Labels": _labels(question),
        "Budget": f"epsilon = {float(plan.epsilon):.6g}, delta = {float(plan.delta):.6g}",
    }


def _with_published(description: Description, shown: ShownNodes) -> Description:
    """Return a description that counts the published nodes, those on the page too."""
    table, here = description.table, [len(level) for level in shown.levels]
    here += [0] * (len(table) - len(here))
    columns = (
        Column("Published nodes", shown.published, Unit.COUNT),
        Column("of them here", here, Unit.COUNT),
        *table.columns,
    )
    return replace(description, table=replace(table, columns=columns))


def _form(question: SparseQuestion) -> str:
    domain = question.domain
    if isinstance(domain, CodeDomain):
        return f"one code of {domain.bits} bits, whose leading bits are the levels"
    if isinstance(domain, PathDomain):
        first = "first label is" if domain.depth == 1 else f"first {domain.depth} labels are"
        return f"one path, whose {first} the levels; the separator is {domain.separator!r}"
    return "one column for each level"


def _labels(question: SparseQuestion) -> str:
    if isinstance(question.domain, CodeDomain):
        return (
            "all codes are public from the start, but not which of them have rows; only nodes "
            "that pass a threshold are released"
        )
    return (
        "from the rows, not public from the start: a label is released only with a node that "
        "passes a threshold; for a label of a single row the probability is at most delta"
    )


def _nodes_shown(shown: ShownNodes, paths: Sequence[str]) -> str:
    """Which nodes the page holds, and what it leaves out."""
    published = sum(shown.published)
    if published == 1:
        return "No node but the root was published."
    if shown.total == published:
        return f"All {published:,} nodes that were published are here."
    text = f"Here are {shown.total:,} of {published:,} nodes that were published: "
    text += f"the largest counts{paths_in_words(paths)}"
    return f"{text}; all are in the tables of the release."


# What the script reads


def _data(question: SparseQuestion) -> dict[str, object]:
    """The tree, and how its paths are written."""
    domain, height = question.domain, question.plan.height
    data: dict[str, object] = {
        "kind": "sparse",
        "name": question.name,
        "levels": [clip(level.name) for level in question.plan.levels],
        "root": root_path(domain),
        "most": [question.unpublished_most(level) for level in range(height + 1)],
        "inOrder": False,
        "whole": [],
    }
    if isinstance(domain, CodeDomain):
        # A prefix says its length, and so its level.
        example = str(domain.paths(1, domain.root_keys)[0])
        code = {"bits": list(domain.prefix_bits), "notation": domain.notation}
        return data | code | {"example": example, "selfNamed": True}
    separator = domain.separator if isinstance(domain, PathDomain) else "/"
    return data | {"separator": separator, "escaped": not isinstance(domain, PathDomain)}
