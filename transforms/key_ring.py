"""The release keys of one place: the current one, and those that were current before.

Two forms of text, of a file or of an environment variable. A key alone, as it is made:

    dptrees-key-1:...

and, once it has been rotated, a line for each key, the newest first:

    current 0123456789abcdef dptrees-key-1:...
    retired fedcba9876543210 dptrees-key-1:...

A new release uses the current key. What was begun under a retired one is finished, repaired and
verified under that one, by its public id: a retry must draw the same bits.
"""

from dataclasses import dataclass

from dptrees.dpcore.noise.randomness import ReleaseKey

# Of the text; some hundred keys.
LARGEST_TEXT = 2**16
_CURRENT, _RETIRED = "current", "retired"


@dataclass(frozen=True, kw_only=True)
class KeyRing:
    """The keys of one place.

    Args:
        keys: at least one; the first is the current one, the others are retired, newest first.

    >>> ring = KeyRing(keys=(ReleaseKey(bytes(32)),))
    >>> KeyRing.from_text(ring.to_text()).ids
    ('e7d3cc645c3203e9',)
    >>> rotated = KeyRing.from_text(ring.rotated(ReleaseKey(bytes(range(32)))).to_text())
    >>> len(rotated.ids), rotated.ids[1]
    (2, 'e7d3cc645c3203e9')
    """

    keys: tuple[ReleaseKey, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The public ids of all keys, the current one's first."""
        return tuple(key.key_id for key in self.keys)

    @property
    def current(self) -> ReleaseKey:
        """The key of new releases."""
        return self.keys[0]

    @property
    def oldest(self) -> ReleaseKey:
        """The key that was there before any rotation."""
        return self.keys[-1]

    def find_key(self, key_id: str) -> ReleaseKey | None:
        """The key of an id, None where it is not here."""
        return next((key for key in self.keys if key.key_id == key_id), None)

    def rotated(self, key: ReleaseKey) -> "KeyRing":
        """The ring in which a new key is current, and all others are retired."""
        return KeyRing(keys=(key, *self.keys))

    def to_text(self) -> str:
        """Return the text of the key file; the inverse of `from_text`."""
        if len(self.keys) == 1:
            return self.current.to_text() + "\n"
        states = (_CURRENT, *[_RETIRED] * (len(self.keys) - 1))
        return "".join(
            f"{state} {key.key_id} {key.to_text()}\n"
            for state, key in zip(states, self.keys, strict=True)
        )

    @classmethod
    def from_text(cls, text: str) -> "KeyRing":
        """The keys of a text; white space around it is ignored.

        Raises:
            ValueError: it is of neither form. The message never shows the text.
        """
        lines = text.strip().splitlines()
        if not lines or lines[0].split()[:1] not in ([_CURRENT], [_RETIRED]):
            return cls(keys=(ReleaseKey.from_text(text),))
        if len(text) > LARGEST_TEXT:
            raise ValueError("holds more keys than can be read; remove retired ones")
        keys = tuple(
            _line_key(number, line, _RETIRED if number else _CURRENT)
            for number, line in enumerate(lines)
        )
        ids = [key.key_id for key in keys]
        twice = [each for each in ids if ids.count(each) > 1]
        if twice:
            raise ValueError(f"holds the key {twice[0]} twice")
        return cls(keys=keys)


def _line_key(number: int, line: str, state: str) -> ReleaseKey:
    """The key of a line, whose words must be its state, its id and the key."""
    words = line.split()
    try:
        key = ReleaseKey.from_text(words[2])
    except (IndexError, ValueError):
        key = None
    if key is None or words[:2] != [state, key.key_id] or len(words) != 3:
        raise ValueError(
            f"line {number + 1} must be {state!r}, the id of the key and the key: the current key "
            "first, then those that are retired"
        )
    return key
