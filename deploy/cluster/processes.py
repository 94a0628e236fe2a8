"""Servers as processes of this machine that belong together: started, waited for, killed whole.

Versions and commands are those of docs/deploy.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import grpc

PROJECT = Path(__file__).resolve().parents[2]
ENGINES = PROJECT / "build" / "engines"
# What Spark needs to run at all, and Flink to tell why a task failed.
OPENED = (
    *("java.lang", "java.lang.invoke", "java.util", "java.nio", "sun.nio.ch", "java.net"),
    *("java.util.concurrent", "sun.security.action", "java.io"),
)
START_SECONDS = 300
# Below those that systems give to outgoing connections: a server starts again on its own port.
PORTS = range(15_000, 20_000)


def is_free(port: int) -> bool:
    """Tell whether nobody listens on a port of this machine."""
    with socket.socket() as tried:
        # As the servers do: a port whose last connection has just closed is free.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("localhost", port))
        except OSError:
            return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    found: set[int] = set()
    while len(found) < count:
        port = secrets.choice(PORTS)
        if is_free(port):
            found.add(port)
    return list(found)


@dataclass
class Servers:
    """Processes that belong together; each leads a process group and has a log in the folder.

    Attributes:
        folder: where they run and write.
        environment: what they all are given.
        running: those that were started and not killed, by name.
    """

    folder: Path
    environment: Mapping[str, str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: list[str], **environment: str) -> None:
        """Start a process, with more in its environment than all have."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**self.environment, **environment},
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """Kill a process and its children, with no chance to clean up."""
        kill_group(self.running.pop(name))

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


def accepts_jobs(address: str) -> bool:
    """Tell whether a job server or a worker pool answers at ``host:port``."""
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=1)
        except grpc.FutureTimeoutError:
            return False
        return True


def overview(port: int, path: str) -> dict[str, Any]:
    """What an engine's page tells as JSON; nothing while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/{path}", timeout=2) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError):
        return {}


def java(lib: Path, folder: Path, *options: str) -> list[str]:
    """The beginning of a command that runs a class of an engine's jars."""
    temporary = f"-Djava.io.tmpdir={folder / 'tmp'}"
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    return ["java", temporary, "-XX:+UseSerialGC", *opened, *options, "-cp", f"{lib}/*"]


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Where the processes of an engine listen.

    Attributes:
        cluster: the job manager or the master, for what works for it.
        page: its page, and its REST interface.
        pool: every worker pool, on an address of its own.
        job: the job server, which the launcher asks.
        artifact: the same, for files.
        expansion: the same, for transforms of other languages.
    """

    cluster: int
    page: int
    pool: int
    job: int
    artifact: int
    expansion: int

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody listens on."""
        names = [each.name for each in fields(cls)]
        return cls(**dict(zip(names, free_ports(len(names)), strict=True)))


def job_server(servers: Servers, name: str, command: list[str], ports: Ports) -> None:
    """Start a job server and wait until it takes jobs."""
    options = (
        f"--job-port={ports.job}",
        f"--artifact-port={ports.artifact}",
        f"--expansion-port={ports.expansion}",
        f"--artifacts-dir={servers.folder / 'artifacts'}",
    )
    servers.start(name, [*command, *options])
    servers.wait(lambda: accepts_jobs(f"localhost:{ports.job}"), "the job server")


def job_options(port: int, *options: str) -> tuple[str, ...]:
    """The command's options for a job server of this machine."""
    return ("--runner=PortableRunner", f"--job_endpoint=localhost:{port}", *options)


def staged(lib: Path) -> str:
    """The option with which a job on Spark takes no jar of it along, but one that is empty.

    Without it every job carries all of them, 300 MB, to executors whose class path has them.
    """
    (empty,) = lib.glob("grpc-context-*.jar")
    return f"--files_to_stage={empty}"
