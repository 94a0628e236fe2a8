"""Ports of this machine for the servers that tests start."""

from __future__ import annotations

import os
from dataclasses import fields
from itertools import cycle

from deploy.cluster.processes import Ports, is_free

# Below those of outgoing connections, beside those of `make start`. Every process that runs tests
# has its own, and gives none twice, since a server listens only some time after it was given one.
_WIDTH = 1000
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_FIRST = 20_000 + _PROCESS * _WIDTH
_MINE = cycle(_FIRST + (os.getpid() + place) % _WIDTH for place in range(_WIDTH))


def free_port() -> int:
    """A port that nobody listens on."""
    return next(port for port in _MINE if is_free(port))


def engine_ports() -> Ports:
    """Those of an engine."""
    return Ports(**{each.name: free_port() for each in fields(Ports)})
