"""Universes from lists of their leaves: in columns, codes, paths, or a table of parents.

The leaves may be in any order, and each occurs once. An error names the column and the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.hierarchy.leaf_codes import (
    label_codes,
    plain_labels,
    quoted,
    ranked_codes,
    universe_of_codes,
)
from dptrees.dpcore.hierarchy.universe import MAX_DEPTH, LevelLabels, Universe, check_level_names
from dptrees.dpcore.rows.columns import fixed_width_values
from dptrees.dpcore.rows.numbers import ABSENT, read_numbers, write_numbers
from dptrees.dpcore.rows.policies import is_integer
from dptrees.dpcore.rows.value_lists import CodeBlocks, CodeTwice

# A decimal number of so many digits is an int64.
MAX_DIGITS = 18
# Paths that are split at once.
_PATHS_AT_ONCE = 2**20


def universe_from_columns(
    columns: Mapping[str, pa.Array | pa.ChunkedArray], *, levels: Sequence[str] = ()
) -> Universe:
    """The universe of leaves whose labels are in one column a level.

    Args:
        columns: by name, from the level below the root to the leaves, (leaves,) each; strings or
            integers.
        levels: the names of the levels, by default the names of the columns.

    Returns:
        The universe.

    Raises:
        ValueError: naming the column and the rule: a type that is neither, a null, an empty text, a
            leaf twice, no leaf, too many.

    >>> routes = {"origin": pa.array(["EWR", "EWR"]), "dest": pa.array(["ORD", "MCO"])}
    >>> universe_from_columns(routes).level_sizes
    (1, 1, 2)
    """
    names = tuple(levels) or tuple(columns)
    check_level_names(names)
    if len(names) != len(columns):
        raise ValueError(f"levels: {len(columns)} columns need as many names, not {len(names)}.")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns {', '.join(columns)} must have one length.")
    encoded = []
    for name, column in columns.items():
        plain = plain_labels(name, column)
        if plain.null_count:
            raise ValueError(f"column {name!r} must not be null: every leaf has every level.")
        encoded.append(label_codes(plain))
    separators = ("", *["/"] * (len(columns) - 1))
    return universe_of_codes("columns", names, separators, encoded, ", ".join(columns))


def universe_from_codes(
    codes: pa.Array | pa.ChunkedArray,
    digits: Sequence[int],
    *,
    levels: Sequence[str] = (),
    column: str = "code",
) -> Universe:
    """The universe of leaves whose labels are runs of digits of one code.

    Args:
        codes: (leaves,), strings of exactly sum(digits) digits, or integers, whose leading zeros
            are restored.
        digits: how many digits each level below the root has; at most 18 together.
        levels: the names of the levels; by default "first 2 digits" and so on.
        column: what messages call the codes.

    Returns:
        The universe; a node's path is the code's beginning.

    Raises:
        ValueError: naming the field and the rule: a code of another length or with another
            character, a null, a code twice, no code, too many.

    >>> blocks = universe_from_codes(pa.array(["0102", "0101", "0203"]), (2, 2))
    >>> blocks.level_sizes, blocks.paths(2, np.arange(3)).to_pylist()
    ((1, 2, 3), ['0101', '0102', '0203'])
    """
    width = _checked_digits(column, digits)
    names = _digit_names(column, digits, levels)
    prefix = _code_numbers(column, codes, width)
    if len(prefix) > 1 and not np.all(prefix[1:] > prefix[:-1]):
        prefix = np.sort(prefix)
        twice = np.flatnonzero(prefix[1:] == prefix[:-1])
        if len(twice):
            raise _twice(column, int(prefix[twice[0]]), width)
    prefix, last, starts = _last_level(prefix, digits[-1])
    leaves = LevelLabels(codes=last, picture="0" * digits[-1])
    return _universe_from_digits(names, prefix, digits, leaves, starts)


def universe_from_code_blocks(
    blocks: int,
    read: Callable[[int], pa.Array],
    digits: Sequence[int],
    *,
    levels: Sequence[str] = (),
    column: str = "code",
) -> Universe:
    """Build a universe, as `universe_from_codes` does, from a list that is too long to be held in
    memory.

    What is held has the size of the leaves' parents: the leaves themselves are read again, a part
    at a time, whenever they are needed.

    Args:
        blocks: how many blocks the list has.
        read: the codes of a block, by its number: as of `universe_from_codes`; at least one.
        digits, levels, column: as of `universe_from_codes`.

    Raises:
        ValueError: as of `universe_from_codes`.

    >>> parts = [pa.array(["0102", "0203"]), pa.array(["0101"])]
    >>> universe_from_code_blocks(2, parts.__getitem__, (2, 2)) == universe_from_codes(
    ...     pa.chunked_array(parts), (2, 2))
    True
    """
    width = _checked_digits(column, digits)
    names = _digit_names(column, digits, levels)
    codes = CodeBlocks(
        blocks, lambda block: _code_numbers(column, read(block), width), 10 ** digits[-1]
    )
    leaves = LevelLabels(codes=codes.last_numbers, picture="0" * digits[-1])
    universe = _universe_from_digits(names, codes.prefixes, digits, leaves, codes.starts)
    try:
        _ = universe.digest  # which reads all leaves once
    except CodeTwice as error:
        raise _twice(column, error.code, width) from None
    return universe


def _digit_names(column: str, digits: Sequence[int], levels: Sequence[str]) -> tuple[str, ...]:
    names = tuple(levels) or tuple(f"first {end} digits" for end in np.cumsum(digits))
    _check_named(column, names, len(digits))
    return names


def _twice(column: str, code: int, width: int) -> ValueError:
    text = write_numbers(np.array([code]), "0" * width)[0].as_py()
    return ValueError(f"column {column!r}: the leaf {text!r} is listed more than once.")


def _last_level(codes: Integers, count: int) -> tuple[Integers, Integers, Integers]:
    """Return, for rising codes, the distinct codes without their last digits; these digits; and
    where the codes of each of the former begin, and their end."""
    upper = codes // 10**count
    firsts = np.flatnonzero(np.diff(upper, prepend=ABSENT))
    return upper[firsts], codes - upper * 10**count, np.append(firsts, len(codes))


def _universe_from_digits(
    levels: tuple[str, ...],
    parents: Integers,
    digits: Sequence[int],
    leaves: LevelLabels,
    starts: Integers,
) -> Universe:
    """The universe of leaves whose parents have some codes, rising.

    Args:
        levels: the names.
        parents: the codes without the digits of the last level, each once.
        digits: of each level.
        leaves: the labels of the last level.
        starts: (parents + 1,) the first leaf of each parent, and how many leaves there are.
    """
    child_starts, labels = [starts], [leaves]
    for count in reversed(digits[:-1]):
        parents, own, starts = _last_level(parents, count)
        labels.append(LevelLabels(codes=own, picture="0" * count))
        child_starts.append(starts)
    return Universe(
        form="digits",
        levels=levels,
        separators=("",) * len(digits),
        level_labels=tuple(reversed(labels)),
        child_starts=tuple(reversed(child_starts)),
    )


def _checked_digits(column: str, digits: Sequence[int]) -> int:
    """The digits of a whole code."""
    if not digits or not all(is_integer(count) and count >= 1 for count in digits):
        raise ValueError(f"column {column!r}: digits {digits!r} must be whole numbers from 1 on.")
    if sum(digits) > MAX_DIGITS:
        raise ValueError(
            f"column {column!r}: digits {digits!r} must be at most {MAX_DIGITS} together."
        )
    return sum(digits)


def _check_named(column: str, levels: tuple[str, ...], count: int) -> None:
    if len(levels) != count:
        raise ValueError(
            f"column {column!r}: {count} levels need as many names, not {len(levels)}."
        )


def _code_numbers(column: str, codes: pa.Array | pa.ChunkedArray, width: int) -> Integers:
    """Codes of one width as numbers."""
    plain = plain_labels(column, codes)
    if plain.null_count:
        raise ValueError(f"column {column!r} must not be null: every leaf has a code.")
    if pa.types.is_integer(plain.type):
        numbers = fixed_width_values(plain)
        wrong, rule = (numbers < 0) | (numbers >= 10**width), f"have at most {width} digits"
    else:
        numbers = read_numbers(plain, "0" * width)
        wrong, rule = numbers == ABSENT, f"be a text of {width} digits"
    if wrong.any():
        one = quoted(plain[int(np.argmax(wrong))].as_py())
        raise ValueError(f"column {column!r}: every code must {rule}, unlike {one}.")
    return numbers


def universe_from_paths(
    paths: pa.Array | pa.ChunkedArray,
    separator: str,
    *,
    levels: Sequence[str] = (),
    column: str = "path",
) -> Universe:
    """The universe of leaves given by separated paths, such as "a/b/c", of unequal depths.

    Args:
        paths: strings, (leaves,).
        separator: what is between two labels; none begins, ends or doubles in a path.
        levels: the names of the levels; where given, every path must have as many labels.
        column: what messages call the paths.

    Returns:
        The universe.

    Raises:
        ValueError: naming the field and the rule: a type that is not text, a null, an empty label,
            more than 32 labels, unequal depths of named levels, a leaf twice, a leaf that is also
            an inner node, no leaf, too many.

    >>> files = universe_from_paths(pa.array(["usr/bin/vi", "etc"]), "/")
    >>> files.level_sizes, files.paths(3, np.arange(2)).to_pylist()
    ((1, 2, 2, 2), ['etc', 'usr/bin/vi'])
    """
    if not isinstance(separator, str) or not separator:
        raise ValueError(f"separator {separator!r} must be a text of at least one character.")
    plain = plain_labels(column, paths)
    if not pa.types.is_large_string(plain.type):
        raise ValueError(f"column {column!r} has type {plain.type}, but paths must be texts.")
    if plain.null_count:
        raise ValueError(f"column {column!r} must not be null: every leaf has a path.")
    depths, codes, values = _split(column, plain, separator)
    height = int(depths.max())
    if height > MAX_DEPTH:
        deep = _counted(plain, depths, depths > MAX_DEPTH)
        raise ValueError(f"column {column!r}: a path must have at most {MAX_DEPTH} labels; {deep}.")
    names = tuple(levels) or tuple(f"level {level}" for level in range(1, height + 1))
    if np.any(depths != len(names)) and levels:
        other = _counted(plain, depths, depths != len(names))
        raise ValueError(
            f"column {column!r}: every path must have as many labels as levels are named, "
            f"{len(names)}; {other}."
        )
    firsts = np.cumsum(depths) - depths
    encoded = []
    for level in range(height):
        at_level = np.full(len(depths), ABSENT, np.int64)
        has = depths > level
        at_level[has] = codes[firsts[has] + level]
        encoded.append(ranked_codes(at_level, values))
    separators = ("", *[separator] * (height - 1))
    return universe_of_codes("path", names, separators, encoded, column)


def _counted(paths: pa.Array, depths: Integers, chosen: npt.NDArray[np.bool_]) -> str:
    """The first of the chosen paths, with the number of its labels."""
    row = int(np.argmax(chosen))
    return f"{quoted(paths[row].as_py())} has {depths[row]}"


def _split(
    column: str, paths: pa.Array, separator: str
) -> tuple[Integers, npt.NDArray[np.int32], pa.Array]:
    """The number of labels of each path, the code of each label, and the labels by code."""
    depths, labels = [], []
    for start in range(0, len(paths), _PATHS_AT_ONCE):
        # A block at a time: the labels of all paths would take a multiple of the paths' memory.
        parts = pc.split_pattern(paths.slice(start, _PATHS_AT_ONCE), pattern=separator)
        depths.append(fixed_width_values(pc.list_value_length(parts)).astype(np.int64))
        labels.append(parts.flatten().dictionary_encode())
    encoded = pa.chunked_array(labels).unify_dictionaries()
    values = encoded.chunk(0).dictionary
    codes = np.concatenate([fixed_width_values(chunk.indices) for chunk in encoded.chunks])
    counts, empty = np.concatenate(depths), pc.index(values, pa.scalar("", values.type)).as_py()
    if empty >= 0:
        row = np.searchsorted(np.cumsum(counts), np.argmax(codes == empty), side="right")
        raise ValueError(
            f"column {column!r}: a path must not begin or end with {separator!r}, nor have two in "
            f"a row, and {quoted(paths[int(row)].as_py())} does."
        )
    return counts, codes, values


def universe_from_parents(
    nodes: pa.Array | pa.ChunkedArray,
    parents: pa.Array | pa.ChunkedArray,
    *,
    columns: tuple[str, str] = ("node", "parent"),
) -> Universe:
    """The universe of a table of nodes, each with the name of its parent.

    Args:
        nodes: the names, (nodes,), strings or integers, each once.
        parents: the names of their parents, (nodes,), of the same type; null for a node that is
            directly below the root. A node that is nobody's parent is a leaf.
        columns: what messages call the two.

    Returns:
        The universe.

    Raises:
        ValueError: naming the field and the rule: a null or empty name, a node twice, a parent that
            is no node, a cycle, more than 32 levels, no node, too many.

    >>> nodes, parents = pa.array(["US", "RI", "Kent"]), pa.array([None, "US", "RI"])
    >>> universe_from_parents(nodes, parents).paths(3, np.arange(1)).to_pylist()
    ['US/RI/Kent']
    """
    names, above = (
        plain_labels(columns[0], nodes),
        plain_labels(columns[1], parents, may_be_null=True),
    )
    if names.null_count:
        raise ValueError(f"column {columns[0]!r} must not be null.")
    if pa.types.is_null(above.type):
        above = above.cast(names.type)
    if len(names) != len(above) or names.type != above.type:
        raise ValueError(f"columns {', '.join(columns)} must have one length and one type.")
    codes, values = label_codes(pa.concat_arrays([names, above]))
    own = codes[: len(names)]
    counts = np.bincount(own)
    if counts.max() > 1:
        twice = quoted(values[int(np.argmax(counts))].as_py())
        raise ValueError(f"column {columns[0]!r}: the node {twice} is listed more than once.")
    up = _parent_rows(columns, own, codes[len(names) :], values)
    chain = _ancestors(columns, up, names)
    depths = np.add.reduce([each < len(own) for each in chain], axis=0, dtype=np.int64)
    encoded, height, steps = [], len(chain), np.stack(chain)
    for level in range(height):
        at_level = np.full(len(depths), ABSENT, np.int64)
        has = depths > level
        # The ancestor so many steps above the leaf that it is on this level.
        at_level[has] = own[steps[depths[has] - 1 - level, np.flatnonzero(has)]]
        encoded.append(ranked_codes(at_level, values))
    names_of_levels = tuple(f"level {level}" for level in range(1, height + 1))
    separators = ("", *["/"] * (height - 1))
    return universe_of_codes("parents", names_of_levels, separators, encoded, columns[0])


def _parent_rows(
    columns: tuple[str, str], own: Integers, parents: Integers, values: pa.Array
) -> Integers:
    """The row of each node's parent, (nodes + 1,): `nodes` below the root, and for itself."""
    row_of = np.full(len(values) + 1, ABSENT, np.int64)
    row_of[own] = np.arange(len(own))
    rows = row_of.take(parents, mode="wrap")
    rows[parents == ABSENT] = len(own)
    if np.any(rows == ABSENT):
        orphan = quoted(values[int(parents[np.argmax(rows == ABSENT)])].as_py())
        raise ValueError(
            f"column {columns[1]!r}: every parent must be one of the nodes, and {orphan} is none."
        )
    return np.append(rows, len(own))


