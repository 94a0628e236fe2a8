"""Logs that are silent for a while, whichever threads want it at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_levels: list[int] = []


@contextmanager
def quiet_logs(level: int) -> Iterator[None]:
    """Silence all logs up to a level until the block ends.

    The setting is one of the process. Where blocks of several threads overlap, the first one keeps
    what was set before, and the last one restores it.

    >>> with quiet_logs(logging.WARNING), quiet_logs(logging.CRITICAL):
    ...     logging.root.manager.disable
    50
    """
    with _lock:
        if not _levels:
            _levels.append(logging.root.manager.disable)
        _levels.append(level)
        logging.disable(max(_levels))
    try:
        yield
    finally:
        with _lock:
            _levels.remove(level)
            logging.disable(max(_levels))
            if len(_levels) == 1:
                _levels.clear()
