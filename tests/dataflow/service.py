"""A stand-in of Dataflow's service for Beam's own client of it: it takes jobs and runs them here.

A job is taken as Dataflow takes it: the request over REST names the pipeline that Beam has staged
on Cloud Storage. That pipeline is run by Beam's local runner. Not shown by it: machines, shuffle,
autoscaling, accounts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner


@dataclass
class Service:
    """Jobs by their ids, as requests named them.

    Attributes:
        port: of this machine.
        jobs: what the service says of each.
        messages: the messages of jobs.
        refusal: an HTTP status with which jobs are refused; 0: none is.
        holds: jobs are taken, and not run.
    """

    port: int = 0
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    refusal: int = 0
    holds: bool = False

    def post(self, path: str, job: dict[str, Any]) -> dict[str, Any]:
        """Takes a job."""
        name = f"job-{len(self.jobs) + 1}"
        taken = {**job, "id": name, "currentState": "JOB_STATE_RUNNING"}
        self.jobs[name] = taken
        if not self.holds:
            taken["currentState"] = self._run(taken)
        return taken

    def put(self, path: str, job: dict[str, Any]) -> dict[str, Any]:
        """Cancels a job."""
        found = self.jobs[path.rsplit("/", 1)[-1]]
        found["requestedState"] = job["requestedState"]
        found["currentState"] = job["requestedState"]
        return found

    def get(self, path: str) -> dict[str, Any]:
        """A job, or its messages."""
        if path.endswith("/messages"):
            return {"jobMessages": self.messages}
        return self.jobs[path.rsplit("/", 1)[-1]]

    def _run(self, job: dict[str, Any]) -> str:
        try:
            run_pipeline(staged_pipeline(job))
        except Exception as error:
            self.messages.append(
                {
                    "id": "1",
                    "time": "2026-01-01T00:00:00Z",
                    "messageImportance": "JOB_MESSAGE_ERROR",
                    "messageText": f"Traceback (most recent call last):\n{error}",
                }
            )
            return "JOB_STATE_FAILED"
        return "JOB_STATE_DONE"


def staged_pipeline(job: dict[str, Any]) -> beam_runner_api_pb2.Pipeline:
    """The pipeline that a job names."""
    options = job["environment"]["sdkPipelineOptions"]["options"]
    with FileSystems.open(options["pipelineUrl"]) as file:
        return beam_runner_api_pb2.Pipeline.FromString(file.read())


def run_pipeline(pipeline: beam_runner_api_pb2.Pipeline) -> None:
    """Runs a pipeline here, where workers are threads of this process."""
    for environment in pipeline.components.environments.values():
        environment.urn, environment.payload = python_urns.EMBEDDED_PYTHON, b""
        del environment.dependencies[:]
    FnApiRunner().run_via_runner_api(pipeline, PipelineOptions()).wait_until_finish()


@contextmanager
def dataflow() -> Iterator[Service]:
    """A new service."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def answer(self, made: Any, status: int = 200) -> None:
            body = json.dumps(made).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def body(self) -> dict[str, Any]:
            length = int(self.headers.get("Content-Length", 0))
            return dict(json.loads(self.rfile.read(length) or b"{}"))

        def do_POST(self) -> None:
            job = self.body()
            if service.refusal:
                self.answer({"error": {"message": "no", "code": service.refusal}}, service.refusal)
            else:
                self.answer(service.post(self.path.split("?")[0], job))

        def do_PUT(self) -> None:
            self.answer(service.put(self.path.split("?")[0], self.body()))

        def do_GET(self) -> None:
            self.answer(service.get(self.path.split("?")[0]))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    service.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
