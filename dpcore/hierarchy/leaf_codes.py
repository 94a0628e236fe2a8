"""Columns of leaves as codes, level by level, and the universe that these codes make.

The code of a label is its rank among the distinct labels of its level, so leaves sort by their
codes as by their labels. Levels are joined to one integer a leaf by mixed radix; where it would
pass 2^62, it is replaced by its rank among the leaves.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.level_labels import LevelLabels
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.rows.column import fixed_width_values, null_rows, value_type
from dptrees.dpcore.rows.number_texts import ABSENT

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
