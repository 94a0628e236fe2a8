"""Signals that stop a command: SIGINT from a keyboard, SIGTERM from a scheduler, and SIGALRM, which
a command sends itself when a time limit is over (`pipelines.faults.time_limit`).

All raise where the command is, so that what is to be cleared is cleared and a job on an engine
is cancelled. Beam wraps what it catches, so the signal is remembered: whatever error comes out
after it is reported as "stopped".
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from dptrees.pipelines.faults.exit_code import ExitCode

_CODES = {signal.SIGINT: ExitCode.STOPPED, signal.SIGTERM: ExitCode.TERMINATED}


class Stopping:
    """Whether a command was stopped, and by which signal.

    Attributes:
        code: its exit code then; None while nobody stopped it.
        is_late: a time limit is over.
        waits: the first signal is only remembered.
    """

    def __init__(self) -> None:
        self.code: ExitCode | None = None
        self.is_late = False
        self.waits = False

    def listen(self) -> dict[signal.Signals, Any]:
        """Listens to the signals; returns what listened before."""
        heard = {number: signal.signal(number, self.stop) for number in _CODES}
        return heard | {signal.SIGALRM: signal.signal(signal.SIGALRM, self.alarm)}

    def stop(self, number: int, frame: FrameType | None = None) -> None:
        """Stops what runs.

        Raises:
            KeyboardInterrupt: at once, but for a first signal that has to wait.
        """
        is_first = self.code is None
        self.code = self.code or _CODES[signal.Signals(number)]
        if not (self.waits and is_first):
            raise KeyboardInterrupt

    def alarm(self, number: int, frame: FrameType | None = None) -> None:
        """Stop what runs, if its time limit is over: one that was kept may have rung too late.

        Raises:
            KeyboardInterrupt: at once, unless it has to wait.
        """
        if self.is_late and not self.waits:
            raise KeyboardInterrupt

    def thread_failed(self, arguments: threading.ExceptHookArgs) -> None:
        """Report that a thread failed, unless the run was stopped: Beam's threads then find their
        channels closed, and say so with tracebacks."""
        if self.code is None and not self.is_late:
            threading.__excepthook__(arguments)


_LISTENING: list[Stopping] = []


def stopped_by() -> ExitCode | None:
    """The exit code of the signal that stopped this command; None where none came."""
    return _LISTENING[-1].code if _LISTENING else None


def listening() -> Stopping | None:
    """Return what listens to the signals of this command; None where nothing does."""
    return _LISTENING[-1] if _LISTENING else None


@contextmanager
def postponed() -> Iterator[None]:
    """Lets what must not be stopped in its middle come to its end; who insists stops it still.

    Raises:
        KeyboardInterrupt: at the end, where a signal came.
    """
    if not _LISTENING:
        yield
        return
    found = _LISTENING[-1]
    found.waits = True
    try:
        yield
    finally:
        found.waits = False
        # Beam may have put its own there, which ends a job server before its job is cancelled.
        found.listen()
    if found.code is not None or found.is_late:
        raise KeyboardInterrupt


@contextmanager
def stopping() -> Iterator[Stopping]:
    """Listens to the signals until the block ends; in the main thread alone, as Python has it."""
    found = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield found
        return
    before = found.listen()
    hook, threading.excepthook = threading.excepthook, found.thread_failed
    _LISTENING.append(found)
    try:
        yield found
    finally:
        _LISTENING.remove(found)
        threading.excepthook = hook
        for number, handler in before.items():
            signal.signal(number, handler)
