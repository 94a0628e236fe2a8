"""What every release of two stages promises: one guarantee, one draw, and every way to fail."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.run.stage import Stage
from tests.pipelines.conftest import (
    NONCE,
    Change,
    Workspace,
    assert_refused,
    both,
    read_files,
    release_files,
)
from tests.pipelines.first_stages import KEYS, UNIT_BOUNDS, VALUE_BOUNDS, FirstStage, stage_of
from tests.pipelines.ledger.asked import account_of, opened

KINDS = {"unit": UNIT_BOUNDS, "values": VALUE_BOUNDS, "keys": KEYS}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> FirstStage:
    """A kind of first stage."""
    return KINDS[request.param]


@pytest.fixture
def begun(workspace: Workspace, kind: FirstStage) -> Workspace:
    """A workspace with the rows of this kind."""
    workspace.write_table(kind.rows())
    return workspace


@pytest.fixture(scope="module")
def finished(kind: FirstStage, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release of this kind. Tests only read it."""
    workspace = Workspace(tmp_path_factory.mktemp("stages"))
    workspace.write_table(kind.rows())
    workspace.make(kind.change)
    return workspace.output


@pytest.fixture
def made(begun: Workspace, finished: Path) -> Workspace:
    """A workspace whose output holds a release of this kind."""
    shutil.copytree(finished, begun.output)
    return begun


def counted(workspace: Workspace, kind: FirstStage) -> tuple[str, Change]:
    """The URL of a ledger, and the change that counts the release in it."""
    url = f"sqlite:///{workspace.folder}/budget.db"

    def ledger(settings: dict[str, Any]) -> None:
        settings["ledger"] = url

    return url, both(kind.change, ledger)


def test_the_first_stage_is_the_one_in_memory(kind: FirstStage, made: Workspace) -> None:
    """And its part holds what was drawn, and no count."""
    key = ReleaseKey.from_text(made.key.read_text())
    stage = stage_of(made, kind.folder)
    (question,) = stage.plan.questions
    nonce = bytes.fromhex(NONCE[1])
    found = release_rows(stage.plan, kind.rows().to_batches(), key, nonce=nonce)
    again = found._read("nodes", question.name, 0, 0)
    assert stage.part("nodes", question.name, 0, 0).to_pylist() == again.to_pylist()
    assert set(again.column_names) <= {"max_rows", "upper", "shop"}


def test_a_second_run_reads_no_row_and_draws_nothing(kind: FirstStage, made: Workspace) -> None:
    before = release_files(made.output)
    shutil.rmtree(made.rows)
    made.key.unlink()
    again = made.release(kind.change)
    assert again.code == 0 and "already there" in again.out
    assert release_files(made.output) == before


@pytest.mark.parametrize("stop", ["count", "commit"])
def test_a_killed_first_stage_is_finished(
    kind: FirstStage, begun: Workspace, finished: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """Killed before its draw, or between the two stages: the same bytes as at one go."""
    make = Stage.make
    calls: list[str] = []

    def killed(stage: Stage) -> None:
        calls.append(stage.plan.name)
        if stop == "commit":
            make(stage)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "make", killed)
        assert begun.release(kind.change).code == 130
    assert calls == [f"small/{kind.folder}"]
    begun.make(kind.change)
    assert release_files(begun.output) == release_files(finished)


def test_a_process_killed_between_the_stages_draws_once_and_pays_once(
    workspace: Workspace,
) -> None:
    """By SIGKILL, as soon as the choice is released; the second run goes on with it."""
    workspace.write_table(UNIT_BOUNDS.rows())
    url, change = counted(workspace, UNIT_BOUNDS)
    ledger = opened(url, UNIT_BOUNDS.account[0])
    process = workspace.start("release", workspace.configure(change), *NONCE)
    first = workspace.output / "bounds" / "manifest.json"
    deadline = time.monotonic() + 120
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert first.exists()
    before = read_files(first.parent)
    workspace.make(change)
    after = read_files(first.parent)
    assert all(after[name] == before[name] for name in before if name in after)
    assert after["manifest.json"] == before["manifest.json"]
    assert ledger.account("flights").spent.epsilon == 1


