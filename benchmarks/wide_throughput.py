"""A release of a wide table of many rows against a bare scan of the same files.

Run as ``python -m benchmarks.wide_throughput [--rows 20000000] [--columns 8]``. Half of the columns
are whole numbers, a quarter numbers, a quarter strings. The bare scan reads the columns with
pyarrow and adds up the numbers. Every measurement is a process of its own; what is left of a
release of 1,000 rows is the start-up that does not depend on the rows. Of several runs the best is
printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.throughput import RELEASE, measured

FILE_ROWS = 2_500_000
NAMES = [f"name{place:02d}" for place in range(16)]

BARE = """
import glob, time
import pyarrow.compute as pc, pyarrow.parquet as pq
start = time.perf_counter()
total = 0
for path in sorted(glob.glob("{rows}/*.parquet")):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=2**17):
        for column in batch.columns:
            is_text = str(column.type) == "string"
            total += pc.count_distinct(column).as_py() if is_text else pc.sum(column).as_py()
print(0.0, time.perf_counter() - start, peak())
"""


def make_rows(folder: Path, rows: int, columns: int) -> None:
    """Write rows whose columns go together."""
    folder.mkdir()
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        many = min(FILE_ROWS, rows - start)
        random = np.random.default_rng(number)
        common = random.normal(0, 1, many)
        made = {}
        for place in range(columns):
            own = np.clip(32 + 8 * (common + random.normal(0, 1, many)), 0, 63.9)
            if place % 4 == 3:
                codes = pa.array((own / 4).astype(np.int32))
                made[f"c{place}"] = pa.DictionaryArray.from_arrays(codes, NAMES).cast(pa.string())
            else:
                made[f"c{place}"] = pa.array(own if place % 4 == 2 else own.astype(np.int64))
        pq.write_table(pa.table(made), folder / f"part-{number:03d}.parquet", row_group_size=2**19)


def configuration(folder: str, rows: Path, columns: int, run: str) -> str:
    """Return a configuration of all columns, 32 cells each at most."""
    lines = []
    for place in range(columns):
        if place % 4 == 3:
            lines.append(f"{{column: c{place}, categories: [{', '.join(NAMES)}]}}")
        else:
            kind = "" if place % 4 == 2 else "type: integer, missing: first, "
            lines.append(f"{{column: c{place}, {kind}lower: 0, upper: 64}}")
    listed = "\n".join(f"        - {line}" for line in lines)
    return (
        f"release: wide\ninput: {{format: parquet, path: {rows}/*.parquet}}\n"
        f"output: {folder}/out-{run}\nkey_file: {folder}/release.key\n"
        "privacy: {epsilon: 1.0, neighbors: add_remove}\n"
        "trees:\n  - name: wide\n    domain:\n      kind: table\n      columns:\n"
        f"{listed}\n"
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=2, help="the best of so many runs")
    given = parser.parse_args()
    print(f"{'rows':>12} {'what':<16} {'work s':>7} {'M rows/s':>9} {'MB':>6}")
    with tempfile.TemporaryDirectory() as folder:
        keygen = [sys.executable, "-m", "dptrees", "keygen", f"{folder}/release.key"]
        subprocess.run(keygen, check=True, capture_output=True)
        startup = _compare(folder, 1_000, given.columns, given.repeat)
        seconds = _compare(folder, given.rows, given.columns, given.repeat)
    rate = given.rows / (seconds - startup) / 1e6
    print(f"{'':>12} release without start-up: {rate:.1f} M rows/s on {os.cpu_count()} cores")
    return 0


def _compare(folder: str, rows: int, columns: int, repeat: int) -> float:
    """Print the lines of so many rows; return the seconds of the release."""
    data = Path(folder, f"rows-{rows}")
    make_rows(data, rows, columns)
    taken = 0.0
    for what in ("bare scan", "dptrees release"):
        runs = []
        for run in range(repeat):
            code = BARE.format(rows=data)
            if what != "bare scan":
                config = Path(folder, f"config-{rows}-{run}.yaml")
                config.write_text(configuration(folder, data, columns, f"{rows}-{run}"))
                code = RELEASE.format(config=config)
            runs.append(measured(code))
        _, taken, peak = min(runs, key=lambda result: result[1])
        print(f"{rows:>12,} {what:<16} {taken:>7.2f} {rows / taken / 1e6:>9.2f} {peak:>6.0f}")
    return taken


if __name__ == "__main__":
    sys.exit(main())
