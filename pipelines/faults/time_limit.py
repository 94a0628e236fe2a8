"""A limit of time: what takes longer is stopped, on its engine too, and ends with exit code 75.

The wait for an engine is a wait in the main thread, which a signal alone can end. So a thread sends
SIGALRM to it when the time is over.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dptrees.pipelines.faults.stopping import listening, stopped_by
from dptrees.transforms.errors import ReleaseError

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
_DURATION = re.compile(r"(\d{1,9})([smh]?)")


class TimeLimitError(ReleaseError):
    """A time limit was over before the work was done."""


def parse_seconds(text: str) -> int:
    """Return the seconds of a duration.

    Args:
        text: a whole number, in seconds or with the unit s, m or h.

    Raises:
        ValueError: it is none, or 0.

    >>> parse_seconds("90m"), parse_seconds("30")
    (5400, 30)
    """
    match = _DURATION.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(f"{text!r} must be a duration above 0 such as 90s, 30m or 6h")
    return int(match[1]) * _UNITS[match[2]]


@contextmanager
def time_limit(seconds: float | None, sentence: str) -> Iterator[None]:
    """Stop a block that takes too long, where this process listens to signals.

    Args:
        seconds: the limit; None: there is none.
        sentence: the reason, for users.

    Raises:
        TimeLimitError: the time was over; the same command may be run again.
    """
    found = listening()
    if seconds is None or found is None:
        yield
        return
    over = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def ring() -> None:
        over.set()
        found.is_late = True
        signal.pthread_kill(main, signal.SIGALRM)

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    try:
        yield
    except BaseException:  # Beam wraps what it catches
        if over.is_set() and stopped_by() is None:
            raise TimeLimitError(sentence, again=True) from None
        raise
    finally:
        timer.cancel()
        found.is_late = False