def _ancestors(columns: tuple[str, str], up: Integers, names: pa.Array) -> list[Integers]:
    """Rows of the leaves, rows of their parents, and so on up to the root's children."""
    root = len(up) - 1
    has_child = np.zeros(len(up), np.bool_)
    has_child[up] = True
    steps, at = 0, up
    while steps <= MAX_DEPTH and np.any(at[:root] != root):
        steps, at = steps + 1, up[at]
    if steps >= MAX_DEPTH:
        _refuse_depth(columns, up, names)
    chain = [np.flatnonzero(~has_child[:root])]
    for _ in range(steps):
        chain.append(up[chain[-1]])
    return chain


def _refuse_depth(columns: tuple[str, str], up: Integers, names: pa.Array) -> None:
    """Distinguish a cycle from a path that is too deep: doubling jumps leave every path."""
    root = len(up) - 1
    below = up
    for _ in range(MAX_DEPTH - 1):
        below = up[below]
    for _ in range(len(up).bit_length()):
        up = up[up]
    on_cycle = up[up != root]
    if len(on_cycle):
        own = quoted(names[int(on_cycle[0])].as_py())
        raise ValueError(
            f"columns {', '.join(columns)}: a node must not be its own ancestor, and {own} is."
        )
    deep = quoted(names[int(np.argmax(below != root))].as_py())
    raise ValueError(
        f"columns {', '.join(columns)}: at most {MAX_DEPTH} levels are possible below the root, "
        f"and {deep} lies deeper."
    )
