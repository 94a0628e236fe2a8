"""A check without rows looks at the workers of an engine, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.engines.conftest import JOB_SECONDS, Workspace
from tests.engines.servers import environment

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("running", ["prism", "flink_cluster"], indirect=True)
def test_a_check_without_rows(workspace: Workspace) -> None:
    """Workers in processes of their own are looked at; threads of the launcher need no look."""
    before = sorted(workspace.folder.rglob("*"))

    def dry(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                *(sys.executable, "-m", "dptrees", "check", str(workspace.configuration)),
                *(*workspace.engine.options, "--no-rows", "--json", *options),
            ],
            cwd=workspace.folder,
            env=environment(workspace.engine.servers.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=JOB_SECONDS,
        )

    done = dry()
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["engine"]
    is_cluster = workspace.engine.name == "flink_cluster"
    assert found["worker_checked"] == is_cluster and not found["runs_here"]
    assert sorted(workspace.folder.rglob("*")) == before
    if is_cluster:
        assert found["job_endpoint"]
        assert not json.loads(dry("--no_preflight").stdout)["engine"]["worker_checked"]
