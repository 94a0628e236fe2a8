"""What tests need of Google Cloud: its clients, and a stand-in of Cloud Storage (`make gcp`).

Both lie in build/gcp, an environment of its own; `make test-gcp` runs the tests there.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]
REQUIRED = "DPTREES_REQUIRE_GCP"
_NO_CLIENTS = "no clients of Google Cloud here: make test-gcp"
_NO_SERVER = "no stand-in of Cloud Storage here: make gcp"
_START_SECONDS = 60


def needed(*, server: bool = False) -> pytest.MarkDecorator:
    """The mark of tests that need the clients, or the server too: skipped without, but an error
    where they are required."""
    absent = ""
    if not all(_is_installed(each) for each in ("storage", "secretmanager", "dataflow_v1beta3")):
        absent = _NO_CLIENTS
    elif server and _program() is None:
        absent = _NO_SERVER
    if absent and os.environ.get(REQUIRED):
        raise RuntimeError(f"{REQUIRED} is set, and there are {absent}")
    return pytest.mark.skipif(bool(absent), reason=absent)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(f"google.cloud.{name}") is not None
    except ModuleNotFoundError:
        return False


def _program() -> str | None:
    places = [str(PROJECT / "build" / "gcp" / "bin"), str(Path(sys.executable).parent)]
    return shutil.which("fake-gcs-server", path=os.pathsep.join(places))


@contextmanager
def storage() -> Iterator[str]:
    """A new server of Cloud Storage's protocol that holds objects in memory; its address."""
    program = _program()
    assert program is not None, _NO_SERVER
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [
            program,
            *("-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"),
            *("-port", str(port), "-external-url", address, "-log-level", "error"),
        ]
    )
    try:
        _wait(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=_START_SECONDS)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    limit = time.monotonic() + _START_SECONDS
    while time.monotonic() < limit:
        assert process.poll() is None, "the server has ended"
        try:
            urllib.request.urlopen(f"{address}/storage/v1/b?project=test", timeout=5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(address)
