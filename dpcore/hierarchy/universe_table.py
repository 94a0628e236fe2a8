"""A universe restored from its table, a row a node, which `Universe.to_table` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.leaf_codes import label_codes
from dptrees.dpcore.hierarchy.level_labels import LevelLabels, read_labels
from dptrees.dpcore.hierarchy.universe import (
    TABLE_METADATA,
    TABLE_SCHEMA,
    UNIVERSE_VERSION,
    Universe,
    is_parted,
)
from dptrees.dpcore.rows.column import fixed_width_values
from dptrees.dpcore.rows.parted import PartedIntegers

# Of a universe in parts: some megabytes in memory, and not much more than a chunk has leaves.
LEAVES_AT_ONCE = 2**17


def universe_from_table(table: pa.Table) -> Universe:
    """The universe that `Universe.to_table` wrote; its digest is the same.

    Raises:
        ValueError: the table is none, or of another version.

    >>> from dptrees.dpcore.hierarchy.leaves import universe_from_codes
    >>> places = universe_from_codes(pa.array([101, 102]), (2, 2))
    >>> universe_from_table(places.to_table()) == places
    True
    """
    return _read_universe(_read_head(table.schema, table.num_rows), table)


def universe_tables(universe: Universe) -> Iterator[pa.Table]:
    """The rows of `Universe.to_table`: those above the leaves, then some leaves at a time.

    Args:
        universe: without the leaf "other".

    >>> from dptrees.dpcore.hierarchy.leaves import universe_from_codes
    >>> places = universe_from_codes(pa.array([101, 102]), (2, 2))
    >>> pa.concat_tables(universe_tables(places)) == places.to_table()
    True
    """
    schema, height = universe.table_schema, universe.height
    upper = []
    for level in range(height):
        nodes = np.arange(universe.level_sizes[level])
        upper.append(_rows(universe, level, nodes, np.diff(universe.child_starts[level])))
    yield pa.concat_tables(upper).combine_chunks().replace_schema_metadata(schema.metadata)
    for start in range(0, universe.leaves, LEAVES_AT_ONCE):
        leaves = np.arange(start, min(start + LEAVES_AT_ONCE, universe.leaves))
        found = _rows(universe, height, leaves, np.zeros(len(leaves), np.int64))
        yield found.replace_schema_metadata(schema.metadata)


def _rows(universe: Universe, level: int, nodes: Integers, children: Integers) -> pa.Table:
    levels = np.full(len(nodes), level, np.int8)
    labels = universe.labels(level, nodes).cast(pa.large_string())
    return pa.table([pa.array(levels), pa.array(children), labels], names=list(TABLE_SCHEMA))


def leaf_picture(schema: pa.Schema, rows: int) -> tuple[int, str] | None:
    """Return how many leaves, its last rows, a table of a universe has, and how the code of one is
    written; None where the whole universe is held in memory.

    Raises:
        ValueError: the table is none, or of another version.
    """
    head = _read_head(schema, rows)
    if not is_parted(head["form"], head["sizes"][-1]):
        return None
    return head["sizes"][-1], head["pictures"][-1]


def parted_universe(upper: pa.Table, rows: int, leaves: PartedIntegers) -> Universe:
    """The universe of a table whose leaves are read in parts.

    Args:
        upper: the rows of all other levels.
        rows: of the whole table.
        leaves: the codes of the leaves.

    Raises:
        ValueError: the table is none, or of another version.
    """
    return _read_universe(_read_head(upper.schema, rows), upper, leaves)


def _read_universe(
    head: Mapping[str, Any], table: pa.Table, leaves: PartedIntegers | None = None
) -> Universe:
    sizes, pictures, integers = head["sizes"], head["pictures"], head["integers"]
    children = fixed_width_values(table.column("children").combine_chunks())
    ends = np.cumsum(sizes)
    child_starts, labels = [], []
    for level, (start, end) in enumerate(pairwise([0, *ends])):
        if level < len(sizes) - 1:
            child_starts.append(np.append(0, np.cumsum(children[start:end])))
            if child_starts[-1][-1] != sizes[level + 1]:
                raise ValueError("the table is not a universe: its children do not add up.")
        if level == len(sizes) - 1 and leaves is not None:
            labels.append(LevelLabels(codes=leaves, picture=pictures[level - 1]))
        elif level > 0:
            texts = table.column("label").slice(start, end - start).combine_chunks()
            if level == 1 and head["other"]:
                texts = pa.concat_arrays([texts[:-1], pa.nulls(1, texts.type)])
            labels.append(_labels_from(texts, pictures[level - 1], integers[level - 1]))
    return Universe(
        form=head["form"],
        levels=tuple(head["levels"]),
        separators=tuple(head["separators"]),
        level_labels=tuple(labels),
        child_starts=tuple(child_starts),
        utc=head["utc"],
    )


def _read_head(schema: pa.Schema, rows: int) -> dict[str, Any]:
    metadata = schema.metadata or {}
    if TABLE_METADATA not in metadata or any(
        name not in schema.names or schema.field(name).type != type
        for name, type in TABLE_SCHEMA.items()
    ):
        raise ValueError("the table is not a universe: it was not made by this program.")
    head: dict[str, Any] = json.loads(metadata[TABLE_METADATA])
    if head["version"] != UNIVERSE_VERSION:
        raise ValueError(
            f"the universe's version {head['version']} is not {UNIVERSE_VERSION}, this program's."
        )
    if sum(head["sizes"]) != rows:
        raise ValueError("the table is not a universe: rows are missing.")
    return head


def _labels_from(texts: pa.Array, picture: str, integer: bool) -> LevelLabels:
    if picture:
        return LevelLabels(codes=read_labels(texts, picture), picture=picture)
    codes, values = label_codes(texts.cast(pa.int64()) if integer else texts)
    return LevelLabels(codes=codes, values=values)
