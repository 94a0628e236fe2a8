"""Calls of a driver of a database, which a signal must not have to wait for.

Python handles a signal once the main thread is back from a library, and a query may take hours. So
another thread calls the driver, and the thread that waits for it can be ended. A connection in use
must not be closed: the call is cancelled first, if the driver can do that. Otherwise the connection
is closed when the call ends, or with the process.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import TypeVar
from weakref import WeakSet

from dptrees.transforms.errors import InputError

T = TypeVar("T")

# To wait for a call that was cancelled.
CANCEL_SECONDS = 2.0
LOOK_SECONDS = 0.1

_LIVE: "WeakSet[DriverCalls]" = WeakSet()


def hear_signals() -> None:
    """Let Python hear SIGINT again, in the main thread: ADBC listens to it in place of Python."""
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            signal.signal(signal.SIGINT, handler)


def end_driver_calls() -> None:
    """End all waits for drivers in this process, which was stopped."""
    for calls in list(_LIVE):
        calls.end()


class DriverCalls:
    """The calls for one query, one at a time, and what they hold open.

    Attributes:
        held: what is closed at the end.
        cancel: ends the call that runs, from another thread.
        is_ended: no call is awaited any more.
    """

    def __init__(self) -> None:
        self.held = ExitStack()
        self.cancel: Callable[[], object] = lambda: None
        self.is_ended = False
        self._lock = threading.Lock()
        _LIVE.add(self)

    def run(self, call: Callable[[], T]) -> T:
        """Run a call to its end; a signal ends the wait for it, and so does `end_driver_calls`.

        Raises:
            BaseException: of the call.
        """
        answers = SimpleQueue[tuple[T | None, BaseException | None]]()

        def answer() -> None:
            try:
                with self._lock:
                    result = call()
            except BaseException as error:  # raised below, where it is awaited
                answers.put((None, error))
            else:
                answers.put((result, None))

        threading.Thread(target=answer, daemon=True).start()
        while True:
            try:
                result, error = answers.get(timeout=LOOK_SECONDS)
                break
            except Empty:
                if self.is_ended:
                    raise InputError("input: the job was stopped") from None
                hear_signals()
        if error is not None:
            raise error
        return result  # type: ignore[return-value] # None only if it is the result

    def end(self) -> None:
        """End the wait for a call that runs, in whatever thread, and cancel the call."""
        self.is_ended = True
        with suppress(Exception):
            self.cancel()

    def stop(self) -> bool:
        """Cancel a call that runs; return whether none runs any more."""
        if self._lock.locked():
            with suppress(Exception):
                self.cancel()
        is_free = self._lock.acquire(timeout=CANCEL_SECONDS)
        if is_free:
            self._lock.release()
        return is_free

    def close(self) -> None:
        """Close what is held, now or once a call that cannot be cancelled ends.

        All rows were read then, or another fault is reported. So a fault of closing is shown in no
        words, which would be the driver's.
        """
        if self.stop():
            self._close()
        else:
            # A thread that the process does not wait for. It also keeps the connection until then.
            threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        with self._lock, suppress(Exception):
            self.held.close()


@contextmanager
def driver_calls() -> Iterator[DriverCalls]:
    """Calls that end with a block, as `DriverCalls.close`."""
    calls = DriverCalls()
    try:
        yield calls
    finally:
        calls.close()
