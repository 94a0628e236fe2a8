"""Runs that go on from what the run before sealed, also where it was compacted or restored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import RunBefore, release_rows
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.transforms.steps import carry
from tests.pipelines.series.runs import (
    People,
    Runs,
    balance_alone,
    lost,
    refused,
    repeated,
    without_its_balance,
)
from tests.pipelines.test_modes import Booked

SEALED = {"boxes": "state", "people": "units", "new_people": "units"}


@pytest.fixture(params=SEALED)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def whole(kind: str, request: pytest.FixtureRequest) -> Any:
    """All periods. Tests only read it."""
    return request.getfixturevalue(kind)


@pytest.fixture
def copy(whole: Runs, tmp_path: Path) -> Any:
    """The first two periods, to go on with."""
    return whole.copied(tmp_path / "copy", 2)


def read_nodes(runs: Any, period: int) -> list[Any]:
    """The nodes that a run released, by depth."""
    name, depths = runs.nodes
    folder = ReleaseFolder(str(runs.period_folder(period)))
    return [folder.part(NODES, name, 0, depth).to_pylist() for depth in depths]


def test_a_run_in_memory_is_the_same_as_the_pipelines(whole: Any, tmp_path: Path) -> None:
    other, key = type(whole)(tmp_path), ReleaseKey(bytes(range(32)))
    name, depths = whole.nodes
    before: list[RunBefore] = []
    for period in range(1, whole.periods + 1):
        manifest = ReleaseFolder(str(whole.period_folder(period))).manifest
        nonce = bytes.fromhex(str(manifest["nonce"]))
        spec: Any = manifest["spec"]
        rows = other.write_period(period)
        run = release_rows(plan_from_spec(spec), rows.to_batches(), key, nonce=nonce, before=before)
        before.append(RunBefore(run, nonce))
        ours = [run.part(NODES, name, 0, depth).to_pylist() for depth in depths]
        assert ours == read_nodes(whole, period)


def test_a_run_goes_on_from_what_is_there_and_is_repaired(copy: Any, kind: str) -> None:
    assert copy.period(3).code == 0
    finished = copy.snapshot(3)
    (copy.period_folder(3) / "manifest.json").unlink()
    begun = copy.snapshot(3)
    assert copy.period(3).code == 0
    again = copy.snapshot(3)
    assert {name: again[name] for name in begun} == begun and again.keys() == finished.keys()
    sealed = sorted(copy.period_folder(3).glob(f"{SEALED[kind]}/*"))[:7]
    for path in [*sealed, *copy.period_folder(3).glob("nodes/*")]:
        path.unlink()
    assert copy.period(3, "--repair").code == 0
    assert copy.snapshot(3) == again


def test_other_rows_are_not_finished_as_the_same_draw(copy: Any) -> None:
    assert copy.period(3).code == 0
    (copy.period_folder(3) / "manifest.json").unlink()
    copy.write_other(3)
    refused(copy.period(3), "made from other data")


def test_without_what_the_run_before_left_nothing_is_drawn(copy: Any, kind: str) -> None:
    path, other = (sorted(copy.period_folder(n).glob(f"{SEALED[kind]}/*"))[-1] for n in (2, 1))
    content = path.read_bytes()
    for damaged in (None, other.read_bytes(), content[:-5]):
        path.unlink(missing_ok=True)
        if damaged is not None:
            path.write_bytes(damaged)
        refused(copy.period(3), "is missing or damaged; --repair makes it again")
        assert not (copy.period_folder(3) / "manifest.json").exists()
        shutil.rmtree(copy.period_folder(3))
    copy.write_period(2)
    assert copy.period(2, "--repair").code == 0 and path.read_bytes() == content
    copy.write_period(3)
    assert copy.period(3).code == 0


def test_a_rotated_key_goes_on_with_the_key_of_the_series(copy: Any, whole: Any) -> None:
    """Earlier noise is computed again, and units are known, under the key of the first run."""
    copy.succeed("keygen", copy.key, "--rotate")
    assert copy.period(3).code == 0
    manifests = [copy.period_folder(each) / "manifest.json" for each in (2, 3)]
    first, second = (json.loads(path.read_text())["key_id"] for path in manifests)
    assert first == second
    counts = [sum(row["count"] for row in read_nodes(each, 3)[0]) for each in (copy, whole)]
    assert abs(counts[0] - counts[1]) < 30
    shutil.rmtree(copy.period_folder(3))
    copy.key.write_text(ReleaseKey(bytes(32)).to_text() + "\n")
    refused(copy.period(3), "does not hold the key")


def test_what_is_lost_between_steps_stops_the_run(
    copy: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the state of boxes, or one shard of the units."""
    step = carry._Open if kind == "boxes" else carry._OpenUnits
    own = step.process
    for fault in (lost, without_its_balance, balance_alone, repeated):

        def process(self: Any, element: Any, fault: Any = fault) -> list[Any]:
            if kind != "boxes" and element[4] != 5:
                return list(own(self, element))
            return list(fault(lambda each: own(self, each), element))

        monkeypatch.setattr(step, "process", process)
        refused(copy.period(3), "the engine lost or repeated data")
        assert not (copy.period_folder(3) / "manifest.json").exists()


