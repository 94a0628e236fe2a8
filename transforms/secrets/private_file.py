"""``file:PATH``: a file that its owner alone can read, or a secret that Kubernetes has mounted.

Kubernetes mounts secrets into a container as files of root on a read-only file system in memory.
Where its process is not root, they are given to the group of the pod (``fsGroup``), and that is as
private as can be: only the container's own processes see the mount. So a group may read a file of
root, if it is a group of this process and the file lies on such a mount; nobody may read all else.
"""

import os
import stat

from dptrees.transforms.key_ring import LARGEST_TEXT
from dptrees.transforms.secrets.scheme import Scheme, SecretError

_MOUNTS = "/proc/self/mountinfo"


def read_private_file(
    path: str, name: str = "key", kind: str = "release key", made_by: str | None = "keygen"
) -> str:
    """The text of a file that only its owner, the user who runs or root, can read.

    Args:
        path: of the file.
        name: what it is called in the configuration.
        kind: what it holds.
        made_by: the command of dptrees that makes such a file; None: none does.

    Raises:
        SecretError: it is missing, another user's, readable by others or no text.
    """
    try:
        with open(path, encoding="ascii", opener=_open_at_once) as file:
            if broken := _broken_privacy(path, os.fstat(file.fileno())):
                raise SecretError(f"{name}: {broken}")
            return file.read(LARGEST_TEXT + 1)
    except FileNotFoundError:
        where = "" if os.path.isabs(path) else f" in {os.getcwd()}, where relative paths start"
        made = "" if made_by is None else f"; make it with: dptrees {made_by} {path}"
        raise SecretError(f"{name}: {path} does not exist{where}{made}") from None
    except UnicodeDecodeError:
        raise SecretError(f"{name}: {path} is not a {kind}") from None
    except OSError as error:
        raise SecretError(f"{name}: {path} cannot be read: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    # A pipe would be waited for, before it could be seen that it is no file.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _broken_privacy(path: str, status: os.stat_result) -> str:
    """Why a file is no private file of the user who runs; "" where it is one.

    Judged is the file that was opened, wherever a link has led to it: Kubernetes mounts secrets
    behind links. Its owner knows the key and can change it; root can do so anyway.
    """
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a file"
    if status.st_uid not in (os.geteuid(), 0):
        return (
            f"{path} belongs to user {status.st_uid}; it must belong to the user who runs "
            f"dptrees ({os.geteuid()}) or to root"
        )
    if status.st_mode & stat.S_IRWXO or (
        status.st_mode & stat.S_IRWXG and not _is_mounted_secret(status)
    ):
        return f"{path} can be read by others; allow its owner alone (chmod 600)"
    return ""


def _is_mounted_secret(status: os.stat_result) -> bool:
    """Whether a file is one of root that a group of this process may read, and nobody may write, on
    a read-only file system in memory."""
    group = status.st_mode & stat.S_IRWXG
    groups = {os.getegid(), *os.getgroups()}
    if status.st_uid != 0 or group != stat.S_IRGRP or status.st_gid not in groups:
        return False
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            return any(_is_read_only_memory(line.split(), device) for line in mounts)
    except OSError:  # no Linux
        return False


def _is_read_only_memory(words: list[str], device: str) -> bool:
    """Whether a line of the table of mounts is a read-only tmpfs of a device; see proc(5)."""
    kind = words[words.index("-") + 1 :][:1]
    return words[2] == device and kind == ["tmpfs"] and "ro" in words[5].split(",")


FILE = Scheme(
    name="file",
    written="file:PATH",
    pattern=r"file:[^\0]+",
    load=lambda reference, name: read_private_file(reference.partition(":")[2], name),
    remote=False,
)
