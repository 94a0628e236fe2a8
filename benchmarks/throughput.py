"""Whole releases of many rows next to a bare scan of the same files, side by side in one run.

    python -m benchmarks.throughput [ordered|distinct|persons] [--rows N] [--repeat 3]

Every measurement is a process of its own, so that its peak memory is its own; of several runs the
best counts. The time of imports is apart, but for `distinct`, where it is included. A bare scan
reads the columns with pyarrow.

- ordered: a tree of 1,024 cells with quantiles; the scan counts cells with NumPy's bincount. What
  is left of a release of 1,000 rows is the start-up that does not depend on the rows: the plan,
  Beam's graph and its stages, the chart library and the page. Ratios are with and without it.
- distinct: the number of different values; every row has another one, the most memory that so many
  rows can need. The scan counts exactly.
- persons: a tree of rows of people, four each on the average, of whom at most four count: waiting
  rows go to a temporary file. The scan reads the people.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import RELEASE, make_key, measured

GROUP_ROWS = 1 << 20

SCAN = """
import glob, time
import numpy as np, pyarrow.compute as pc, pyarrow.parquet as pq
start = time.perf_counter()
files = sorted(glob.glob("{rows}/*.parquet"))
{scan}
print(0.0, time.perf_counter() - start, peak())
"""
COUNT_CELLS = """
counts = np.zeros(1024, np.int64)
for path in files:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=2**17, columns=["value"]):
        cells = np.clip(np.floor(batch.column(0).to_numpy()), 0, 1023).astype(np.int64)
        counts += np.bincount(cells, minlength=1024)
"""
ADD_PEOPLE = """
total = 0
for path in files:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=2**17, columns=["person"]):
        total += pc.sum(batch.column(0)).as_py()
"""
COUNT_DISTINCT = 'pc.count_distinct(pq.read_table("{rows}")["value"])'

CONFIG = """
release: throughput
input: {{format: parquet, path: {rows}/*.parquet}}
output: {folder}/out-{run}
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: {unit}}}
trees:
  - {tree}
"""


class Kind(NamedTuple):
    """A release and the bare scan next to it.

    Attributes:
        write: makes files of so many rows in a folder.
        rows: by default.
        parts: of the rows that are released too.
        scan: what the scan does with the files.
        tree: section of the configuration.
        unit: of privacy, with its bounds.
        starts: also a release of 1,000 rows is made, whose time is the start-up.
        imports: whether imports count.
    """

    write: Callable[[Path, int], None]
    rows: int
    parts: tuple[int, ...]
    scan: str
    tree: str
    unit: str = "row"
    starts: bool = False
    imports: bool = False


def write_ordered(folder: Path, rows: int) -> None:
    """Write eight files of gamma values, most of them in [0, 100), and of groups, in flat memory; a
    file's rows depend on its number and its size alone."""
    folder.mkdir()
    schema = pa.schema([pa.field("value", pa.float64()), pa.field("group", pa.int32())])
    for number in range(8):
        generator = np.random.default_rng([2013, number])
        first, last = (rows * n // 8 for n in (number, number + 1))
        path = folder / f"rows-{number + 1:04d}-of-0008.parquet"
        # Random doubles do not repeat: a dictionary and compression would only cost time.
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=["group"]) as file:
            for start in range(first, last, GROUP_ROWS):
                size = min(GROUP_ROWS, last - start)
                value = generator.standard_gamma(2.0, size) * 10.0
                group = generator.integers(0, 16, size, dtype=np.int32)
                file.write_batch(pa.record_batch([pa.array(value), pa.array(group)], schema=schema))


def write_distinct(folder: Path, rows: int) -> None:
    """Write each of the whole numbers below `rows` once, mixed."""
    folder.mkdir()
    random = np.random.default_rng(0)
    step = max(1, rows // 1_000_000)
    with pq.ParquetWriter(folder / "values.parquet", pa.schema([("value", pa.int64())])) as file:
        for first in range(step):
            group = np.arange(first, rows, step)
            file.write_table(pa.table({"value": random.permutation(group)}))


def write_persons(folder: Path, rows: int) -> None:
    """Write sixteen files of rows of people."""
    folder.mkdir()
    random = np.random.default_rng(rows)
    for number in range(16):
        people = random.integers(0, rows // 4, rows // 16)
        made = {"person": people, "value": random.integers(0, 1024, rows // 16)}
        pq.write_table(pa.table(made), folder / f"{number:02}.parquet")


ORDERED = "{kind: ordered, column: value, lower: 0, upper: 1024, cells: 1024}"
WHOLE = "{column: value, type: integer, lower: 0, upper: 1024}"
KINDS = {
    "ordered": Kind(
        write=write_ordered,
        rows=40_000_000,
        parts=(4, 1),
        scan=COUNT_CELLS,
        tree=f"{{name: value, domain: {ORDERED}, objective: quantiles}}",
        starts=True,
    ),
    "distinct": Kind(
        write=write_distinct,
        rows=100_000_000,
        parts=(100, 10, 1),
        scan=COUNT_DISTINCT,
        tree="{name: values, domain: {kind: distinct, column: value}}",
        imports=True,
    ),
    "persons": Kind(
        write=write_persons,
        rows=160_000_000,
        parts=(4, 1),
        scan=ADD_PEOPLE,
        tree=f"{{name: value, domain: {WHOLE}}}",
        unit="person, max_rows: 4",
    ),
}


def print_line(rows: int, what: str, run: tuple[float, float, float]) -> None:
    """Print a line of the table."""
    imports, seconds, peak = run
    print(
        f"{rows:>12,} {what:<26} {imports:>9.2f} {seconds:>7.2f} {rows / seconds / 1e6:>9.1f} "
        f"{peak:>6.0f}",
        flush=True,
    )


def compare(folder: Path, kind: Kind, rows: int, repeat: int) -> list[float]:
    """Print the lines of so many rows; return the seconds of the scan and of the release."""
    data = folder / f"rows-{rows}"
    kind.write(data, rows)
    scan = SCAN.format(rows=data, scan=kind.scan.format(rows=data))
    releases = []
    for again in range(repeat):
        config = folder / f"{rows}-{again}.yaml"
        given = {"rows": data, "folder": folder, "run": config.stem}
        config.write_text(CONFIG.format(tree=kind.tree, unit=kind.unit, **given))
        releases.append(RELEASE.format(config=config))
    scans = "pyarrow, exact" if kind.imports else "bare scan"
    found = []
    for name, codes in ((scans, [scan] * repeat), ("dptrees release", releases)):
        runs = [measured(code) for code in codes]
        if kind.imports:
            runs = [(0.0, imports + seconds, peak) for imports, seconds, peak in runs]
        best = min(runs, key=lambda run: run[1])
        found.append(best[1])
        print_line(rows, name, best)
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", nargs="?", choices=KINDS, default="ordered")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many runs")
    chosen = parser.parse_args()
    kind = KINDS[chosen.kind]
    rows = chosen.rows or kind.rows
    print(f"{'rows':>12} {'what':<26} {'imports s':>9} {'work s':>7} {'M rows/s':>9} {'MB':>6}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_key(folder)
        startup = compare(folder, kind, 1_000, chosen.repeat) if kind.starts else None
        for part in kind.parts:
            taken = compare(folder, kind, rows // part, chosen.repeat)
            if startup:
                bare, release = (each - start for each, start in zip(taken, startup, strict=True))
                print(
                    f"{'':>12} rows/s of the release relative to the bare scan: "
                    f"{taken[0] / taken[1]:.2f}, without start-up {bare / release:.2f}"
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
