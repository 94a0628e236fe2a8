"""Flink on this machine: a job manager, task managers with a worker pool each, a job server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from deploy.cluster import worker_pool
from deploy.cluster.cluster import Cluster
from deploy.cluster.processes import (
    ENGINES,
    PROJECT,
    java,
    job_server,
    overview,
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
class FlinkCluster(Cluster):
    """A session cluster: each worker is a task manager with two slots, and has a worker pool."""

    lib = LIB
    worker = "task-manager"

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

    def _start_alone(self, number: int) -> None:
        folder = self.servers.folder
        memory = ("-Xmx600m", "-XX:MaxDirectMemorySize=1g", worker_pool.hosts(number, folder))
        runner = f"{RUNTIME}.taskexecutor.TaskManagerRunner"
        self.servers.start(
            f"task-manager-{number}",
            [*java(LIB, folder, *memory), runner, "--configDir", str(folder / "configuration")],
        )

    def _known(self) -> int:
        return int(overview(self.ports.page, "overview").get("taskmanagers", 0))
