"""The memory of local releases of people's rows, whose waiting rows go to a temporary file.

Run as ``python -m benchmarks.waiting_rows [--rows 40000000 160000000]``. Every person has four rows
on average, and a release counts at most four of them. Each release is a process of its own.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import make_key, run_command

FILES, ROWS_OF_A_PERSON, CELLS = 16, 4, 1024
CONFIG = """
release: waiting-rows
input: {{format: parquet, path: {folder}/rows/*.parquet}}
output: {folder}/out
key_file: {folder}/release.key
privacy: {{epsilon: 1, neighbors: add_remove, unit: person, max_rows: 4}}
trees:
  - name: value
    domain: {{column: value, type: integer, lower: 0, upper: {cells}}}
"""


def main() -> None:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[40_000_000, 160_000_000])
    print("       rows  CPU s  peak MB")
    for rows in parser.parse_args().rows:
        with tempfile.TemporaryDirectory() as folder:
            cpu, peak = measured(Path(folder), rows)
        print(f"{rows:11,} {cpu:6.1f} {peak:8.0f}", flush=True)


def measured(folder: Path, rows: int) -> tuple[float, float]:
    """Return the seconds of CPU of a release, and its peak memory in megabytes."""
    (folder / "rows").mkdir()
    random = np.random.default_rng(rows)
    for number in range(FILES):
        columns = {
            "person": random.integers(0, rows // ROWS_OF_A_PERSON, rows // FILES),
            "value": random.integers(0, CELLS, rows // FILES),
        }
        pq.write_table(pa.table(columns), folder / "rows" / f"{number:02}.parquet")
    config = folder / "release.yaml"
    config.write_text(CONFIG.format(folder=folder, cells=CELLS))
    make_key(folder)
    run = run_command(["release", str(config)])
    return run.processor, run.peak


if __name__ == "__main__":
    main()
