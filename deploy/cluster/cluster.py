"""A cluster of an engine on this machine: each of its workers has a worker pool of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deploy.cluster import worker_pool
from deploy.cluster.processes import Ports, Servers, accepts_jobs, job_options


@dataclass(frozen=True, kw_only=True)
class Cluster(ABC):
    """The processes of a cluster.

    Attributes:
        lib: the engine's jars.
        worker: what a worker's process is called, before its number.
        servers: the processes.
        ports: where they listen.
        workers: how many there are.
        differing: what a worker's pool has in its environment beside what all have, by its number;
            of tests, where workers take their machines for different ones.
    """

    lib: ClassVar[Path]
    worker: ClassVar[str]

    servers: Servers
    ports: Ports
    workers: int
    differing: Sequence[Mapping[str, str]] = ()

    @abstractmethod
    def _start_alone(self, number: int) -> None:
        """Start a worker without its pool."""

    @abstractmethod
    def _known(self) -> int:
        """How many workers the engine knows."""

    def start_worker(self, number: int) -> None:
        """Start a worker that was killed, and wait until the cluster has it."""
        self._start_worker(number)
        self._wait([number])

    def kill_worker(self, number: int) -> None:
        """Kill a worker with what it runs, and its pool, with no chance to clean up."""
        self.servers.kill(f"{self.worker}-{number}")
        self.servers.kill(f"worker-pool-{number}")

    def options(self) -> tuple[str, ...]:
        """The command's options for a job on the cluster, but for the parallelism."""
        return job_options(
            self.ports.job,
            "--environment_type=EXTERNAL",
            f"--environment_config={worker_pool.NAME}:{self.ports.pool}",
            # Else every stage starts a process of its own, which first imports Beam.
            "--environment_cache_millis=30000",
        )

    def _start_worker(self, number: int) -> None:
        self._start_alone(number)
        pool = worker_pool.command(number, self.ports.pool)
        environment = self.differing[number] if self.differing else {}
        self.servers.start(f"worker-pool-{number}", pool, **environment)

    def _wait(self, numbers: Iterable[int]) -> None:
        pools = [f"{worker_pool.host(number)}:{self.ports.pool}" for number in numbers]
        running = sum(name.startswith("worker-pool") for name in self.servers.running)
        self.servers.wait(
            lambda: self._known() >= running and all(accepts_jobs(each) for each in pools),
            "the cluster",
        )
