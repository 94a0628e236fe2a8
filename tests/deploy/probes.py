"""Probes of the manifests, run as the kubelet runs them, and processes that hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.deploy.manifests import Manifest, manifest, pods

# The address of this machine, in place of a pod's.
HERE = "127.0.0.1"


def pool_probe() -> Manifest:
    """The liveness probe of a worker pool; test_kubernetes.py compares all pools."""
    spec = manifest("session/flink.yaml", "FlinkDeployment")["spec"]
    (pool,) = spec["taskManager"]["podTemplate"]["spec"]["initContainers"]
    return dict(pool["livenessProbe"])


def flink_probe(role: str) -> Manifest:
    """The liveness probe of a job manager or a task manager of Flink."""
    spec = manifest("session/flink.yaml", "FlinkDeployment")["spec"]
    (container,) = spec[role]["podTemplate"]["spec"]["containers"]
    return dict(container["livenessProbe"])


def server_probe() -> Manifest:
    """The liveness probe of Beam's job server."""
    (container,) = next(pods(manifest("session/job-server.yaml", "Deployment")))["spec"][
        "containers"
    ]
    return dict(container["livenessProbe"])


def passes(probe: Manifest, changes: dict[str, str], **environment: str) -> bool:
    """Run the command of a probe, with ports and seconds of this test in place of its own."""
    *command, script = probe["exec"]["command"]
    for old, new in changes.items():
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ended = subprocess.run(
        [*command, script],
        env={"PATH": search, **environment},
        capture_output=True,
        timeout=probe["timeoutSeconds"],
    )
    return ended.returncode == 0


def all_stopped(pid: int) -> bool:
    """Report whether every thread of a process is in the state T of the kernel."""
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)


@contextmanager
def hanging(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Stop the threads of a process and of its children; each ends first what it does just now."""
    os.killpg(process.pid, signal.SIGSTOP)
    limit = time.monotonic() + 10
    while not all_stopped(process.pid):
        assert time.monotonic() < limit
        time.sleep(0.01)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGCONT)
