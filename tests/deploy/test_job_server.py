"""The job server as its manifest starts it: it listens on its pod's address, and tells that one."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from tests.deploy.manifests import manifest, pods
from tests.deploy.plain_cluster import ENGINES, PROJECT, PlainCluster, free_port
from tests.engines.conftest import make_workspace, release_files
from tests.engines.servers import engine

pytestmark = [pytest.mark.engines, pytest.mark.slow]
# An address of this machine that is not localhost, as that of a pod.
POD_IP = "127.0.0.9"


def answers(host: str, port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((host, port)) == 0


def test_address(tmp_path: Path) -> None:
    fetched = ENGINES / "flink" / "fetched"
    if not fetched.exists():
        reason = f"no {fetched.relative_to(PROJECT)}: make engines"
        assert not os.environ.get("DPTREES_REQUIRE_ENGINES"), reason
        pytest.skip(reason)
    (container,) = next(pods(manifest("session/job-server.yaml", "Deployment")))["spec"][
        "containers"
    ]
    options = dict(each[2:].split("=") for each in container["args"])
    assert options["job-host"] == "$(POD_IP)"
    options |= {name: str(free_port()) for name in options if name.endswith("-port")}
    # Flink within the server, in place of the session's.
    options |= {"job-host": POD_IP, "flink-master": "[auto]", "artifacts-dir": str(tmp_path / "a")}
    server = PlainCluster(engine="flink", folder=tmp_path / "server")
    server.folder.mkdir()
    driver = "org.apache.beam.runners.flink.FlinkJobServerDriver"
    command = [
        *server.java(driver, memory="1500m"),
        *(f"--{name}={options[name]}" for name in options),
    ]
    command[command.index("-cp") + 1] = f"{ENGINES}/flink/lib/*"
    try:
        server.start("job-server", command)
        job, artifact = int(options["job-port"]), int(options["artifact-port"])
        server.wait(lambda: answers(POD_IP, job) and answers(POD_IP, artifact))
        with engine("local", tmp_path / "local") as started:
            workspace = make_workspace(tmp_path, started)
            place = ("--runner=PortableRunner", f"--job_endpoint={POD_IP}:{job}")
            # The launcher stages what workers need where the server tells.
            files = workspace.release((*place, "--environment_type=LOOPBACK", "--parallelism=2"))
            assert files == release_files(workspace.output)
        log = (server.folder / "job-server.log").read_text()
        for name, port in (("JobService", job), ("ArtifactStagingService", artifact)):
            assert f"{name} started on {POD_IP}:{port}" in log
    finally:
        server.stop()
