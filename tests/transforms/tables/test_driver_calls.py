"""Calls of a driver that take long: a signal ends the wait, and no connection in use is closed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from dptrees.transforms.errors import InputError
from dptrees.transforms.tables import query_rows
from dptrees.transforms.tables.query_rows import DriverCalls, end_driver_calls


def test_a_call_has_its_result_or_its_fault() -> None:
    calls = DriverCalls()
    assert calls.run(lambda: None) is None and calls.run(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        calls.run(lambda: 1 / 0)


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """This process hears SIGINT, which a shell lets its background jobs ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
@pytest.mark.parametrize("can_cancel", [True, False])
def test_a_signal_ends_the_wait(can_cancel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_rows, "CANCEL_SECONDS", 0.2)
    calls, over, order = DriverCalls(), threading.Event(), list[str]()

    def long() -> None:
        over.wait(20)
        order.append("call")

    calls.held.callback(order.append, "closed")
    calls.cancel = over.set if can_cancel else (lambda: None)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        calls.run(long)
    calls.close()
    assert time.monotonic() - begun < 5
    assert order == (["call", "closed"] if can_cancel else [])
    over.set()
    deadline = time.monotonic() + 5
    while len(order) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert order == ["call", "closed"]


def test_a_job_that_is_stopped_ends_the_waits_of_its_threads() -> None:
    calls, over, faults = DriverCalls(), threading.Event(), list[BaseException]()

    def work() -> None:
        try:
            calls.run(lambda: over.wait(20))
        except InputError as error:
            faults.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    end_driver_calls()
    thread.join(5)
    assert not thread.is_alive() and "stopped" in str(faults[0])
    over.set()
