"""Whole releases of many rows next to a bare scan of the same files, side by side in one run.

    python -m benchmarks.throughput [ordered|wide|distinct|boxes|persons] [--rows N] [--repeat 3]

Every measurement is a process of its own, so that its peak memory is its own; of several runs the
best counts. The time of imports is apart, but for `distinct`, where it is included. A bare scan
reads the columns with pyarrow.

- ordered: a tree of 1,024 cells with quantiles; the scan counts cells with NumPy's bincount. What
  is left of a release of 1,000 rows is the start-up that does not depend on the rows: the plan,
  Beam's graph and its stages, the chart library and the page. Ratios are with and without it.
- wide: a table of 8 columns, half of them whole numbers, a quarter numbers, a quarter strings; the
  scan adds up the numbers.
- distinct: the number of different values; every row has another one, the most memory that so many
  rows can need. The scan counts exactly.
- persons: a tree of rows of people, four each on the average, of whom at most four count: waiting
  rows go to a temporary file. The scan reads the people.
- boxes: a box of 1, 2 and 5 columns of Beta(2, 8), with counts held as planned, sparse or in
  sketches; the scan adds the columns up. Then `dptrees sample` into Parquet, of these releases.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import RELEASE, make_key, measured

FILE_ROWS, GROUP_ROWS = 2_500_000, 1 << 20
NAMES = [f"name{place:02d}" for place in range(16)]
WIDE_COLUMNS, BOX_COLUMNS = 8, 5

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
ADD_COLUMNS = """
total = 0
for path in files:
    for batch in pq.ParquetFile(path).iter_batches(batch_size=2**17, columns={columns}):
        for column in batch.columns:
            is_text = str(column.type) == "string"
            total += pc.count_distinct(column).as_py() if is_text else pc.sum(column).as_py()
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
SAMPLE = """
import sys, time
from dptrees.pipelines.cli.command import main
import dptrees.pipelines.query.querying
start = time.perf_counter()
sys.stdout = open("/dev/null", "w")
assert main(["sample", "{release}", "-n", "{rows}", "--output", "{output}"]) == 0
sys.stdout = sys.__stdout__
print(0.0, time.perf_counter() - start, peak())
"""


class Compared(NamedTuple):
    """A bare scan and the releases next to it.

    Attributes:
        name: of the columns; empty if there is only one set of them.
        scan: what the scan does with the files.
        trees: sections of the configurations, by the names of the releases.
        unit: of privacy, with its bounds.
    """

    name: str
    scan: str
    trees: Mapping[str, str]
    unit: str = "row"


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


def ordered(rows: int) -> Iterator[Compared]:
    """Yield the tree of 1,024 cells."""
    domain = "{kind: ordered, column: value, lower: 0, upper: 1024, cells: 1024}"
    tree = f"{{name: value, domain: {domain}, objective: quantiles}}"
    yield Compared("", COUNT_CELLS, {"dptrees release": tree})


def write_wide(folder: Path, rows: int) -> None:
    """Write rows whose columns go together."""
    folder.mkdir()
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        many = min(FILE_ROWS, rows - start)
        random = np.random.default_rng(number)
        common = random.normal(0, 1, many)
        made = {}
        for place in range(WIDE_COLUMNS):
            own = np.clip(32 + 8 * (common + random.normal(0, 1, many)), 0, 63.9)
            if place % 4 == 3:
                codes = pa.array((own / 4).astype(np.int32))
                made[f"c{place}"] = pa.DictionaryArray.from_arrays(codes, NAMES).cast(pa.string())
            else:
                made[f"c{place}"] = pa.array(own if place % 4 == 2 else own.astype(np.int64))
        pq.write_table(pa.table(made), folder / f"part-{number:03d}.parquet", row_group_size=2**19)


def wide(rows: int) -> Iterator[Compared]:
    """Yield the table of all columns, 32 cells each at most."""
    columns = []
    for place in range(WIDE_COLUMNS):
        if place % 4 == 3:
            columns.append(f"{{column: c{place}, categories: [{', '.join(NAMES)}]}}")
        else:
            kind = "" if place % 4 == 2 else "type: integer, missing: first, "
            columns.append(f"{{column: c{place}, {kind}lower: 0, upper: 64}}")
    tree = f"{{name: wide, domain: {{kind: table, columns: [{', '.join(columns)}]}}}}"
    yield Compared("", ADD_COLUMNS.format(columns=None), {"dptrees release": tree})


