"""Write rows of Parquet for the throughput benchmarks, deterministic and in flat memory.

Run as ``python -m benchmarks.make_rows FOLDER --rows 40000000 --files 8``. Column ``value``
(float64) is gamma distributed, shape 2 and scale 10: most of it lies in [0, 100). Column ``group``
(int32) is 0..15, uniform. A file's rows depend on its number and its size alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

GROUPS = 16
ROWS_PER_GROUP = 1 << 20
SCHEMA = pa.schema([pa.field("value", pa.float64()), pa.field("group", pa.int32())])


def batches(number: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of file ``number`` in batches of at most ROWS_PER_GROUP."""
    generator = np.random.default_rng([2013, number])
    for start in range(0, rows, ROWS_PER_GROUP):
        size = min(ROWS_PER_GROUP, rows - start)
        value = generator.standard_gamma(2.0, size)
        value *= 10.0
        group = generator.integers(0, GROUPS, size, dtype=np.int32)
        yield pa.record_batch([pa.array(value), pa.array(group)], schema=SCHEMA)


def write_file(path: Path, number: int, rows: int) -> None:
    """Write one file, one row group a batch."""
    # Random doubles do not repeat: a dictionary and compression would only cost time.
    with pyarrow.parquet.ParquetWriter(
        path, SCHEMA, compression="none", use_dictionary=["group"]
    ) as writer:
        for batch in batches(number, rows):
            writer.write_batch(batch)


def positive(text: str) -> int:
    """Parse a positive whole number."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def write_files(
    folder: Path, noun: str, write: Callable[[Path, int, int], None], rows: int, files: int
) -> None:
    """Write some rows into so many files of a folder.

    Args:
        folder: of the files.
        noun: what the rows are; begins the files' names.
        write: writes a file, given its path, its number and its rows.
        rows: of all files together.
        files: how many.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        first, last = (rows * n // files for n in (number, number + 1))
        write(folder / f"{noun}-{number + 1:04d}-of-{files:04d}.parquet", number, last - first)


def make_files(noun: str, write: Callable[[Path, int, int], None], default_rows: int) -> int:
    """Write the files into the folder named on the command line."""
    parser = argparse.ArgumentParser(description=f"Write {noun} as Parquet for the benchmarks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=positive, default=default_rows)
    parser.add_argument("--files", type=positive, default=8)
    chosen = parser.parse_args()
    began = time.perf_counter()
    write_files(chosen.folder, noun, write, chosen.rows, chosen.files)
    seconds = time.perf_counter() - began
    print(f"{chosen.rows:,} {noun} in {chosen.files} files: {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(make_files("rows", write_file, 40_000_000))
