"""The failure of a job, and its cancelling, in the words of engines as they were seen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.pipelines.run import dataflow, engine
from dptrees.pipelines.run.dataflow import cancel_job
from dptrees.pipelines.run.engine import check_workers, engine_fault
from dptrees.transforms.errors import InputError, ReleaseError
from dptrees.transforms.keys import KeyReference

PYTHON = "Error received from SDK harness: Traceback (most recent call last):\n  File x\n"
AGAIN = {
    "memory": f"{PYTHON}MemoryError [while running 'Release/Draw/Finish']",
    "Java's memory": "java.lang.OutOfMemoryError: Java heap space",
    "disk": f"{PYTHON}OSError: [Errno 28] No space left on device",
    "a lost worker": "java.lang.IllegalStateException: TaskExecutor 127.0.0.1 no longer reachable",
    "marked": f"{PYTHON}{InputError('the disk is full', again=True)}",
}
MISTAKES = {
    "marked": f"{PYTHON}{InputError('no such column')} [while running 'Read']",
    "no dptrees": f"{PYTHON}ModuleNotFoundError: No module named 'dptrees'",
    "an older one": f"{PYTHON}ModuleNotFoundError: No module named 'dptrees.transforms.preflight'",
}


def fault(text: str, *, remote: bool = True) -> ReleaseError | None:
    return engine_fault(RuntimeError(text), remote=remote)


def test_what_may_pass_and_what_must_be_fixed() -> None:
    for name, text in AGAIN.items():
        found = fault(text)
        assert found is not None and found.again, name
        assert "Traceback" not in found.sentence and "127.0.0.1" not in found.sentence, name
    for name, text in MISTAKES.items():
        found = fault(text)
        assert found is not None and not found.again, name


def test_a_fault_of_the_program_is_seen_whole() -> None:
    assert fault(f"{PYTHON}ZeroDivisionError: division by zero") is None
    assert fault("what the local runner raises", remote=False) is None


class Unavailable(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("error", [Unavailable(), grpc.FutureTimeoutError()])
def test_a_job_server_that_went_away(error: Exception) -> None:
    found = engine_fault(error, remote=True)
    assert found is not None and found.again and "job server" in found.sentence


def test_no_job_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ANSWER_SECONDS", 0.2)
    options = PipelineOptions(["--runner=PortableRunner", "--job_endpoint=localhost:1"])
    with pytest.raises(InputError, match="no job server answers at localhost:1") as caught:
        check_workers(options, KeyReference(reference="env:NONE"))
    assert caught.value.again


class Job:
    """A job of Beam's, which says that it was cancelled on request."""

    _job_id = "BeamApp-me-1_0a1b"
    state = "RUNNING"

    def cancel(self) -> None:
        self.state = "CANCELLED"


@contextmanager
def flink(states: list[str]) -> Iterator[tuple[str, list[str]]]:
    """A Flink cluster whose job has these states, one after the other; and its requests."""
    requested: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            requested.append(f"{self.command} {self.path}")
            state = states.pop(0) if len(states) > 1 and self.command == "GET" else states[0]
            jobs = [{"jid": "0", "name": "other", "state": "RUNNING"}]
            jobs.append({"jid": "7", "name": "BeamApp-me-1", "state": state})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"jobs": jobs}).encode())

        do_GET = do_PATCH = answer

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = HTTPServer(("localhost", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"localhost:{server.server_port}", requested
    finally:
        server.shutdown()
        server.server_close()


def cancelled(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[str, list[str]]:
    """The state in which a job was left, and what was remarked."""
    reported: list[str] = []
    states: list[str] = []
    monkeypatch.setattr(dataflow, "remark", reported.append)
    monkeypatch.setattr(dataflow, "event", lambda _, **named: states.append(named["state"]))
    cancel_job(Job(), PipelineOptions(["--runner=PortableRunner", *options]))
    return states[0], reported


def test_a_flink_cluster_is_named_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with flink(["RUNNING", "CANCELLING", "CANCELED"]) as (address, requested):
        state, reported = cancelled(monkeypatch, f"--flink_master={address}")
    assert (state, reported) == ("CANCELED", [])
    assert requested.count("PATCH /jobs/7?mode=cancel") == 1
    assert not any("/jobs/0" in each for each in requested)


def test_what_may_still_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    state, reported = cancelled(monkeypatch, "--environment_type=EXTERNAL")
    assert state == "CANCELLED" and "--flink_master=HOST:8081" in reported[0]
    assert cancelled(monkeypatch, "--environment_type=LOOPBACK") == ("CANCELLED", [])
    # Beam's job server says that it is cancelled; the cluster itself cannot be queried.
    state, reported = cancelled(monkeypatch, "--flink_master=localhost:1")
    assert state == "UNKNOWN" and "may still run" in reported[0]
