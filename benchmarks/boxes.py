"""Boxes of columns: a release against a bare Arrow scan of the same columns; growing; sampling.

Run as ``python -m benchmarks.boxes [--rows 40000000] [--repeat 2]``. Rows are 5 columns of
Beta(2, 8). Each measurement of a release or a scan is a process of its own, so that its peak memory
is its own; imports are not in the times. The bare scan reads the columns and adds them up.
``codes`` is the step that makes codes of columns, alone, from arrays in memory. ``grow`` is what
follows the exact counts: lazily drawn noise, growth at k = 10^4 down to 40 bits, least squares,
counts and tables. ``sample`` is ``dptrees sample`` into Parquet.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from benchmarks.throughput import PEAK, RELEASE, measured
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW

COLUMNS = 5
FILES = 8
ROWS_PER_GROUP = 1 << 20

BARE = """
import glob, time
import pyarrow.compute as pc, pyarrow.parquet as pq
names = ["x%d" % n for n in range({columns})]
start = time.perf_counter()
total = 0.0
for path in sorted(glob.glob("{rows}/*.parquet")):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=2**17, columns=names):
        total += sum(pc.sum(batch.column(n)).as_py() for n in range({columns}))
print(0.0, time.perf_counter() - start, peak())
"""

CONFIG = """
release: boxes
input: {{format: parquet, path: {rows}/*.parquet}}
output: {folder}/out-{run}
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: row}}
trees:
  - name: box
    domain:
      kind: hypercube
      columns: [{names}]
      lower: [{lower}]
      upper: [{upper}]
    rows: {many}
    {more}
"""

# What is said of how counts are held, beside the default.
HELD = {
    "planned": "weight: 1",
    "sparse": "counts: sparse",
    "sketch, 64 MiB": "{counts: sketch, memory: 64 MiB}",
}


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--repeat", type=int, default=2, help="the best of so many runs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "dptrees", "keygen", f"{folder}/release.key"],
            check=True,
            capture_output=True,
        )
        print(f"{'rows':>12} {'d':>2} {'what':<16} {'s':>7} {'M rows/s':>9} {'peak MB':>8}")
        for rows in (arguments.rows // 16, arguments.rows):
            data = f"{folder}/rows-{rows}"
            write_rows(Path(data), rows)
            for columns in (1, 2, 5):
                _compare(folder, data, rows, columns, arguments.repeat)
        _sample(folder)
    _codes()
    _grow()
    return 0


def write_rows(folder: Path, rows: int) -> None:
    """Files of rows, deterministic, in flat memory."""
    folder.mkdir()
    names = [f"x{n}" for n in range(COLUMNS)]
    for file in range(FILES):
        generator = np.random.default_rng([8, file])
        schema = pa.schema([(name, pa.float64()) for name in names])
        with pyarrow.parquet.ParquetWriter(
            folder / f"rows-{file}.parquet", schema, compression="none", use_dictionary=False
        ) as writer:
            own = rows // FILES + (file < rows % FILES)
            for start in range(0, own, ROWS_PER_GROUP):
                size = min(ROWS_PER_GROUP, own - start)
                columns = [pa.array(generator.beta(2, 8, size)) for _ in names]
                writer.write_batch(pa.record_batch(columns, schema=schema))


def _compare(folder: str, data: str, rows: int, columns: int, repeat: int) -> None:
    """The rows of the table for so many columns."""
    bare = BARE.format(columns=columns, rows=data)
    _print(rows, columns, "bare scan", [measured(bare) for _ in range(repeat)])
    for what, more in HELD.items():
        lines = more.strip("{}").replace(", ", "\n    ")
        runs = []
        for run in range(repeat):
            name = f"{rows}-{columns}-{what.split(',')[0]}-{run}"
            config = Path(folder, f"{name}.yaml")
            config.write_text(
                CONFIG.format(
                    rows=data,
                    folder=folder,
                    run=name,
                    names=", ".join(f"x{n}" for n in range(columns)),
                    lower=", ".join(["0"] * columns),
                    upper=", ".join(["1"] * columns),
                    many=rows,
                    more=lines,
                )
            )
            runs.append(measured(RELEASE.format(config=config)))
        _print(rows, columns, what, runs)


def _print(rows: int, columns: int, what: str, runs: Sequence[tuple[float, float, float]]) -> None:
    _, seconds, peak = min(runs, key=lambda run: run[1])
    print(
        f"{rows:>12,} {columns:>2} {what:<16} {seconds:>7.2f} {rows / seconds / 1e6:>9.1f} "
        f"{peak:>8.0f}",
        flush=True,
    )


def _sample(folder: str) -> None:
    """How fast rows are drawn, of the last releases."""
    code = PEAK + (
        "import sys, time\nfrom dptrees.pipelines.command import main\n"
        "import dptrees.pipelines.sampling\n"
        "start = time.perf_counter()\n"
        'sys.stdout = open("/dev/null", "w")\n'
        'assert main(["sample", "{release}", "-n", "{n}", "--output", "{output}"]) == 0\n'
        "sys.stdout = sys.__stdout__\nprint(0.0, time.perf_counter() - start, peak())\n"
    )
    for columns in (1, 2, 5):
        release = sorted(Path(folder).glob(f"out-*-{columns}-planned-0"))[-1]
        for n in (10**6, 10**7):
            output = Path(folder, f"sample-{columns}-{n}.parquet")
            run = measured(
                code.replace("{release}", str(release))
                .replace("{n}", str(n))
                .replace("{output}", str(output))
            )
            _print(n, columns, "sample", [run])
            output.unlink()


def _codes() -> None:
    """Columns in memory to codes."""
    from dptrees.dpcore.hypercube.domain import HypercubeDomain
    from dptrees.dpcore.ordered.number import NumberDomain

    rows, generator = 4_000_000, np.random.default_rng(1)
    for columns, bits in ((1, 32), (2, 16), (2, 32), (5, 12)):
        axes = tuple(
            NumberDomain(column=f"x{n}", lower=0.0, upper=1.0, cells=2**bits)
            for n in range(columns)
        )
        domain = HypercubeDomain(axes=axes, depths=(bits,) * columns)
        data = {axis.column: pa.array(generator.beta(2, 8, rows)) for axis in axes}
        times = []
        for _ in range(3):
            start = time.perf_counter()
            domain.codes(data)
            times.append(time.perf_counter() - start)
        what = f"codes, {columns * bits} bits"
        _print(rows, columns, what, [(0.0, min(times), 0.0)])


def _grow() -> None:
    """Growth and estimation at k = 10^4 down to 40 bits, as the paper grows and as planned."""
    from dptrees.dpcore.hypercube.domain import HypercubeDomain
    from dptrees.dpcore.hypercube.workload import HypercubeWorkload
    from dptrees.dpcore.noise.randomness import ReleaseKey
    from dptrees.dpcore.ordered.number import NumberDomain
    from dptrees.dpcore.partitions.choices import PartitionChoices
    from dptrees.dpcore.privacy.budget import Budget, Measure
    from dptrees.dpcore.questions.workload import ReleaseTerms
    from dptrees.dpcore.release.composition import Guarantee, plan_release
    from dptrees.dpcore.release.in_memory import release_counts

    axes = tuple(NumberDomain(column=f"x{n}", lower=0.0, upper=1.0, cells=2**20) for n in range(2))
    domain = HypercubeDomain(axes=axes, depths=(20, 20))
    generator = np.random.default_rng(1)
    rows = {axis.column: pa.array(generator.beta(2, 8, 2_000_000)) for axis in axes}
    counts = domain.leaf_counts(rows)
    guarantee = Guarantee(budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    for mechanism in ("privhp_paper", "privhp", "adaptive"):
        choices = PartitionChoices.from_mechanism(
            mechanism, most=10_000, depth=40, rows_at_most=2_000_000, split_errors=0.0
        )
        plan = plan_release(
            "grow",
            guarantee,
            ReleaseTerms(unit=ADD_REMOVE_ROW),
            [
                HypercubeWorkload(
                    name="box",
                    domain=domain,
                    mechanism="adaptive" if mechanism == "adaptive" else "privhp",
                    choices=choices,
                )
            ],
        )
        start = time.perf_counter()
        release_counts(plan, {"box": counts}, ReleaseKey(bytes(32)))
        seconds = time.perf_counter() - start
        print(f"grow, k 10^4, 40 bits, {mechanism}: {seconds:.2f} s")


if __name__ == "__main__":
    sys.exit(main())
