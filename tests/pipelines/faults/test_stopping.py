"""Signals and limits of time stop a command at every stage, and each event names its run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from dptrees.pipelines.monitoring import RUN_ID, failure_outcome, run_id
from dptrees.pipelines.process import (
    ExitCode,
    TimeLimitError,
    parse_seconds,
    postponed,
    stopped_by,
    stopping,
    time_limit,
)
from tests.pipelines.conftest import Workspace, search_path
from tests.pipelines.faults import slow_release
from tests.pipelines.refusals import not_refused

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


# --- limits of time ---


def wait() -> None:
    """Wait as a launcher waits for an engine: for another thread."""
    threading.Event().wait(60)


def test_a_wait_is_ended() -> None:
    with stopping(), pytest.raises(TimeLimitError) as caught, time_limit(0.05, "too long"):
        try:
            wait()
        except KeyboardInterrupt:  # as Beam does
            raise RuntimeError("KeyboardInterrupt [while running 'x']") from None
    outcome = failure_outcome(caught.value, None)
    assert outcome is not None
    assert (outcome.code, outcome.sentence) == (ExitCode.AGAIN, "too long")


def test_what_is_quick_enough_is_left_alone() -> None:
    with stopping():
        with time_limit(0.05, "too long"):
            pass
        time.sleep(0.2)
        with time_limit(None, "none"):
            pass
        with pytest.raises(ValueError, match="its own"), time_limit(60, "too long"):
            raise ValueError("its own")


def test_the_exceeded_one_of_two_limits_is_reported() -> None:
    with stopping():
        over = pytest.raises(TimeLimitError, match="outer")
        with over, time_limit(0.05, "outer"), time_limit(60, "inner"):
            wait()
        over = pytest.raises(TimeLimitError, match="inner")
        with over, time_limit(60, "outer"), time_limit(0.05, "inner"):
            wait()


def test_a_job_is_not_left_between_taken_and_named() -> None:
    done = []
    with stopping(), pytest.raises(TimeLimitError), time_limit(0.05, "too long"):
        with postponed():
            time.sleep(0.3)
            done.append("in its middle")
        done.append("behind it")
    assert done == ["in its middle"]


def test_who_stops_it_is_reported_before() -> None:
    with stopping() as stopped:
        with pytest.raises(KeyboardInterrupt), time_limit(0.05, "too long"):
            stopped.code = ExitCode.TERMINATED
            wait()
        assert stopped_by() is ExitCode.TERMINATED


def test_where_nobody_listens_there_is_no_limit() -> None:
    with time_limit(0.01, "too long"):
        time.sleep(0.05)


def test_what_is_no_duration() -> None:
    words = "must be a duration above 0 such as 90s, 30m or 6h"
    rows = [(text, words) for text in ("", "0", "0m", "-1", "1.5h", "1d", "m", "1 h")]
    assert not not_refused(parse_seconds, rows)


def test_a_release_is_stopped_and_run_again(workspace: Workspace) -> None:
    """In a process of its own, whose release waits for a minute however fast the machine is."""
    config = workspace.configure()
    process = subprocess.Popen(
        [sys.executable, "-m", slow_release.__name__, "release", config, "--timeout", "1s"],
        env=os.environ | {"PYTHONPATH": search_path()},
        cwd=workspace.folder,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    _, err = process.communicate(timeout=300)
    assert process.returncode == 75
    sentence = "the run took longer than 1 s and was stopped; the same command continues from there"
    assert err == f"dptrees: --timeout: {sentence}\n"
    assert workspace.run("release", config, "--timeout", "1h").code == 0


# --- the id of a run ---


def run_ids(text: str) -> set[str]:
    return {json.loads(line)["run"] for line in text.splitlines()}


def test_every_event_bears_the_id_of_its_run(
    again: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = again.release(None, "--log-format=json", "--run-id=manual__2026-11-21")
    assert run_ids(given.err) == {"manual__2026-11-21"}
    (first,) = run_ids(again.release(None, "--log-format=json").err)
    (second,) = run_ids(again.release(None, "--log-format=json").err)
    assert first != second
    monkeypatch.setenv(RUN_ID, "of-the-scheduler")
    assert run_ids(again.release(None, "--log-format=json").err) == {"of-the-scheduler"}


def test_what_is_no_id(workspace: Workspace) -> None:
    for text in ("two words", "line\nbreak", "é", "x" * 201):
        with pytest.raises(ValueError, match="must be one word"):
            run_id(text)
        outcome = workspace.release(None, f"--run-id={text}")
        assert outcome.code == 2 and "must be one word" in outcome.err
