"""Ports of this machine for the servers that tests start."""

from __future__ import annotations

import fcntl
import tempfile
from dataclasses import fields
from itertools import cycle
from pathlib import Path
from typing import IO

from deploy.cluster.processes import Ports, is_free

# Below those of outgoing connections, beside those of `make start`. Every process that runs tests
# has its own, and gives none twice, since a server listens only some time after it was given one.
_FIRST, _WIDTH, _BLOCKS = 20_000, 500, 20


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


_NUMBER, _HELD = _block()
_MINE = cycle(range(_FIRST + _NUMBER * _WIDTH, _FIRST + (_NUMBER + 1) * _WIDTH))


def free_port() -> int:
    """A port that nobody listens on."""
    return next(port for port in _MINE if is_free(port))


def engine_ports() -> Ports:
    """Those of an engine."""
    return Ports(**{each.name: free_port() for each in fields(Ports)})
