"""Ports of this machine for the servers that tests start."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import IO

from deploy.cluster.processes import Ports, is_free

# Below outgoing connections, beside the ports of `make start`. Every process that runs tests
# has its own, and gives none twice, since a server listens only some time after it was given one.
_FIRST, _WIDTH, _BLOCKS = 20_000, 200, 60


def _block() -> tuple[int, IO[bytes]]:
    """A block of ports that no other process of this machine has, and what keeps it while this one
    lives."""
    for number in range(_BLOCKS):
        try:
            held = (Path(tempfile.gettempdir()) / f"dptrees-test-ports-{number}").open("wb")
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process has it, or another user
            continue
        return number, held
    raise RuntimeError(f"{_BLOCKS} processes hold ports for tests already")


@cache
def _own_ports() -> tuple[Iterator[int], IO[bytes]]:
    """The ports of this process, over and over, from the first time that it needs one."""
    number, held = _block()
    return cycle(range(_FIRST + number * _WIDTH, _FIRST + (number + 1) * _WIDTH)), held


def free_port() -> int:
    """A port that nobody listens on."""
    ports, _ = _own_ports()
    return next(port for port in ports if is_free(port))


def engine_ports() -> Ports:
    """Return free ports for an engine."""
    return Ports(**{each.name: free_port() for each in fields(Ports)})
