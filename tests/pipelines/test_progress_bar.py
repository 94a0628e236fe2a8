"""The progress bar: what is reported is shown, what lies in the output is looked for."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr

import pytest

from dptrees.pipelines.run import job as module
from dptrees.pipelines.run.job import progress_bar
from dptrees.transforms.conservation import advance


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(module.LOG, "is_json", False)


def test_what_this_process_does_is_shown() -> None:
    terminal = _Terminal()
    with redirect_stderr(terminal), progress_bar(100, 4):
        time.sleep(0.15)  # the bar is drawn ten times a second at most
        advance("read", 100)
    assert "reading: 100%" in terminal.getvalue()


def test_parts_that_others_wrote_are_looked_for() -> None:
    terminal = _Terminal()
    looks: list[int] = []

    def present() -> int:
        looks.append(1)
        if len(looks) == 2:
            raise OSError("the filesystem does not answer just now")
        return 99  # strays of an earlier run may lie there too

    with redirect_stderr(terminal), progress_bar(100, 4, present):
        while len(looks) < 4:
            time.sleep(0.01)
    assert "writing: 100%" in terminal.getvalue() and "4/4" in terminal.getvalue()


def test_without_a_terminal_a_job_that_is_not_quiet_is_not_reported() -> None:
    written = io.StringIO()
    with redirect_stderr(written), progress_bar(100, 4, lambda: 0):
        time.sleep(0.05)
    assert not written.getvalue()


def test_a_quiet_job_is_remarked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again; a part that came is progress."""
    monkeypatch.setattr(module, "QUIET_SECONDS", 0.4)
    written, parts = io.StringIO(), [0]
    with redirect_stderr(written), progress_bar(100, 4, lambda: parts[0]):
        time.sleep(0.3)
        parts[0] = 1
        time.sleep(0.3)
        assert not written.getvalue()
        limit = time.monotonic() + 60
        while written.getvalue().count("--timeout stops such a run") < 2:
            assert time.monotonic() < limit
            time.sleep(0.01)
    assert "has not written a part of the release for 0 s (1 of 4 are there)" in written.getvalue()


def test_the_bar_stops_when_the_job_fails() -> None:
    looks: list[int] = []
    with (
        pytest.raises(ValueError),
        redirect_stderr(_Terminal()),
        progress_bar(100, 4, lambda: looks.append(1) or 0),
    ):
        while not looks:
            time.sleep(0.01)
        raise ValueError
    seen = len(looks)
    time.sleep(0.05)
    assert len(looks) == seen
