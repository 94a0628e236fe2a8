"""Beam's worker pool on one address: ``python -m deploy.cluster.worker_pool HOST:PORT``.

Beam's own, ``python -m apache_beam.runners.worker.worker_pool_main``, listens on every address of
the machine and starts a worker for whoever asks: right in a pod, not on a machine of many people.
And on addresses of their own several pools can have one port: each task manager or executor of a
machine then asks its own pool, by the one name that a job gives to all of them.
"""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

import grpc

# What a job calls the pool beside whatever runs it.
NAME = "worker-pool"
OPTIONS = (
    # As in Beam's own: engines ask seldom, and keep the connection.
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),
    # A second pool on the address would otherwise get half of the questions.
    ("grpc.so_reuseport", 0),
)


def host(number: int) -> str:
    """The address of a task manager's or executor's pool on this machine, counted from 0."""
    return f"127.0.0.{number + 1}"


def hosts(number: int, folder: Path) -> str:
    """The option of Java that makes `NAME` lead to a pool, and nothing else to another machine."""
    path = folder / f"hosts-{number}"
    names = f"127.0.0.1 localhost {socket.gethostname()}"
    path.write_text(f"{names}\n{host(number)} {NAME}\n")
    return f"-Djdk.net.hosts.file={path}"


def command(number: int, port: int) -> list[str]:
    """The command that starts a pool; its environment's ``python`` is that of the workers."""
    return [sys.executable, "-m", "deploy.cluster.worker_pool", f"{host(number)}:{port}"]


def main() -> int:
    """Serve until killed, with the workers, which are of the same process group."""
    # Seconds, which nobody who only names a pool should wait.
    from apache_beam.portability.api import beam_fn_api_pb2_grpc
    from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer
    from apache_beam.utils import thread_pool_executor

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=OPTIONS)
    server.add_insecure_port(parser.parse_args().address)
    pool = BeamFnExternalWorkerPoolServicer(use_process=True, data_buffer_time_limit_ms=-1)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.start()
    server.wait_for_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
