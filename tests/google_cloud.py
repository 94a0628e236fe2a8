"""What tests need of Google Cloud: its clients, and a stand-in of Cloud Storage (`make gcp`).

Both lie in build/gcp, an environment of its own; `make test-gcp` runs the tests there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.ports import free_port

PROJECT = Path(__file__).resolve().parents[1]
REQUIRED = "DPTREES_REQUIRE_GCP"
_NO_CLIENTS = "no clients of Google Cloud here: make test-gcp"
_NO_SERVER = "no stand-in of Cloud Storage here: make gcp"
_START_SECONDS = 180
# For processes: clients would request the regions of the account from Google, and wait in vain.
HERE_ONLY = """
from google.auth import credentials

credentials.CredentialsWithRegionalAccessBoundary._is_regional_access_boundary_lookup_required = (
    lambda self: False
)
"""
# For processes that delete from the stand-in of Cloud Storage: see `delete_one_by_one`.
ONE_BY_ONE = """
from apache_beam.io.gcp.gcsio import GcsIO
from tests.google_cloud import delete_one_by_one

GcsIO.delete_batch = delete_one_by_one
"""


def delete_one_by_one(self: Any, paths: list[str]) -> list[tuple[str, None]]:
    """In place of a batch: the server answers only to parts of a batch that have a Content-ID, and
    Google's client sends none. Cloud Storage itself does without."""
    for path in paths:
        self.delete(path)
    return [(path, None) for path in paths]


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


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A server of Cloud Storage's protocol that runs.

    Attributes:
        environment: by which Google's clients find it, and an account.
    """

    environment: dict[str, str]

    def reach(self, patch: pytest.MonkeyPatch) -> None:
        """Lets this process and its children use it."""
        patch.setattr("apache_beam.io.gcp.gcsio.GcsIO.delete_batch", delete_one_by_one)
        for name, value in self.environment.items():
            patch.setenv(name, value)
        exec(HERE_ONLY, {})
        patch.setattr("apache_beam.io.filesystems.FileSystems._pipeline_options", None)

    def new_bucket(self, name: str) -> Any:
        """A new bucket, of Google's client; to be requested once the server is reached."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage as clients

        client = clients.Client(project="test", credentials=AnonymousCredentials())
        return client.create_bucket(f"bucket-{hashlib.sha256(name.encode()).hexdigest()[:16]}")


class _Tokens(BaseHTTPRequestHandler):
    """Gives any account a token, as Google's server of them does."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"access_token": "t", "expires_in": 3600, "token_type": "Bearer"})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _account(folder: Path) -> Iterator[Path]:
    """The file of an account, and a server that believes it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Tokens)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    secret = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    account = {
        "type": "service_account",
        "project_id": "test",
        "private_key": pem.decode(),
        "client_email": "test@test.iam.gserviceaccount.com",
        "token_uri": f"http://127.0.0.1:{server.server_address[1]}/token",
    }
    path = folder / "account.json"
    path.write_text(json.dumps(account))
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def storage() -> Iterator[Storage]:
    """A new server that holds objects in memory."""
    with (
        tempfile.TemporaryDirectory() as folder,
        _account(Path(folder)) as account,
        _server() as address,
    ):
        yield Storage(
            environment={
                "STORAGE_EMULATOR_HOST": address,
                "GOOGLE_APPLICATION_CREDENTIALS": str(account),
                "GOOGLE_CLOUD_PROJECT": "test",
            }
        )


@contextmanager
def _server() -> Iterator[str]:
    program = _program()
    assert program is not None, _NO_SERVER
    port = free_port()
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
