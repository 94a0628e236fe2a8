"""CPU time of each test, and the mark `slow` that follows from it.

durations.json lists the tests that take at least LISTED seconds; `make durations` measures them
anew. A test that is not listed is quick: a new test runs in `make test` until it is measured.

Seconds are processor seconds, of the test's process and its children, for setup, call and
teardown. A fixture that several tests share is divided equally among them, so a list does not
depend on which test of a module ran first.
"""

from __future__ import annotations

import json
import resource
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
PROJECT = DURATIONS.parents[1]

# Seconds from which a test is listed, and from which it is slow.
LISTED = 0.05
SLOW = 0.2
# Two measurements of one test differ by a third on a busy machine: a smaller change is no change.
NOISE = 1.5

Seconds = dict[str, float]


def read(path: Path = DURATIONS) -> Seconds:
    """Read the seconds of each listed test, by its id."""
    files: dict[str, Seconds] = json.loads(path.read_text()) if path.exists() else {}
    return {f"{file}::{name}": cpu for file, tests in files.items() for name, cpu in tests.items()}


def write(seconds: Mapping[str, float], path: Path = DURATIONS) -> None:
    """Write the list: a line for each test, sorted, under the name of its file."""
    files: dict[str, Seconds] = defaultdict(dict)
    for test in sorted(seconds):
        file, name = test.split("::", 1)
        files[file][name] = seconds[test]
    path.write_text(json.dumps(files, indent=1, ensure_ascii=False) + "\n")


def renewed(old: Mapping[str, float], measured: Mapping[str, float], seen: set[str]) -> Seconds:
    """Return the new list.

    A skipped test keeps its old seconds, and so does a file without a test that ran. Seconds that
    changed by less than NOISE keep their old value, to leave the list as it is.

    Args:
        old: the seconds of the old list.
        measured: the seconds of each test that passed.
        seen: the tests that passed, failed or were skipped.

    >>> old = {"a.py::gone": 1.0, "a.py::skipped": 2.0, "b.py::other": 3.0, "a.py::same": 0.5}
    >>> seen = {"a.py::skipped", "a.py::same", "a.py::new", "a.py::quick"}
    >>> renewed(old, {"a.py::same": 0.6, "a.py::new": 0.123, "a.py::quick": 0.01}, seen)
    {'a.py::skipped': 2.0, 'b.py::other': 3.0, 'a.py::same': 0.5, 'a.py::new': 0.12}
    """
    files = {test.split("::")[0] for test in seen}
    kept = {
        test: cpu
        for test, cpu in old.items()
        if test not in measured and (test in seen or test.split("::")[0] not in files)
    }
    for test, cpu in measured.items():
        before = old.get(test, LISTED)
        same = test in old and before / NOISE < cpu < before * NOISE
        if same or cpu >= LISTED:
            kept[test] = before if same else float(f"{cpu:.2g}")
    return kept


@dataclass(kw_only=True)
class Meter:
    """CPU seconds of the tests of one process, and of the fixtures that they share."""

    own: Seconds = field(default_factory=lambda: defaultdict(float))
    shared: Seconds = field(default_factory=lambda: defaultdict(float))
    users: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    passed: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._charged: list[tuple[Seconds, str]] = []
        self._since = _cpu()

    @contextmanager
    def charge(self, account: Seconds, name: str) -> Iterator[None]:
        """Charge what runs inside to a name, and to no outer one."""
        self.settle()
        self._charged.append((account, name))
        yield
        self.settle()
        self._charged.pop()

    def settle(self, account: Seconds | None = None, name: str = "") -> None:
        """Charge the time since the last call, to another name if there is one."""
        now = _cpu()
        if self._charged:
            charged, by = (self._charged[-1]) if account is None else (account, name)
            charged[by] += now - self._since
        self._since = now

    def totals(self) -> dict[str, Any]:
        """Return what another process needs to merge."""
        fields = ("own", "shared", "users", "passed", "seen")
        return {name: _plain(getattr(self, name)) for name in fields}


