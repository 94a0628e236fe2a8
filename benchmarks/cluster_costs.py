"""What `dptrees plan --workers` predicts, beside what releases of generated rows take.

    python -m benchmarks.cluster_costs FOLDER [--rows 1e7 1e8] [--write docs/scale.md]
    python -m benchmarks.cluster_costs --predict [--write docs/scale.md]

Each release runs on one thread with a watch in its steps (`benchmarks/scale.py`): seconds of the
processor for rows, for leaves and on the launcher, bytes that would pass between workers, and the
largest memory of the process, which is launcher, worker and shuffle at once. A ratio is measured
by predicted. `--predict` prints the predictions for larger releases, which nobody ran. The rows are
made in the folder and kept there. `--write` puts a table between its marks in a page.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import write_marked
from benchmarks.scale import ROW_STEPS, Profile, run_profile
from dptrees.pipelines.cluster.needs import ClusterNeeds, predicted_needs
from dptrees.pipelines.configuration import load_configuration, parse_configuration

PROJECT = Path(__file__).resolve().parents[1]
FILES, GROUP_ROWS = 16, 2**20
CODES, ROWS_PER_PERSON = 10**6, 20
LEVELS = ("small", "other", "third")
STEPS = (*ROW_STEPS, "SendRows", "CountBounded")
SHUFFLED = ("CountBundle", "SendRows", "CountBounded", "_Draw", "_Gather")
MB = 2**20
# Fewer bytes matter to nobody, and are not predicted well.
_SOME_BYTES = 1e6

CONFIG = """
release: costs
input: {{format: parquet, path: {folder}/rows-{rows}/*.parquet}}
output: {folder}/out
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, {delta}neighbors: add_remove, unit: {unit}}}
trees:
  - {{name: tree, {tree}}}
"""
CELLS = "domain: {{column: value, lower: 0, upper: 1, cells: {}}}"
SMALL = "{{column: {}, type: integer, lower: 0, upper: 16}}"
KEYS = ", ".join(map(str, range(16)))
TREES = {
    "2^10 cells": CELLS.format(2**10),
    "2^20 cells": CELLS.format(2**20),
    "2^10 cells, 16 keys": CELLS.format(2**10) + f", by: {{column: small, keys: [{KEYS}]}}",
    "10^6 listed codes": "domain: {kind: hierarchy, column: code, digits: [2, 2, 2], "
    "levels: [a, b, c], table: {folder}/codes.parquet}",
    "3 columns, every pair": "domain: {kind: table, columns: ["
    + ", ".join(SMALL.format(name) for name in LEVELS)
    + "]}",
    "different houses": "domain: {kind: distinct, column: house}",
    "mean": CELLS.format(2**10) + ", objective: mean",
    "places, not listed": "domain: {kind: sparse, columns: [small, other, house]}",
    "boxes of 2 columns": "domain: {kind: hypercube, columns: [value, part], lower: [0, 0], "
    "upper: [1, 1]}",
}
BOUNDED = ("2^10 cells", "2^20 cells")

# Predicted alone: rows, leaves, workers.
SIZES = (
    (10**8, 10**6, 4),
    (10**9, 10**6, 10),
    (10**9, 10**8, 25),
    (10**10, 10**8, 100),
    (10**10, 10**9, 100),
)
LARGE = """
release: large
input: {{format: parquet, path: rows/*.parquet}}
output: out
key_file: release.key
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: {unit}}}
trees:
  - {{name: tree, domain: {{column: value, lower: 0, upper: 1, cells: {leaves}}}}}
"""


def make_rows(folder: Path, rows: int) -> None:
    """Write the rows, unless they are there."""
    place = folder / f"rows-{rows}"
    if place.exists():
        return
    place.mkdir(parents=True)
    for number in range(FILES):
        generator = np.random.default_rng([31, number])
        writer: pq.ParquetWriter | None = None
        for start in range(0, rows // FILES, GROUP_ROWS):
            table = some_rows(generator, min(GROUP_ROWS, rows // FILES - start), rows)
            if writer is None:
                writer = pq.ParquetWriter(
                    place / f"{number:02d}.parquet",
                    table.schema,
                    compression="none",
                    use_dictionary=list(LEVELS),
                )
            writer.write_table(table)
        assert writer is not None
        writer.close()


def some_rows(generator: np.random.Generator, size: int, rows: int) -> pa.Table:
    """Rows of a file, of so many in all."""
    house = (generator.pareto(1.0, size) * 1000).astype(np.int64) % 2**40
    levels = {name: generator.integers(0, 16, size, dtype=np.int32) for name in LEVELS}
    return pa.table(
        {
            "value": generator.random(size),
            "part": generator.random(size) ** 2,
            "code": generator.integers(0, CODES, size),
            "house": house,
            "person": generator.integers(0, max(1, rows // ROWS_PER_PERSON), size),
            **levels,
        }
    )


def released(folder: Path, rows: int, tree: str, *, bounded: bool) -> tuple[ClusterNeeds, Profile]:
    """What was predicted of a release, and how it went."""
    path = folder / "release.yaml"
    path.write_text(
        CONFIG.format(
            folder=folder,
            rows=rows,
            unit="person, max_rows: 4" if bounded else "row",
            delta="delta: 1e-8, " if "not listed" in tree else "",
            tree=TREES[tree].replace("{folder}", str(folder)),
        )
    )
    shutil.rmtree(folder / "out", ignore_errors=True)
    configuration = load_configuration(str(path))
    needs = predicted_needs(configuration, configuration.plan(), workers=1, rows=rows)
    try:
        return needs, run_profile(path)
    finally:
        shutil.rmtree(folder / "out", ignore_errors=True)


def line(rows: int, tree: str, needs: ClusterNeeds, profile: Profile) -> str:
    """A line of the table: what was measured, and its ratio to what was predicted."""
    steps = [name for name in STEPS if name in profile.steps]
    row = profile.seconds(steps)
    rest = profile.seconds(profile.steps) - row
    launcher = sum(profile.phases[name].seconds for name in ("plan", "report"))
    shuffled = sum(profile.steps[name].made for name in SHUFFLED if name in profile.steps)
    peak = max(phase.peak for phase in profile.phases.values())
    cpu, predicted = row + rest + launcher, needs.cpu - needs.start_cpu
    sent = f"{shuffled / needs.shuffled:.2f}" if shuffled > _SOME_BYTES else "-"
    return (
        f"| {tree} | {rows:,} | {row:.2f} | {row / needs.rows_cpu:.2f} | {rest:.2f} | "
        f"{launcher:.2f} | {cpu:.1f} | {cpu / predicted:.2f} | {shuffled / 1e6:.1f} | "
        f"{sent} | {peak:.0f} | {peak * MB / needs.worker_memory:.2f} |"
    )


HEADING = (
    "| tree | rows | rows, s | ratio | leaves, s | launcher, s | CPU, s | ratio | shuffled, MB | "
    "ratio | peak, MB | ratio |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
)


def measured(folder: Path, sizes: list[int]) -> Iterator[str]:
    """The table of releases that ran."""
    yield HEADING
    if not (folder / "release.key").exists():
        command = [sys.executable, "-m", "dptrees", "keygen", str(folder / "release.key")]
        subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    codes = pa.table({"code": [f"{number:06d}" for number in range(CODES)]})
    pq.write_table(codes, folder / "codes.parquet")
    for rows in sizes:
        make_rows(folder, rows)
        for tree in TREES:
            yield line(rows, tree, *released(folder, rows, tree, bounded=False))
        for tree in BOUNDED:
            needs, profile = released(folder, rows, tree, bounded=True)
            yield line(rows, f"{tree}, of people", needs, profile)


def predicted() -> Iterator[str]:
    """The table of larger releases, which nobody ran."""
    yield (
        "| rows | leaves | unit | workers | CPU, hours | the job, minutes | shuffled, GB | "
        "a worker, GiB | launcher, GiB | parts | unit shards |\n"
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    )
    for rows, leaves, workers in SIZES:
        for unit in ("row", "person, max_rows: 4"):
            configuration = parse_configuration(LARGE.format(leaves=leaves, unit=unit))
            needs = predicted_needs(
                configuration, configuration.plan(), workers=workers, rows=float(rows)
            )
            yield (
                f"| {rows:,} | {leaves:,} | {unit.split(',')[0]} | {workers} | "
                f"{needs.cpu / 3600:.2f} | {needs.seconds / 60:.1f} | {needs.shuffled / 1e9:.2f} | "
                f"{needs.worker_memory / 2**30:.1f} | {needs.launcher_memory / 2**30:.1f} | "
                f"{needs.parts:,} | {needs.unit_shards or '-'} |"
            )


def main() -> int:
    """Print a table, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--rows", type=float, nargs="+", default=[1e7, 1e8])
    parser.add_argument("--predict", action="store_true", help="of larger releases, alone")
    parser.add_argument("--write", type=Path, help="into this page, between its marks")
    chosen = parser.parse_args()
    if not chosen.predict and chosen.folder is None:
        parser.error("name a folder for the rows, or --predict")
    lines = (
        predicted()
        if chosen.predict
        else measured(chosen.folder.resolve(), [*map(int, chosen.rows)])
    )
    made = []
    for each in lines:
        print(each, flush=True)
        made.append(each)
    if chosen.write is not None:
        write_marked(chosen.write, "predicted" if chosen.predict else "measured", made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