# --- dptrees series compact ---


@pytest.fixture
def made(tmp_path: Path) -> People:
    own = People(tmp_path)
    own.released_periods(3)
    return own


def sealed(made: People, period: int) -> set[str]:
    folder = made.period_folder(period)
    return {kind for kind in ("state", "units") if list(folder.glob(f"{kind}/*"))}


def test_the_last_runs_keep_what_they_sealed_and_the_series_goes_on(made: People) -> None:
    assert sealed(made, 1) == {"state", "units"} and "units" in sealed(made, 2)
    before = made.run("query", made.output, "cdf", "50").out
    outcome = made.succeed("series", "compact", made.output)
    assert "sealed files of 1 run are deleted; the last 2 runs keep theirs" in outcome.out
    assert not sealed(made, 1) and sealed(made, 2) and sealed(made, 3)
    assert made.run("query", made.output, "cdf", "50").out == before
    for period in (1, 2):
        assert made.run("verify", made.period_folder(period)).code == 0
    made.write_period(3)
    (made.period_folder(3) / "units").rename(made.folder / "lost")
    assert made.period(3, "--repair").code == 0
    assert made.run("series", "compact", made.output, "--keep", "1").code == 0
    assert not sealed(made, 2) and sealed(made, 3)
    made.write_period(made.periods)
    assert made.period(made.periods).code == 0
    outcome = made.run("series", "compact", made.output, "--keep", "1")
    assert outcome.code == 0 and "the last run keeps its" in outcome.out


def test_nothing_is_deleted_where_the_last_run_is_damaged(made: People) -> None:
    path = sorted(made.period_folder(3).glob("units/*"))[5]
    path.write_bytes(path.read_bytes()[:-3])
    outcome = made.run("series", "compact", made.output)
    assert outcome.code == 2 and f"{path}: is missing or damaged" in outcome.err
    path.unlink()
    assert made.run("series", "compact", made.output).code == 2
    assert sealed(made, 1) == {"state", "units"}


def test_what_cannot_be_compacted(made: People) -> None:
    for place, keep, words in (
        ("out", "0", "--keep 0: at least the last run's must stay"),
        (".", "2", "holds no series"),
    ):
        outcome = made.run("series", "compact", made.folder / place, "--keep", keep)
        assert outcome.code == 2 and words in outcome.err
    assert sealed(made, 1) == {"state", "units"}


# --- a volume that was restored ---


class Noisy(Booked):
    """Its noise is seen: two draws differ."""

    @property
    def settings(self) -> dict[str, Any]:
        settings = super().settings
        return settings | {"privacy": settings["privacy"] | {"rho": 1}}


def test_a_lost_period_is_made_again_with_its_published_nonce(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    made = Noisy(tmp_path / "volume")
    made.open_ledger()
    made.released_periods(1)
    backup = tmp_path / "backup"
    shutil.copytree(made.folder, backup)
    made.write_period(2)
    assert made.period(2).code == 0
    published = made.snapshot(2)
    nonce = json.loads(published["nonce.json"])["nonce"]

    def restore() -> None:
        shutil.rmtree(made.folder)
        shutil.copytree(backup, made.folder)
        made.write_period(2)

    restore()
    outcome = made.period(2, "--nonce", nonce)
    assert outcome.code == 0, outcome.err
    assert made.snapshot(2) == published
    # Without it the rows get another draw, which the restored ledger cannot notice.
    restore()
    assert made.period(2).code == 0
    again = made.snapshot(2)
    assert again["nonce.json"] != published["nonce.json"]
    assert not {name for name in published if name.startswith("nodes/")} & set(again)
