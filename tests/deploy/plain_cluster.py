"""Clusters that know nothing of Beam, as images of Flink and Spark are: a job brings its jar.

Their processes run in the folder of a team that has its own `pipelines/`, with an installed wheel.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.cluster.processes import ENGINES, OPENED, PROJECT
from tests.deploy.manifests import DEPLOY, manifest
from tests.engines.servers import BRIEF
from tests.ports import free_port
from tests.wheel import install_wheel, write_own_packages

START_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class PlainCluster:
    """Jars of an engine without Beam's, and the processes that were started of them.

    Args:
        engine: ``flink`` or ``spark``.
        folder: for all that the processes write.
        installed: the files of dptrees, for PYTHONPATH.
    """

    engine: str
    folder: Path
    installed: Path
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def link_jars(self) -> None:
        """Gathers the engine's own jars."""
        jars = self.folder / "jars"
        jars.mkdir(parents=True)
        for jar in sorted((ENGINES / self.engine / "lib").resolve().glob("*.jar")):
            if not jar.name.startswith("beam-"):
                (jars / jar.name).symlink_to(jar)

    def java(self, *arguments: str, memory: str = "512m") -> list[str]:
        """A command that runs a class of these jars."""
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        sizes = [f"-Xmx{memory}", "-XX:MaxDirectMemorySize=1g", "-XX:+UseSerialGC"]
        temporary = f"-Djava.io.tmpdir={self.folder}"
        return ["java", *sizes, temporary, *opened, "-cp", f"{self.folder}/jars/*", *arguments]

    def job_server(self, options: dict[str, str]) -> list[str]:
        """The command that an image of Beam's job server runs."""
        jar = ENGINES / f"{self.engine}-job" / "job-server.jar"
        given = [f"--{name}={value}" for name, value in options.items()]
        return ["java", "-Xmx512m", f"-Djava.io.tmpdir={self.folder}", "-jar", str(jar), *given]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of all processes: dptrees, and this Python as ``python``, which a pool
        starts."""
        search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        given = {"PATH": search, "PYTHONPATH": str(self.installed), "TMPDIR": str(self.folder)}
        return os.environ | given | {"JDK_JAVA_OPTIONS": BRIEF}

    def start(self, name: str, command: list[str]) -> None:
        """Starts a process that leads a group; its log is in the folder."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    env=self.environment,
                    start_new_session=True,
                )
            )

    def run(self, command: list[str], **more: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        environment = self.environment | more
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True
        )

    def stop(self) -> None:
        """Kills what was started."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits until something is ready."""
        limit = time.monotonic() + START_SECONDS
        while not ready():
            logs = [path.read_text()[-1500:] for path in sorted(self.folder.glob("*.log"))]
            assert time.monotonic() < limit, "\n".join(logs)
            assert all(process.poll() is None for process in self.started), "\n".join(logs)
            time.sleep(0.2)

    def start_pool(self) -> int:
        """Starts a worker pool; returns its port."""
        port = free_port()
        module = "apache_beam.runners.worker.worker_pool_main"
        self.start("pool", [sys.executable, "-m", module, f"--service_port={port}"])
        self.wait(lambda: answers(port))
        return port


def answers(port: int, host: str = "localhost") -> bool:
    """Tells whether somebody listens."""
    with socket.socket() as tried:
        return tried.connect_ex((host, port)) == 0


@contextmanager
def plain(engine: str, folder: Path) -> Iterator[PlainCluster]:
    """An engine without Beam; what is started of it ends with the test. Without jars it skips."""
    if reason := absent():
        assert not os.environ.get("DPTREES_REQUIRE_ENGINES"), reason
        pytest.skip(reason)
    write_own_packages(folder)
    installed = install_wheel(folder / "wheel")
    made = PlainCluster(engine=engine, folder=folder, installed=installed)
    made.link_jars()
    try:
        yield made
    finally:
        made.stop()


def start_flink(cluster: PlainCluster) -> int:
    """Starts a job manager and one task manager, with the configuration of the manifests.

    Returns:
        the port of the cluster's REST interface.
    """
    rest = free_port()
    deployed = manifest("application/flink.yaml", "FlinkDeployment")["spec"]["flinkConfiguration"]
    # One machine's: every memory key, since no start script computes them, and other ports.
    local = yaml.safe_load((DEPLOY / "flink" / "config.yaml").read_text())
    local.pop("classloader.resolve-order", None)
    ports = {"jobmanager.rpc.port": free_port(), "rest.port": rest}
    ports |= {name: 0 for name in deployed if name.endswith(".port")}
    # The operator writes the parallelism of its job so: a pod with a slot for each worker.
    slots = {"taskmanager.numberOfTaskSlots": 2, "parallelism.default": 2}
    settings = {**local, **deployed, **ports, **slots}
    settings["io.tmp.dirs"] = str(cluster.folder)
    (cluster.folder / "conf").mkdir()
    (cluster.folder / "conf" / "config.yaml").write_text(yaml.safe_dump(settings))
    where = ("--configDir", str(cluster.folder / "conf"))
    runtime = "org.apache.flink.runtime"
    session = f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint"
    cluster.start("job-manager", cluster.java(session, *where))
    worker = f"{runtime}.taskexecutor.TaskManagerRunner"
    cluster.start("task-manager", cluster.java(worker, *where, memory="600m"))
    cluster.wait(lambda: _slots(rest) == 2)
    return rest


def parallelism(rest: int) -> set[int]:
    """The largest parallelism of a step in each job that a cluster has run."""

    def read(path: str) -> Any:
        with urllib.request.urlopen(f"http://localhost:{rest}/{path}", timeout=10) as answer:
            return json.load(answer)

    jobs = [read(f"jobs/{each['jid']}") for each in read("jobs/overview")["jobs"]]
    return {max(each["parallelism"] for each in job["vertices"]) for job in jobs}


def _slots(rest: int) -> int:
    try:
        with urllib.request.urlopen(f"http://localhost:{rest}/overview", timeout=2) as answer:
            return int(json.load(answer)["slots-total"])
    except (OSError, ValueError, KeyError):
        return 0


def absent() -> str:
    """Why a job jar cannot be made or run here; "" where it can."""
    if shutil.which("java") is None:
        return "no java"
    for engine in ("flink", "spark"):
        for path in (ENGINES / engine / "fetched", ENGINES / f"{engine}-job" / "job-server.jar"):
            if not path.exists():
                return f"no {path.relative_to(PROJECT)}: make engines job-jars"
    return ""
