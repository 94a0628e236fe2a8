"""Synthetic rows of a wide table, from the model that was fitted to its noisy tables.

The model draws a cell of every column; within a cell of several values one is drawn uniformly. This
is done with what is released, so its randomness protects nobody, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.marginals.model import TableModel
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.table.domain import TableDomain
from dptrees.dpcore.table.measured_rows import model_rows

BATCH_ROWS = 2**18


@dataclass(frozen=True, kw_only=True)
class TableSampler:
    """Sampler of rows of a released table; a `dpcore.questions.released.Sampler`.

    Args:
        name: of the tree.
        domain: the columns.
        model: of their cells.

    Raises:
        ValueError: the model has no rows, so that there is nothing to draw from.
    """

    name: str
    domain: TableDomain
    model: TableModel

    def __post_init__(self) -> None:
        if self.total == 0:
            raise ValueError(f"tree {self.name}: all its counts are zero, so no row can be drawn")

    @property
    def total(self) -> int:
        """The released number of rows."""
        return model_rows(self.model)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the domain, in its order, with its types."""
        return pa.schema(list(self.domain.value_types.items()))

    def batches(self, rows: int, stream: RandomStream) -> Iterator[pa.RecordBatch]:
        """The rows, some at a time.

        Args:
            rows: n, at least 0.
            stream: of uniform bits.
        """
        for start in range(0, rows, BATCH_ROWS):
            codes = self.model.sample(min(BATCH_ROWS, rows - start), stream)
            columns = [self._values(place, code, stream) for place, code in enumerate(codes)]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _values(self, place: int, code: Integers, stream: RandomStream) -> pa.Array:
        """A value of a column in each of some cells of the tables."""
        axis, width = self.domain.axes[place], self.domain.widths[place]
        if width == 1 and not axis.has_intervals:
            return axis.rows_at(code, np.zeros(len(code)))
        start = code * width
        inside = _uniform(stream, len(code)) * np.minimum(width, axis.cells - start)
        cell = np.minimum(start + inside.astype(np.int64), axis.cells - 1)
        return axis.rows_at(cell, np.clip(inside - np.floor(inside), 0.0, 1.0))


def _uniform(stream: RandomStream, size: int) -> Floats:
    """(size,) multiples of 2^-53 in [0, 1)."""
    result: Floats = (stream.uint64(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result
