"""A key that is drawn for one release, in this process, and kept nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from dpcore.noise.randomness import ReleaseKey
from transforms.key_reference import KeyReference
from transforms.key_ring import KeyRing

_drawn: dict[str, ReleaseKey] = {}
_numbers = count()


class OneTimeKey(KeyReference):
    """Where such a key lies: in this process, while the release is made."""

    def ring(self) -> KeyRing:
        """The key alone."""
        return KeyRing(keys=(_drawn[self.reference],))


@contextmanager
def one_time_key() -> Iterator[OneTimeKey]:
    """Draws a key from the system's randomness, and forgets it when the block ends.

    Nobody can then take the noise away, and nobody can make the release again: neither finish it,
    nor repair it, nor verify it against its rows.

    >>> with one_time_key() as key:
    ...     key.load().check_value() == key.checked().load().check_value()
    True
    """
    reference = f"once:{next(_numbers)}"
    _drawn[reference] = ReleaseKey.generate()
    try:
        yield OneTimeKey(reference=reference)
    finally:
        del _drawn[reference]
