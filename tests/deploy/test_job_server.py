"""The session of the manifests: a Flink cluster without Beam, and Beam's job server before it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.manifests import manifest, pods
from tests.deploy.plain_cluster import (
    PlainCluster,
    answers,
    plain,
    start_flink,
)
from tests.deploy.probes import HERE, flink_probe, hanging, passes, server_probe
from tests.engines.conftest import make_workspace, once, release_files, undisturbed  # noqa: F401
from tests.engines.servers import engine
from tests.ports import free_port

pytestmark = pytest.mark.engines
# An address of this machine that is not localhost, as that of a pod.
POD_IP = "127.0.0.9"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlainCluster]:
    """Flink's jars, without Beam's; what the test starts ends with it."""
    with plain("flink", tmp_path / "cluster") as made:
        yield made


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


def test_session(
    cluster: PlainCluster,
    tmp_path: Path,
    undisturbed: dict[str, bytes],  # noqa: F811
) -> None:
    """With a look at the workers before the job: two jobs after each other ask one pool."""
    with engine("local", tmp_path / "local") as started:
        workspace = make_workspace(tmp_path, started)
    (patched,) = next(pods(manifest("daily-on-flink/engine.yaml", "CronJob")))["spec"]["containers"]
    options = dict(
        each.split("=") for each in patched["args"] if each.startswith("--") and "=" in each
    )
    rest = start_flink(cluster)
    options["--job_endpoint"] = f"{POD_IP}:{start_job_server(cluster, rest)}"
    options["--environment_config"] = f"localhost:{cluster.start_pool()}"
    options["--flink_master"] = f"localhost:{rest}"
    options["--parallelism"] = "2"
    files = workspace.release(tuple(f"{name}={value}" for name, value in options.items()))
    assert files == undisturbed
    assert release_files(workspace.output) == undisturbed


def test_job_server_that_hangs_is_found(cluster: PlainCluster) -> None:
    port = start_job_server(cluster, rest=free_port())
    probe, changes = server_probe(), {"/8099": f"/{port}", "timeout 5": "timeout 2"}
    assert passes(probe, changes, POD_IP=POD_IP)
    (server,) = cluster.started
    with hanging(server):
        assert answers(port, POD_IP)
        assert not passes(probe, changes, POD_IP=POD_IP)
    assert passes(probe, changes, POD_IP=POD_IP)


def test_processes_of_flink_that_hang_are_found(cluster: PlainCluster) -> None:
    rest = start_flink(cluster)
    job_manager, task_manager = cluster.started
    # The manifests fix the port of a task manager, and here it is any that is free.
    changes = {"$CLUSTER-rest/8081": f"localhost/{rest}", "@$POD_IP:6122/": "@$POD_IP:"}

    def task_manager_lives() -> bool:
        return passes(flink_probe("taskManager"), changes, POD_IP=HERE)

    def job_manager_lives() -> bool:
        path = flink_probe("jobManager")["httpGet"]["path"]
        try:
            with urllib.request.urlopen(f"http://localhost:{rest}{path}", timeout=2) as answer:
                return bool(answer.status < 400)
        except (OSError, urllib.error.URLError):
            return False

    assert task_manager_lives() and job_manager_lives()
    with hanging(task_manager):
        cluster.wait(lambda: not task_manager_lives())
        assert job_manager_lives()
    cluster.wait(task_manager_lives)
    with hanging(job_manager):
        assert answers(rest)
        assert not job_manager_lives()
        assert task_manager_lives()
