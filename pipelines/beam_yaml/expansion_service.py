"""An expansion service that knows `DPTree` by its URN, for pipelines in Java, Go and others.

    python -m dptrees.expansion_service --port 8097 --environment_type=...

Beam's options say where the workers of the expanded steps run, as in docs/engines.md.

Who reaches the port runs any code as the user who started it, and so reads the key and the rows:
never on a machine with other users, or only in a pod or network namespace of its own. Other
transforms than `DPTree` are refused, and no files are served, as they are by Beam's own service
(`apache_beam.runners.portability.expansion_service_main`); but what a request says of the steps
before it may hold pickled code, which Beam loads. It listens on this machine alone unless
configured otherwise.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from threading import Event
from typing import Any

import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_expansion_api_pb2, beam_expansion_api_pb2_grpc
from apache_beam.runners.portability.expansion_service import ExpansionServiceServicer
from apache_beam.utils import thread_pool_executor

from dptrees.pipelines.beam_yaml.transform import URN
from dptrees.pipelines.terminal_text import print_line


class _Expanding(ExpansionServiceServicer):
    """Expands `DPTree`, and nothing else: Beam's own runs the code of a pickled transform."""

    def Expand(self, request: Any, context: Any = None) -> Any:
        urn = request.transform.spec.urn
        if urn != URN:
            sentence = f"{urn or 'a transform without a URN'}: this service expands {URN} alone"
            return beam_expansion_api_pb2.ExpansionResponse(error=sentence)
        return super().Expand(request, context)


def service(address: str, options: PipelineOptions) -> tuple[grpc.Server, int]:
    """A service that is not started yet, and its port.

    Args:
        address: a host and a port; port 0 is any that is free.
        options: Beam's, of the environment of the expanded steps.

    Raises:
        RuntimeError: the port is taken.
    """
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    beam_expansion_api_pb2_grpc.add_ExpansionServiceServicer_to_server(_Expanding(options), server)
    return server, server.add_insecure_port(address)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal comes; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Expand DPTree for pipelines in any language.",
        epilog="All other options are Beam's: where the workers of the release run.",
    )
    parser.add_argument(
        "--host", default="localhost", help="host to listen on (default: localhost)"
    )
    parser.add_argument(
        "--port", type=int, default=0, help="port to listen on (default: a free one)"
    )
    chosen, rest = parser.parse_known_args(arguments)
    options = PipelineOptions([*rest, "--experiments=beam_fn_api", "--sdk_location=container"])
    server, port = service(f"{chosen.host}:{chosen.port}", options)
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    server.start()
    print_line(f"{URN} at {chosen.host}:{port}")
    sys.stdout.flush()
    ended.wait()
    server.stop(None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
