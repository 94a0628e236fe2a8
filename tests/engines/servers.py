"""The engines as processes of this machine: started on free ports, stopped with all their children.

Versions and commands are those of docs/deploy/index.md.
"""

from __future__ import annotations

import json
import os
import secrets
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

import grpc
import yaml

PROJECT = Path(__file__).resolve().parents[2]
ENGINES = PROJECT / "build" / "engines"
PLANTED = Path(__file__).resolve().parent / "planted"
# What Spark needs to run at all, and Flink to tell why a task failed.
OPENED = (
    *("java.lang", "java.lang.invoke", "java.util", "java.nio", "sun.nio.ch", "java.net"),
    *("java.util.concurrent", "sun.security.action", "java.io"),
)
FLINK = "org.apache.flink.runtime"
START_SECONDS = 90


# Below those that systems give to outgoing connections: a server starts again on its own port.
PORTS = range(15_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    found: set[int] = set()
    while len(found) < count:
        port = secrets.choice(PORTS)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("localhost", port))
            found.add(port)
    return list(found)


def environment(folder: Path) -> dict[str, str]:
    """The environment of launchers and workers: this project, planted faults, one place for
    temporary files, and this Python as ``python``, the name by which a worker pool starts it."""
    below = {name: folder / name for name in ("tmp", "faults")}
    for path in below.values():
        path.mkdir(parents=True, exist_ok=True)
    search = [PLANTED, PROJECT, os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "DPTREES_FAULTS": str(below["faults"]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join(str(each) for each in search if str(each)),
        "TMPDIR": str(below["tmp"]),
    }


@dataclass
class Servers:
    """Processes that belong together; each leads a process group and has a log in the folder."""

    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: list[str]) -> None:
        """Start a process."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment(self.folder),
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a process and its children, with no chance to clean up."""
        process = self.running.pop(name)
        kill_group(process)

    def stop(self) -> None:
        """Kill all."""
        for name in list(self.running):
            self.kill(name)

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait until something is ready.

        Raises:
            RuntimeError: a process has ended, or it took too long; with the ends of the logs.
        """
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit:
            if any(process.poll() is not None for process in self.running.values()):
                break
            if ready():
                return
            time.sleep(0.2)
        logs = [f"{path.name}: {tail(path)}" for path in sorted(self.folder.glob("*.log"))]
        raise RuntimeError("\n".join([f"{what} did not start", *logs]))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, and the group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(path: Path, size: int = 2000) -> str:
    """The end of a log."""
    return path.read_bytes()[-size:].decode(errors="replace")


def accepts_jobs(port: int) -> bool:
    """Tell whether a job server answers."""
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=1)
        except grpc.FutureTimeoutError:
            return False
        return True


def java(lib: Path, folder: Path, *options: str) -> list[str]:
    """The beginning of a command that runs a class of an engine's jars."""
    temporary = f"-Djava.io.tmpdir={folder / 'tmp'}"
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    return ["java", temporary, "-XX:+UseSerialGC", *opened, *options, "-cp", f"{lib}/*"]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine that takes jobs.

    Attributes:
        options: of the command, for two workers.
        other: of the command, for another number of workers where the engine lets one choose.
        servers: the processes; ``servers.folder`` holds all that they write.
        restart_workers: kills what does the work, and starts it again.
        restart_server: kills the job server, where it takes one job at a time, with its job.
        second_server: starts another such one; returns the options that lead to it.
    """

    name: str
    options: tuple[str, ...]
    other: tuple[str, ...]
    servers: Servers
    restart_workers: Callable[[], None] | None = None
    restart_server: Callable[[], None] | None = None
    second_server: Callable[[], tuple[str, ...]] | None = None

    @property
    def faults(self) -> Path:
        """Where faults are planted and what workers did is noted."""
        return self.servers.folder / "faults"


@contextmanager
def local(folder: Path, name: str, *options: str) -> Iterator[Engine]:
    """Beam's local runner, and Prism, which the launcher starts."""
    environment(folder)
    yield Engine(name=name, options=options, other=options, servers=Servers(folder))


def job_server(servers: Servers, name: str, command: list[str], ports: list[int]) -> None:
    """Start a job server and wait until it takes jobs."""
    names = ("job", "artifact", "expansion")
    options = [f"--{each}-port={port}" for each, port in zip(names, ports, strict=True)]
    artifacts = f"--artifacts-dir={servers.folder / 'artifacts'}"
    servers.start(name, [*command, *options, artifacts])
    servers.wait(lambda: accepts_jobs(ports[0]), "the job server")


def job_options(port: int, *options: str) -> tuple[str, ...]:
    """The command's options for a job server of this machine."""
    return ("--runner=PortableRunner", f"--job_endpoint=localhost:{port}", *options)


