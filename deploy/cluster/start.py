"""A Flink cluster to look at: ``make start`` and ``make stop``.

    python -m deploy.cluster.start [--free-ports] [--folder FOLDER]
    python -m deploy.cluster.start --stop [--folder FOLDER]

A job manager, a task manager of two slots with its worker pool and a job server, which go on when
the command has ended. The folder (build/cluster) holds their logs and which processes they are.

Flink and the pool listen on this machine alone; Beam's job server listens on all addresses. Who
reaches the ports runs any code as the user who started them, and so reads the key and the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from deploy.cluster.flink import LIB, FlinkCluster
from deploy.cluster.processes import PROJECT, Ports, Servers, is_free

FOLDER = PROJECT / "build" / "cluster"
# Those that the pages of Flink and Beam name, and the images of Beam for the pool.
USUAL = Ports(cluster=6123, page=8081, pool=50000, job=8099, artifact=8098, expansion=8097)
# Else Flink listens on all addresses, and takes jobs from whoever asks.
HERE = {
    "rest__bind_address": "localhost",
    "jobmanager__bind_host": "localhost",
    "taskmanager__bind_host": "localhost",
    "taskmanager__host": "localhost",
}
# Of this environment; not what may hold a key, a password or a token.
GIVEN = ("HOME", "JAVA_HOME", "LANG", "LC_ALL", "OPENBLAS_NUM_THREADS", "TZ", "USER")
WARNING = (
    "Who reaches its ports runs any code as you, and so reads the key and the rows: never on a",
    "machine with other users. Its job server listens on all addresses: put up a firewall.",
)
# Of processes that were asked to end.
STOP_SECONDS = 10


class NotStarted(Exception):
    """Why there is no cluster, in a sentence."""


def main() -> int:
    """Start or stop; 2 and a sentence where that cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stop", action="store_true", help="end what was started")
    parser.add_argument("--free-ports", action="store_true", help="in place of the usual ones")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of logs; %(default)s")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    if arguments.stop:
        print("The cluster is down." if stop(folder) else "No cluster was up.")
        return 0
    try:
        cluster = start(folder, Ports.free() if arguments.free_ports else USUAL)
    except NotStarted as error:
        print(f"make start: {error}", file=sys.stderr)
        return 2
    print(told(cluster))
    return 0


def start(folder: Path, ports: Ports) -> FlinkCluster:
    """Start the cluster.

    Raises:
        NotStarted: it runs, a port is taken, or a process ended; then none goes on.
    """
    if any(is_running(*each) for each in processes(folder).items()):
        raise NotStarted("the cluster is up already; make stop ends it")
    if not LIB.is_dir():
        raise NotStarted(f"there is no {LIB.relative_to(PROJECT)}; make engines fetches it")
    for name, port in asdict(ports).items():
        if not is_free(port):
            raise NotStarted(
                f"port {port} ({name}) is taken on this machine; end what listens there, or let "
                "free ports be chosen: make start START=--free-ports"
            )
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "tmp").mkdir(parents=True)
    folder.chmod(0o700)  # what an engine stores between steps is exact
    cluster = FlinkCluster(servers=Servers(folder, environment(folder)), ports=ports, workers=1)
    try:
        cluster.start(**HERE)
    except BaseException as error:
        cluster.servers.stop()
        if isinstance(error, RuntimeError):
            raise NotStarted(f"a process ended or took too long; its log is in {folder}") from None
        raise
    started = {each.pid: begun(each.pid) for each in cluster.servers.running.values()}
    (folder / "processes.json").write_text(json.dumps(started))
    return cluster


def environment(folder: Path) -> dict[str, str]:
    """What the processes are given: little of this environment, this project, and this Python as
    ``python``, the name by which a worker pool starts workers."""
    path = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    search = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {name: os.environ[name] for name in GIVEN if name in os.environ} | {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": os.pathsep.join(search),
        "TMPDIR": str(folder / "tmp"),
    }


def told(cluster: FlinkCluster) -> str:
    """What a person does next."""
    command = shlex.join(["examples/routes.yaml", *cluster.options(), "--parallelism=2"])
    return "\n".join(
        [
            f"Flink is up, and shows its jobs at http://localhost:{cluster.ports.page}",
            "A release on it (a second one finds the release made):",
            "",
            "  .venv/bin/dptrees release " + command.replace(" --", " \\\n    --"),
            "",
            *WARNING,
            f"Logs are in {os.path.relpath(cluster.servers.folder)}; make stop ends it all.",
        ]
    )


def stop(folder: Path) -> bool:
    """End the processes that were started, and take away what they stored; tell whether any ran."""
    found = {pid for pid, when in processes(folder).items() if is_running(pid, when)}
    for sent in (signal.SIGTERM, signal.SIGKILL):
        for pid in found:
            with suppress(ProcessLookupError):
                os.killpg(pid, sent)
        limit = time.monotonic() + STOP_SECONDS
        while found & groups_at_work() and time.monotonic() < limit:
            time.sleep(0.1)
    for name in ("processes.json", "tmp", "artifacts"):
        left = folder / name
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
    return bool(found)


def processes(folder: Path) -> dict[int, str]:
    """The processes that were started, and when each began."""
    try:
        read = json.loads((folder / "processes.json").read_text())
    except FileNotFoundError:
        return {}
    return {int(pid): when for pid, when in read.items()}


def is_running(pid: int, when: str) -> bool:
    """Tell whether a process is the one that was started: its number may be another's by now."""
    return begun(pid) == when != ""


def begun(pid: int) -> str:
    """When a process began; empty where there is none."""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def groups_at_work() -> set[int]:
    """The process groups of this machine, but for those of which only names are left."""
    listed = subprocess.run(
        ["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True
    )
    pairs = (line.split() for line in listed.stdout.splitlines())
    return {int(group) for group, state in pairs if not state.startswith("Z")}


if __name__ == "__main__":
    sys.exit(main())
