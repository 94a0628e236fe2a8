"""Rows bounded per privacy unit: dptrees, a plain sample per unit on Beam, and PipelineDP.

Run as ``python -m benchmarks.bounding [--full] [--pipeline-dp PYTHON]``. All count rows by key and
cell, at most 20 rows of a person, 5 of its keys and 4 rows a key where the program supports this;
dptrees is the whole command, noise and page included. Every measurement is a process of its own, so
that its peak memory and processor seconds are its own; the time for 1,000 rows is the program's
start, and rates are without it. The per-row programs get a share of the rows, which their rows per
second hardly depend on. PipelineDP is measured by the Python that has it:

    python -m venv /tmp/pdp && /tmp/pdp/bin/pip install pipeline-dp apache-beam pyarrow
    python -m benchmarks.bounding --pipeline-dp /tmp/pdp/bin/python
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

from benchmarks.harness import Run, make_key

KEYS, CELLS = 16, 256
ROWS_PER_PERSON = 40  # on average
FILE_ROWS = 2**21
SHORT, FULL, PER_ROW, FEW = 4_000_000, 40_000_000, 200_000, 1000

MEASURE = """
import resource, time
def measured(seconds):
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""

# The first start-up is not the rows'.
RELEASE = """
import sys, time
from dptrees.pipelines.cli.command import main
import dptrees.pipelines.run.releasing
begun = time.perf_counter()
sys.stdout = open("/dev/null", "w")
code = main(["release", "{config}", "--unit_shards={shards}"])
sys.stdout = sys.__stdout__
assert code == 0
measured(time.perf_counter() - begun)
"""

CONFIG = """
release: bounding
input: {{format: parquet, path: {rows}/*.parquet}}
output: {folder}/out-{run}
key_file: {folder}/release.key
privacy: {{epsilon: 1.0, neighbors: add_remove{unit}}}
trees:
  - name: value
    domain: {{kind: ordered, column: value, lower: 0, upper: {cells}, cells: {cells}}}
    group_by: {{column: key, keys: [{keys}]}}
    objective: cdf
"""
UNIT = ", unit: person, max_rows: 20, max_keys: 5, max_rows_per_key: 4"

# Programs of a row at a time: how rows are read, and what is done with them.
PER_ROW_PROGRAM = """
import logging, time
logging.disable(logging.CRITICAL)
import apache_beam as beam
import pyarrow.parquet as pq
{imports}
from apache_beam.options.pipeline_options import PipelineOptions
begun = time.perf_counter()
options = PipelineOptions(["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"])
with beam.Pipeline(options=options) as pipeline:
    rows = (
        pipeline
        | beam.Create(["{rows}"])
        | beam.FlatMap(lambda path: pq.read_table(path).slice(0, {most}).to_pylist())
        | beam.Map(lambda row: (row["person"], (row["key"], int(row["value"]))))
    )
{steps}
    found | beam.combiners.Count.Globally() | beam.Map(lambda cells: None)
measured(time.perf_counter() - begun)
"""
PLAIN_BEAM = """
    found = (
        rows
        | beam.combiners.Sample.FixedSizePerKey(20)
        | beam.FlatMap(lambda unit: unit[1])
        | beam.combiners.Count.PerElement()
    )
"""
PIPELINE_DP = f"""
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1, total_delta=1e-6)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.BeamBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[pipeline_dp.Metrics.COUNT],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=5,
        max_contributions_per_partition=4,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: 0,
    )
    cells = [(f"k{{key}}", cell) for key in range({KEYS}) for cell in range({CELLS})]
    found = engine.aggregate(rows, params, extractors, public_partitions=cells)
    accountant.compute_budgets()
"""


