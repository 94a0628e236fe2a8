"""The release key by reference: what travels is where the key lies, never the key.

A worker loads the key when it starts and compares it with a check value (a keyed digest of a
constant, which reveals nothing about the key), so that a worker with another key fails instead of
drawing other noise. Where the place holds several keys (`transforms.key_ring`), the check value
also identifies the right one.
"""

import hmac
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dptrees.dpcore.noise.randomness import ReleaseKey, key_id_from_check
from dptrees.transforms.errors import ReleaseError
from dptrees.transforms.key_ring import KeyRing
from dptrees.transforms.secrets.scheme import SecretError
from dptrees.transforms.secrets.schemes import find_scheme

# What services gave this process, by reference: each step of each thread of a worker loads the key.
_held: dict[str, KeyRing] = {}
_load_lock = threading.Lock()


class KeyReferenceError(ReleaseError):
    """The key cannot be loaded; the message names the reference, never the key."""


@dataclass(frozen=True, kw_only=True)
class KeyReference:
    """Where the release key lies, and how to recognize it.

    Args:
        reference: of one of `transforms.secrets.schemes`, such as ``file:PATH``, ``env:NAME`` or
            ``gcp-secret://PROJECT/NAME/VERSION``.
        check_value: from the launcher's key; empty on the launcher itself.
    """

    reference: str
    check_value: bytes = b""

    @property
    def key_id(self) -> str:
        """The public id of the key that is meant; "" on the launcher itself."""
        return key_id_from_check(self.check_value)

    def load(self) -> ReleaseKey:
        """The key: that of the check value, else the current one.

        Raises:
            KeyReferenceError: it is missing, another user's, readable by others, malformed or
                another key.
        """
        if not self.check_value:
            return self.ring().current
        with _load_lock:
            for ring in self._rings():
                for key in ring.keys:
                    if hmac.compare_digest(self.check_value, key.check_value()):
                        return key
        raise KeyReferenceError(f"key: {self.reference} holds another key than the launcher's")

    def ring(self) -> KeyRing:
        """All keys of the place.

        Raises:
            KeyReferenceError: as of `load`.
        """
        try:
            scheme = find_scheme(self.reference)
            text = scheme.load(self.reference, "key")
        except SecretError as error:
            raise KeyReferenceError(error.sentence, again=error.again) from None
        try:
            ring = KeyRing.from_text(text)
        except ValueError as error:
            raise KeyReferenceError(f"key: {self.reference}: {error}") from None
        if scheme.remote:
            _held[self.reference] = ring
        return ring

    def _rings(self) -> Iterator[KeyRing]:
        """All keys of the place: as this process has read them of a service before, then as they
        are now, since the key may have been rotated meanwhile."""
        if self.reference in _held:
            yield _held[self.reference]
        yield self.ring()

    def checked(self, begun: str | None = None) -> "KeyReference":
        """The same reference with the check value of the key that it leads to here; a file is
        named from the root, since a worker may run in another folder.

        Args:
            begun: the id of the key under which the release was begun, as
                `transforms.nonce.key_id_of_folder` returns it; None for a new release, "" for one
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
        key = ring.find_key(key_id) if key_id else ring.oldest
        if key is None:
            raise KeyReferenceError(
                f"key: {self.reference} does not hold the key {key_id}, under which this release "
                f"was made or begun; it holds {', '.join(ring.ids)}"
            )
        return key
