"""Metrics that are sent to a Pushgateway: a server of the test, and the real one if it is here."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from dptrees.pipelines.operations import push
from dptrees.pipelines.operations.push import PushError, Pushgateway
from dptrees.pipelines.user_error import UserError
from tests.pipelines.operations.test_metrics import TIMES, samples
from tests.ports import free_port

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace

PROJECT = Path(__file__).resolve().parents[3]
REAL = PROJECT / "build" / "prometheus" / "usr" / "bin" / "prometheus-pushgateway"


@dataclass
class Server:
    """A stand-in: it answers with codes, the last one for ever, and keeps what it was sent."""

    codes: list[int] = field(default_factory=lambda: [200])
    seconds: float = 0.0
    requests: list[tuple[str, str, dict[str, str], str]] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self) -> Iterator[Server]:
        own = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                own.requests.append((self.command, self.path, dict(self.headers), body))
                time.sleep(own.seconds)
                self.send_response(own.codes.pop(0) if len(own.codes) > 1 else own.codes[0])
                self.send_header("Location", f"{own.url}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST = do_PUT

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses, and no proxy between the test and its server."""
    monkeypatch.setattr(push, "_PAUSES", (0.01, 0.02))
    monkeypatch.setattr(push, "_TRY_SECONDS", 0.5)
    monkeypatch.setenv("no_proxy", "*")


def test_a_file_and_a_server_get_the_same_text(workspace: Workspace) -> None:
    file = workspace.folder / "run.prom"
    with Server().running() as server:
        options = ("--metrics-file", str(file), "--push-metrics", server.url)
        outcome = workspace.release(None, *options)
    assert (outcome.code, outcome.err) == (0, "")
    ((method, path, headers, body),) = server.requests
    assert (method, path) == ("PUT", "/metrics/job/dptrees/instance/small")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "Authorization" not in headers
    assert body == file.read_text() and "dptrees_run_exit_code" in samples(body)


def test_a_run_that_fails_is_sent_too(workspace: Workspace) -> None:
    with Server().running() as server:
        outcome = workspace.release(
            lambda settings: settings.update(trees=[]), "--push-metrics", server.url
        )
    assert outcome.code == 2
    ((_, path, _, body),) = server.requests
    assert samples(body)["dptrees_run_exit_code"][0][1] == 2
    coded = path.removeprefix("/metrics/job/dptrees/instance@base64/")
    assert base64.urlsafe_b64decode(coded).decode() == str(workspace.folder / "release.yaml")


def test_two_inputs_that_differ_send_the_same(workspace: Workspace, tmp_path: Path) -> None:
    with Server().running() as server:
        assert workspace.release(None, "--push-metrics", server.url).code == 0
        workspace.write_rows(seed=1)
        workspace.output.rename(tmp_path / "before")
        assert workspace.release(None, "--push-metrics", server.url).code == 0
    before, after = (TIMES.sub(r"\1", body) for *_, body in server.requests)
    assert before == after


@pytest.mark.parametrize(
    ("codes", "tries", "words"),
    [
        ([503, 429, 202], 3, ""),
        ([500], 3, "the server answers 500"),
        ([400], 1, "the server answers 400"),
        ([401], 1, "the server answers 401"),
        ([302], 1, "the server answers 302"),
    ],
)
def test_tries(codes: list[int], tries: int, words: str, workspace: Workspace) -> None:
    with Server(codes).running() as server:
        outcome = workspace.release(None, "--push-metrics", server.url)
    assert outcome.code == 0 and len(server.requests) == tries
    expected = (
        f"--push-metrics: the metrics of this run cannot be sent to {server.url}: {words}; the "
        "release and the exit code of this run stay as they are\n"
    )
    assert outcome.err == (expected if words else "")
    assert (workspace.output / "manifest.json").exists()


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push, "LIMIT_SECONDS", 0.6)
    monkeypatch.setattr(push, "_TRY_SECONDS", 0.2)
    with Server(seconds=2.0).running() as server:
        begun = time.monotonic()
        with pytest.raises(PushError, match="does not answer"):
            Pushgateway(url=server.url).push("", "a")
        assert time.monotonic() - begun < 1.5
    with pytest.raises(PushError, match="cannot be reached"):
        Pushgateway(url=server.url).push("", "a")


def test_a_server_that_answers_byte_by_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is one of the whole answer, not of each byte."""
    monkeypatch.setattr(push, "LIMIT_SECONDS", 0.6)
    monkeypatch.setattr(push, "_TRY_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def drip() -> None:
            connection, _ = plain.accept()
            with connection, suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\nX: " + b"a" * 60:
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)

        for _ in range(3):
            threading.Thread(target=drip, daemon=True).start()
        begun = time.monotonic()
        with pytest.raises(PushError, match="does not answer"):
            Pushgateway(url=f"http://127.0.0.1:{plain.getsockname()[1]}").push("", "a")
        assert time.monotonic() - begun < 1.5


def test_no_proxy_gets_the_credentials_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are sent in clear."""
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv("GATEWAY", "me:secret")
    with Server().running() as proxy, Server().running() as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        Pushgateway(url=server.url, credentials="env:GATEWAY").push("", "a")
    assert (len(proxy.requests), len(server.requests)) == (0, 1)


CREDENTIALS = ("me:pass:word", "Bearer abc.def")


