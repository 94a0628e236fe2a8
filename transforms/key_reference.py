"""The release key by reference: what travels is where the key lies, never the key.

A worker loads the key when it starts and compares it with a check value (a keyed digest of a
constant, which tells nothing of the key), so that a worker with another key fails instead of
drawing other noise.
"""

import hmac
import os
import stat
from dataclasses import dataclass

from dpcore.noise.randomness import ReleaseKey
from transforms.errors import ReleaseError


class KeyReferenceError(ReleaseError):
    """The key cannot be loaded; the message names the reference, never the key."""


@dataclass(frozen=True, kw_only=True)
class KeyReference:
    """Where the release key lies, and how to tell that it is the right one.

    Args:
        reference: ``file:PATH`` (a file of the user who runs or of root, that only its owner can
            read) or ``env:NAME``.
        check_value: from the launcher's key; empty on the launcher itself.
    """

    reference: str
    check_value: bytes = b""

    def load(self) -> ReleaseKey:
        """The key.

        Raises:
            KeyReferenceError: it is missing, another user's, readable by others, malformed or
                another key.
        """
        kind, _, place = self.reference.partition(":")
        if kind == "file":
            text = _read_private_file(place)
        elif kind == "env":
            text = os.environ.get(place, "")
            if not text:
                raise KeyReferenceError(f"key: the environment variable {place} is not set")
        else:
            raise KeyReferenceError(f"key: {kind}: is neither file: nor env:")
        try:
            key = ReleaseKey.from_text(text)
        except ValueError as error:
            raise KeyReferenceError(f"key: {self.reference}: {error}") from None
        if self.check_value and not hmac.compare_digest(self.check_value, key.check_value()):
            raise KeyReferenceError(f"key: {self.reference} holds another key than the launcher's")
        return key

    def checked(self) -> "KeyReference":
        """The same reference with the check value of the key that it leads to here; a file is
        named from the root, since a worker may run in another folder."""
        kind, separator, place = self.reference.partition(":")
        place = os.path.abspath(place) if kind == "file" else place
        return KeyReference(
            reference=f"{kind}{separator}{place}", check_value=self.load().check_value()
        )


def _read_private_file(path: str) -> str:
    try:
        with open(path, encoding="ascii", opener=_open_at_once) as file:
            _check_private(path, os.fstat(file.fileno()))
            return file.read(4096)
    except FileNotFoundError:
        raise KeyReferenceError(
            f"key: {path} does not exist; make it with: dptrees keygen {path}"
        ) from None
    except UnicodeDecodeError:
        raise KeyReferenceError(f"key: {path} is not a release key") from None
    except OSError as error:
        raise KeyReferenceError(f"key: {path} cannot be read: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    # A pipe would be waited for, before it could be seen that it is no file.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _check_private(path: str, status: os.stat_result) -> None:
    """Refuses what is not a private file of the user who runs.

    Judged is the file that was opened, wherever a link has led to it. Its owner knows the key and
    can change it; root can do so anyway, and owns the secrets that Kubernetes mounts.
    """
    if not stat.S_ISREG(status.st_mode):
        raise KeyReferenceError(f"key: {path} is not a file")
    if status.st_uid not in (os.geteuid(), 0):
        raise KeyReferenceError(
            f"key: {path} belongs to user {status.st_uid}; it must belong to the user who runs "
            f"dptrees ({os.geteuid()}) or to root"
        )
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyReferenceError(
            f"key: {path} can be read by others; allow its owner alone (chmod 600)"
        )
