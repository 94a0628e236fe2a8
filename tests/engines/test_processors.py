"""One release on two workers that take their machine for two others, and on one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import CONFIGURATION, Once, Workspace, make_workspace
from tests.engines.servers import OF_WORKERS, Engine, kill_group
from tests.engines.test_faults import WRITE, check_drawn_once, check_left
from tests.processors.emulated import PROCESSORS

pytestmark = [
    pytest.mark.engines,
    pytest.mark.parametrize("running", ["flink_processors"], indirect=True),
]

Files = dict[str, bytes]
# Under rho trees are measured by strategies too, whose estimates are sums of many products.
SECTIONS = {
    "privacy": {"rho": 0.1, "neighbors": "add_remove"},
    "trees": [
        {
            "name": "weighted",
            "domain": {"column": "x", "lower": 0, "upper": 100, "cells": 400},
            "group_by": {"column": "place", "keys": ["north", "south"]},
            "mechanism": "factorised",
        },
        *(each for each in CONFIGURATION["trees"] if each["name"] != "wide"),
    ],
}
Leaks = Callable[[Path], list[str]]


@pytest.fixture(scope="session")
def undisturbed(once: Once) -> Files:
    """The files of the release by the local runner, on this machine as it is."""
    return once("processors", lambda *at: make_workspace(*at, sections=SECTIONS).release())


@pytest.fixture
def workspace(tmp_path: Path, running: Engine) -> Iterator[Workspace]:
    """A workspace of this test alone, without faults."""
    made = make_workspace(tmp_path, running, sections=SECTIONS)
    yield made
    made.plant(hold="")


def processors_of(workspace: Workspace, step: str) -> set[str]:
    """The processors on which bundles of a step began."""
    lines = [line for line in workspace.noted("processors") if step in line]
    return {line.split()[0] for line in lines}


def test_two_workers_of_different_processors(workspace: Workspace, undisturbed: Files) -> None:
    """Each writes parts, and the release is the one of this machine alone."""
    assert workspace.release(workspace.engine.quick) == undisturbed
    expected = {PROCESSORS[each]["OPENBLAS_CORETYPE"] for each in OF_WORKERS}
    assert processors_of(workspace, WRITE) == expected


def test_killed_on_one_and_finished_on_the_other(
    workspace: Workspace, undisturbed: Files, leaks: Leaks
) -> None:
    """The first worker is lost with the launcher when parts are to be written; the second worker
    finishes the release for a launcher on this machine as it is."""
    kill, start = workspace.engine.kill_worker, workspace.engine.start_worker
    assert kill is not None and start is not None
    workspace.plant(hold=WRITE)
    process, lost = workspace.start(), False
    try:
        workspace.wait_for(WRITE, process)
        kill(0)
        lost = True
        process.send_signal(signal.SIGKILL)
        process.wait()
        check_left(workspace.output, undisturbed)
        (workspace.engine.faults / "processors").unlink()
        workspace.plant(hold="")
        workspace.release()
    finally:
        kill_group(process)
        if lost:
            start(0)
    assert processors_of(workspace, WRITE) == {PROCESSORS[OF_WORKERS[1]]["OPENBLAS_CORETYPE"]}
    check_drawn_once(workspace, undisturbed, leaks)
