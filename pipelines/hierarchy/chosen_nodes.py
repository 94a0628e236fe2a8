"""The nodes of a hierarchy requested for its report, with their ancestors and children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.questions.released import NODES
from dptrees.pipelines.page.extent import MAX_CHOSEN_NODES
from dptrees.pipelines.page.keys import shown_number
from dptrees.pipelines.page.nodes import COLUMNS, ReleasedTables, largest
from dptrees.pipelines.page.tree_page import PageRoom

# A level, and a range of its nodes.
Range = tuple[int, int, int]


def check_paths(release: ReleasedTables, question: HierarchyQuestion[Any], room: PageRoom) -> None:
    """Refuses paths that a page cannot show, as `Universe.find` reads them.

    Raises:
        ValueError: one leads to no node, or they are too many.
    """
    tree, paths = question.domain.tree, room.paths
    keys = shown_number(question, room.trees)
    nodes = sum(1 + tree.find(path)[0] for path in paths) * keys
    if nodes > MAX_CHOSEN_NODES:
        raise ValueError(
            f"path: {len(paths):,} of them are too many for one page, with their ancestors "
            f"{nodes:,} nodes over its keys: at most {MAX_CHOSEN_NODES:,}"
        )


def chosen_levels(
    release: ReleasedTables,
    question: HierarchyQuestion[Any],
    paths: Sequence[str],
    codes: Sequence[int],
) -> list[pa.Table]:
    """Return the nodes of paths, their ancestors, and as many of their children as the page fits.

    Args:
        release: the tables; only the parts that hold these nodes are read.
        question: the hierarchy.
        paths: the requested paths, which `check_paths` has checked.
        codes: of the keys of the page.

    Returns:
        for each level, its rows with a column ``code`` (the place of the key), each at most once,
        in the order of keys and nodes.
    """
    places = [question.domain.tree.find(path) for path in paths]
    lines = {each for level, node in places for each in _line(question, level, node)}
    rows = [[_rows(release, question, code, sorted(lines))] for code in codes]
    left = (MAX_CHOSEN_NODES - len(lines) * len(codes)) // len(codes) // max(1, len(places))
    for level, node in sorted(set(places)):
        for code, own in zip(codes, rows, strict=True):
            if not left or level == question.plan.tree.height:
                continue
            below = question.plan.tree.children(level, node)
            found = _rows(release, question, code, [(level + 1, below[0], below[-1] + 1)])
            same = np.zeros(len(found), np.int64)
            own.append(largest(found, same, left, len(found)).drop_columns("code"))
    return _by_level(question, list(map(pa.concat_tables, rows)))


def _line(question: HierarchyQuestion[Any], level: int, node: int) -> Iterator[Range]:
    """A node and its ancestors."""
    yield level, node, node + 1
    for above in range(level, 0, -1):
        node = int(question.domain.tree.parents(above, np.array([node]))[0])
        yield above - 1, node, node + 1


def _rows(
    release: ReleasedTables,
    question: HierarchyQuestion[Any],
    code: int,
    ranges: Sequence[Range],
) -> pa.Table:
    """The rows of ranges of nodes of a key."""
    parts: dict[tuple[int, int], list[Range]] = defaultdict(list)
    for each in ranges:
        for part in _range_parts(question, code, each):
            parts[part].append(each)
    results = []
    for (key, index), inside in sorted(parts.items()):
        table = release.part(NODES, question.name, key, index)
        results.append(_within(_select_label(table, question.key_label(code)), inside))
    return pa.concat_tables(results)


def _range_parts(
    question: HierarchyQuestion[Any], code: int, wanted: Range
) -> Iterator[tuple[int, int]]:
    """The parts that hold a range: the first key and the index of each."""
    chunking, tree = question.forest.chunking, question.plan.tree
    level, first, stop = wanted
    if level < chunking.split_level:
        for holder in chunking.holders(level, first, stop - 1):
            yield code, holder
        return
    leaves = np.array([tree.leaf_range(level, node).start for node in (first, stop - 1)])
    low, high = chunking.numbers(leaves + code * tree.leaves).tolist()
    for number in range(low, high + 1):
        chunk = chunking[number]
        yield chunk.key, chunk.index


def _select_label(table: pa.Table, label: str | None) -> pa.Table:
    return table if label is None else table.filter(pc.equal(table["key"].cast("string"), label))


def _within(table: pa.Table, ranges: Sequence[Range]) -> pa.Table:
    """The rows of the ranges, each once."""
    level, node = table["level"].to_numpy(), table["node"].to_numpy()
    kept = np.zeros(len(table), np.bool_)
    for wanted, first, stop in ranges:
        kept |= (level == wanted) & (node >= first) & (node < stop)
    return table.select(COLUMNS).filter(pa.array(kept))


def _by_level(question: HierarchyQuestion[Any], keys: Sequence[pa.Table]) -> list[pa.Table]:
    rows = pa.concat_tables(
        [
            table.append_column("code", [np.full(len(table), code)])
            for code, table in enumerate(keys)
        ]
    )
    level = rows["level"].to_numpy()
    return [
        without_repeats(rows.filter(pa.array(level == each)))
        for each in range(question.plan.tree.height + 1)
    ]


def without_repeats(rows: pa.Table) -> pa.Table:
    """The rows of a level, each node of a key once, in the order of keys and nodes."""
    code, node = rows["code"].to_numpy(), rows["node"].to_numpy()
    order: Integers = np.lexsort((node, code))
    code, node = code[order], node[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (np.diff(code) != 0) | (np.diff(node) != 0)
    return rows.take(pa.array(order[new]))


def with_chosen(levels: Sequence[pa.Table], requested: Sequence[pa.Table]) -> list[pa.Table]:
    """The levels of the page and those requested, without empty levels at the end."""
    longest = max(
        [len(levels), *(level + 1 for level, rows in enumerate(requested) if len(rows))], default=0
    )
    merged = []
    for level in range(longest):
        parts = [rows[level] for rows in (levels, requested) if level < len(rows)]
        merged.append(without_repeats(pa.concat_tables(parts)))
    return merged
