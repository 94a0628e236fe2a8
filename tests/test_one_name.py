"""An installed dptrees has one name: it works in a project that has its own `pipelines/`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.ports import free_port
from tests.wheel import OWN, PROJECT, install_wheel, write_own_packages

SETTINGS = {
    "release": "visits",
    "input": {"format": "parquet", "path": "rows.parquet"},
    "output": "out/command",
    "key_file": "release.key",
    "privacy": {"epsilon": 1, "neighbors": "add_remove"},
    "trees": [
        {"name": "age", "domain": {"column": "age", "type": "integer", "lower": 0, "upper": 8}}
    ],
}
PROGRAM = """
import sys
import apache_beam as beam
import pyarrow as pa
import dptrees
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms.environments import ExternalEnvironment

assert dptrees.__file__.startswith(sys.argv[1]), dptrees.__file__
config = {"privacy": {"epsilon": 1, "neighbors": "add_remove"}, "trees": TREES}
made = dptrees.release({"age": [1, 2, 3]}, config)
print(made["age"].cdf(4))
rows = [{"age": number % 8} for number in range(100)]
step = dptrees.ReleaseTrees(
    dptrees.load(config),
    key=dptrees.key("release.key"),
    output=sys.argv[3],
    schema=pa.schema({"age": pa.int64()}),
)
runner = FnApiRunner(default_environment=ExternalEnvironment(sys.argv[2]))
with beam.Pipeline(runner=runner) as pipeline:
    pipeline | beam.Create(rows) | step
print(dptrees.open(sys.argv[3])["age"].cdf(4))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with an installed wheel."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def project(tmp_path: Path, installed: Path) -> Path:
    """A team's project: its own packages, rows, a key and a configuration."""
    write_own_packages(tmp_path)
    pq.write_table(pa.table({"age": [1, 2, 3, 4] * 50}), tmp_path / "rows.parquet")
    (tmp_path / "release.yaml").write_text(yaml.safe_dump(SETTINGS))
    assert run(tmp_path, installed, "-m", "dptrees", "keygen", "release.key").returncode == 0
    return tmp_path


def run(project: Path, installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project, which comes first on the path, with the wheel."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": f"{project}{os.pathsep}{installed}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_projects_own_packages_are_found_first(project: Path, installed: Path) -> None:
    """What the other tests would see if dptrees imported one of the names."""
    for name in OWN:
        done = run(project, installed, "-c", f"import {name}")
        assert f"{name} of the project was imported" in done.stderr


def test_command(project: Path, installed: Path) -> None:
    done = run(project, installed, "-m", "dptrees", "release", "release.yaml")
    assert done.returncode == 0, done.stderr
    for command in ("verify", "report"):
        done = run(project, installed, "-m", "dptrees", command, "out/command")
        assert done.returncode == 0, done.stderr


def test_beam_yaml(project: Path, installed: Path) -> None:
    pytest.importorskip("docstring_parser")
    section = {name: each for name, each in SETTINGS.items() if name != "output"}
    step = {"type": "DPTree", "config": section | {"output": str(project / "out" / "yaml")}}
    step["config"] |= {"input": {"format": "parquet", "path": str(project / "rows.parquet")}}
    step["config"] |= {"key_file": str(project / "release.key")}
    provider = PROJECT / "deploy" / "beam" / "dptrees-provider.yaml"
    pipeline = {"transforms": [step], "type": "chain"}
    text = yaml.safe_dump({"pipeline": pipeline, "providers": [{"include": str(provider)}]})
    (project / "pipeline.yaml").write_text(text)
    runner = "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    arguments = ("-m", "apache_beam.yaml.main", runner, "--yaml_pipeline_file=pipeline.yaml")
    done = run(project, installed, *arguments)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (project / "out" / "yaml" / "manifest.json").exists()


@pytest.fixture
def pool(project: Path, installed: Path) -> Iterator[str]:
    """The address of Beam's worker pool, whose workers start in the project."""
    port = free_port()
    # The pool starts its workers as `python`: this one, also if its environment is not activated.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    started = subprocess.Popen(
        [
            *(sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main"),
            f"--service_port={port}",
        ],
        cwd=project,
        env=os.environ | {"PATH": path, "PYTHONPATH": f"{project}{os.pathsep}{installed}"},
        start_new_session=True,
    )
    yield f"localhost:{port}"
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def test_python_and_a_worker_pool(project: Path, installed: Path, pool: str) -> None:
    program = PROGRAM.replace("TREES", repr(SETTINGS["trees"]))
    (project / "own.py").write_text(program)
    done = run(project, installed, "own.py", str(installed), pool, str(project / "out" / "own"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("below 4") == 2  # the release in memory, and the pipeline
