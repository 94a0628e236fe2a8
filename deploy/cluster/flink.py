"""Flink on this machine: a job manager, task managers with a worker pool each, a job server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from deploy.cluster import worker_pool
from deploy.cluster.processes import (
    ENGINES,
    PROJECT,
    Ports,
    Servers,
    accepts_jobs,
    java,
    job_options,
    job_server,
    overview,
    staged,
)

LIB = ENGINES / "flink" / "lib"
RUNTIME = "org.apache.flink.runtime"
DRIVER = "org.apache.beam.runners.flink.FlinkJobServerDriver"


def configuration(folder: Path, **changed: object) -> Path:
    """The folder with the configuration of deploy/flink, changed: a double underscore is a dot,
    a single one a hyphen."""
    settings = yaml.safe_load((PROJECT / "deploy" / "flink" / "config.yaml").read_text())
    for name, value in changed.items():
        settings[name.replace("__", ".").replace("_", "-")] = value
    settings["io.tmp.dirs"] = str(folder / "tmp")
    made = folder / "configuration"
    made.mkdir(parents=True, exist_ok=True)
    (made / "config.yaml").write_text(yaml.safe_dump(settings))
    return made


@dataclass(frozen=True, kw_only=True)
class FlinkCluster:
    """The processes of a cluster, of which each worker is a task manager and a worker pool.

    Attributes:
        servers: the processes.
        ports: where they listen.
        workers: how many there are, with two slots each.
    """

    servers: Servers
    ports: Ports
    workers: int

    def start(self, **settings: object) -> None:
        """Start everything, with other settings than those of deploy/flink (`configuration`), and
        wait until it takes jobs."""
        folder, ports = self.servers.folder, self.ports
        configured = configuration(
            folder, jobmanager__rpc__port=ports.cluster, rest__port=ports.page, **settings
        )
        entrypoint = f"{RUNTIME}.entrypoint.StandaloneSessionClusterEntrypoint"
        begun = [*java(LIB, folder, "-Xmx512m")]
        self.servers.start("job-manager", [*begun, entrypoint, "--configDir", str(configured)])
        for number in range(self.workers):
            self._start_worker(number)
        options = (f"--flink-master=localhost:{ports.page}", f"--flink-conf-dir={configured}")
        job_server(self.servers, "job-server", [*begun, DRIVER, *options], ports)
        self._wait(range(self.workers))

    def start_worker(self, number: int) -> None:
        """Start a worker that was killed, and wait until the cluster has it."""
        self._start_worker(number)
        self._wait([number])

    def kill_worker(self, number: int) -> None:
        """Kill a task manager and its pool, with no chance to clean up."""
        self.servers.kill(f"task-manager-{number}")
        self.servers.kill(f"worker-pool-{number}")

    def options(self) -> tuple[str, ...]:
        """The command's options for a job on the cluster, but for the parallelism."""
        return job_options(
            self.ports.job,
            "--environment_type=EXTERNAL",
            f"--environment_config={worker_pool.NAME}:{self.ports.pool}",
            # Else every stage starts a process of its own, which first imports Beam.
            "--environment_cache_millis=30000",
            staged(LIB),
        )

    def _start_worker(self, number: int) -> None:
        folder = self.servers.folder
        memory = ("-Xmx600m", "-XX:MaxDirectMemorySize=1g", worker_pool.hosts(number, folder))
        runner = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
        self.servers.start(
            f"task-manager-{number}",
            [*java(LIB, folder, *memory), runner, "--configDir", str(folder / "configuration")],
        )
        pool = worker_pool.command(number, self.ports.pool)
        self.servers.start(f"worker-pool-{number}", pool)

    def _wait(self, numbers: Iterable[int]) -> None:
        pools = [f"{worker_pool.host(number)}:{self.ports.pool}" for number in numbers]
        running = sum(name.startswith("worker-pool") for name in self.servers.running)
        self.servers.wait(
            lambda: (
                overview(self.ports.page, "overview").get("taskmanagers", 0) >= running
                and all(accepts_jobs(each) for each in pools)
            ),
            "the Flink cluster",
        )
