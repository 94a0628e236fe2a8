"""The number of different values of many rows, beside an exact count by pyarrow of the same file.

Run as ``python -m benchmarks.distinct_values [--values 100000000]``. Every value is a whole number
and is in one row, the most memory that so many rows can need. Every measurement is a process of its
own, with its start-up; of several runs the best is printed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.throughput import RELEASE, measured

GROUP_ROWS = 1_000_000

EXACT = """
import time
import pyarrow.compute as pc, pyarrow.parquet as pq
start = time.perf_counter()
pc.count_distinct(pq.read_table("{rows}")["value"])
print(0.0, time.perf_counter() - start, peak())
"""

CONFIGURATION = """
release: values
input: {{format: parquet, path: {rows}}}
output: {folder}/out-{values}-{run}
key_file: {folder}/release.key
privacy: {{epsilon: 1, neighbors: add_remove}}
trees:
  - name: values
    domain: {{kind: distinct, column: value}}
"""


def make_rows(path: Path, values: int) -> None:
    """Write each of the whole numbers below `values` once, mixed."""
    random = np.random.default_rng(0)
    step = max(1, values // GROUP_ROWS)
    with pq.ParquetWriter(path, pa.schema([("value", pa.int64())])) as file:
        for first in range(step):
            group = np.arange(first, values, step)
            file.write_table(pa.table({"value": random.permutation(group)}))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=int, default=100_000_000)
    parser.add_argument("--repeat", type=int, default=2, help="the best of so many runs")
    given = parser.parse_args()
    print(f"{'values':>12} {'what':<16} {'s':>7} {'MB':>7}")
    with tempfile.TemporaryDirectory() as folder:
        keygen = [sys.executable, "-m", "dptrees", "keygen", f"{folder}/release.key"]
        subprocess.run(keygen, check=True, capture_output=True)
        for values in (given.values // 100, given.values // 10, given.values):
            _compare(Path(folder), values, given.repeat)
    return 0


def _compare(folder: Path, values: int, repeat: int) -> None:
    """Print the lines of so many values."""
    rows = folder / f"{values}.parquet"
    make_rows(rows, values)
    for what in ("pyarrow, exact", "dptrees release"):
        runs = []
        for run in range(repeat):
            code = EXACT.format(rows=rows)
            if what == "dptrees release":
                config = folder / f"{values}-{run}.yaml"
                config.write_text(
                    CONFIGURATION.format(rows=rows, folder=folder, values=values, run=run)
                )
                code = RELEASE.format(config=config)
            runs.append(measured(code))
        startup, seconds, peak = min(runs, key=lambda each: each[0] + each[1])
        print(f"{values:>12,} {what:<16} {startup + seconds:>7.2f} {peak:>7.0f}", flush=True)
    rows.unlink()


if __name__ == "__main__":
    sys.exit(main())
