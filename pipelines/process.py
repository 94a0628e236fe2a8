"""Start and end of a command's process: quick imports, exit codes, signals, time limits.

Signals (SIGINT, SIGTERM, and SIGALRM, which a thread sends when a time limit is over) raise
where the command is, so that files are cleared and a job on an engine is cancelled. Beam wraps
what it catches, so the signal is remembered, and any later error is reported as "stopped".
"""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from importlib import import_module
from threading import Lock
from types import FrameType
from typing import Any

from dptrees.transforms.errors import ReleaseError


class UserError(Exception):
    """A mistake that its user can fix; the message is one clear sentence.

    Attributes:
        again: it may pass by itself.
    """

    again = False


class Later:
    """What is imported when it is first needed: a command needs few of the modules of all.

    Args:
        place: the module in pipelines, a colon, and the name.

    >>> Later("process:ExitCode").load().AGAIN.value
    75
    >>> Later("process:parse_seconds")("90s")
    90
    """

    def __init__(self, place: str) -> None:
        self._module, _, self._name = place.partition(":")

    def load(self) -> Any:
        """Import and return it."""
        return getattr(import_module(f"dptrees.pipelines.{self._module}"), self._name)

    def __call__(self, *given: Any, **options: Any) -> Any:
        return self.load()(*given, **options)


class ExitCode(IntEnum):
    """How a command ended, in the numbers of sysexits.h and of shells."""

    DONE = 0
    FAULT = 1  # of the program, with a traceback
    MISTAKE = 2  # the user's to fix, as argparse has it
    AGAIN = 75  # may pass by itself: EX_TEMPFAIL
    STOPPED = 130  # by SIGINT: 128 + 2
    TERMINATED = 143  # by SIGTERM: 128 + 15


_CODES = {signal.SIGINT: ExitCode.STOPPED, signal.SIGTERM: ExitCode.TERMINATED}


class Stopping:
    """Whether a command was stopped, and by which signal.

    Attributes:
        code: its exit code then; None while nobody stopped it.
        is_late: a time limit is over.
        waits: the first signal is only remembered.
    """

    code: ExitCode | None = None
    is_late = False
    waits = False

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


# Objects between two collections of cycles. Python's 700 come every few modules of an import, which
# leave nothing to collect; so many take a few megabytes at most.
_OBJECTS = 10_000


# Beam imports them where they are installed, for types and stores that a command does not read;
# `transforms.folder.files` imports boto3 at the first request.
_UNUSED_BY_BEAM = ("pandas", "pymongo", "boto3")


# Processes of one command, as against programs that call `main`, which may need these packages.
_is_command = False


class _Without:
    """A finder of modules that refuses some packages.

    Args:
        packages: their names.
    """

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        """Raise ModuleNotFoundError for a refused package; leave others to the next finder."""
        if name in self._packages:
            raise ModuleNotFoundError(name)


def start_quickly() -> None:
    """Prepare a process that runs one command, before it imports what the command needs."""
    global _is_command
    _is_command = True
    gc.set_threshold(_OBJECTS)
    # Plugins would see configurations, and looking for them opens the metadata of every package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # NumPy's OpenBLAS reads it at its import. Its threads wait for each other by spinning, so where
    # another process has a core, small matrices take many times as long; they gain nothing alone.
    # Worker processes of Beam inherit it: there is one for each core already.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def end_quickly() -> None:
    """Prepare the end of such a process: Python would look for cycles in all that it holds."""
    gc.freeze()


def leave_pandas_out() -> None:
    """Let pyarrow find no pandas: it imports pandas at the first array, where it is installed.

    The command has no frames. Where something else imports pandas afterwards, it is there.
    """
    if "pandas" in sys.modules:
        return
    with _without("pandas"):
        import pyarrow as pa

        pa.array([0])


def import_beam() -> None:
    """Import Beam without the optional packages that take half of its time.

    In a process that runs one command, after `start_quickly`: Beam's data frames and its MongoDB
    source do not work in it. Other processes import Beam as usual, when it is needed.
    """
    if not _is_command or "apache_beam" in sys.modules:
        return
    # Beam warns of each package that it does not find.
    with quiet_logs(logging.WARNING), _without(*_UNUSED_BY_BEAM):
        import apache_beam  # noqa: F401


@contextmanager
def without_collections() -> Iterator[None]:
    """Import modules without looking for cycles of garbage, which they do not leave, and exempt all
    objects so far from every later search; in a process that runs one command."""
    if not _is_command:
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


@contextmanager
def _without(*packages: str) -> Iterator[None]:
    """Refuse packages that are not imported yet."""
    finder = _Without(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
