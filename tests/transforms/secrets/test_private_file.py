"""A secret that Kubernetes mounts for a group, and files of a group that are refused."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from dptrees.transforms import keys
from dptrees.transforms.keys import SecretError, read_private_file

GROUP = 2000
# As proc(5) has it: number, parent, device, root, where, options, optional fields, "-", kind, ...
LINE = "71 60 {device} / /var/run/secrets/key {options} shared:3 - {kind} tmpfs rw,size=64k\n"


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A key behind the links by which Kubernetes replaces all files of a secret in one step."""
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "release.key").write_text("text\n")
    (tmp_path / "..data").symlink_to("..2026")
    path = tmp_path / "release.key"
    path.symlink_to("..data/release.key")
    return path


def read_as(patch, path, *, options="ro,relatime", kind="tmpfs", owner=0, user=1000, mode=0o440):
    """Reads a file as if it lay on a mount, and a user of the group ran."""
    path.chmod(mode)
    status = os.stat(path)
    found = SimpleNamespace(
        st_mode=status.st_mode, st_uid=owner, st_gid=GROUP, st_dev=status.st_dev
    )
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    mounts = path.parent / "mountinfo"
    mounts.write_text(
        LINE.format(device="8:1", options="rw", kind="ext4")
        + LINE.format(device=device, options=options, kind=kind)
    )

    with patch.context() as patched:
        patched.setattr(keys, "_MOUNTS", str(mounts))
        patched.setattr(os, "geteuid", lambda: user)
        patched.setattr(os, "getgroups", lambda: [GROUP])
        patched.setattr(os, "fstat", lambda handle: found)
        return read_private_file(str(path))


def test_a_secret_that_kubernetes_mounted_for_the_group_of_the_pod(mounted, monkeypatch) -> None:
    assert read_as(monkeypatch, mounted) == "text\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"options": "rw,relatime"},  # a folder such as /tmp
        {"kind": "ext4"},
        {"mode": 0o444},
        {"mode": 0o460},
        {"mode": 0o450},
        {"owner": 1000},
    ],
    ids=str,
)
def test_a_file_of_a_group_that_is_no_such_secret(wrong, mounted, monkeypatch) -> None:
    with pytest.raises(SecretError, match=r"can be read by others; allow its owner alone"):
        read_as(monkeypatch, mounted, **wrong)


def test_a_group_that_the_process_does_not_belong_to(mounted, monkeypatch) -> None:
    monkeypatch.setattr(keys, "_is_read_only_memory", lambda words, device: True)
    mounted.chmod(0o440)
    monkeypatch.setattr(os, "getgroups", lambda: [])
    monkeypatch.setattr(os, "getegid", lambda: GROUP)
    with pytest.raises(SecretError, match="can be read by others"):
        read_private_file(str(mounted))
