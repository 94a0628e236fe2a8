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
from typing import Any

import pytest

from dptrees.dpcore.release.manifest import FORMAT_VERSION
from tests.pipelines.conftest import Outcome, Workspace, both, edit_manifest, put, read_files
from tests.releases.make import CONFIGURATIONS, LEDGER, MADE, write_place

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


def as_then(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree with the rule of its counts that was the default then (docs/decisions/0050)."""
    of_counts = tree["domain"].get("kind") == "hierarchy" and "measure" not in tree
    return tree | {"consistency": "top_down"} if of_counts else tree


def opened(place: Workspace, name: str) -> list[str]:
    """Puts an old release, its rows, key and configuration into the working directory; returns the
    parameters of its runs."""
    _, settings, runs, _ = CONFIGURATIONS[name]
    shutil.copytree(MADE / name / "release", place.folder / "out", dirs_exist_ok=True)
    if not (place.folder / "out" / "plan.json").exists():  # no plan was kept yet
        settings = settings | {"trees": [as_then(tree) for tree in settings["trees"]]}
    write_place(place.folder, settings)
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
def test_it_is_read_as_it_was(place: Workspace, name: str) -> None:
    """It answers as it did, its page can be written, it is verified, its configuration finds it,
    and it is made again bit for bit."""
    runs = opened(place, name)
    for each in json.loads((MADE / name / "answers.json").read_text()):
        outcome = place.succeed("query", "out", *each["asked"].split(), "--json")
        assert same(each["answer"], json.loads(outcome.out)), each["asked"]
    for folder in folders(runs):
        place.succeed("report", folder)
        assert "</html>" in Path(folder, "report.html").read_text()
        if name in WITH_ID:
            place.succeed("verify", folder)
    given = [["--set", f"date={run}"] if run else [] for run in runs]
    # The ledgers of the others know them under the folders in which they were made.
    for options in given if name in HERE else ():
        outcome = place.succeed("release", "release.yaml", *options)
        assert "already there; no rows were read" in outcome.out
    if name in WITH_ID:
        place.succeed("verify", folders(runs)[-1], "--data", "release.yaml", *given[-1])


def test_what_an_earlier_version_began_is_finished_with_its_plan(place: Workspace) -> None:
    """Its plan.json is of format 1, whose seal covers less."""
    opened(place, "format-3-arithmetic-1")
    folder = place.folder / "out"
    before = read_files(folder, "report.html")
    assert json.loads(before["plan.json"])["format"] == 1
    (folder / "manifest.json").unlink()
    place.succeed("release", "release.yaml")
    made, old = place.manifest(), json.loads(before.pop("manifest.json"))
    assert all(made[name] == old[name] for name in ("spec", "record", "trees", "parts"))
    now = read_files(folder)
    assert all(now[name] == before[name] for name in before)


def refused(outcome: Outcome) -> str:
    """The one sentence of a refusal."""
    assert outcome.code == 2 and outcome.err.count("\n") == 1, outcome
    return outcome.err.removeprefix("dptrees: out: ")


READERS = (("query", "out", "cdf", "5"), ("report", "out"), ("verify", "out"))
THIS = "this is dptrees 0.1.0, which reads formats 2 and 3: read it with the version that made it"


def test_a_format_that_is_not_read_any_more(place: Workspace) -> None:
    opened(place, "format-1")
    for command in READERS:
        said = f"is of format 1, which dptrees 0.1.0 made; {THIS}\n"
        assert refused(place.run(*command)) == said
    assert "another version of dptrees" in refused(place.run("release", "release.yaml"))


def test_a_format_of_a_later_version(place: Workspace) -> None:
    opened(place, "format-3")
    later = both(put("spec.format", 4), put("dptrees", "7.0"))
    edit_manifest(place.output, later, checksum=False)
    for command in READERS:
        said = f"is of format 4, which dptrees 7.0 made; {THIS}, or a later one\n"
        assert refused(place.run(*command)) == said


@pytest.mark.parametrize("name", ["format-2", *WITHOUT_ID])
def test_what_is_read_but_not_verified(place: Workspace, name: str) -> None:
    opened(place, name)
    why = "the entry key_id is missing, as early versions left it out"
    if name == "format-2":
        why = "it is of format 2, and this program makes and checks format 3"
        assert "another version of dptrees" in refused(place.run("release", "release.yaml"))
    said = f"manifest: {why}: verify it with the version that made it\n"
    assert refused(place.run("verify", "out")) == said


@pytest.mark.parametrize("name", COUNTED)
def test_an_old_ledger_goes_on(place: Workspace, name: str) -> None:
    opened(place, name)
    url = "sqlite:///budget.db"
    place.succeed("ledger", "upgrade", url)
    (account,) = json.loads(place.succeed("ledger", "show", url, "--json").out)["datasets"]
    assert account["spent"]["epsilon"] == "8"
    assert [each["release"] for each in account["releases"]] == ["old/keys", "old"]
    assert {each["state"] for each in account["releases"]} == {"committed"}

    text = (place.folder / "release.yaml").read_text()
    (place.folder / "new.yaml").write_text(
        text.replace("release: old", "release: new").replace("output: out", "output: out/new")
    )
    assert "epsilon 16 of 20" in place.succeed("release", "new.yaml").out


def test_the_newest_entry_is_of_the_format_that_is_written() -> None:
    formats = {
        json.loads((MADE / name / "release" / "manifest.json").read_text())["spec"]["format"]
        for name in CONFIGURATIONS
        if name != "format-3-series"
    }
    assert max(formats) == FORMAT_VERSION, "add a release of the new format: tests.releases.make"
