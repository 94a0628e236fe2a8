"""The script of docs/transform.md on a cluster whose workers are other processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from tests.engines.conftest import JOB_SECONDS, SECRET
from tests.engines.servers import PROJECT, Engine, environment
from tests.pipelines.test_transform_page import written_examples

pytestmark = pytest.mark.engines


def run_example(
    folder: Path, engine: Engine, leave_out: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the script of the page in a folder, without the lines that begin with a text."""
    folder.mkdir()
    _, script = written_examples(PROJECT / "docs" / "transform.md", folder)
    lines = (folder / script).read_text().splitlines(keepends=True)
    kept = [line for line in lines if not leave_out or not line.startswith(leave_out)]
    assert (len(kept) < len(lines)) == bool(leave_out)
    (folder / script).write_text("".join(kept))
    key = folder / "release.key"
    key.write_text(ReleaseKey(SECRET).to_text())
    key.chmod(0o600)
    return subprocess.run(
        [sys.executable, script, *engine.options],
        cwd=folder,
        env=environment(engine.servers.folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=JOB_SECONDS,
    )


@pytest.mark.parametrize("running", ["flink_cluster"], indirect=True)
def test_example(tmp_path: Path, running: Engine) -> None:
    done = run_example(tmp_path / "run", running)
    assert done.returncode == 0, done.stderr[-3000:]
    command = [sys.executable, "-m", "dptrees", "verify", "out/visits"]
    verified = subprocess.run(
        command,
        cwd=tmp_path / "run",
        env=environment(running.servers.folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.parametrize("running", ["flink_cluster"], indirect=True)
def test_example_without_its_row_coder(tmp_path: Path, running: Engine) -> None:
    """Workers cannot import a class of the script, and report it in the words of the page."""
    done = run_example(tmp_path / "run", running, "beam.coders.registry")
    reported = "Can't pickle <class '__main__.Visit'>"
    assert done.returncode != 0 and reported in done.stderr, done.stderr[-3000:]
    assert f"`{reported}`" in " ".join((PROJECT / "docs" / "transform.md").read_text().split())
