"""Universes from codes: from columns of leaves, level by level, or from a universe's own table.

The code of a label is its rank among the distinct labels of its level, so leaves sort by their
codes as by their labels. Levels are joined to one integer for each leaf by mixed radix; where it
would pass 2^62, it is replaced by its rank among the leaves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.universe import (
    TABLE_METADATA,
    TABLE_SCHEMA,
    UNIVERSE_VERSION,
    LevelLabels,
    Universe,
    is_parted,
    read_labels,
)
from dptrees.dpcore.rows.columns import fixed_width_values, null_rows, value_type
from dptrees.dpcore.rows.numbers import ABSENT
from dptrees.dpcore.rows.value_lists import PartedIntegers

MAX_LEAVES = 2**40
_KEY_LIMIT = 2**62
_SHOWN_LENGTH = 60


def quoted(label: object) -> str:
    """A label or path of a public universe as messages show it, shortened when long.

    >>> quoted("02\\n")
    "'02\\\\n'"
    """
    text = repr(label)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def plain_labels(
    name: str, column: pa.Array | pa.ChunkedArray, *, may_be_null: bool = False
) -> pa.Array:
    """The labels of a column of leaves as one array of strings or integers.

    Args:
        name: what messages call the column.
        column: (leaves,), strings or integers of any width, plain or dictionary-encoded.
        may_be_null: whether a column of nothing but nulls, which has no type, is returned as it is.

    Returns:
        large_string or int64, (leaves,); nulls stay.

    Raises:
        ValueError: a type that is neither, an integer beyond int64, an empty text, no leaf, too
            many.

    >>> plain_labels("tail", pa.array(["N1", None]).dictionary_encode()).type
    DataType(large_string)
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.cast(_wide(name, column.type)).chunks)
    if len(column) == 0:
        raise ValueError(f"column {name!r}: a universe needs at least one leaf.")
    if len(column) > MAX_LEAVES:
        raise ValueError(f"column {name!r}: a universe has at most {MAX_LEAVES} leaves.")
    if may_be_null and pa.types.is_null(column.type):
        return column
    wanted = _wide(name, column.type)
    try:
        plain = column.cast(wanted)
    except pa.ArrowException:
        raise ValueError(f"column {name!r} must be 64-bit signed integers or texts.") from None
    if pa.types.is_large_string(wanted) and pc.any(pc.equal(pc.binary_length(plain), 0)).as_py():
        raise ValueError(f"column {name!r} must not hold an empty text.")
    return plain


def _wide(name: str, type: pa.DataType) -> pa.DataType:
    plain, types = value_type(type), pa.types
    if types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain):
        return pa.large_string()
    if types.is_integer(plain):
        return pa.int64()
    raise ValueError(f"column {name!r} has type {type}, but a universe needs texts or integers.")


def label_codes(column: pa.Array) -> tuple[Integers, pa.Array]:
    """Labels as codes.

    Args:
        column: large_string or int64, (n,).

    Returns:
        The rank of each label among the distinct ones, (n,) int64, -1 for null; and the distinct
        labels, sorted.

    >>> codes, values = label_codes(pa.array(["b", None, "a"]))
    >>> codes.tolist(), values.to_pylist()
    ([1, -1, 0], ['a', 'b'])
    """
    encoded = column.dictionary_encode()
    codes = fixed_width_values(encoded.indices).astype(np.int64)
    nulls = null_rows(encoded.indices)
    if nulls is not None:
        codes[nulls] = ABSENT
    return ranked_codes(codes, encoded.dictionary)


def ranked_codes(codes: Integers, values: pa.Array) -> tuple[Integers, pa.Array]:
    """Any codes as ranks among the values that they use.

    Args:
        codes: positions on the list of values, (n,) int64; -1 for none.
        values: distinct, in any order; some may be unused.

    Returns:
        The rank of each code's value among the used ones, (n,) int64, -1 for none; and the used
        values, sorted.

    >>> ranks, used = ranked_codes(np.array([2, -1, 0]), pa.array(["b", "c", "a"]))
    >>> ranks.tolist(), used.to_pylist()
    ([0, -1, 1], ['a', 'b'])
    """
    is_used = np.zeros(len(values) + 1, np.bool_)
    is_used[codes] = True  # -1 marks the last, which is no value
    used = np.flatnonzero(is_used[:-1])
    mine = values.take(pa.array(used))
    order = fixed_width_values(pc.sort_indices(mine)).astype(np.int64)
    rank = np.full(len(values) + 1, ABSENT, np.int64)
    rank[used[order]] = np.arange(len(used))
    return rank[codes], mine.take(pa.array(order))


