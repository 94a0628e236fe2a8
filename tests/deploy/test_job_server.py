"""The session of the manifests: a Flink cluster without Beam, and Beam's job server before it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.deploy.manifests import manifest, pods
from tests.deploy.plain_cluster import (
    PlainCluster,
    absent,
    answers,
    plain,
    start_flink,
)
from tests.engines.conftest import make_workspace, once, release_files, undisturbed  # noqa: F401
from tests.engines.servers import engine
from tests.ports import free_port

pytestmark = pytest.mark.engines
# An address of this machine that is not localhost, as that of a pod.
POD_IP = "127.0.0.9"


def start_job_server(cluster: PlainCluster, rest: int) -> int:
    """Starts the job server with the arguments of its manifest; returns its port."""
    deployment = manifest("session/job-server.yaml", "Deployment")
    (container,) = next(pods(deployment))["spec"]["containers"]
    options = dict(each[2:].split("=") for each in container["args"])
    assert options["job-host"] == "$(POD_IP)"
    assert options["flink-master"] == "dptrees-session-rest:8081"
    options |= {name: str(free_port()) for name in options if name.endswith("-port")}
    options |= {"job-host": POD_IP, "flink-master": f"localhost:{rest}"}
    options["artifacts-dir"] = str(cluster.folder / "artifacts")
    cluster.start("job-server", cluster.job_server(options))
    ports = {name: int(options[f"{name}-port"]) for name in ("job", "artifact")}
    cluster.wait(lambda: all(answers(port, POD_IP) for port in ports.values()))
    log = (cluster.folder / "job-server.log").read_text()
    for name, port in (("JobService", ports["job"]), ("ArtifactStagingService", ports["artifact"])):
        assert f"{name} started on {POD_IP}:{port}" in log
    return ports["job"]


def test_session(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:  # noqa: F811
    """With a look at the workers before the job: two jobs after each other ask one pool."""
    if reason := absent():
        assert not os.environ.get("DPTREES_REQUIRE_ENGINES"), reason
        pytest.skip(reason)
    with engine("local", tmp_path / "local") as started:
        workspace = make_workspace(tmp_path, started)
    (patched,) = next(pods(manifest("daily-on-flink/engine.yaml", "CronJob")))["spec"]["containers"]
    options = dict(
        each.split("=") for each in patched["args"] if each.startswith("--") and "=" in each
    )
    with plain("flink", tmp_path / "cluster") as cluster:
        rest = start_flink(cluster)
        options["--job_endpoint"] = f"{POD_IP}:{start_job_server(cluster, rest)}"
        options["--environment_config"] = f"localhost:{cluster.start_pool()}"
        options["--flink_master"] = f"localhost:{rest}"
        options["--parallelism"] = "2"
        files = workspace.release(tuple(f"{name}={value}" for name, value in options.items()))
    assert files == undisturbed
    assert release_files(workspace.output) == undisturbed
