"""Probes of the manifests, run against processes that work, that hang and that are gone.

A process that hangs here has all its threads stopped; the kernel still accepts connections for it.
test_job_server.py does the same with the processes of an engine.
"""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.deploy.plain_cluster import PROJECT, PlainCluster, answers
from tests.deploy.probes import HERE, flink_probe, hanging, passes, pool_probe, server_probe
from tests.ports import free_port


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[PlainCluster]:
    """Processes that end with the test, without the jars of an engine."""
    made = PlainCluster(engine="flink", folder=tmp_path, installed=PROJECT)
    yield made
    made.stop()


def test_pool_that_hangs_is_found(cluster: PlainCluster) -> None:
    port = cluster.start_pool()
    changes = {"localhost:50000": f"localhost:{port}", "timeout=10": "timeout=2"}
    assert passes(pool_probe(), changes)
    (pool,) = cluster.started
    with hanging(pool):
        # What a probe by TCP sees.
        assert answers(port)
        assert not passes(pool_probe(), changes)
    assert passes(pool_probe(), changes)
    assert "Traceback" not in (cluster.folder / "pool.log").read_text()
    cluster.stop()
    assert not passes(pool_probe(), changes)


def test_server_that_does_not_speak_http2_is_found() -> None:
    probe, changes = server_probe(), {"/8099": "", "timeout 5": "timeout 1"}

    def live(port: int) -> bool:
        return passes(probe, changes, POD_IP=f"{HERE}/{port}")

    server = grpc.server(None)
    port = server.add_insecure_port(f"{HERE}:0")
    server.start()
    assert live(port)
    server.stop(0)
    with socket.create_server((HERE, 0)) as silent:
        assert answers(silent.getsockname()[1], HERE)
        assert not live(silent.getsockname()[1])
    assert not live(free_port())


class _JobManager(http.server.BaseHTTPRequestHandler):
    listed = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.listed else 503)
        self.end_headers()
        self.wfile.write(self.listed)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("listed", "ip", "live"),
    [
        (b'{"taskmanagers":[{"path":"pekko.tcp://flink@10.0.0.7:6122/user"}]}', "10.0.0.7", True),
        (b'{"taskmanagers":[{"path":"pekko.tcp://flink@10.0.0.71:6122/user"}]}', "10.0.0.7", False),
        (b'{"taskmanagers":[]}', "10.0.0.7", False),
        (b'{"taskmanagers":[]}', "fd00::7", True),
        (b'{"errors":["Service temporarily unavailable"]}', "10.0.0.7", True),
        (b"", "10.0.0.7", True),
    ],
)
def test_task_manager_that_is_not_listed_is_found(
    listed: bytes, ip: str, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_JobManager, "listed", listed)
    with http.server.HTTPServer((HERE, 0), _JobManager) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        changes = {"$CLUSTER-rest/8081": f"$CLUSTER/{server.server_port}"}
        assert passes(flink_probe("taskManager"), changes, CLUSTER=HERE, POD_IP=ip) == live
        server.shutdown()


def test_task_manager_is_not_to_blame_without_a_list() -> None:
    """Where the job manager is gone or hangs, no task manager starts again."""
    probe = flink_probe("taskManager")
    changes = {"$CLUSTER-rest/8081": f"$CLUSTER/{free_port()}"}
    assert passes(probe, changes, CLUSTER=HERE, POD_IP=HERE)
    with socket.create_server((HERE, 0)) as silent:
        changes = {"$CLUSTER-rest/8081": f"$CLUSTER/{silent.getsockname()[1]}"}
        changes["timeout 5"] = "timeout 1"
        assert passes(probe, changes, CLUSTER=HERE, POD_IP=HERE)
