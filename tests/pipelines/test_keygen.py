"""Making keys: private to their owner, never over another file, never shown."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms.keys import KeyReference, KeyReferenceError, KeyRing
from tests.pipelines.conftest import Workspace, assert_refused, put, read_files, run_python


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_key_is_its_owners_alone(workspace: Workspace, mask: int) -> None:
    path, before = workspace.folder / "new.key", os.umask(mask)
    try:
        outcome = workspace.run("keygen", path)
    finally:
        os.umask(before)
    assert (outcome.code, outcome.err) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ReleaseKey.from_text(path.read_text())
    KeyReference(reference=f"file:{path}").load()
    assert str(path) in outcome.out and "secret" in outcome.out
    assert path.read_text().strip().split(":")[1] not in outcome.out


def test_keys_differ(workspace: Workspace) -> None:
    paths = [workspace.folder / f"{index}.key" for index in range(3)]
    for path in paths:
        workspace.succeed("keygen", path)
    assert len({path.read_text() for path in paths}) == 3


def test_key_is_never_overwritten(workspace: Workspace) -> None:
    before = workspace.key.read_bytes()
    outcome = workspace.run("keygen", workspace.key)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"dptrees: {workspace.key} exists already; a key is never overwritten\n"
    assert workspace.key.read_bytes() == before


def test_key_is_not_written_through_a_link_nor_into_a_folder_that_is_missing(
    workspace: Workspace,
) -> None:
    link, target = workspace.folder / "link.key", workspace.folder / "elsewhere"
    link.symlink_to(target)
    assert workspace.run("keygen", link).code == 2
    assert not target.exists()
    outcome = workspace.run("keygen", workspace.folder / "none" / "new.key")
    assert_refused(workspace, outcome, "No such file or directory")


def test_disk_full_leaves_no_file(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = workspace.folder / "new.key"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        outcome = workspace.run("keygen", path)
    assert outcome.code == 2
    assert outcome.err == f"dptrees: {path} cannot be written: No space left on device\n"
    assert not path.exists()


# Rotation


def read_ring(path: Path) -> KeyRing:
    return KeyReference(reference=f"file:{path}").ring()


def test_rotation_keeps_the_old_key_as_retired(workspace: Workspace) -> None:
    old = workspace.key.read_text().strip()
    outcome = workspace.run("keygen", workspace.key, "--rotate")
    assert (outcome.code, outcome.err) == (0, "")
    assert stat.S_IMODE(workspace.key.stat().st_mode) == 0o600
    ring = read_ring(workspace.key)
    assert [key.to_text() for key in ring.keys][1:] == [old]
    assert all(each in outcome.out for each in ring.ids)
    assert not any(key.to_text()[14:30] in outcome.out for key in ring.keys)
    assert workspace.key.read_text().splitlines()[1] == f"retired {ring.ids[1]} {old}"
    workspace.succeed("keygen", workspace.key, "--rotate")
    assert read_ring(workspace.key).ids[1:] == ring.ids
    assert sorted(path.name for path in workspace.folder.iterdir()) == ["release.key", "rows"]


def test_rotation_through_a_link_keeps_the_link(workspace: Workspace) -> None:
    link = workspace.folder / "link.key"
    link.symlink_to(workspace.key)
    workspace.succeed("keygen", link, "--rotate")
    assert link.is_symlink() and len(read_ring(workspace.key).keys) == 2


def test_what_cannot_be_rotated(workspace: Workspace) -> None:
    rotate = ("keygen", workspace.key, "--rotate")
    for text, words in (
        ("", "the text of a release key must be one line"),
        ("current 00 dptrees-key-1:Miriam4711", "line 1 must be 'current', the id of the key"),
        ("retired x y\n", "line 1 must be 'current'"),
    ):
        workspace.key.write_text(text)
        outcome = workspace.run(*rotate)
        assert_refused(workspace, outcome, words)
        assert "Miriam" not in outcome.err
        assert workspace.key.read_text() == text
    workspace.key.chmod(0o644)
    assert_refused(workspace, workspace.run(*rotate), "can be read by others")
    workspace.key.unlink()
    assert_refused(workspace, workspace.run(*rotate), "does not exist; make it with")


def test_a_key_whose_id_is_another_is_refused(workspace: Workspace) -> None:
    workspace.run("keygen", workspace.key, "--rotate")
    text = workspace.key.read_text()
    workspace.key.write_text(text.replace(read_ring(workspace.key).ids[1], "0" * 16))
    with pytest.raises(KeyReferenceError, match="line 2 must be 'retired'"):
        read_ring(workspace.key)


KILLED = """
import os, signal, sys
from dptrees.pipelines.proof import keygen
left = int(sys.argv[2])
def killing(name):
    act = getattr(os, name)
    def killed(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*arguments, **options)
    return killed
for name in ("open", "unlink", "fdopen", "fsync", "replace"):
    setattr(os, name, killing(name))
keygen.run_rotation(sys.argv[1])
print("done")
"""


def test_a_rotation_killed_at_any_step_leaves_the_old_key_or_both(workspace: Workspace) -> None:
    old, steps = read_ring(workspace.key).ids, 0
    while True:
        done = run_python(KILLED, workspace.key, steps)
        found = read_ring(workspace.key).ids
        assert found[-len(old) :] == old and len(found) <= len(old) + 1
        if "done" in done.stdout:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        old, steps = found, steps + 1
    assert steps >= 6
    assert sorted(path.name for path in workspace.folder.iterdir()) == ["release.key", "rows"]


def test_rotations_at_once_lose_no_key(workspace: Workspace) -> None:
    runs = [workspace.start("keygen", workspace.key, "--rotate") for _ in range(4)]
    reported = [run.communicate(timeout=300)[0] for run in runs]
    ids = read_ring(workspace.key).ids
    assert len(ids) == 5
    assert all(
        any(f"for new releases, is now {each}" in text for text in reported) for each in ids[:4]
    )


# --- what a rotation means for what was begun or made before it ---


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