def measured(code: str, python: str = sys.executable) -> Run:
    """What a program took in a process of its own."""
    command = [python, "-c", MEASURE + code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Run(*map(float, done.stdout.split()[-3:]))


def make_rows(folder: Path, rows: int) -> Path:
    """Files of rows of people, a few of whom have many; returns the first file."""
    random = np.random.default_rng(5)
    people = max(1, rows // ROWS_PER_PERSON)
    keys = pa.array([f"k{key}" for key in range(KEYS)])
    folder.mkdir()
    for number, start in enumerate(range(0, rows, FILE_ROWS)):
        size = min(FILE_ROWS, rows - start)
        # Between a person's rows lie others': the tenth part of the people has half of the rows.
        person = (people * random.random(size) ** 3.32).astype(np.int64)
        columns = {
            "person": pa.array(person * 7919 + 10**9),
            "key": pa.DictionaryArray.from_arrays(random.integers(0, KEYS, size, np.int8), keys),
            "value": pa.array(CELLS * random.random(size)),
        }
        pq.write_table(pa.table(columns), folder / f"rows-{number:03}.parquet")
    return folder / "rows-000.parquet"


def print_run(what: str, rows: int, run: Run, start: Run) -> None:
    """A line of the table, without what the same takes for a few rows."""
    seconds, processor = run.seconds - start.seconds, run.processor - start.processor
    print(
        f"{what:<38} {rows:>11,} {start.seconds:>8.2f} {run.seconds:>8.2f} {processor:>8.2f} "
        f"{rows / seconds / 1e6:>9.3f} {rows / processor / 1e6:>10.3f} {run.peak:>7.0f}",
        flush=True,
    )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help=f"{FULL:,} rows")
    parser.add_argument("--repeat", type=int, default=1, help="the best of so many runs")
    parser.add_argument("--shards", type=int, nargs="*", default=[16, 64, 256])
    parser.add_argument("--pipeline-dp", default=sys.executable, help="a Python that has it")
    arguments = parser.parse_args()
    rows = FULL if arguments.full else SHORT
    print(
        f"{'program':<38} {'rows':>11} {'start s':>8} {'wall s':>8} {'cpu s':>8} {'M rows/s':>9} "
        f"{'M rows/cpu':>10} {'MB':>7}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = make_rows(folder / "rows", rows)
        make_rows(folder / "few", FEW)
        _releases(folder, rows, arguments.shards, arguments.repeat)
        _per_row("plain Beam, Sample.FixedSizePerKey", "", PLAIN_BEAM, first, sys.executable)
        if _has_pipeline_dp(arguments.pipeline_dp):
            python = arguments.pipeline_dp
            _per_row("PipelineDP on Beam", "import pipeline_dp", PIPELINE_DP, first, python)
        else:
            print("PipelineDP is not there: install it, in a venv of its own, see --help.")
    return 0


def _releases(folder: Path, rows: int, shards: list[int], repeat: int) -> None:
    make_key(folder)
    roads = {"dptrees, unit: row": ("", 64)}
    roads |= {f"dptrees, unit: person, {count} shards": (UNIT, count) for count in shards}
    for number, (what, (unit, count)) in enumerate(roads.items()):
        runs = {
            data: min(
                _release(folder, data, unit, count, f"{number}-{data}-{again}")
                for again in range(repeat)
            )
            for data in ("few", "rows")
        }
        print_run(what, rows, runs["rows"], runs["few"])


def _release(folder: Path, data: str, unit: str, shards: int, run: str) -> Run:
    config = folder / f"config-{run}.yaml"
    keys = ", ".join(f"k{key}" for key in range(KEYS))
    given = {"folder": folder, "run": run, "unit": unit, "cells": CELLS, "keys": keys}
    config.write_text(CONFIG.format(rows=folder / data, **given))
    return measured(RELEASE.format(config=config, shards=shards))


def _per_row(what: str, imports: str, steps: str, rows: Path, python: str) -> None:
    runs = [
        measured(PER_ROW_PROGRAM.format(imports=imports, steps=steps, rows=rows, most=most), python)
        for most in (FEW, PER_ROW)
    ]
    print_run(what, PER_ROW, runs[1], runs[0])


def _has_pipeline_dp(python: str) -> bool:
    done = subprocess.run([python, "-c", "import pipeline_dp"], capture_output=True, check=False)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
