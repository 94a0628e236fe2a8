"""What a rotation of the release key means for what was begun or made before it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from dptrees.transforms.keys import KeyReference

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Workspace


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def interrupt(output: Path) -> None:
    """Leave what a run leaves that was killed before its commit."""
    for name in ("manifest.json", "report.html"):
        (output / name).unlink()
    next((output / "nodes").iterdir()).unlink()


def ids(workspace: Workspace) -> tuple[str, ...]:
    return KeyReference(reference=f"file:{workspace.key}").ring().ids


def test_the_id_of_the_key_is_in_the_manifest_and_beside_the_nonce(released: Workspace) -> None:
    for name in ("manifest.json", "nonce.json"):
        assert json.loads((released.output / name).read_text())["key_id"] == ids(released)[0]


def test_what_was_begun_is_finished_under_its_key(again: Workspace) -> None:
    before = read_files(again.output)
    interrupt(again.output)
    assert again.run("keygen", again.key, "--rotate").code == 0
    outcome = again.release()
    assert (outcome.code, outcome.err) == (0, "")
    assert read_files(again.output) == before


def test_a_repair_uses_the_key_of_the_manifest(again: Workspace) -> None:
    before = read_files(again.output)
    for name in ("nonce.json", "record.json"):
        (again.output / name).unlink()
    next((again.output / "nodes").iterdir()).unlink()
    assert again.run("keygen", again.key, "--rotate").code == 0
    outcome = again.release(None, "--repair")
    assert (outcome.code, outcome.err) == (0, "")
    assert read_files(again.output) == before


def test_a_beginning_without_an_id_is_of_the_oldest_key(again: Workspace) -> None:
    nonce = json.loads((again.output / "nonce.json").read_text())["nonce"]
    interrupt(again.output)
    (again.output / "nonce.json").write_text(json.dumps({"nonce": nonce}) + "\n")
    assert again.run("keygen", again.key, "--rotate").code == 0
    assert again.release().code == 0
    assert json.loads((again.output / "manifest.json").read_text())["key_id"] == ids(again)[1]


def test_a_new_release_and_a_discarded_one_use_the_current_key(again: Workspace) -> None:
    interrupt(again.output)
    assert again.run("keygen", again.key, "--rotate").code == 0
    assert again.release(None, "--discard").code == 0
    assert json.loads((again.output / "manifest.json").read_text())["key_id"] == ids(again)[0]


@pytest.mark.parametrize("repair", [(), ("--repair",)], ids=["begun", "finished"])
def test_a_key_that_is_gone(again: Workspace, repair: tuple[str, ...]) -> None:
    gone = ids(again)[0]
    if not repair:
        interrupt(again.output)
    again.key.unlink()
    assert again.run("keygen", again.key).code == 0
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
    assert again.run("keygen", again.key, "--rotate").code == 0
    monkeypatch.setenv("DPTREES_TEST_KEYS", again.key.read_text())

    def by_variable(settings: dict[str, object]) -> None:
        del settings["key_file"]
        settings["key"] = "env:DPTREES_TEST_KEYS"

    assert again.release(by_variable).code == 0
    assert read_files(again.output) == before


def test_a_ledger_remembers_the_key_of_a_release_whose_folder_is_gone(
    workspace: Workspace,
) -> None:
    url = f"sqlite:///{workspace.folder / 'ledger.db'}"
    init = workspace.run("ledger", "init", url, "--dataset", "rows", "--epsilon", "1")
    assert init.code == 0, init.err

    def counted(settings: dict[str, object]) -> None:
        settings["ledger"] = url

    first = workspace.release(counted)
    assert first.code == 0, first.err
    before = read_files(workspace.output)
    shutil.rmtree(workspace.output)
    assert workspace.run("keygen", workspace.key, "--rotate").code == 0
    again = workspace.release(counted)
    assert (again.code, again.err) == (0, "")
    assert read_files(workspace.output) == before