def test_a_reservation_of_both_stages_goes_on_at_no_cost(
    kind: FirstStage, begun: Workspace
) -> None:
    """In a ledger that admits one such release, though its folder is gone meanwhile."""
    url, change = counted(begun, kind)
    ledger = opened(url, kind.account[0])
    begun.make(change)
    before = release_files(begun.output)
    begun.make(change)
    shutil.rmtree(begun.output)
    begun.make(change)
    assert release_files(begun.output) == before
    assert ledger.account("flights").spent.epsilon == kind.account[0].total.epsilon


def test_a_ledger_without_room_for_the_trees_pays_for_no_first_stage(
    kind: FirstStage, begun: Workspace
) -> None:
    url, change = counted(begun, kind)
    ledger = opened(url, kind.account[1])
    assert_refused(begun, begun.release(change))
    assert ledger.account("flights").spent.epsilon == 0
    assert not (begun.output / kind.folder / "manifest.json").exists()


def test_a_first_stage_is_never_drawn_twice_for_existing_trees(
    kind: FirstStage, made: Workspace
) -> None:
    shutil.rmtree(made.output / kind.folder)
    assert_refused(made, made.release(kind.change), f"not {kind.missing}")
    (made.output / "manifest.json").unlink()
    assert made.release(kind.change).code == 2
    assert not (made.output / kind.folder).exists()


def test_another_fraction_is_another_release(kind: FirstStage, made: Workspace) -> None:
    other, words = kind.other
    assert_refused(made, made.release(other), f"another configuration: {words}")


def test_a_lost_part_is_made_again(kind: FirstStage, made: Workspace) -> None:
    before = release_files(made.output)
    (part,) = (made.output / kind.folder / "nodes").iterdir()
    part.unlink()
    assert_refused(made, made.release(kind.change), "--repair makes them again")
    made.make(kind.change, "--repair")
    assert release_files(made.output) == before


def test_both_stages_are_verified_and_replayed(kind: FirstStage, made: Workspace) -> None:
    config = made.configure(kind.change)
    printed = made.succeed("verify", made.output, "--data", config).out
    assert f"{kind.check}: {kind.folder} is complete, matches this specification" in printed
    assert "replay: parts, tables and record are the same, bit for bit" in printed

    stage = made.output / kind.folder
    (part,) = (stage / "nodes").iterdir()
    manifest = stage / "manifest.json"
    budget = json.loads(manifest.read_text())["guarantee"]["epsilon"]
    edited = manifest.read_bytes().replace(f'"{budget}"'.encode(), b'"1/99"')
    for path, spoilt in ((part, part.read_bytes() + b"x"), (manifest, edited)):
        kept = path.read_bytes()
        path.write_bytes(spoilt)
        outcome = made.run("verify", made.output)
        assert outcome.code == 2 and f"{kind.check}: {kind.folder}: " in outcome.err
        path.write_bytes(kept)

    shutil.rmtree(stage)  # as in a published copy
    printed = made.succeed("verify", made.output).out
    assert f"{kind.check}: {kind.folder} is missing" in printed


def test_the_first_stage_has_no_page_and_no_counts(kind: FirstStage, made: Workspace) -> None:
    stage = made.output / kind.folder
    for command, sentence in (
        (("report", stage), f"holds a {kind.noun}, which has no page"),
        (("query", stage, "top"), f"{kind.noun}, which releases no"),
        (("query", stage, "cdf", "3"), "has no order"),
        (("sample", stage, "--output", made.folder / "a.csv"), "sample: "),
    ):
        assert_refused(made, made.run(*command), sentence)


def test_a_series_is_refused(kind: FirstStage, workspace: Workspace) -> None:
    def series(settings: dict[str, Any]) -> None:
        settings["series"] = {"periods": 4, "period": 1}

    outcome = workspace.run("plan", workspace.configure(both(kind.change, series)))
    assert_refused(workspace, outcome, "does not go with series")


def test_an_account_of_another_unit_is_refused(workspace: Workspace) -> None:
    workspace.write_table(UNIT_BOUNDS.rows())
    url, change = counted(workspace, UNIT_BOUNDS)
    opened(url, account_of("1"))
    assert_refused(workspace, workspace.release(change), "unit")