@pytest.mark.parametrize("text", CREDENTIALS)
@pytest.mark.parametrize("place", ["env", "file"])
def test_credentials(
    place: str, text: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They reach the server, and neither a log nor a file."""
    file = workspace.folder / "gateway"
    file.write_text(f"{text}\n")
    file.chmod(0o600)
    monkeypatch.setenv("GATEWAY", text)
    reference = "env:GATEWAY" if place == "env" else f"file:{file}"
    with Server([200, 403]).running() as server:
        options = ("--push-metrics", server.url, "--push-credentials", reference)
        outcomes = [workspace.release(None, *options) for _ in range(2)]
    coded = f"Basic {base64.b64encode(text.encode()).decode()}"
    sent = [headers["Authorization"] for _, _, headers, _ in server.requests]
    assert sent == [text if text.startswith("Bearer") else coded] * 2
    assert [each.code for each in outcomes] == [0, 0] and "answers 403" in outcomes[1].err
    left = [path.read_bytes() for path in workspace.output.rglob("*") if path.is_file()]
    left += [path.read_bytes() for path in workspace.folder.glob("*.run.json")]
    shown = "".join(each.out + each.err for each in outcomes).encode()
    for secret in (text.encode(), coded.encode(), server.url.encode(), b"GATEWAY"):
        assert not any(secret in data for data in left)
        assert secret == server.url.encode() or secret not in shown


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("ftp://gateway",), "must be the URL of a Pushgateway"),
        (("https://",), "must be the URL of a Pushgateway"),
        (("https://gateway:x",), "must be the URL of a Pushgateway"),
        (("https://gateway?a=b",), "must be the URL of a Pushgateway"),
        (("https://me:secret@gateway",), "must not contain credentials"),
        (("https://me:p/secret@gateway",), "must not contain credentials"),
        (("https:///me:secret@gateway",), "must not contain credentials"),
        (("https://me#secret@gateway",), "it must be the URL of a Pushgateway"),
        (("https://[gateway",), "must be the URL of a Pushgateway"),
        (("http://gateway", "env:GATEWAY"), "would be sent in clear to http://gateway"),
        (("https://gateway", "secret"), "the place of the credentials and not the credentials"),
        (("https://gateway", "env:ABSENT"), "the environment variable ABSENT is not set"),
        (("https://gateway", "env:WRONG"), "env:WRONG must hold USER:PASSWORD, or Bearer TOKEN"),
    ],
)
def test_what_cannot_be_used(
    options: tuple[str, ...], words: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY", "me:secret")
    monkeypatch.setenv("WRONG", "secret")
    given = ["--push-metrics", options[0]]
    given += ["--push-credentials", options[1]] if len(options) > 1 else []
    for more in ([], ["--dry-run"]):
        outcome = workspace.release(None, *given, *more)
        assert outcome.code == 2 and words in outcome.err and "secret" not in outcome.err
    assert not workspace.output.exists()


def test_credentials_without_a_server(workspace: Workspace) -> None:
    outcome = workspace.release(None, "--push-credentials", "env:GATEWAY")
    assert outcome.code == 2 and "goes with --push-metrics" in outcome.err


def test_https_is_the_default() -> None:
    assert Pushgateway(url="gateway:9091").place == "https://gateway:9091"
    group = "http://gateway:9091/prefix/metrics/job/nightly/team/a"
    assert Pushgateway(url=group).group_url("small") == group
    with pytest.raises(UserError, match="sent in clear"):
        Pushgateway(url="http://127.0.0.1.example.org", credentials="env:GATEWAY")


def test_a_certificate_that_is_not_trusted(tmp_path: Path) -> None:
    """The server's own: nothing is sent to it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    files = ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*request, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as plain:
        port = plain.getsockname()[1]

        def serve() -> None:
            connection, _ = plain.accept()
            with connection, pytest.raises((OSError, ssl.SSLError)):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(PushError, match="certificate of the server is not trusted"):
            Pushgateway(url=f"localhost:{port}").push("", "a")
        thread.join(5)


@pytest.fixture
def gateway() -> Iterator[str]:
    """A real Pushgateway."""
    found = str(REAL) if REAL.exists() else shutil.which("prometheus-pushgateway")
    found = found or shutil.which("pushgateway")
    if found is None:
        assert os.environ.get("DPTREES_REQUIRE_PUSHGATEWAY") != "1", "there is no Pushgateway"
        pytest.skip("no Pushgateway here")
    port = free_port()
    process = subprocess.Popen(
        [found, f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                urlopen(f"{url}/-/ready", timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(10)


def test_a_real_pushgateway(workspace: Workspace, gateway: str) -> None:
    def group() -> dict[str, Any]:
        with urlopen(f"{gateway}/metrics", timeout=5) as answer:
            found = samples(answer.read().decode())
        return {
            name: [value for labels, value in each if labels.get("job") == "dptrees"]
            for name, each in found.items()
            if name.startswith("dptrees_")
        }

    options = ("--push-metrics", gateway)
    assert workspace.release(None, *options).code == 0
    found = group()
    assert found["dptrees_run_exit_code"] == [0.0] and found["dptrees_run_made"] == [1.0]
    outcome = workspace.release(lambda settings: settings["input"].update(min_files=9), *options)
    assert (outcome.code, outcome.err) == (0, "")  # the release exists
    assert group()["dptrees_run_made"] == [0.0]
    outcome = workspace.release(lambda settings: settings.update(trees=[]), *options)
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert sorted(group()["dptrees_run_exit_code"]) == [0.0, 2.0]  # two groups
