"""The release key by reference: what travels is where the key lies, never the key.

A worker loads the key when it starts and compares it with a check value (a keyed digest of a
constant, which tells nothing of the key), so that a worker with another key fails instead of
drawing other noise. Where the place holds several keys (`transforms.key_ring`), the check value
also tells which one is meant.
"""

import hmac
import os
import stat
from dataclasses import dataclass, replace

from dpcore.noise.randomness import ReleaseKey, key_id_of
from transforms.errors import ReleaseError
from transforms.key_ring import LARGEST_TEXT, KeyRing


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

    @property
    def key_id(self) -> str:
        """The public id of the key that is meant; "" on the launcher itself."""
        return key_id_of(self.check_value)

    def load(self) -> ReleaseKey:
        """The key: that of the check value, else the current one.

        Raises:
            KeyReferenceError: it is missing, another user's, readable by others, malformed or
                another key.
        """
        ring = self.ring()
        if not self.check_value:
            return ring.current
        for key in ring.keys:
            if hmac.compare_digest(self.check_value, key.check_value()):
                return key
        raise KeyReferenceError(f"key: {self.reference} holds another key than the launcher's")

    def ring(self) -> KeyRing:
        """All keys of the place.

        Raises:
            KeyReferenceError: as of `load`.
        """
        kind, _, place = self.reference.partition(":")
        if kind == "file":
            text = read_private_file(place)
        elif kind == "env":
            text = os.environ.get(place, "")
            if not text:
                raise KeyReferenceError(f"key: the environment variable {place} is not set")
        else:
            raise KeyReferenceError(f"key: {kind}: is neither file: nor env:")
        try:
            return KeyRing.from_text(text)
        except ValueError as error:
            raise KeyReferenceError(f"key: {self.reference}: {error}") from None

    def checked(self, begun: str | None = None) -> "KeyReference":
        """The same reference with the check value of the key that it leads to here; a file is
        named from the root, since a worker may run in another folder.

        Args:
            begun: the id of the key under which the release was begun, as
                `transforms.nonce.key_id_of_folder` tells it; None for a new release, "" for one
                that was begun before keys had ids, and so before any rotation.

        Raises:
            KeyReferenceError: as of `load`, or the key of that id is not there.
        """
        kind, separator, place = self.reference.partition(":")
        place = os.path.abspath(place) if kind == "file" else place
        return replace(
            self,
            reference=f"{kind}{separator}{place}",
            check_value=self._begun(begun).check_value(),
        )

    def _begun(self, key_id: str | None) -> ReleaseKey:
        ring = self.ring()
        if key_id is None:
            return ring.current
        key = ring.key_of(key_id) if key_id else ring.oldest
        if key is None:
            raise KeyReferenceError(
                f"key: {self.reference} does not hold the key {key_id}, under which this release "
                f"was made or begun; it holds {', '.join(ring.ids)}"
            )
        return key


def read_private_file(
    path: str, name: str = "key", kind: str = "release key", made_by: str = "keygen"
) -> str:
    """The text of a file that only its owner, the user who runs or root, can read.

    Args:
        path: of the file.
        name: what it is called in the configuration.
        kind: what it holds.
        made_by: the command of dptrees that makes such a file.

    Raises:
        KeyReferenceError: it is missing, another user's, readable by others or no text.
    """
    try:
        with open(path, encoding="ascii", opener=_open_at_once) as file:
            if broken := _broken_privacy(path, os.fstat(file.fileno())):
                raise KeyReferenceError(f"{name}: {broken}")
            return file.read(LARGEST_TEXT + 1)
    except FileNotFoundError:
        where = "" if os.path.isabs(path) else f" in {os.getcwd()}, where relative paths start"
        raise KeyReferenceError(
            f"{name}: {path} does not exist{where}; make it with: dptrees {made_by} {path}"
        ) from None
    except UnicodeDecodeError:
        raise KeyReferenceError(f"{name}: {path} is not a {kind}") from None
    except OSError as error:
        raise KeyReferenceError(f"{name}: {path} cannot be read: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    # A pipe would be waited for, before it could be seen that it is no file.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _broken_privacy(path: str, status: os.stat_result) -> str:
    """Why a file is no private file of the user who runs; "" where it is one.

    Judged is the file that was opened, wherever a link has led to it. Its owner knows the key and
    can change it; root can do so anyway, and owns the secrets that Kubernetes mounts.
    """
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a file"
    if status.st_uid not in (os.geteuid(), 0):
        return (
            f"{path} belongs to user {status.st_uid}; it must belong to the user who runs "
            f"dptrees ({os.geteuid()}) or to root"
        )
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"{path} can be read by others; allow its owner alone (chmod 600)"
    return ""