def universe_of_codes(
    form: str,
    levels: tuple[str, ...],
    separators: tuple[str, ...],
    encoded: list[tuple[Integers, pa.Array]],
    column: str,
) -> Universe:
    """The universe of leaves with a code on each level.

    Args:
        form: how a leaf is written: one of `FORMS`.
        levels: the names of levels 1..h.
        separators: what comes before the label of levels 1..h in a path.
        encoded: for each of levels 1..h the codes of the leaves, (leaves,), -1 below the level of a
            leaf; and the level's labels by code.
        column: what messages call the leaves: a column, or several with ", " between them.

    Returns:
        The universe, its leaves sorted.

    Raises:
        ValueError: a leaf is there twice, or has children; or the levels' names are refused.

    >>> letters, numbers = label_codes(pa.array(["b", "a"])), label_codes(pa.array([7, 7]))
    >>> pairs = universe_of_codes("columns", ("x", "y"), ("", "/"), [letters, numbers], "x, y")
    >>> pairs.paths(2, np.arange(2)).to_pylist()
    ['a/7', 'b/7']
    """
    order = _order(encoded)
    codes = [each if order is None else each[order] for each, _ in encoded]
    starts, leaves = [np.zeros(1, np.int64)], len(codes[0])
    changed = np.zeros(leaves, np.bool_)
    changed[0] = True
    for each in codes:
        changed[1:] |= each[1:] != each[:-1]
        starts.append(np.flatnonzero(changed))
    universe = Universe(
        form=form,
        levels=levels,
        separators=separators,
        level_labels=tuple(
            LevelLabels(codes=each[first], values=values)
            for each, first, (_, values) in zip(codes, starts[1:], encoded, strict=True)
        ),
        child_starts=tuple(
            np.append(np.searchsorted(lower, upper), len(lower))
            for upper, lower in pairwise(starts)
        ),
    )
    if not changed.all():
        # Of two equal neighbors the first is a leaf of the universe, which can say its path.
        leaf = np.cumsum(changed)[np.argmin(changed)] - 1
        path = universe.paths(universe.height, np.array([leaf]))[0].as_py()
        raise ValueError(f"{_columns(column)}: the leaf {quoted(path)} is listed more than once.")
    _check_inner(universe, column)
    return universe


def _order(encoded: list[tuple[Integers, pa.Array]]) -> Integers | None:
    """The order of the leaves by their codes, level by level; None where they have it already."""
    key, span = np.zeros(len(encoded[0][0]), np.int64), 1
    for codes, values in encoded:
        radix = len(values) + 1
        if span * radix > _KEY_LIMIT:
            key = _ranks(key)
            span = int(key.max()) + 1
        key = key * radix + (codes + 1)
        span *= radix
    if np.all(key[1:] >= key[:-1]):
        return None
    return np.argsort(key, kind="stable")


def _ranks(keys: Integers) -> Integers:
    """The rank of each integer among the distinct ones."""
    order = np.argsort(keys, kind="stable")
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.cumsum(np.diff(keys[order], prepend=keys[order[0]]) != 0)
    return ranks


def _check_inner(universe: Universe, column: str) -> None:
    """Refuse a leaf that has children: its continuation has siblings."""
    for level in range(2, universe.height + 1):
        unlabelled = np.flatnonzero(universe.level_labels[level - 1].codes == ABSENT)
        parents = universe.parents(level, unlabelled)
        children = np.diff(universe.child_starts[level - 1])[parents]
        if np.any(children > 1):
            node = parents[children > 1][:1]
            path = universe.paths(level - 1, node)[0].as_py()
            raise ValueError(
                f"{_columns(column)}: {quoted(path)} is a leaf and has children as well."
            )


def _columns(names: str) -> str:
    return f"columns {names}" if ", " in names else f"column {names!r}"


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
