"""What a small release takes: the command, a query of it, and releases of a Python process.

    python -m benchmarks.start [--rounds 3] [PYTHON ...]

releases 1 million rows with one tree of 1,000 cells, and prints CPU seconds and memory, the median
of the rounds. The query is for the released median. Each PYTHON is the interpreter of another
checkout, measured in turn with this one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CONFIGURATION = {
    "release": "start",
    "privacy": {"epsilon": 1, "neighbors": "add_remove", "unit": "row"},
    "trees": [
        {
            "name": "x",
            "domain": {"column": "x", "type": "integer", "lower": 0, "upper": 999},
            "quantiles": [0.5],
        }
    ],
}
# Prints the CPU seconds of four releases in one process, the first with its imports.
CALLS = """
import json, sys, time, warnings
import dptrees, numpy
warnings.simplefilter("ignore")
rows = {"x": numpy.random.default_rng(1).integers(0, 1000, 1_000_000)}
seconds = []
for _ in range(4):
    before = time.process_time()
    dptrees.release(rows, json.loads(sys.argv[1]))
    seconds.append(time.process_time() - before)
print(json.dumps(seconds))
"""


def command_cost(python: str, folder: Path, *arguments: str) -> tuple[float, float]:
    """The CPU seconds and the megabytes of a command of dptrees."""
    command = [python, "-m", "dptrees", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{python}: dptrees {arguments[0]} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def costs(python: str, folder: Path) -> list[float]:
    """Seconds and megabytes of the command, seconds of a query, of the first Python release, and of
    later ones."""
    calls = [python, "-c", CALLS, json.dumps(CONFIGURATION)]
    done = subprocess.run(calls, cwd=folder, capture_output=True, text=True, check=True)
    first, *later = json.loads(done.stdout)
    run = str(time.monotonic_ns())
    release = command_cost(python, folder, "release", "release.json", "--set", f"run={run}")
    query, _ = command_cost(python, folder, "query", f"out-{run}", "median")
    return [*release, query, first, statistics.median(later)]


def main() -> None:
    """Run as the module's docstring says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    pythons = [sys.executable, *options.pythons]
    found: dict[str, list[list[float]]] = {python: [] for python in pythons}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        rows = np.random.default_rng(1).integers(0, 1000, 1_000_000)
        pq.write_table(pa.table({"x": rows}), folder / "rows.parquet")
        subprocess.run(
            [sys.executable, "-m", "dptrees", "keygen", "release.key"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        files = {
            "input": {"format": "parquet", "path": "rows.parquet"},
            "release": "start-${run}",
            "output": "out-${run}",
            "key": "file:release.key",
        }
        (folder / "release.json").write_text(json.dumps(CONFIGURATION | files))
        for _ in range(options.rounds):
            for python in pythons:
                found[python].append(costs(python, folder))
    print("command  memory    query    first    later   interpreter")
    for python, rounds in found.items():
        medians = map(statistics.median, zip(*rounds, strict=True))
        seconds, memory, query, first, later = medians
        times = f"{query:5.2f} s  {first:5.2f} s  {later:5.3f} s"
        print(f"{seconds:5.2f} s  {memory:3.0f} MB  {times}   {python}")


if __name__ == "__main__":
    main()
