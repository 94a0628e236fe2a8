"""Tables as inputs: rows per second and peak memory of reading each kind, beside Parquet.

Run as ``python benchmarks/tables.py [--rows 4000000]``. The same rows (a number, a text of 100 and
a column that is not read) are written to a temporary folder as Parquet files, as a Delta and an
Iceberg table of as many files, and into a PostgreSQL server of one's own where one is installed.
Each is read in a process of its own, all parts one after the other, as one worker reads them.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.configuration import parse_configuration

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from tests import postgresql  # noqa: E402

KINDS = ("parquet", "delta", "iceberg", "postgresql")
FILES = 4
CATALOG = "PYICEBERG_CATALOG__DEFAULT__"
CONFIGURATION = """
release: tables
input: {{{input}}}
output: out/tables
key_file: release.key
privacy: {{epsilon: 1, neighbors: add_remove}}
trees:
  - name: x
    domain: {{column: x, lower: 0, upper: 100, cells: 1000}}
    by: {{column: place, keys: [p1, p2]}}
"""


def input_section(kind: str, folder: Path) -> str:
    """Return the section `input` of a configuration for a kind of table."""
    return {
        "parquet": f"format: parquet, path: {folder}/files/",
        "delta": f"format: delta, table: {folder}/delta",
        "iceberg": "format: iceberg, table: shop.visits",
        "postgresql": "format: postgresql, table: visits, connection: env:VISITS_URL",
    }[kind]


def row_tables(rows: int) -> Iterator[pa.Table]:
    """The rows, a table for each file."""
    random = np.random.default_rng(16)
    for _ in range(FILES):
        number = rows // FILES
        places = pa.array([f"p{place}" for place in range(100)])
        yield pa.table(
            {
                "x": random.uniform(0, 100, number),
                "place": places.take(pa.array(random.integers(0, 100, number))),
                "unread": random.integers(0, 2**60, number),
            }
        )


def write_files(rows: int, folder: Path) -> None:
    """The rows in files and in tables of files."""
    import deltalake
    from pyiceberg.catalog import load_catalog

    (folder / "files").mkdir()
    name = {each: os.environ[f"{CATALOG}{each.upper()}"] for each in ("type", "uri", "warehouse")}
    catalog = load_catalog("default", **name)
    catalog.create_namespace("shop")
    iceberg = None
    for index, table in enumerate(row_tables(rows)):
        pq.write_table(table, folder / "files" / f"{index}.parquet")
        deltalake.write_deltalake(str(folder / "delta"), table, mode="append")
        iceberg = iceberg or catalog.create_table("shop.visits", schema=table.schema)
        iceberg.append(table)


def write_database(rows: int) -> None:
    """The rows in a table of the server."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(os.environ["VISITS_URL"]) as connection, connection.cursor() as cursor:
        for table in row_tables(rows):
            cursor.adbc_ingest("visits", table, mode="create_append")
        connection.commit()


def read(kind: str, folder: Path) -> int:
    """Reads all rows of a kind; returns how many there are."""
    configuration = parse_configuration(CONFIGURATION.format(input=input_section(kind, folder)))
    plan = configuration.plan()
    if configuration.table is None:
        return _read_files(configuration.input_paths, plan)
    from dptrees.transforms.tables.read import table_batches, table_splits

    with configuration.table.pinned() as table:
        splits = table_splits(table, plan)
        return sum(len(batch) for split in splits for batch in table_batches(table, split, plan))


def _read_files(paths: tuple[str, ...], plan: ReleasePlan) -> int:
    from dptrees.transforms.readers import parquet_rows
    from dptrees.transforms.readers.listing import match_files
    from dptrees.transforms.readers.read import FileSplit

    total = 0
    for path, size in match_files(paths):
        for start, stop in parquet_rows.splits(path, path, plan)[0]:
            split = FileSplit(path, start, stop, size)
            total += sum(len(batch) for batch in parquet_rows.batches(path, split, plan))
    return total


def measure(kind: str, folder: Path) -> None:
    """Reads a kind in this process, and prints how fast and in how much memory."""
    started = time.perf_counter()
    rows = read(kind, folder)
    seconds = time.perf_counter() - started
    # Of this program alone: getrusage reports the largest of what the process was before it, too.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(re.findall(r"^VmHWM:\s+(\d+)", status, re.MULTILINE)[0]) / 1024
    print(f"{kind:<12} {seconds:6.2f} s {rows / seconds / 1e6:6.2f} M rows/s {peak:7.0f} MiB")


def main() -> None:
    """Writes the rows and measures every kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.kind:
        measure(chosen.kind, chosen.folder)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}"}
        os.environ |= {f"{CATALOG}{name.upper()}": value for name, value in given.items()}
        write_files(chosen.rows, folder)
        kinds = [kind for kind in KINDS if kind != "postgresql" or postgresql.programs()]
        if "postgresql" in kinds:
            server = stack.enter_context(postgresql.server(durable=False))
            os.environ["VISITS_URL"] = server.new_database()
            write_database(chosen.rows)
        for kind in kinds:
            command = [sys.executable, __file__, "--kind", kind, "--folder", str(folder)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
