"""A whole release of many rows against a bare scan of the same files, side by side in one run.

Run as ``python -m benchmarks.throughput [--rows 40000000]``. The bare scan reads the column with
pyarrow and counts it with NumPy's bincount. Every measurement is a process of its own, so that its
peak memory is its own. ``imports`` is the time until everything is imported. What is left of a
release of 1,000 rows is the start-up that does not depend on the rows: the plan, Beam's graph and
its stages, the chart library and the page. Ratios are given with and without it, for both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CELLS = 1024

BARE = """
import glob, time
import numpy as np, pyarrow.parquet as pq
start = time.perf_counter()
counts = np.zeros({cells}, np.int64)
for path in sorted(glob.glob("{rows}/*.parquet")):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=2**17, columns=["value"]):
        cells = np.clip(np.floor(batch.column(0).to_numpy()), 0, {cells} - 1).astype(np.int64)
        counts += np.bincount(cells, minlength={cells})
print(0.0, time.perf_counter() - start, peak())
"""

RELEASE = """
import sys, time
start = time.perf_counter()
from dptrees.pipelines.quick_start import import_beam, start_quickly, without_collections
start_quickly()
with without_collections():
    import_beam()
    from dptrees.pipelines.command import main
    import dptrees.pipelines.operations.watch
    import dptrees.pipelines.releasing
begun = time.perf_counter()
sys.stdout = open("/dev/null", "w")
code = main(["release", "{config}"])
sys.stdout = sys.__stdout__
assert code == 0
print(begun - start, time.perf_counter() - begun, peak())
"""

PEAK = """
import resource
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
"""

CONFIG = """
release: throughput
input: {{format: parquet, path: {rows}/*.parquet}}
output: {folder}/out-{run}
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: row}}
trees:
  - name: value
    domain: {{kind: ordered, column: value, lower: 0, upper: {cells}, cells: {cells}}}
    objective: quantiles
"""


def measured(code: str) -> tuple[float, float, float]:
    """(start-up s, work s, peak MB) of a program in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", PEAK + code], check=True, capture_output=True, text=True
    )
    startup, seconds, peak = map(float, run.stdout.split()[-3:])
    return startup, seconds, peak


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "dptrees", "keygen", f"{folder}/release.key"],
            check=True,
            capture_output=True,
        )
        print(f"{'rows':>12} {'what':<16} {'imports s':>9} {'work s':>7} {'M rows/s':>9} {'MB':>6}")
        startup = _compare(folder, 1_000, arguments.repeat)
        for rows in (arguments.rows // 4, arguments.rows):
            _compare(folder, rows, arguments.repeat, startup)
    return 0


def _compare(folder: str, rows: int, repeat: int, startup: Sequence[float] = ()) -> Sequence[float]:
    """Prints the table's rows for so many rows; returns the seconds of the scan and the release."""
    maker = Path(__file__).with_name("make_rows.py")
    data = f"{folder}/rows-{rows}"
    subprocess.run(
        [sys.executable, str(maker), data, "--rows", str(rows)], check=True, capture_output=True
    )
    runs: dict[str, list[tuple[float, float, float]]] = {"bare scan": [], "dptrees release": []}
    for run in range(repeat):
        runs["bare scan"].append(measured(BARE.format(cells=CELLS, rows=data)))
        config = Path(folder, f"config-{rows}-{run}.yaml")
        config.write_text(CONFIG.format(rows=data, folder=folder, run=f"{rows}-{run}", cells=CELLS))
        runs["dptrees release"].append(measured(RELEASE.format(config=config)))
    taken = []
    for what, results in runs.items():
        imports, seconds, peak = min(results, key=lambda result: result[1])
        taken.append(seconds)
        print(
            f"{rows:>12,} {what:<16} {imports:>9.2f} {seconds:>7.2f} {rows / seconds / 1e6:>9.1f} "
            f"{peak:>6.0f}"
        )
    if startup:
        bare, release = (whole - start for whole, start in zip(taken, startup, strict=True))
        print(
            f"{'':>12} rows/s of the release relative to the bare scan: "
            f"{taken[0] / taken[1]:.2f}, without start-up {bare / release:.2f}"
        )
    return taken


if __name__ == "__main__":
    sys.exit(main())
