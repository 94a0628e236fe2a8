"""A universe restored from its table, a row a node, which `Universe.to_table` writes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.hierarchy.leaf_codes import label_codes
from dpcore.hierarchy.level_labels import LevelLabels, read_labels
from dpcore.hierarchy.universe import TABLE_METADATA, TABLE_SCHEMA, UNIVERSE_VERSION, Universe
from dpcore.rows.column import fixed_width_values


def universe_from_table(table: pa.Table) -> Universe:
    """The universe that `Universe.to_table` wrote; its digest is the same.

    Raises:
        ValueError: the table is none, or of another version.

    >>> from dpcore.hierarchy.leaves import universe_from_codes
    >>> places = universe_from_codes(pa.array([101, 102]), (2, 2))
    >>> universe_from_table(places.to_table()) == places
    True
    """
    head = _head_of(table)
    sizes, pictures, integers = head["sizes"], head["pictures"], head["integers"]
    children = fixed_width_values(table.column("children").combine_chunks())
    ends = np.cumsum(sizes)
    child_starts, labels = [], []
    for level, (start, end) in enumerate(pairwise([0, *ends])):
        if level < len(sizes) - 1:
            child_starts.append(np.append(0, np.cumsum(children[start:end])))
            if child_starts[-1][-1] != sizes[level + 1]:
                raise ValueError("the table is not a universe: its children do not add up.")
        if level > 0:
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


def _head_of(table: pa.Table) -> dict[str, Any]:
    metadata = table.schema.metadata or {}
    if TABLE_METADATA not in metadata or any(
        name not in table.column_names or table.column(name).type != type
        for name, type in TABLE_SCHEMA.items()
    ):
        raise ValueError("the table is not a universe: it was not made by this program.")
    head: dict[str, Any] = json.loads(metadata[TABLE_METADATA])
    if head["version"] != UNIVERSE_VERSION:
        raise ValueError(
            f"the universe's version {head['version']} is not {UNIVERSE_VERSION}, this program's."
        )
    if sum(head["sizes"]) != table.num_rows:
        raise ValueError("the table is not a universe: rows are missing.")
    return head


def _labels_from(texts: pa.Array, picture: str, integer: bool) -> LevelLabels:
    if picture:
        return LevelLabels(codes=read_labels(texts, picture), picture=picture)
    codes, values = label_codes(texts.cast(pa.int64()) if integer else texts)
    return LevelLabels(codes=codes, values=values)
