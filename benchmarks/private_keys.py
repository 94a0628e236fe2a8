"""Private keys: rows per second and peak memory of selecting them, against a plain Beam count.

Run as ``python -m benchmarks.private_keys [--rows 4000000 --keys 1000000] [--plain-rows 500000]``;
``--rows 40000000 --keys 10000000`` is the long form. Rows are written into a temporary folder: each
key once, then keys again, some of them frequent. Every way runs in a process of its own, on Beam's
local runner: the first stage of a release as `dptrees release` runs it, over strings and over
integers, and ``Count.PerElement`` over the keys as Python objects, which keeps nothing private.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dptrees.dpcore.choices.key_selection import KeyColumns, SelectionPlan, SelectionQuestion
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run.job import beam_options
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import ReadBatches
from dptrees.transforms.release import ReleaseTrees

TYPES = {"user": "text", "number": "integer"}
FILE_ROWS = 2**20


def write_rows(folder: Path, rows: int, keys: int) -> None:
    """Files of rows, each with its key as a text and as a number."""
    random = np.random.default_rng(14)
    frequent = (keys * random.random(max(0, rows - keys)) ** 6).astype(np.int64)
    numbers = np.concatenate([random.permutation(keys)[:rows], frequent])
    random.shuffle(numbers)
    for start in range(0, rows, FILE_ROWS):
        own = pa.array(numbers[start : start + FILE_ROWS] * 1_000_003)
        texts = own.cast(pa.string())
        path = folder / f"part-{start // FILE_ROWS:04d}.parquet"
        pq.write_table(pa.table({"user": texts, "number": own}), path, use_dictionary=False)


def plan_selection(column: str) -> ReleasePlan:
    """A selection of the keys of one column."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    question = SelectionQuestion(
        name="keys",
        domain=KeyColumns(columns=(column,), types=(TYPES[column],)),
        plan=SelectionPlan(unit=ADD_REMOVE_ROW, epsilon=epsilon, delta=delta),
    )
    return ReleasePlan(
        name="benchmark",
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=(question,),
        stated=(epsilon, delta),
    )


def read_rows(folder: Path, plan: ReleasePlan) -> ReadBatches:
    """The source of both."""
    pattern = str(folder / "*.parquet")
    return ReadBatches(patterns=(pattern,), format="parquet", options={}, plan=plan)


def select(folder: Path, column: str) -> int:
    """Runs the first stage; the number of keys that it released."""
    plan, key = plan_selection(column), folder / "release.key"
    key.write_text(ReleaseKey.generate().to_text())
    key.chmod(0o600)
    reference = KeyReference(reference=f"file:{key}").checked()
    output = str(folder / f"out-{column}")
    with beam.Pipeline(options=beam_options([])) as pipeline:
        rows = pipeline | read_rows(folder, plan)
        _ = rows | ReleaseTrees(plan, key=reference, output=output)
    return int(ReleaseFolder(output).release.tree("keys").table.num_rows)  # type: ignore[attr-defined]


def plain_count(folder: Path, column: str) -> str:
    """Counts the rows of each key, a Python object a row, and prints the number of keys."""
    with beam.Pipeline(options=beam_options([])) as pipeline:
        batches, _ = pipeline | read_rows(folder, plan_selection(column))
        counts = (
            batches
            | "Keys" >> beam.FlatMap(lambda batch: batch.column(column).to_pylist())
            | "Count" >> beam.combiners.Count.PerElement()
        )
        total = counts | "Total" >> beam.combiners.Count.Globally()
        _ = total | "Kept" >> beam.Map(print)
    return "all of them"


def child(way: str, folder: Path, column: str) -> int:
    """What a process of its own does: prints seconds and its peak memory in MB."""
    began = time.perf_counter()
    print("released:", (select if way == "select" else plain_count)(folder, column))
    seconds = time.perf_counter() - began
    print(f"{seconds} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}")
    return 0


def measured(way: str, folder: Path, column: str) -> tuple[float, float, str]:
    """Seconds, peak memory in MB, and what else a way printed."""
    command = [sys.executable, __file__, "--child", way, str(folder), column]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    *said, last = run.stdout.strip().splitlines()
    seconds, peak = map(float, last.split())
    return seconds, peak, "; ".join(said)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--plain-rows", type=int, default=500_000)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        way, folder, column = chosen.child
        return child(way, Path(folder), column)
    print(f"{'way':<28} {'rows':>11} {'keys':>11} {'seconds':>8} {'rows/s':>10} {'peak MB':>8}")
    ways = [("select", column, chosen.rows) for column in TYPES]
    for way, column, rows in [*ways, ("plain Beam", "user", chosen.plain_rows)]:
        keys = min(chosen.keys * rows // chosen.rows or 1, rows)
        with tempfile.TemporaryDirectory() as folder:
            write_rows(Path(folder), rows, keys)
            seconds, peak, said = measured(way, Path(folder), column)
        name = f"{way}, {TYPES[column]}"
        print(
            f"{name:<28} {rows:>11,} {keys:>11,} {seconds:>8.1f} {rows / seconds:>10,.0f} "
            f"{peak:>8,.0f}   {said}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
