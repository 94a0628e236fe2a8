"""Releases that earlier versions of dptrees made are read as they were then (docs/decisions/0023).

`made/NAME` holds a release as its version left it, and what that version answered. Nothing in there
is ever made anew: a release that cannot be read any more is a change of format, which needs a
number, and a sentence that says what to do.
"""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dptrees.pipelines.query.release_folder import FolderError, ReleaseFolder
from tests.releases.make import CONFIGURATIONS, LEDGER, MADE, write_place

if TYPE_CHECKING:
    from tests.pipelines.conftest import Outcome, Workspace

NOT_READ = ("format-1",)
READ = tuple(name for name in CONFIGURATIONS if name not in NOT_READ)
# Whose specifications are today's, but for what came since.
OF_TODAY = tuple(name for name in READ if name.startswith("format-3"))

COUNTED = tuple(name for name in READ if (MADE / name / LEDGER).exists())
# Made before keys had ids.
WITHOUT_ID = ("format-3", "format-3-boxes")
WITH_ID = tuple(name for name in OF_TODAY if name not in WITHOUT_ID)
HERE = tuple(name for name in OF_TODAY if name not in COUNTED)


@pytest.fixture
def place(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace in whose folder commands run."""
    monkeypatch.chdir(workspace.folder)
    return workspace


def opened(place: Workspace, name: str) -> list[str]:
    """Puts an old release, its rows, key and configuration into the working directory; returns the
    parameters of its runs."""
    _, settings, runs, _ = CONFIGURATIONS[name]
    write_place(place.folder, settings)
    shutil.copytree(MADE / name / "release", place.folder / "out", dirs_exist_ok=True)
    if name in COUNTED:
        shutil.copy(MADE / name / LEDGER, place.folder / "budget.db")
    return runs


def folders(runs: list[str]) -> list[str]:
    """The releases of these runs."""
    return [f"out/period-{run:04d}" for run in range(1, 1 + len(runs))] if runs[0] else ["out"]


def same(before: Any, now: Any) -> bool:
    """Whether an answer holds all that it held before; what was added is no matter."""
    if isinstance(before, dict):
        return isinstance(now, dict) and all(
            name in now and same(value, now[name]) for name, value in before.items()
        )
    if isinstance(before, list):
        return len(before) == len(now) and all(map(same, before, now))
    if isinstance(before, float):
        return math.isclose(before, now, rel_tol=1e-9, abs_tol=1e-9)
    return bool(before == now)


def test_every_release_of_the_collection_is_tested() -> None:
    assert {path.name for path in MADE.iterdir()} == set(CONFIGURATIONS)


@pytest.mark.parametrize("name", READ)
def test_it_answers_as_it_did(place: Workspace, name: str) -> None:
    opened(place, name)
    for each in json.loads((MADE / name / "answers.json").read_text()):
        outcome = place.run("query", "out", *each["asked"].split(), "--json")
        assert outcome.code == 0, outcome.err
        assert same(each["answer"], json.loads(outcome.out)), each["asked"]


@pytest.mark.parametrize("name", READ)
def test_its_page_can_be_written(place: Workspace, name: str) -> None:
    for folder in folders(opened(place, name)):
        outcome = place.run("report", folder)
        assert outcome.code == 0, outcome.err
        assert "</html>" in Path(folder, "report.html").read_text()


@pytest.mark.parametrize("name", WITH_ID)
def test_it_is_verified(place: Workspace, name: str) -> None:
    for folder in folders(opened(place, name)):
        outcome = place.run("verify", folder)
        assert outcome.code == 0, outcome.out + outcome.err


# The ledgers of the others know them under the folders in which they were made.
@pytest.mark.parametrize("name", HERE)
def test_its_configuration_finds_it(place: Workspace, name: str) -> None:
    for each in opened(place, name):
        given = ["--set", f"date={each}"] if each else []
        outcome = place.run("release", "release.yaml", *given)
        assert outcome.code == 0, outcome.err
        assert "already there; no rows were read" in outcome.out


@pytest.mark.parametrize("name", WITH_ID)
def test_it_is_made_again_bit_for_bit(place: Workspace, name: str) -> None:
    runs = opened(place, name)
    given = ["--set", f"date={runs[-1]}"] if runs[-1] else []
    outcome = place.run("verify", folders(runs)[-1], "--data", "release.yaml", *given)
    assert outcome.code == 0, outcome.out + outcome.err


def test_what_an_earlier_version_began_is_finished_with_its_plan(place: Workspace) -> None:
    """Its plan.json is of format 1, whose seal covers less."""
    opened(place, "format-3-arithmetic-1")
    folder = place.folder / "out"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert json.loads(before[folder / "plan.json"])["format"] == 1
    (folder / "manifest.json").unlink()
    outcome = place.run("release", "release.yaml")
    assert outcome.code == 0, outcome.err
    made = json.loads((folder / "manifest.json").read_bytes())
    old = json.loads(before.pop(folder / "manifest.json"))
    assert all(made[name] == old[name] for name in ("spec", "record", "trees", "parts"))
    assert all(path.read_bytes() == before[path] for path in before if path.suffix != ".html")


def refused(outcome: Outcome) -> str:
    """The one sentence of a refusal."""
    assert outcome.code == 2 and outcome.out == "" and outcome.err.count("\n") == 1, outcome
    return outcome.err


def test_a_format_that_is_not_read_any_more(place: Workspace) -> None:
    opened(place, "format-1")
    for command in (["query", "out", "cdf", "5"], ["report", "out"], ["verify", "out"]):
        assert refused(place.run(*command)) == (
            "dptrees: out: is of format 1, which dptrees 0.1.0 made; this is dptrees 0.1.0, which "
            "reads formats 2 and 3: read it with the version that made it\n"
        )
    assert "another version of dptrees" in refused(place.run("release", "release.yaml"))


def test_a_format_of_a_later_version(place: Workspace) -> None:
    opened(place, "format-3")
    manifest = place.folder / "out" / "manifest.json"
    entries = json.loads(manifest.read_text())
    entries["spec"]["format"] = 4
    entries["dptrees"] = "7.0"
    manifest.write_text(json.dumps(entries))
    for command in (["query", "out", "cdf", "5"], ["report", "out"], ["verify", "out"]):
        assert refused(place.run(*command)) == (
            "dptrees: out: is of format 4, which dptrees 7.0 made; this is dptrees 0.1.0, which "
            "reads formats 2 and 3: read it with the version that made it, or a later one\n"
        )


def test_format_2_is_read_but_not_made_again(place: Workspace) -> None:
    opened(place, "format-2")
    reported = refused_check(place.run("verify", "out"))
    assert reported == (
        "dptrees: out: manifest: it is of format 2, and this program makes and checks format 3: "
        "verify it with the version that made it\n"
    )
    assert "another version of dptrees" in refused(place.run("release", "release.yaml"))


@pytest.mark.parametrize("name", WITHOUT_ID)
def test_before_keys_had_ids_nothing_is_verified(place: Workspace, name: str) -> None:
    opened(place, name)
    assert refused_check(place.run("verify", "out")) == (
        "dptrees: out: manifest: the entry key_id is missing, as early versions left it out: "
        "verify it with the version that made it\n"
    )


def refused_check(outcome: Outcome) -> str:
    """What the first check that fails says."""
    assert outcome.code == 2
    return outcome.err


@pytest.mark.parametrize("name", COUNTED)
def test_an_old_ledger_goes_on(place: Workspace, name: str) -> None:
    opened(place, name)
    url = "sqlite:///budget.db"
    assert place.run("ledger", "upgrade", url).code == 0
    (account,) = json.loads(place.run("ledger", "show", url, "--json").out)["datasets"]
    assert account["spent"]["epsilon"] == "8"
    assert [each["release"] for each in account["releases"]] == ["old/keys", "old"]
    assert {each["state"] for each in account["releases"]} == {"committed"}

    text = (place.folder / "release.yaml").read_text()
    (place.folder / "new.yaml").write_text(
        text.replace("release: old", "release: new").replace("output: out", "output: out/new")
    )
    outcome = place.run("release", "new.yaml")
    assert outcome.code == 0, outcome.err
    assert "epsilon 16 of 20" in outcome.out


def test_the_newest_entry_is_of_the_format_that_is_written(place: Workspace) -> None:
    from dptrees.dpcore.release.plan import FORMAT_VERSION

    formats = {
        json.loads((MADE / name / "release" / "manifest.json").read_text())["spec"]["format"]
        for name in CONFIGURATIONS
        if name != "format-3-series"
    }
    assert max(formats) == FORMAT_VERSION, "add a release of the new format: tests.releases.make"
    with pytest.raises(FolderError):
        ReleaseFolder(str(place.folder))
