"""`make start`: a cluster to look at, which the command leaves running, and `make stop`."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from deploy.cluster.processes import PROJECT, overview
from deploy.cluster.start import groups_at_work, processes
from tests.engines.conftest import absent, make_workspace
from tests.engines.servers import Engine, missing, servers_in

pytestmark = pytest.mark.engines


def ran(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """What `make start` and `make stop` run, with these options."""
    command = [sys.executable, "-m", "deploy.cluster.start", *map(str, options)]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster, which is down after the test."""
    if reason := missing("flink_cluster"):
        absent(reason)
    folder = tmp_path / "cluster"
    yield folder
    ran("--stop", "--folder", folder)


def rpc_port(cluster: Path) -> int:
    """Where the job manager listens for its workers."""
    settings = yaml.safe_load((cluster / "configuration" / "config.yaml").read_text())
    return int(settings["jobmanager.rpc.port"])


def test_start_release_stop(tmp_path: Path, cluster: Path, undisturbed: dict[str, bytes]) -> None:
    started = ran("--free-ports", "--folder", cluster)
    assert started.returncode == 0, started.stderr
    page = re.search(r"http://localhost:(\d+)", started.stdout)
    assert page is not None and overview(int(page[1]), "overview")["taskmanagers"] == 1
    for port in (int(page[1]), rpc_port(cluster)):  # listens on 127.0.0.1 alone
        socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port))
    options = tuple(re.findall(r"^    (--\S+)", started.stdout, re.MULTILINE))

    (tmp_path / "launcher").mkdir()
    engine = Engine(
        name="started", options=options, other=options, servers=servers_in(tmp_path / "launcher")
    )
    (tmp_path / "released").mkdir()
    assert make_workspace(tmp_path / "released", engine).release(options) == undisturbed
    jobs = overview(int(page[1]), "jobs/overview")["jobs"]
    assert [job["state"] for job in jobs] == ["FINISHED", "FINISHED"]  # the first looks at workers

    again = ran("--free-ports", "--folder", cluster)
    assert again.returncode == 2
    assert again.stderr == "make start: the cluster is up already; make stop ends it\n"

    groups = set(processes(cluster))
    assert len(groups) == 4 and groups <= groups_at_work()
    assert ran("--stop", "--folder", cluster).stdout == "The cluster is down.\n"
    assert not groups & groups_at_work()
    assert overview(int(page[1]), "overview") == {}
    assert not (cluster / "tmp").exists()  # what the engine stored was exact
    assert ran("--stop", "--folder", cluster).stdout == "No cluster was up.\n"


def test_taken_port_is_told(cluster: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # another took it
            taken.bind(("localhost", 8081))
            taken.listen()
        told = ran("--folder", cluster)
    assert told.returncode == 2
    assert re.fullmatch(r"make start: port \d+ \(\w+\) is taken on this machine; .*\n", told.stderr)
    assert not cluster.exists()


def test_process_that_took_a_number_over_is_left_alone(cluster: Path) -> None:
    cluster.mkdir()
    (cluster / "processes.json").write_text(f'{{"{os.getpid()}": "yesterday"}}')
    assert ran("--stop", "--folder", cluster).stdout == "No cluster was up.\n"
