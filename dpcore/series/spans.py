"""Columns that state the periods of a released row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.series.temporal import Span

FIRST, LAST = "first", "last"


def with_span(table: pa.Table, tree: str, span: Span) -> pa.Table:
    """A table of one temporal node, under the name of the whole tree.

    Args:
        table: with the column ``tree``.
        tree: the name.
        span: of the node.

    Returns:
        the table with ``tree``, ``first`` and ``last`` before its other columns.
    """
    rows = table.num_rows
    columns = {"tree": _names(tree, rows)}
    columns |= {
        name: pa.array(np.full(rows, period, np.int32))
        for name, period in ((FIRST, span.first), (LAST, span.last))
    }
    rest = {name: table[name] for name in table.column_names if name != "tree"}
    return pa.table(columns | rest)


def with_name(table: pa.Table, tree: str) -> pa.Table:
    """A table of a tree, under another name of the tree.

    Args:
        table: with the column ``tree``, or without.
        tree: the name.
    """
    if "tree" not in table.column_names:
        return table
    place = table.column_names.index("tree")
    return table.set_column(place, table.schema.field(place), _names(tree, table.num_rows))


def _names(tree: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([tree]))


def select_span(table: pa.Table, span: Span) -> pa.Table:
    """The rows of one temporal node, as the tree alone would have them.

    Args:
        table: from `with_span`, of several nodes.
        span: of the node.
    """
    mine = pc.and_(pc.equal(table[FIRST], span.first), pc.equal(table[LAST], span.last))
    return table.filter(mine).drop_columns([FIRST, LAST])