def flink_configuration(folder: Path, **changed: object) -> Path:
    """The folder with the configuration of deploy/flink, changed: a double underscore is a dot,
    a single one a hyphen."""
    settings = yaml.safe_load((PROJECT / "deploy" / "flink" / "config.yaml").read_text())
    for name, value in changed.items():
        settings[name.replace("__", ".").replace("_", "-")] = value
    settings["io.tmp.dirs"] = str(folder / "tmp")
    configuration = folder / "configuration"
    configuration.mkdir(parents=True)
    (configuration / "config.yaml").write_text(yaml.safe_dump(settings))
    return configuration


@contextmanager
def flink(folder: Path) -> Iterator[Engine]:
    """Flink inside its job server; workers are threads of the launcher."""
    servers = Servers(folder)
    environment(folder)
    # Every job has a cluster of its own in the one process: any port, and little memory each.
    configuration = flink_configuration(
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
        ports = free_ports(3)
        job_server(servers, "job-server", [*command, f"--flink-conf-dir={configuration}"], ports)
        options = job_options(ports[0], "--environment_type=LOOPBACK")
        yield Engine(
            name="flink",
            options=(*options, "--parallelism=2"),
            other=(*options, "--parallelism=1"),
            servers=servers,
        )
    finally:
        servers.stop()


def slots(rest: int) -> int:
    """How many slots a Flink cluster has now."""
    try:
        with urllib.request.urlopen(f"http://localhost:{rest}/overview", timeout=2) as answer:
            return int(json.load(answer)["slots-total"])
    except (OSError, ValueError, KeyError):
        return 0


@contextmanager
def flink_cluster(folder: Path) -> Iterator[Engine]:
    """A job manager, a task manager with two slots, a worker pool and a job server."""
    servers = Servers(folder)
    environment(folder)
    rpc, rest, pool, *ports = free_ports(6)
    configuration = flink_configuration(folder, jobmanager__rpc__port=rpc, rest__port=rest)
    lib = ENGINES / "flink" / "lib"
    entrypoint = f"{FLINK}.entrypoint.StandaloneSessionClusterEntrypoint"
    driver = "org.apache.beam.runners.flink.FlinkJobServerDriver"

    def start_workers() -> None:
        memory = ("-Xmx600m", "-XX:MaxDirectMemorySize=1g")
        runner = f"{FLINK}.taskexecutor.TaskManagerRunner"
        servers.start(
            "task-manager",
            [*java(lib, folder, *memory), runner, "--configDir", str(configuration)],
        )
        module = "apache_beam.runners.worker.worker_pool_main"
        servers.start("worker-pool", [sys.executable, "-m", module, f"--service_port={pool}"])
        servers.wait(lambda: slots(rest) >= 2 and accepts_jobs(pool), "the Flink cluster")

    def restart_workers() -> None:
        servers.kill("task-manager")
        servers.kill("worker-pool")
        start_workers()

    try:
        servers.start(
            "job-manager",
            [*java(lib, folder, "-Xmx512m"), entrypoint, "--configDir", str(configuration)],
        )
        start_workers()
        command = [*java(lib, folder, "-Xmx512m"), driver, f"--flink-master=localhost:{rest}"]
        job_server(servers, "job-server", [*command, f"--flink-conf-dir={configuration}"], ports)
        options = job_options(ports[0], "--environment_type=EXTERNAL")
        options += (f"--environment_config=localhost:{pool}",)
        # Else every stage starts a process of its own, which first imports Beam.
        options += ("--environment_cache_millis=30000",)
        yield Engine(
            name="flink_cluster",
            options=(*options, "--parallelism=2"),
            other=(*options, "--parallelism=1"),
            servers=servers,
            restart_workers=restart_workers,
        )
    finally:
        servers.stop()


@contextmanager
def spark(folder: Path, *options: str) -> Iterator[Engine]:
    """Spark inside its job server, tasks tried many times; workers are threads of the launcher."""
    servers = Servers(folder)
    environment(folder)
    driver = "org.apache.beam.runners.spark.SparkJobServerDriver"
    command = [*java(ENGINES / "spark" / "lib", folder, "-Xmx1500m", *options), driver]
    command.append("--spark-master-url=local[2,30]")
    ports = free_ports(3)

    def restart_server() -> None:
        servers.kill("job-server")
        job_server(servers, "job-server", command, ports)

    def second_server() -> tuple[str, ...]:
        others = free_ports(3)
        job_server(servers, f"job-server-{others[0]}", command, others)
        return job_options(others[0], "--environment_type=LOOPBACK")

    try:
        job_server(servers, "job-server", command, ports)
        leading = job_options(ports[0], "--environment_type=LOOPBACK")
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
        "spark": ENGINES / "spark" / "fetched",
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
        "spark": lambda: spark(folder),
        # So little memory that nothing stays cached: every sink computes all before it again.
        "spark_forgetful": lambda: spark(folder, "-Dspark.memory.fraction=0.00001"),
    }
    return started[name]()
