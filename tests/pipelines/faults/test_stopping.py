"""Signals stop a command at every stage; a job is not left between taken and named."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from dptrees.pipelines.monitoring import failure_outcome
from dptrees.pipelines.process import ExitCode, postponed, stopping

SIGNALS = {signal.SIGINT: ExitCode.STOPPED, signal.SIGTERM: ExitCode.TERMINATED}


@pytest.mark.parametrize("number", SIGNALS)
def test_reported_as_stopped_whatever_it_was_wrapped_in(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stopping() as stopped:
        try:
            try:
                os.kill(os.getpid(), number)
                time.sleep(5)
            except KeyboardInterrupt:  # as Beam does
                raise RuntimeError("KeyboardInterrupt [while running 'x']") from None
        except RuntimeError as error:
            outcome = failure_outcome(error, stopped.code)
    assert outcome is not None
    assert (outcome.code, outcome.sentence) == (SIGNALS[number], "stopped")
    assert signal.getsignal(number) is before


def test_a_first_signal_waits_and_a_second_does_not() -> None:
    done = []
    with stopping() as stopped, pytest.raises(KeyboardInterrupt):
        with postponed():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("in its middle")
        done.append("behind it")
    assert done == ["in its middle"] and stopped.code is ExitCode.TERMINATED
    with stopping(), pytest.raises(KeyboardInterrupt), postponed():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        done.append("never")
    assert "never" not in done


def test_beams_own_handlers_do_not_stay() -> None:
    with stopping() as stopped:
        with postponed():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
    assert stopped.code is ExitCode.STOPPED


def test_threads_that_fail_behind_a_signal_are_silent(capfd: pytest.CaptureFixture[str]) -> None:
    def failing() -> None:
        raise ValueError("closed channel")

    for code, shown in ((ExitCode.STOPPED, False), (None, True)):
        with stopping() as stopped:
            stopped.code = code
            thread = threading.Thread(target=failing)
            thread.start()
            thread.join()
        assert ("closed channel" in capfd.readouterr().err) is shown


def test_outside_of_the_main_thread_nothing_is_changed() -> None:
    found = []

    def run() -> None:
        before = signal.getsignal(signal.SIGTERM)
        with stopping(), postponed():
            found.append(signal.getsignal(signal.SIGTERM) is before)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [True]