def seconds_of_tests(processes: list[dict[str, Any]]) -> Seconds:
    """Return each passed test's seconds, with its part of the fixtures that it shares.

    Args:
        processes: the totals of each process.

    >>> one = {"own": {"a": 1.0}, "shared": {"f": 4.0}, "users": {"f": ["a"]}, "passed": ["a"]}
    >>> two = {"own": {"b": 2.0}, "shared": {"f": 6.0}, "users": {"f": ["b"]}, "passed": ["b"]}
    >>> seconds_of_tests([one, two])
    {'a': 3.5, 'b': 4.5}
    """
    parts: Seconds = defaultdict(float)
    for name in {name for each in processes for name in each["shared"]}:
        costs = [each["shared"][name] for each in processes if name in each["shared"]]
        users = [test for each in processes for test in each["users"].get(name, ())]
        for test in users:
            parts[test] += sum(costs) / len(costs) / len(users)
    return {
        test: each["own"].get(test, 0.0) + parts[test]
        for each in processes
        for test in each["passed"]
    }


class Measuring:
    """A plugin that measures every test, and renews the list at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.meter = Meter()
        self.processes: list[dict[str, Any]] = []
        self.item: pytest.Item | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        self.item = item
        for name in _shared_fixtures(item):
            self.meter.users[name].append(item.nodeid)
        with self.meter.charge(self.meter.own, item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        with self.meter.charge(self.meter.shared, _name(fixturedef)):
            return (yield)

    def pytest_fixture_post_finalizer(self, fixturedef: Any) -> None:
        """Charge a teardown: fixtures end one after the other, the shared ones last."""
        if fixturedef.scope == "function":
            self.meter.settle()
        elif fixturedef.cached_result is not None:
            self.meter.settle(self.meter.shared, _name(fixturedef))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "setup":
            self.meter.seen.append(report.nodeid)
        if report.when == "call" and report.passed:
            self.meter.passed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["durations"] = self.meter.totals()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.processes.append(getattr(node, "workeroutput", {}).get("durations"))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Renew the list, unless a process was lost with its measurements."""
        processes = self.processes or [self.meter.totals()]
        if None in processes:
            terminalreporter.write_line("A process died: the durations are as they were.")
            return
        seconds = seconds_of_tests(processes)
        write(renewed(read(), seconds, {test for each in processes for test in each["seen"]}))
        slow = [cpu for cpu in seconds.values() if cpu >= SLOW]
        terminalreporter.write_line(
            f"{len(seconds):,} tests took {sum(seconds.values()):,.0f} CPU s; the {len(slow):,} "
            f"of at least {SLOW} s took {sum(slow):,.0f} s. Renewed: {DURATIONS.name}."
        )


class Tiers:
    """A plugin that marks slow tests, and reports how many of them were left out."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.left: list[int] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark before the plugin of `-m` selects."""
        durations = read()
        for item in items:
            if durations.get(item.nodeid, 0) >= SLOW:
                item.add_marker("slow")

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.left.append(sum(_is_left(item) for item in items))
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["left"] = sum(self.left)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Every process collects all tests: the numbers of all of them are the same."""
        self.left = [max(*self.left, 0, getattr(node, "workeroutput", {}).get("left", 0))]

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if left := sum(self.left):
            terminalreporter.write_line(f"{left:,} slow tests are left to `make test-all`.")


def _is_left(item: pytest.Item) -> bool:
    return "slow" in item.keywords and item.get_closest_marker("engines") is None


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _name(fixturedef: Any) -> str:
    return f"{fixturedef.baseid}::{fixturedef.argname}"


def _shared_fixtures(item: pytest.Item) -> set[str]:
    info = getattr(item, "_fixtureinfo", None)
    definitions = info.name2fixturedefs.values() if info else ()
    return {_name(each[-1]) for each in definitions if each and each[-1].scope != "function"}


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else list(value)
