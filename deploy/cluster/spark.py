"""Spark on this machine: a master, workers with a worker pool each, a job server."""

from __future__ import annotations

from dataclasses import dataclass

from deploy.cluster import worker_pool
from deploy.cluster.cluster import Cluster
from deploy.cluster.processes import (
    ENGINES,
    java,
    job_server,
    overview,
    staged,
)

LIB = ENGINES / "spark" / "lib"
DEPLOY = "org.apache.spark.deploy"
DRIVER = "org.apache.beam.runners.spark.SparkJobServerDriver"


@dataclass(frozen=True, kw_only=True)
class SparkCluster(Cluster):
    """The processes of a standalone cluster: each worker runs one executor a job, of one core, and
    has a worker pool.

    Attributes:
        properties: of Spark, for the job server's jobs.
    """

    lib = LIB
    worker = "worker"

    properties: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """The master, as jobs name it."""
        return f"spark://localhost:{self.ports.cluster}"

    def start(self) -> None:
        """Start everything, and wait until it takes jobs."""
        folder, ports = self.servers.folder, self.ports
        # What a distribution of Spark looks like to a worker, which runs executors from it.
        home = folder / "spark-home"
        home.mkdir(exist_ok=True)
        (home / "jars").symlink_to(LIB)
        listening = ("--port", str(ports.cluster), "--webui-port", str(ports.page))
        self._start("master", "master.Master", "--host", "localhost", *listening)
        self.servers.wait(lambda: bool(overview(ports.page, "json/")), "Spark's master")
        for number in range(self.workers):
            self._start_worker(number)
        self.start_server()
        self._wait(range(self.workers))

    def options(self) -> tuple[str, ...]:
        """The command's options for a job on the cluster."""
        return (*super().options(), staged(LIB))

    def start_server(self) -> None:
        """Start the job server, which runs the drivers of the jobs."""
        given = ("spark.executor.memory=512m", *self.properties)
        options = ("-Xmx1g", *(f"-D{each}" for each in given))
        command = [*java(LIB, self.servers.folder, *options), DRIVER]
        command.append(f"--spark-master-url={self.url}")
        job_server(self.servers, "job-server", command, self.ports)

    def _start(self, name: str, role: str, *options: str, **environment: str) -> None:
        folder = self.servers.folder
        command = [*java(LIB, folder, "-Xmx300m"), f"{DEPLOY}.{role}"]
        environment |= {
            "SPARK_HOME": str(folder / "spark-home"),
            "SPARK_LOCAL_DIRS": str(folder / "tmp"),
            "SPARK_SCALA_VERSION": "2.12",
        }
        self.servers.start(name, [*command, *options], **environment)

    def _start_alone(self, number: int) -> None:
        work = ("--work-dir", str(self.servers.folder / f"work-{number}"))
        # As on machines of their own: a task that is tried twice at once runs on two hosts.
        host = ("--host", worker_pool.host(number))
        size = ("--cores", "1", "--memory", "1g", "--webui-port", "0")
        # An executor has the environment of its worker.
        named = worker_pool.hosts(number, self.servers.folder)
        worker = ("worker.Worker", *host, *size, *work, self.url)
        self._start(f"worker-{number}", *worker, JAVA_TOOL_OPTIONS=named)

    def _known(self) -> int:
        return int(overview(self.ports.page, "json/").get("aliveworkers", 0))
