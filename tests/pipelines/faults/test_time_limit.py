"""A limit of time stops what takes longer, and the same command may be run again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from dptrees.pipelines.monitoring import failure_outcome
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