def write_distinct(folder: Path, rows: int) -> None:
    """Write each of the whole numbers below `rows` once, mixed."""
    folder.mkdir()
    random = np.random.default_rng(0)
    step = max(1, rows // 1_000_000)
    with pq.ParquetWriter(folder / "values.parquet", pa.schema([("value", pa.int64())])) as file:
        for first in range(step):
            group = np.arange(first, rows, step)
            file.write_table(pa.table({"value": random.permutation(group)}))


def distinct(rows: int) -> Iterator[Compared]:
    """Yield the number of different values."""
    tree = "{name: values, domain: {kind: distinct, column: value}}"
    yield Compared("", COUNT_DISTINCT, {"dptrees release": tree})


def write_persons(folder: Path, rows: int) -> None:
    """Write sixteen files of rows of people."""
    folder.mkdir()
    random = np.random.default_rng(rows)
    for number in range(16):
        people = random.integers(0, rows // 4, rows // 16)
        made = {"person": people, "value": random.integers(0, 1024, rows // 16)}
        pq.write_table(pa.table(made), folder / f"{number:02}.parquet")


def persons(rows: int) -> Iterator[Compared]:
    """Yield a tree that bounds the rows of each person."""
    tree = "{name: value, domain: {column: value, type: integer, lower: 0, upper: 1024}}"
    scan = ADD_COLUMNS.format(columns=["person"])
    yield Compared("", scan, {"dptrees release": tree}, "person, max_rows: 4")


def write_boxes(folder: Path, rows: int) -> None:
    """Write eight files of columns of Beta(2, 8), in flat memory."""
    folder.mkdir()
    schema = pa.schema([(f"x{number}", pa.float64()) for number in range(BOX_COLUMNS)])
    for file in range(8):
        generator = np.random.default_rng([8, file])
        path, own = folder / f"rows-{file}.parquet", rows // 8 + (file < rows % 8)
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for start in range(0, own, GROUP_ROWS):
                size = min(GROUP_ROWS, own - start)
                columns = [pa.array(generator.beta(2, 8, size)) for _ in schema]
                writer.write_batch(pa.record_batch(columns, schema=schema))


def boxes(rows: int) -> Iterator[Compared]:
    """Yield boxes of more and more columns."""
    held = {
        "planned": "weight: 1",
        "sparse": "counts: sparse",
        "sketch, 64 MiB": "counts: sketch, memory: 64 MiB",
    }
    for columns in (1, 2, 5):
        names = [f"x{number}" for number in range(columns)]
        domain = (
            f"{{kind: hypercube, columns: [{', '.join(names)}], "
            f"lower: [{', '.join('0' * columns)}], upper: [{', '.join('1' * columns)}]}}"
        )
        trees = {
            name: f"{{name: box, domain: {domain}, rows: {rows}, {more}}}"
            for name, more in held.items()
        }
        yield Compared(f"d = {columns}, ", ADD_COLUMNS.format(columns=names), trees)


class Kind(NamedTuple):
    """What is released: its rows, what is compared, and the sizes, as parts of --rows."""

    write: Callable[[Path, int], None]
    compared: Callable[[int], Iterator[Compared]]
    rows: int
    parts: tuple[int, ...]
    starts: bool = True  # also a release of 1,000 rows, whose time is the start-up
    imports: bool = False  # whether imports count


KINDS = {
    "ordered": Kind(write_ordered, ordered, 40_000_000, (4, 1)),
    "wide": Kind(write_wide, wide, 20_000_000, (1,)),
    "distinct": Kind(
        write_distinct, distinct, 100_000_000, (100, 10, 1), starts=False, imports=True
    ),
    "persons": Kind(write_persons, persons, 160_000_000, (4, 1), starts=False),
    "boxes": Kind(write_boxes, boxes, 40_000_000, (16, 1), starts=False),
}


def print_line(rows: int, what: str, run: tuple[float, float, float]) -> None:
    """Print a line of the table."""
    imports, seconds, peak = run
    print(
        f"{rows:>12,} {what:<26} {imports:>9.2f} {seconds:>7.2f} {rows / seconds / 1e6:>9.1f} "
        f"{peak:>6.0f}",
        flush=True,
    )


def compare(folder: Path, kind: Kind, rows: int, repeat: int) -> list[list[float]]:
    """Print the lines of so many rows; return the seconds of each scan and of its releases."""
    data, found = folder / f"rows-{rows}", []
    kind.write(data, rows)
    for number, each in enumerate(kind.compared(rows)):
        scan = "pyarrow, exact" if kind.imports else "bare scan"
        programs = {scan: [SCAN.format(rows=data, scan=each.scan.format(rows=data))] * repeat}
        for name, tree in each.trees.items():
            programs[name] = []
            for again in range(repeat):
                run = f"{rows}-{number}-{len(programs)}-{again}"
                config = folder / f"{run}.yaml"
                config.write_text(
                    CONFIG.format(rows=data, folder=folder, run=run, tree=tree, unit=each.unit)
                )
                programs[name].append(RELEASE.format(config=config))
        found.append([])
        for name, codes in programs.items():
            runs = [measured(code) for code in codes]
            if kind.imports:
                runs = [(0.0, imports + seconds, peak) for imports, seconds, peak in runs]
            best = min(runs, key=lambda run: run[1])
            found[-1].append(best[1])
            print_line(rows, each.name + name, best)
    return found


def print_samples(folder: Path, rows: int) -> None:
    """Print how fast rows are drawn from the planned releases of boxes."""
    for number, each in enumerate(boxes(rows)):
        for size in (10**6, 10**7):
            output = folder / "sample.parquet"
            release = folder / f"out-{rows}-{number}-2-0"
            run = measured(SAMPLE.format(release=release, rows=size, output=output))
            print_line(size, f"{each.name}sample", run)
            output.unlink()


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
        startup = compare(folder, kind, 1_000, chosen.repeat)[0] if kind.starts else None
        for part in kind.parts:
            taken = compare(folder, kind, rows // part, chosen.repeat)[0]
            if startup:
                bare, release = (each - start for each, start in zip(taken, startup, strict=True))
                print(
                    f"{'':>12} rows/s of the release relative to the bare scan: "
                    f"{taken[0] / taken[1]:.2f}, without start-up {bare / release:.2f}"
                )
        if chosen.kind == "boxes":
            print_samples(folder, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
