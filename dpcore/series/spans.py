"""Columns that state the periods of a released row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.series.temporal import Span

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
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([tree]))
    columns = {"tree": names}
    columns |= {
        name: pa.array(np.full(rows, period, np.int32))
        for name, period in ((FIRST, span.first), (LAST, span.last))
    }
    rest = {name: table[name] for name in table.column_names if name != "tree"}
    return pa.table(columns | rest)


def select_span(table: pa.Table, span: Span) -> pa.Table:
    """The rows of one temporal node, as the tree alone would have them.

    Args:
        table: from `with_span`, of several nodes.
        span: of the node.
    """
    mine = pc.and_(pc.equal(table[FIRST], span.first), pc.equal(table[LAST], span.last))
    return table.filter(mine).drop_columns([FIRST, LAST])
