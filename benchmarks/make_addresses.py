"""Write a log of IPv4 addresses as Parquet for the benchmark of large sparse trees, deterministic.

Run as ``python -m benchmarks.make_addresses FOLDER --rows 10000000 --files 8``. Column ``address``
(uint32) is heavy-tailed at every byte: given the bytes before it, a byte's r-th most frequent value
has a probability in proportion to r^-1.2, and which value that is depends on the bytes before it.
A file's rows depend on its number and its size alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.make_rows import make_files

ROWS_PER_GROUP = 1 << 20
SCHEMA = pa.schema([pa.field("address", pa.uint32())])
EXPONENT = 1.2
BYTES = 4


def addresses(generator: np.random.Generator, size: int) -> np.ndarray:
    """Return uint32 addresses, (size,)."""
    weights = np.arange(1, 257, dtype=np.float64) ** -EXPONENT
    edges = np.cumsum(weights / weights.sum())[:-1]
    prefix = np.zeros(size, np.uint64)
    for _ in range(BYTES):
        rank = np.searchsorted(edges, generator.random(size)).astype(np.uint64)
        # A permutation of the byte values that differs from prefix to prefix.
        start = ((prefix + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)
        byte = (rank * np.uint64(167) + start) & np.uint64(255)
        prefix = (prefix << np.uint64(8)) | byte
    return prefix.astype(np.uint32)


def batches(number: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of file ``number`` in batches of at most ROWS_PER_GROUP."""
    generator = np.random.default_rng([1981, number])
    for start in range(0, rows, ROWS_PER_GROUP):
        size = min(ROWS_PER_GROUP, rows - start)
        yield pa.record_batch([pa.array(addresses(generator, size))], schema=SCHEMA)


def write_file(path: Path, number: int, rows: int) -> None:
    """Write one file, one row group a batch."""
    with pyarrow.parquet.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for batch in batches(number, rows):
            writer.write_batch(batch)


if __name__ == "__main__":
    sys.exit(make_files("addresses", write_file, 10_000_000))
