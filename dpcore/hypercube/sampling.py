"""Synthetic rows from a released partition, as many as are requested, batch by batch.

A row of the paper's Section 6 (corrected: a branch to the right subtracts the left child's count)
is in a part with the probability of its count, and uniform in it; walking down from the root is to
invert the distribution function of the parts' counts at a uniform u. Here the u of n rows are
(i + U) / n with one uniform U: a systematic sample, in which a part of count c of C has within one
of n c / C rows instead of a binomial number, and of n = C rows exactly c. Batches take every m-th
of them, so that each is such a sample by itself, and are shuffled.

This is done with what is released, so its randomness protects nobody, and may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.hypercube.domain import HypercubeDomain
from dptrees.dpcore.hypercube.parts import BoxParts
from dptrees.dpcore.noise.randomness import RandomStream

BATCH_ROWS = 2**18


@dataclass(frozen=True, kw_only=True)
class RowSampler:
    """Sampler of rows of a released partition; a `dpcore.questions.released.Sampler`.

    Args:
        name: of the tree.
        partition: its parts.

    Raises:
        ValueError: all its counts are zero, so that there is nothing to draw from.
    """

    name: str
    partition: BoxParts

    def __post_init__(self) -> None:
        if self.total == 0:
            raise ValueError(f"tree {self.name}: all its counts are zero, so no row can be drawn")

    @property
    def domain(self) -> HypercubeDomain:
        """Domain of the rows."""
        return self.partition.domain

    @property
    def total(self) -> int:
        """The released number of rows."""
        return int(self.partition.parts.counts.sum())

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
        counts = self.partition.parts.counts
        cumulated, last = np.cumsum(counts), int(np.flatnonzero(counts)[-1])
        many = -(-rows // BATCH_ROWS)
        # Of so few bits that sums with whole numbers are exact.
        start = (int(stream.uint64(1)[0]) % 2**10 + 0.5) / 2**10
        for batch in range(many):
            turns = np.arange(batch, rows, many)
            # A sum that is rounded must not become the next turn's.
            turn = np.minimum(turns + start, np.nextafter(turns + 1.0, 0.0))
            # At most 2^53 rows in all: the product keeps a part of a row.
            at = turn * (float(cumulated[-1]) / rows)
            parts = np.searchsorted(cumulated, at, side="right")
            # What rounds up to the whole count is in the last part that has rows.
            np.minimum(parts, last, out=parts)
            order = np.argsort(stream.uint64(len(parts)), kind="stable")
            yield self._rows(parts[order], stream)

    def _rows(self, parts: Integers, stream: RandomStream) -> pa.RecordBatch:
        """A row uniform in each of some parts."""
        starts, stops, _ = self.partition.parts
        columns = []
        for axis, start, stop in zip(self.domain.axes, starts, stops, strict=True):
            first, width = start[parts], (stop - start)[parts]
            inside = _uniform(stream, len(parts)) * width
            cell = np.minimum(inside.astype(np.int64), width - 1)
            columns.append(axis.rows_at(first + cell, np.clip(inside - cell, 0.0, 1.0)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _uniform(stream: RandomStream, size: int) -> Floats:
    """(size,) multiples of 2^-53 in [0, 1)."""
    result: Floats = (stream.uint64(size) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result
