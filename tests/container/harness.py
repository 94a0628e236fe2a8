"""What an engine is to a worker that starts: it tells where all is, and asks something."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)

QUESTION = "what do you count?"


@dataclass
class Engine(
    beam_fn_api_pb2_grpc.BeamFnControlServicer,
    beam_fn_api_pb2_grpc.BeamFnLoggingServicer,
    beam_provision_api_pb2_grpc.ProvisionServiceServicer,
):
    """Serves a worker, and keeps what it says.

    Attributes:
        address: where the worker finds it.
        answers: to the question, one a worker.
        answered: set by the first of them.
        logged: the worker's own log.
    """

    address: str = ""
    answers: list[Any] = field(default_factory=list)
    answered: threading.Event = field(default_factory=threading.Event)
    logged: list[str] = field(default_factory=list)

    def GetProvisionInfo(self, request: Any, context: Any) -> Any:
        """Tell where control and log are; nothing is to be fetched."""
        place = endpoints_pb2.ApiServiceDescriptor(url=self.address)
        info = beam_provision_api_pb2.ProvisionInfo(
            control_endpoint=place,
            logging_endpoint=place,
            artifact_endpoint=place,
            retrieval_token="__no_artifacts_staged__",
        )
        info.pipeline_options.update({"beam:option:runner:v1": "none"})
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=info)

    def Control(self, request_iterator: Any, context: Any) -> Iterator[Any]:
        """Ask once, and wait for the answer."""
        asked = beam_fn_api_pb2.HarnessMonitoringInfosRequest()
        yield beam_fn_api_pb2.InstructionRequest(
            instruction_id=QUESTION, harness_monitoring_infos=asked
        )
        self.answers.append(next(request_iterator))
        self.answered.set()
        context.cancel()

    def Logging(self, request_iterator: Any, context: Any) -> Iterator[Any]:
        """Keep what is logged."""
        for entries in request_iterator:
            self.logged += [entry.message for entry in entries.log_entries]
        yield from ()


@contextmanager
def engine() -> Iterator[Engine]:
    """An engine on a port of its own."""
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    made = Engine()
    made.address = f"localhost:{server.add_insecure_port('localhost:0')}"
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(made, server)
    beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(made, server)
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(made, server)
    server.start()
    try:
        yield made
    finally:
        server.stop(grace=None)
