"""The oldest Beam that setup.py allows makes the bytes of the installed one, with one pyarrow.

`make test-oldest-beam` runs more tests, in an environment of the oldest Beam with the versions of
other packages that it wants.
"""

from __future__ import annotations

import re
from pathlib import Path

import apache_beam
import pyarrow
import pytest

from tests.pipelines.conftest import PROJECT, Workspace
from tests.pipelines.run.older_packages import imported_versions, older_packages, release_with
from tests.pipelines.run.test_planned_once import contents

RANGES = re.findall(
    r'"apache-beam(?:\[\w+\])?>=([\d.]+),<([\d.]+)"', (PROJECT / "setup.py").read_text("utf-8")
)
# Beam 2.75 needs a pyarrow before 24; pyarrow decides the bytes of Parquet files.
PYARROW = ("pyarrow==23.0.1", "pyarrow-hotfix==0.7")
RUNNERS = {"own": (), "Beam's": ("--runner=DirectRunner",)}


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: major, minor and so on."""
    return tuple(map(int, version.split(".")))


def released(workspace: Workspace, folders: tuple[Path, ...], *options: str) -> dict[str, bytes]:
    """Release with the packages of the folders; return the files of the release."""
    name = f"out-{len(list(workspace.folder.glob('out-*')))}"

    def elsewhere(settings: dict[str, object]) -> None:
        settings["output"] = name

    release_with(workspace, workspace.configure(elsewhere), folders, *options)
    return contents(workspace.folder / name)


def test_the_installed_beam_is_the_newest_of_two_minor_versions_or_more() -> None:
    ((oldest, beyond),) = set(RANGES)
    major, minor = numbers(apache_beam.__version__)[:2]
    assert numbers(beyond) == (major, minor + 1)
    assert numbers(oldest) <= (major, minor - 1)


@pytest.mark.parametrize("runner", RUNNERS)
def test_release(workspace: Workspace, runner: str) -> None:
    oldest, arrow = f"{RANGES[0][0]}.0", older_packages(*PYARROW)
    older = (older_packages(f"apache-beam=={oldest}"), arrow)
    reported = imported_versions("apache_beam", "pyarrow", folders=older)
    assert reported == [oldest, PYARROW[0].partition("==")[2]]
    assert reported[1] != pyarrow.__version__

    made = released(workspace, older, *RUNNERS[runner])
    assert {"manifest.json", "record.json"} < made.keys()
    assert made == released(workspace, (arrow,), *RUNNERS[runner])
