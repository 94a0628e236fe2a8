"""Synthetic rows: their types, bounds and number, and that a file is there whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tests.pipelines.conftest import Workspace, search_path
from tests.pipelines.hypercube.conftest import (
    AGE,
    AT,
    DAY,
    KIND,
    KINDS,
    ROWS,
    box,
    rows,
    write_inputs,
)


def drawn(boxes: Workspace, folder: Path, *options: object, tree: str = "four") -> pa.Table:
    """The rows that `dptrees sample` writes."""
    output = folder / "rows.parquet"
    outcome = boxes.succeed("sample", boxes.output, "--tree", tree, "--output", output, *options)
    found = pq.read_table(output)
    assert outcome.out == f"{len(found):,} synthetic rows in {output}\n"
    assert list(folder.iterdir()) == [output]
    output.unlink()
    return found


def test_names_and_types_are_those_of_the_rows(boxes: Workspace, tmp_path: Path) -> None:
    found = drawn(boxes, tmp_path, "-n", 1000)
    assert found.schema == rows().select(["day", "at", "kind", "age"]).schema
    assert all(column.null_count == 0 for column in found.columns)


def test_no_value_is_outside_the_domain(boxes: Workspace, tmp_path: Path) -> None:
    found = drawn(boxes, tmp_path, "-n", 50_000, "--seed", 1)
    ends = {name: pc.min_max(found[name]).as_py() for name in ("day", "at", "age")}
    assert date(2020, 1, 1) <= ends["day"]["min"] and ends["day"]["max"] < date(2021, 1, 1)
    assert datetime(2024, 3, 1) <= ends["at"]["min"] and ends["at"]["max"] < datetime(2024, 3, 11)
    assert ends["age"]["min"] >= 0 and ends["age"]["max"] < 100
    assert set(found["kind"].unique().to_pylist()) == set(KINDS)
    numbers = drawn(boxes, tmp_path, "-n", 50_000, tree="two")
    x = numbers["x"].to_numpy()
    assert x.min() >= -3 and x.max() < 3 and len(np.unique(x)) > 40_000


def test_by_default_as_many_as_were_counted_part_by_part(boxes: Workspace, tmp_path: Path) -> None:
    found = drawn(boxes, tmp_path, tree="one")
    assert len(found) == ROWS
    # A part of c rows has exactly c of them; here each part is a day.
    expected = {each["values"]: each["counts"] for each in rows()["day"].value_counts().to_pylist()}
    sampled = {each["values"]: each["counts"] for each in found["day"].value_counts().to_pylist()}
    assert sampled == expected


def test_all_rows_follow_the_released_counts(boxes: Workspace, tmp_path: Path) -> None:
    found, true = drawn(boxes, tmp_path, "-n", 30_000, "--seed", 1), rows()
    for kind in KINDS:
        share = pc.sum(pc.equal(found["kind"], kind)).as_py() / 30_000
        assert share == pytest.approx(pc.sum(pc.equal(true["kind"], kind)).as_py() / ROWS, abs=2e-3)
    for name in ("age", "day"):
        ours, theirs = (np.sort(t[name].to_numpy().astype(float)) for t in (found, true))
        edges = np.arange(theirs[0], theirs[-1] + 1)
        gap = np.searchsorted(ours, edges) / len(ours) - np.searchsorted(theirs, edges) / ROWS
        assert np.abs(gap).max() < 0.03


def test_a_seed_repeats_and_no_seed_does_not(boxes: Workspace, tmp_path: Path) -> None:
    for seed in (0, -1, 2**70):
        first, again = (drawn(boxes, tmp_path, "-n", 500, "--seed", seed) for _ in range(2))
        assert first == again
    seeds = [drawn(boxes, tmp_path, "-n", 500, "--seed", seed) for seed in (1, 2)]
    assert seeds[0] != seeds[1]
    assert drawn(boxes, tmp_path, "-n", 500) != drawn(boxes, tmp_path, "-n", 500)


def test_csv_reads_back(boxes: Workspace, tmp_path: Path) -> None:
    output = tmp_path / "rows.csv"
    options = ("--tree", "four", "-n", 400, "--seed", 3)
    assert boxes.run("sample", boxes.output, *options, "--output", output).code == 0
    types = {field.name: field.type for field in rows().schema}
    found = pa_csv.read_csv(output, convert_options=pa_csv.ConvertOptions(column_types=types))
    output.unlink()
    assert found == drawn(boxes, tmp_path, *options[2:])


def test_a_released_sample_can_be_released_again(boxes: Workspace, tmp_path: Path) -> None:
    """What was sampled is read as the rows were."""
    again = Workspace(tmp_path)
    (tmp_path / "drawn").mkdir()
    found = drawn(boxes, tmp_path / "drawn")
    path = write_inputs(again, found, box("four", [DAY, AT, KIND, AGE], counts="sparse"))
    assert again.run("release", path).code == 0


def test_refused(boxes: Workspace, tmp_path: Path) -> None:
    output = tmp_path / "rows.parquet"
    for options, words in (
        ("--tree one -n 0", "-n 0: it must be from 1 to 1000000000000"),
        ("--tree one -n -5", "-n -5: it must be from 1"),
        ("--tree none", "there is no tree 'none'"),
        ("", "choose one with --tree"),
        ("--tree one --output rows.txt", "must end in .parquet or .csv"),
        ("--tree one --output /nowhere/rows.csv", "cannot be written"),
    ):
        outcome = boxes.run("sample", boxes.output, "--output", output, *options.split())
        assert outcome.code == 2 and words in outcome.err and outcome.err.count("\n") == 1, outcome
        assert not list(tmp_path.iterdir())
    output.write_text("mine")
    outcome = boxes.run("sample", boxes.output, "--tree", "one", "--output", output)
    assert outcome.code == 2 and "it exists already" in outcome.err
    assert output.read_text() == "mine"


def test_of_other_trees_and_of_counts_that_are_all_zero(workspace: Workspace) -> None:
    empty = pa.table({"age": pa.array([None], pa.int64())})
    ages = {"name": "ages", "domain": {**AGE}}
    path = write_inputs(workspace, empty, box("none", [AGE], counts="dense"), ages)
    assert workspace.run("release", path).code == 0
    output = workspace.folder / "x.csv"
    words = {
        "none": "all its counts are zero, so no row can be drawn",
        "ages": "is neither a hypercube nor a table",
    }
    for tree, sentence in words.items():
        outcome = workspace.run("sample", workspace.output, "--tree", tree, "--output", output)
        assert outcome.code == 2 and sentence in outcome.err and outcome.err.count("\n") == 1
        assert not output.exists()


def start(boxes: Workspace, output: Path, n: int, **options: Any) -> subprocess.Popen[str]:
    return boxes.start(
        "sample", boxes.output, "--tree", "two", "-n", n, "--output", output, **options
    )


def wait_for_rows(process: subprocess.Popen[str], folder: Path) -> None:
    """Until some rows are written."""
    end = time.monotonic() + 300
    while not any(path.stat().st_size > 10_000 for path in folder.iterdir()):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)


def heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_killed_halfway_there_is_no_file_of_the_name(boxes: Workspace, tmp_path: Path) -> None:
    output = tmp_path / "rows.parquet"
    process = start(boxes, output, 10**9)
    try:
        wait_for_rows(process, tmp_path)
    finally:
        process.kill()
    process.communicate()
    assert not output.exists()
    assert boxes.run("sample", boxes.output, "--tree", "two", "--output", output).code == 0


def test_interrupted_it_leaves_nothing(boxes: Workspace, tmp_path: Path) -> None:
    # In the background a shell has interrupts ignored, and what it starts inherits that.
    process = start(boxes, tmp_path / "rows.parquet", 10**9, preexec_fn=heed_interrupts)
    try:
        wait_for_rows(process, tmp_path)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "dptrees: stopped\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_full_disk_is_reported_in_a_sentence(
    boxes: Workspace, tmp_path: Path, suffix: str
) -> None:
    process = start(
        boxes,
        tmp_path / f"rows{suffix}",
        10**7,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20)),
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2, err
    assert "cannot be written" in err and err.count("\n") == 1, err
    assert not list(tmp_path.iterdir())


PEAK = """
import resource, sys
from dptrees.pipelines.cli.command import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def measure_peak(boxes: Workspace, output: Path, n: int) -> int:
    """Measure the peak memory of sampling, in kB."""
    arguments = ["sample", boxes.output, "--tree", "one", "-n", n, "--output", output]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert pq.read_metadata(output).num_rows == n
    output.unlink()
    return int(done.stderr.split()[-1])


def test_memory_does_not_grow_with_the_rows(boxes: Workspace, tmp_path: Path) -> None:
    """In one of some runs, since what threads free in time is chance."""
    output = tmp_path / "rows.parquet"
    few = measure_peak(boxes, output, 1_000_000)
    assert any(measure_peak(boxes, output, 20_000_000) < few + 64 * 1024 for _ in range(3))


def test_the_only_hypercube_needs_no_name(workspace: Workspace) -> None:
    """Other trees have no rows to draw."""
    age = {"name": "age", "domain": {"column": "age", "lower": 0, "upper": 100, "cells": 10}}
    configuration = write_inputs(workspace, rows(), box("days", [DAY], counts="sparse"), age)
    assert workspace.run("release", configuration).code == 0
    output = workspace.folder / "drawn.parquet"
    workspace.succeed("sample", workspace.output, "-n", 20, "--output", output)
    assert pq.read_table(output).column_names == ["day"]
