"""The engines as processes of this machine: started on free ports, stopped with all their children.

Versions and commands are those of docs/deploy/index.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.cluster.flink import FlinkCluster, configuration
from deploy.cluster.processes import (
    ENGINES,
    PROJECT,
    Servers,
    java,
    job_options,
    job_server,
    kill_group,
)
from deploy.cluster.spark import SparkCluster
from tests.ports import engine_ports
from tests.processors.emulated import PROCESSORS

__all__ = ["BRIEF", "PROJECT", "Engine", "engine", "environment", "kill_group", "missing"]

PLANTED = Path(__file__).resolve().parent / "planted"
# Of jobs of seconds the second compiler of Java takes more than half, and gives nothing back.
BRIEF = "-XX:TieredStopAtLevel=1"


def environment(folder: Path) -> dict[str, str]:
    """The environment of launchers and workers: this project, planted faults, one place for
    temporary files, and this Python as ``python``, the name by which a worker pool starts it."""
    below = {name: folder / name for name in ("tmp", "faults")}
    for path in below.values():
        path.mkdir(parents=True, exist_ok=True)
    search = [PLANTED, PROJECT, os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "DPTREES_FAULTS": str(below["faults"]),
        "JDK_JAVA_OPTIONS": BRIEF,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(str(each) for each in search if str(each)),
        "TMPDIR": str(below["tmp"]),
    }


def servers_in(folder: Path) -> Servers:
    """The processes of an engine, none yet, into which faults can be planted."""
    return Servers(folder, environment(folder))


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that takes jobs.

    Attributes:
        options: of the command, for two workers, as a person types them.
        other: of the command, for another number of workers where the engine lets one choose.
        servers: the processes; ``servers.folder`` holds all that they write.
        kill_worker: kills one of the two that do the work, 0 or 1, where engines have such.
        start_worker: starts one again.
        restart_server: kills the job server, where it takes one job at a time, with its job.
        second_server: starts another such one; returns the options that lead to it.
    """

    name: str
    options: tuple[str, ...]
    other: tuple[str, ...]
    servers: Servers
    kill_worker: Callable[[int], None] | None = None
    start_worker: Callable[[int], None] | None = None
    restart_server: Callable[[], None] | None = None
    second_server: Callable[[], tuple[str, ...]] | None = None

    @property
    def quick(self) -> tuple[str, ...]:
        """`options` without the job that goes first, which starts workers of its own."""
        return (*self.options, "--no_preflight")

    @property
    def faults(self) -> Path:
        """Where faults are planted and what workers did is noted."""
        return self.servers.folder / "faults"


@contextmanager
def local(folder: Path, name: str, *options: str) -> Iterator[Engine]:
    """Beam's local runner, and Prism, which the launcher starts."""
    yield Engine(name=name, options=options, other=options, servers=servers_in(folder))


@contextmanager
def flink(folder: Path) -> Iterator[Engine]:
    """Flink inside its job server; workers are threads of the launcher."""
    servers = servers_in(folder)
    # Every job has a cluster of its own in the one process: any port, and little memory each.
    configured = configuration(
        folder,
        jobmanager__rpc__port=0,
        rest__port=0,
        rest__bind_port=0,
        taskmanager__memory__network__min="64m",
        taskmanager__memory__network__max="64m",
    )
    memory = ("-Xmx1500m", "-XX:MaxDirectMemorySize=2g")
    driver = "org.apache.beam.runners.flink.FlinkJobServerDriver"
    command = [*java(ENGINES / "flink" / "lib", folder, *memory), driver]
    try:
        ports = engine_ports()
        job_server(servers, "job-server", [*command, f"--flink-conf-dir={configured}"], ports)
        options = job_options(ports.job, "--environment_type=LOOPBACK")
        yield Engine(
            name="flink",
            options=(*options, "--parallelism=2"),
            other=(*options, "--parallelism=1"),
            servers=servers,
        )
    finally:
        servers.stop()


# What the two workers of `flink_processors` take their processors for; the launcher is native.
OF_WORKERS = ("nehalem", "haswell")


