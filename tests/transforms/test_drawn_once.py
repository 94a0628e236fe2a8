"""With one key and the same rows, every run makes the same release, byte for byte."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.config.configuration import load_configuration

PROJECT = Path(__file__).resolve().parents[2]

CONFIGURATION = """
release: drawn-once
input: {{format: parquet, path: "{path}"}}
output: {output}
key_file: {key_file}
privacy: {{epsilon: 1.0, neighbors: add_remove, unit: row}}
trees:
  - name: value
    domain: {{kind: ordered, column: value, lower: 0, upper: 10, cells: 160000}}
    objective: cdf
  - name: by_carrier
    domain: {{kind: ordered, column: value, lower: 0, upper: 10, cells: 20}}
    group_by: {{column: carrier, keys: [UA, AA, "none of them"]}}
    objective: quantiles
    quantiles: [0.1, 0.5]
  - name: number
    domain: {{kind: ordered, column: number, type: integer, lower: -5, upper: 15}}
    objective: cdf
"""

Release = Callable[..., dict[str, bytes]]


@pytest.fixture
def configuration(tmp_path: Path, key_file: Path, data: str) -> Path:
    """A configuration whose output is the folder ``commanded``."""
    output = tmp_path / "commanded"
    path = tmp_path / "release.yaml"
    path.write_text(CONFIGURATION.format(path=data, output=output, key_file=key_file))
    return path


@pytest.fixture
def in_process(configuration: Path, data: str, run, tmp_path, release_files) -> dict[str, bytes]:
    """The files of the configuration's release, made in this process."""
    plan = load_configuration(str(configuration)).plan()
    run(plan, data, tmp_path / "in process")
    files = release_files(tmp_path / "in process")
    assert {"manifest.json", "nonce.json", "record.json", "quantiles.parquet"} < files.keys()
    assert sum(name.startswith("nodes/value-") for name in files) > 2
    return files


@pytest.fixture
def commanded(configuration: Path, tmp_path: Path, release_files, nonce: bytes) -> Release:
    """Makes the release by the command, in a process of its own, and returns its files."""

    def released(*options: str) -> dict[str, bytes]:
        command = [sys.executable, "-m", "dptrees", "release", str(configuration)]
        command += ["--nonce", nonce.hex()]
        done = subprocess.run(
            [*command, *options],
            cwd=PROJECT,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        files = release_files(tmp_path / "commanded")
        # A pipeline without a configuration keeps no request.
        assert files.pop("plan.json")
        return files

    return released


def test_workers_that_are_processes(commanded, in_process) -> None:
    processes = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    assert commanded(*processes) == in_process


@pytest.fixture
def plan(make_plan):
    """Three trees, all of them in chunks."""
    return make_plan("value", "number", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)


@pytest.fixture
def drawn(plan, rows, run_steps, tmp_path, release_files) -> dict[str, bytes]:
    """The files of the release of the same rows without an engine."""
    run_steps(plan, rows, tmp_path / "drawn")
    return release_files(tmp_path / "drawn")


def test_bundles_that_run_again(plan, data, run, tmp_path, release_files, drawn) -> None:
    run(plan, data, tmp_path / "again", pipeline_options=["--direct_runner_bundle_repeat=2"])
    assert release_files(tmp_path / "again") == drawn


def test_other_files_formats_and_counts(
    plan, data, rows, run, tmp_path, release_files, drawn, small_splits, monkeypatch
) -> None:
    """Rows in another order and in other files, CSV for Parquet, and sorted counts for dense."""
    shuffled = rows.take(np.random.default_rng(2).permutation(rows.num_rows))
    for index in range(5):
        part = shuffled.take(np.arange(index, rows.num_rows, 5))
        pq.write_table(part, tmp_path / f"part-{index}.parquet", row_group_size=97)
    run(plan, str(tmp_path / "part-*.parquet"), tmp_path / "shuffled")
    assert release_files(tmp_path / "shuffled") == drawn
    pa_csv.write_csv(rows, tmp_path / "rows.csv")
    run(plan, str(tmp_path / "rows.csv"), tmp_path / "csv", format="csv")
    assert release_files(tmp_path / "csv") == drawn
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    run(plan, data, tmp_path / "sorted")
    assert release_files(tmp_path / "sorted") == drawn


def test_one_row_more_draws_all_noise_afresh(
    plan, rows, run, tmp_path, release_files, drawn
) -> None:
    one_more = pa.concat_tables([rows, rows.slice(100, 1)])
    pq.write_table(one_more, tmp_path / "more.parquet")
    run(plan, str(tmp_path / "more.parquet"), tmp_path / "more")
    other = release_files(tmp_path / "more")
    assert other["record.json"] != drawn["record.json"]
    # The names of the parts are checksums: no part, not even of an untouched chunk, stays the same.
    assert not [name for name in other if name.startswith(("nodes/", "cdf/")) and name in drawn]
