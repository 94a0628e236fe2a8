"""Reservations per second while 50 processes query one data set at once, on SQLite and PostgreSQL.

Each process reserves releases of its own, one after the other, each over a new connection, as each
launcher makes one: reservations of one data set queue one behind the other. Durable: what was
granted is on disk. A release queries it three times: to reserve, to take its record down, and to
commit. Beside it the time of one process alone, and what the disk itself takes.

    python -m benchmarks.ledger [--processes 50] [--each 10]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from dptrees.pipelines.ledger.ledger import BudgetRequest, Ledger
from dptrees.pipelines.sections.values import LedgerUrl
from tests import postgresql
from tests.pipelines.ledger.asked import account_of, asked, opened


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=50)
    parser.add_argument("--each", type=int, default=10, help="reservations of a process")
    chosen = parser.parse_args()
    print(f"one write to this disk and its fsync: {1000 * disk_seconds():.1f} ms")
    print(f"{'':12}{'alone':>12}{'at once':>14}{'':4}waits (median, 95 %, longest)")
    for name, place in (("SQLite", sqlite), ("PostgreSQL", server)):
        with place() as url:
            alone = measured(url(), 1, chosen.each)[0]
            rate, waits = measured(url(), chosen.processes, chosen.each)
        shown = ", ".join(f"{waits[int(part * (len(waits) - 1))]:.2f} s" for part in (0.5, 0.95, 1))
        print(f"{name:12}{alone:10.0f}/s{rate:12.0f}/s{'':4}{shown}")


def measured(url: str, processes: int, each: int) -> tuple[float, list[float]]:
    """Reservations per second, and how long each was waited for, sorted."""
    opened(url, account_of("1000000"))
    request = asked("epsilon: 0.1")
    gate, gate_end = os.pipe()
    reading, writing = os.pipe()
    children = []
    for number in range(processes):
        child = os.fork()
        if not child:
            os.close(gate_end)
            os.read(gate, 1)  # until it is opened for all
            waits = [reserved(url, request, f"r{number}-{index}") for index in range(each)]
            os.write(writing, (json.dumps(waits) + "\n").encode())
            os._exit(0)
        children.append(child)
    os.close(writing)
    start = time.perf_counter()
    os.close(gate_end)
    with os.fdopen(reading) as lines:
        waits = sorted(wait for line in lines for wait in json.loads(line))
    elapsed = time.perf_counter() - start
    for child in children:
        os.waitpid(child, 0)
    os.close(gate)
    assert len(waits) == processes * each
    assert Ledger(LedgerUrl(url)).account(None).spent.epsilon * 10 == len(waits)
    return len(waits) / elapsed, waits


def reserved(url: str, request: BudgetRequest, name: str) -> float:
    """Reserves one release; returns the seconds that took."""
    request = replace(request, plan=replace(request.plan, name=name), folder=f"/out/{name}")
    start = time.perf_counter()
    Ledger(LedgerUrl(url)).reserve(request)
    return time.perf_counter() - start


def disk_seconds() -> float:
    """The seconds of one write that reaches the disk."""
    with tempfile.TemporaryFile(buffering=0) as file:
        start = time.perf_counter()
        for _ in range(20):
            file.write(bytes(4096))
            os.fsync(file.fileno())
    return (time.perf_counter() - start) / 20


@contextmanager
def sqlite() -> Iterator[Callable[[], str]]:
    """New files of SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(9))
        yield lambda: f"sqlite:///{folder}/budget-{next(numbers)}.db"


@contextmanager
def server() -> Iterator[Callable[[], str]]:
    """New databases of a PostgreSQL server of this benchmark alone."""
    with postgresql.server() as started:
        yield started.new_database


if __name__ == "__main__":
    main()