@contextmanager
def flink_cluster(folder: Path, processors: Sequence[str] = ()) -> Iterator[Engine]:
    """A job manager, two task managers of two slots with a worker pool each, and a job server; the
    pools' workers may run on emulated processors."""
    cluster = FlinkCluster(
        servers=servers_in(folder),
        ports=engine_ports(),
        workers=2,
        differing=[PROCESSORS[each] for each in processors],
    )
    try:
        # Else one task manager gets both parts of a job while the other has nothing to do.
        cluster.start(cluster__evenly_spread_out_slots=True)
        yield Engine(
            name="flink_cluster",
            options=(*cluster.options(), "--parallelism=2"),
            other=(*cluster.options(), "--parallelism=1", "--no_preflight"),
            servers=cluster.servers,
            start_worker=cluster.start_worker,
            kill_worker=cluster.kill_worker,
        )
    finally:
        cluster.servers.stop()


# A task that takes longer than another of its stage is tried a second time meanwhile.
SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.multiplier=1.01",
    "spark.speculation.quantile=0.5",
    "spark.speculation.interval=20ms",
    "spark.speculation.minTaskRuntime=1500ms",
    "spark.speculation.efficiency.enabled=false",
)


@contextmanager
def spark_cluster(folder: Path) -> Iterator[Engine]:
    """A master, two workers of one core with a worker pool each, and a job server; what tasks did
    is in ``folder/events``."""
    events = folder / "events"
    events.mkdir()
    logged = ("spark.eventLog.enabled=true", f"spark.eventLog.dir={events.as_uri()}")
    cluster = SparkCluster(
        servers=servers_in(folder),
        ports=engine_ports(),
        workers=2,
        properties=(*SPECULATION, *logged),
    )
    try:
        cluster.start()
        yield Engine(
            name="spark_cluster",
            options=cluster.options(),
            other=cluster.options(),
            servers=cluster.servers,
            start_worker=cluster.start_worker,
            kill_worker=cluster.kill_worker,
        )
    finally:
        cluster.servers.stop()


@contextmanager
def spark(folder: Path, *options: str) -> Iterator[Engine]:
    """Spark inside its job server, tasks tried many times; workers are threads of the launcher."""
    servers = servers_in(folder)
    driver = "org.apache.beam.runners.spark.SparkJobServerDriver"
    command = [*java(ENGINES / "spark" / "lib", folder, "-Xmx1500m", *options), driver]
    command.append("--spark-master-url=local[2,30]")
    ports = engine_ports()

    def restart_server() -> None:
        servers.kill("job-server")
        job_server(servers, "job-server", command, ports)

    def second_server() -> tuple[str, ...]:
        others = engine_ports()
        job_server(servers, f"job-server-{others.job}", command, others)
        return job_options(others.job, "--environment_type=LOOPBACK")

    try:
        job_server(servers, "job-server", command, ports)
        leading = job_options(ports.job, "--environment_type=LOOPBACK")
        yield Engine(
            name="spark",
            options=leading,
            other=leading,
            servers=servers,
            restart_server=restart_server,
            second_server=second_server,
        )
    finally:
        servers.stop()


def missing(name: str) -> str:
    """Why an engine cannot run here; empty where it can."""
    needed = {
        "prism": ENGINES / "bin" / "prism",
        "flink": ENGINES / "flink" / "fetched",
        "flink_cluster": ENGINES / "flink" / "fetched",
        "flink_processors": ENGINES / "flink" / "fetched",
        "spark": ENGINES / "spark" / "fetched",
        "spark_cluster": ENGINES / "spark" / "fetched",
        "spark_forgetful": ENGINES / "spark" / "fetched",
    }
    path = needed.get(name)
    if path is None or path.exists():
        return ""
    return f"no {path.relative_to(PROJECT)}: make engines"


def engine(name: str, folder: Path) -> contextmanager[Engine]:  # type: ignore[valid-type]
    """Start an engine by its name."""
    processes = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    prism = ("--runner=PrismRunner", f"--prism_location={ENGINES / 'bin' / 'prism'}")
    started = {
        "local": lambda: local(folder, name),
        "local_processes": lambda: local(folder, name, *processes),
        "prism": lambda: local(folder, name, *prism, "--environment_type=LOOPBACK"),
        "flink": lambda: flink(folder),
        "flink_cluster": lambda: flink_cluster(folder),
        "flink_processors": lambda: flink_cluster(folder, OF_WORKERS),
        "spark": lambda: spark(folder),
        "spark_cluster": lambda: spark_cluster(folder),
        # So little memory that nothing stays cached: every sink computes all before it again.
        "spark_forgetful": lambda: spark(folder, "-Dspark.memory.fraction=0.00001"),
    }
    return started[name]()
