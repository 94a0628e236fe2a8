"""Making keys: private to their owner, never over another file, never shown."""

from __future__ import annotations

import errno
import os
import signal
import stat
from pathlib import Path

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms.keys import KeyReference, KeyReferenceError, KeyRing
from tests.pipelines.conftest import Workspace, assert_refused, run_python


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
