"""A release of Parquet files through Spark and by the command: seconds and rows a second of each.

Run as ``python -m benchmarks.spark [--rows N] [--threads T]`` with a Python that has pyspark. The
rows have an age, an amount and a person; each release has a CDF of the ages and a histogram of the
amounts by group, once with rows as privacy units and once with persons, at most 5 rows of each.
Seconds measure the call alone, in a process that has made a small release before: sessions of Spark
start, and workers import, once. The files of both releases are compared.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import dptrees.spark
from dptrees.pipelines.python.making import Call, release
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run.output import FolderRequest

FILES = 8
BOUNDED = {"unit": "person", "max_rows": 5}
TREES = [
    {"name": "age", "domain": {"column": "age", "type": "integer", "lower": 0, "upper": 100}},
    {
        "name": "amount",
        "domain": {"column": "amount", "lower": 0, "upper": 200, "cells": 200},
        "group_by": {"column": "group", "keys": list(range(16))},
    },
]


def write_rows(folder: Path, rows: int) -> None:
    """Write the rows as Parquet."""
    folder.mkdir()
    for number in range(FILES):
        random = np.random.default_rng([2026, number])
        size = rows // FILES
        table = pa.table(
            {
                "age": random.integers(0, 100, size, dtype=np.int32),
                "amount": random.standard_gamma(2.0, size) * 20,
                "group": random.integers(0, 16, size, dtype=np.int32),
                "person": random.integers(0, max(rows // 10, 1), size),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")


def configuration(**privacy: Any) -> dict[str, Any]:
    """Return the configuration of a privacy unit."""
    return {
        "release": "benchmark",
        "privacy": {"epsilon": 1, "neighbors": "add_remove", **privacy},
        "trees": TREES,
    }


def release_files(given: dict[str, Any], folder: str, output: str) -> None:
    """Make the release of the files as the command does, under the nonce of another folder."""
    nonce = bytes.fromhex(ReleaseFolder(folder).manifest["nonce"])
    call = Call(config=given, key="release.key", output=output, wanted=FolderRequest(nonce=nonce))
    release("rows/*.parquet", call)


def tables(folder: str) -> dict[str, bytes]:
    """Return the tables of a release, whose bytes depend on its noise."""
    place = Path(folder)
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*.parquet")}


def main() -> int:
    """Print a line for each privacy unit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    warnings.simplefilter("ignore")
    session: Any = SparkSession.builder
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for name, value in {**settings, "spark.driver.memory": "4g"}.items():
        session = session.config(name, value)
    session = session.master(f"local[{arguments.threads}]").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        dptrees.keygen("release.key")
        write_rows(Path("few"), FILES)
        write_rows(Path("rows"), arguments.rows)
        few, frame = (session.read.parquet(f"{place}/{name}") for name in ("few", "rows"))
        for name, privacy in (("rows", {}), ("persons", BOUNDED)):
            given = configuration(**privacy)
            dptrees.spark.release(few, given, key="release.key", output=f"few-{name}")
            dptrees.release("few/*.parquet", given, key="release.key", output=f"warm-{name}")
            began = time.perf_counter()
            dptrees.spark.release(frame, given, key="release.key", output=f"spark-{name}")
            ended = time.perf_counter()
            release_files(given, f"spark-{name}", f"local-{name}")
            local = time.perf_counter() - ended
            same = tables(f"spark-{name}") == tables(f"local-{name}")
            print(
                f"{name}: Spark {session.version} {arguments.rows / (ended - began):,.0f} rows/s "
                f"({ended - began:.1f} s), this process {arguments.rows / local:,.0f} rows/s "
                f"({local:.1f} s), {'the same tables' if same else 'OTHER TABLES'}",
                flush=True,
            )
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
