"""What a rotation of the release key means for what was begun or made before it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dptrees.transforms.keys import KeyReference
from tests.pipelines.conftest import Workspace, put, read_files


def interrupt(output: Path) -> None:
    """Leave what a run leaves that was killed before its commit."""
    for name in ("manifest.json", "report.html"):
        (output / name).unlink()
    next((output / "nodes").iterdir()).unlink()


def rotate(workspace: Workspace) -> None:
    """Make another key the current one."""
    workspace.succeed("keygen", workspace.key, "--rotate")


def ids(workspace: Workspace) -> tuple[str, ...]:
    return KeyReference(reference=f"file:{workspace.key}").ring().ids


def test_the_id_of_the_key_is_in_the_manifest_and_beside_the_nonce(released: Workspace) -> None:
    for name in ("manifest.json", "nonce.json"):
        assert json.loads((released.output / name).read_text())["key_id"] == ids(released)[0]


def test_what_was_begun_is_finished_under_its_key(again: Workspace) -> None:
    before = read_files(again.output)
    interrupt(again.output)
    rotate(again)
    outcome = again.release()
    assert (outcome.code, outcome.err) == (0, "")
    assert read_files(again.output) == before


def test_a_repair_uses_the_key_of_the_manifest(again: Workspace) -> None:
    before = read_files(again.output)
    for name in ("nonce.json", "record.json"):
        (again.output / name).unlink()
    next((again.output / "nodes").iterdir()).unlink()
    rotate(again)
    outcome = again.release(None, "--repair")
    assert (outcome.code, outcome.err) == (0, "")
    assert read_files(again.output) == before


def test_a_beginning_without_an_id_is_of_the_oldest_key(again: Workspace) -> None:
    nonce = json.loads((again.output / "nonce.json").read_text())["nonce"]
    interrupt(again.output)
    (again.output / "nonce.json").write_text(json.dumps({"nonce": nonce}) + "\n")
    rotate(again)
    again.make()
    assert again.manifest()["key_id"] == ids(again)[1]


def test_a_new_release_and_a_discarded_one_use_the_current_key(again: Workspace) -> None:
    interrupt(again.output)
    rotate(again)
    again.make(None, "--discard")
    assert again.manifest()["key_id"] == ids(again)[0]


@pytest.mark.parametrize("repair", [(), ("--repair",)], ids=["begun", "finished"])
def test_a_key_that_is_gone(again: Workspace, repair: tuple[str, ...]) -> None:
    gone = ids(again)[0]
    if not repair:
        interrupt(again.output)
    again.key.unlink()
    again.succeed("keygen", again.key)
    before = read_files(again.output)
    outcome = again.release(None, *repair)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        f"dptrees: key: file:{again.key} does not hold the key {gone}, under which this release "
        f"was made or begun; it holds {ids(again)[0]}\n"
    )
    assert read_files(again.output) == before


def test_several_keys_in_a_variable(again: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_files(again.output)
    interrupt(again.output)
    rotate(again)
    monkeypatch.setenv("DPTREES_TEST_KEYS", again.key.read_text())

    def by_variable(settings: dict[str, Any]) -> None:
        del settings["key_file"]
        settings["key"] = "env:DPTREES_TEST_KEYS"

    again.make(by_variable)
    assert read_files(again.output) == before


def test_a_ledger_remembers_the_key_of_a_release_whose_folder_is_gone(
    workspace: Workspace,
) -> None:
    url = f"sqlite:///{workspace.folder / 'ledger.db'}"
    workspace.succeed("ledger", "init", url, "--dataset", "rows", "--epsilon", "1")
    counted = put("ledger", url)
    workspace.make(counted)
    before = read_files(workspace.output)
    shutil.rmtree(workspace.output)
    rotate(workspace)
    again = workspace.release(counted)
    assert (again.code, again.err) == (0, "")
    assert read_files(workspace.output) == before
