"""A series that was begun with the oldest NumPy and SciPy goes on with the newest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.pipelines.conftest import Workspace
from tests.pipelines.run.older_packages import imported_versions, older_packages, release_with
from tests.pipelines.run.test_planned_once import contents

# SciPy as setup.py has it at least, and the first NumPy with wheels for Python 3.11.
OLDEST = ("numpy==1.23.2", "scipy==1.12.0")


@pytest.fixture(scope="session")
def oldest() -> Path:
    """The folder of the oldest libraries."""
    return older_packages(*OLDEST)


def released(workspace: Workspace, libraries: Path | None, period: int) -> None:
    """Run one period in a process of its own."""
    folders = () if libraries is None else (libraries,)
    release_with(workspace, workspace.configure(daily(period)), folders)


def daily(period: int) -> Callable[[dict[str, Any]], None]:
    """Make the small release a run of a series under rho."""

    def change(settings: dict[str, Any]) -> None:
        settings["privacy"] = {"rho": 1, "neighbors": "add_remove"}
        settings["series"] = {"periods": 3, "period": period}

    return change


def test_a_series_goes_on_after_an_upgrade(workspace: Workspace, oldest: Path) -> None:
    reported = imported_versions("numpy", "scipy", folders=(oldest,))
    assert reported == [each.partition("==")[2] for each in OLDEST]
    assert numpy.__version__ not in reported

    released(workspace, oldest, 1)
    first = runs(workspace)
    for period in (1, 2, 3):
        released(workspace, None, period)
    made = runs(workspace)
    assert first.items() <= made.items()  # the first run was found finished
    assert sum(name.endswith("plan.json") for name in made) == 3

    # A killed run of the last day is finished with the oldest libraries: the same draw.
    (workspace.output / "period-0003" / "manifest.json").unlink()
    released(workspace, oldest, 3)
    again = runs(workspace)
    assert again.keys() >= {name for name in made if "period-0003" not in name}
    for name in ("plan.json", "nonce.json", "record.json"):
        assert again[f"period-0003/{name}"] == made[f"period-0003/{name}"]


def runs(workspace: Workspace) -> dict[str, bytes]:
    """The files of all runs, without the totals to date, which each run writes again."""
    found = contents(workspace.output)
    return {name: data for name, data in found.items() if "/to-date/" not in name}
