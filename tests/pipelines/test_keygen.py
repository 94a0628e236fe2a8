"""Making keys: private to their owner, never over another file, never shown."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from dpcore.noise.randomness import ReleaseKey
from transforms.key_reference import KeyReference

if TYPE_CHECKING:
    from tests.pipelines.conftest import Workspace


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


def test_key_is_not_shown(workspace: Workspace) -> None:
    path = workspace.folder / "new.key"
    outcome = workspace.run("keygen", path)
    assert str(path) in outcome.out and "secret" in outcome.out
    assert path.read_text().strip().split(":")[1] not in outcome.out


def test_keys_differ(workspace: Workspace) -> None:
    paths = [workspace.folder / f"{index}.key" for index in range(3)]
    for path in paths:
        assert workspace.run("keygen", path).code == 0
    assert len({path.read_text() for path in paths}) == 3


def test_key_is_never_overwritten(workspace: Workspace) -> None:
    before = workspace.key.read_bytes()
    outcome = workspace.run("keygen", workspace.key)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"dptrees: {workspace.key} exists already; a key is never overwritten\n"
    assert workspace.key.read_bytes() == before


def test_key_is_not_written_through_a_link(workspace: Workspace) -> None:
    link, target = workspace.folder / "link.key", workspace.folder / "elsewhere"
    link.symlink_to(target)
    assert workspace.run("keygen", link).code == 2
    assert not target.exists()


def test_folder_missing(workspace: Workspace) -> None:
    outcome = workspace.run("keygen", workspace.folder / "none" / "new.key")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1 and "No such file or directory" in outcome.err


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
