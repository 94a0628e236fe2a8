"""The list of durations: what is measured, what is slow, and what is reported as left out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import durations
from tests.durations import PROJECT, SLOW, Measuring, Meter, Tiers


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock of the processor that advances on command."""
    now = [0.0]
    monkeypatch.setattr(durations, "_cpu", lambda: now[0])

    def pass_seconds(seconds: float) -> None:
        now[0] += seconds

    return pass_seconds


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A list of its own, empty at first."""
    path = tmp_path / "durations.json"
    monkeypatch.setattr(durations.read, "__defaults__", (path,))
    monkeypatch.setattr(durations.write, "__defaults__", (path,))
    return path


class Lines(list[str]):
    def write_line(self, line: str) -> None:
        self.append(line)


def make_item(name: str, *marks: str) -> Any:
    found = SimpleNamespace(nodeid=name, keywords=set(marks))
    found.add_marker = found.keywords.add
    found.get_closest_marker = lambda mark: mark if mark in found.keywords else None
    return found


def test_the_list_is_read_as_it_was_written_whatever_the_names(listed: Path) -> None:
    seconds = {"tests/b.py::test[a::b-é\\n]": 0.25, "tests/a.py::Kind::test": 1.5}
    durations.write(seconds)
    assert durations.read() == seconds
    first, last = listed.read_text().splitlines()[1], listed.read_text()[-1]
    assert "tests/a.py" in first and last == "\n"


def test_the_committed_list_is_sorted_and_of_files_that_exist() -> None:
    files = json.loads(durations.DURATIONS.read_text())
    assert list(files) == sorted(files)
    assert [file for file in files if not (PROJECT / file).exists()] == []
    assert all(list(tests) == sorted(tests) for tests in files.values())
    assert min(min(tests.values()) for tests in files.values()) >= durations.LISTED


def test_only_measurements_make_a_test_slow() -> None:
    by_hand = "mark." + "slow"
    sources = (PROJECT / "tests").rglob("test_*.py")
    assert [path for path in sources if by_hand in path.read_text(encoding="utf-8")] == []


def test_a_fixture_is_charged_to_itself_and_not_to_the_test_around_it(clock) -> None:
    meter = Meter()
    with meter.charge(meter.own, "test"):
        clock(1)
        with meter.charge(meter.shared, "fixture"):
            clock(10)
        clock(2)
        meter.settle(meter.shared, "fixture")
        clock(4)
    clock(100)
    assert (dict(meter.own), dict(meter.shared)) == ({"test": 5}, {"fixture": 12})


def make_plugin(kind: type[Any]) -> tuple[Any, Lines]:
    return kind(SimpleNamespace()), Lines()


def test_a_test_is_measured_from_its_setup_to_its_teardown(clock, listed: Path) -> None:
    plugin, lines = make_plugin(Measuring)
    for name, seconds, when in (("slow", 0.5, "passed"), ("skipped", 9, "skipped")):
        running = plugin.pytest_runtest_protocol(make_item(f"tests/x.py::{name}"))
        next(running)
        clock(seconds)
        with pytest.raises(StopIteration):
            running.send(True)
        for part in ("setup", "call"):
            own = {"when": part, "passed": when == "passed"}
            plugin.pytest_runtest_logreport(SimpleNamespace(nodeid=f"tests/x.py::{name}", **own))
    plugin.pytest_terminal_summary(lines)
    assert durations.read() == {"tests/x.py::slow": 0.5}
    assert lines[0].startswith("1 tests took 0 CPU s; the 1 of at least 0.2 s")


def test_a_lost_process_changes_no_list(listed: Path) -> None:
    plugin, lines = make_plugin(Measuring)
    plugin.pytest_testnodedown(SimpleNamespace(workeroutput={}))
    plugin.pytest_terminal_summary(lines)
    assert not listed.exists() and "died" in lines[0]


def test_slow_tests_are_marked_by_the_list_and_counted_where_they_are_left(listed: Path) -> None:
    durations.write({"tests/x.py::slow": SLOW, "tests/x.py::quick": SLOW - 0.01})
    items = [make_item(f"tests/x.py::{name}") for name in ("slow", "quick", "new")]
    plugin, lines = make_plugin(Tiers)
    plugin.pytest_terminal_summary(lines)
    assert lines == []
    plugin.pytest_collection_modifyitems(items)
    assert [sorted(each.keywords) for each in items] == [["slow"], [], []]
    plugin.pytest_deselected([items[0], make_item("tests/x.py::engine", "slow", "engines")])
    plugin.pytest_terminal_summary(lines)
    # Processes that collect the same tests leave them once.
    for _ in range(2):
        plugin.pytest_testnodedown(SimpleNamespace(workeroutput={"left": 1234}))
    plugin.pytest_terminal_summary(lines)
    assert lines == [f"{n} slow tests are left to `make test-all`." for n in ("1", "1,234")]


def test_a_child_process_counts() -> None:
    before = durations._cpu()
    busy = "import time\nwhile time.process_time() < .3: pass"
    subprocess.run([sys.executable, "-S", "-c", busy], check=True)
    assert durations._cpu() - before >= 0.25
