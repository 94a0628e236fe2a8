"""Tests that passed on another machine, which a second run may leave out.

`--record-passed FILE` writes the ids of the tests that passed, one a line; `--without FILE` leaves
these tests out. .ci/run runs the quick tests on a bare system, and here the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest


class Recording:
    """A plugin that writes the ids of the tests that passed, if no test failed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            self.path.write_text("".join(f"{each}\n" for each in sorted(self.passed)), "utf-8")


class Without:
    """A plugin that leaves out the tests whose ids a file lists."""

    def __init__(self, path: Path, config: pytest.Config) -> None:
        self.config = config
        # Not splitlines(): an id may contain a separator of Unicode.
        self.passed = set(path.read_text("utf-8").split("\n"))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        left = [each for each in items if each.nodeid in self.passed]
        items[:] = [each for each in items if each.nodeid not in self.passed]
        self.config.hook.pytest_deselected(items=left)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(f"{len(self.passed - {''}):,} tests passed elsewhere.")
