"""Keyed streams of random bits, pure functions of their names: the only source of randomness.

A distributed engine may run any piece of work any number of times, so every random choice of a
release is a function of a secret key and of the name of the choice:

    seed   = HMAC-SHA256(key, encoding("stream", *name))
    stream = AES-256-CTR keystream under that seed, counter zero

`encoding` is injective on sequences of bytes, text and integers, so two different names never
share a seed. A seed keys one stream only, so the counter may start at zero. The streams are
indistinguishable from independent uniform bits to anyone without the key (HMAC as a pseudorandom
function: Bellare, "New Proofs for NMAC and HMAC", CRYPTO 2006; AES-CTR: NIST SP 800-38A); anyone
who learns the key can recompute, and so remove, all noise drawn under it. No other module of this
project draws random bits.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

NONCE_BYTES: Final = 16

_SECRET_BYTES: Final = 32
_KEY_ID_BYTES: Final = 8
_TEXT_PREFIX: Final = "dptrees-key-1:"
_PUBLIC_SECRET: Final = hashlib.sha256(b"dptrees public constant, not a secret").digest()
_COUNTER_BYTES: Final = 16
_BLOCK_BYTES: Final = 16
# Zeros to encrypt in one call: large enough to hide the call, small enough to stay in cache.
_ZEROS: Final = memoryview(bytes(1 << 18))


class Bits(Protocol):
    """Uniform random bits for the draws of an array: one stream for all, or one for each draw."""

    def uint16(self, n: int) -> npt.NDArray[np.uint16]:
        """The next 16 bits of `n` draws, shape (n,)."""

    def uint64(self, n: int) -> npt.NDArray[np.uint64]:
        """The next 64 bits of `n` draws, shape (n,)."""

    def select(self, draws: slice | npt.NDArray[np.int64]) -> Bits:
        """Return the bits for some of the draws, by their places in the array."""


class RandomStream:
    """A sequence of uniform random bits, read once from start to end.

    The results of a sequence of calls are a pure function of the seed and of the calls' types and
    sizes; integers are little endian on every machine.

    Args:
        seed: 32 bytes; the AES-256 key of the stream. Never use a seed for two streams.

    Raises:
        ValueError: if the seed is not 32 bytes long.

    Source: counter mode, NIST SP 800-38A, section 6.5.

    >>> RandomStream(bytes(32)).bytes(4).hex()
    'dc95c078'
    >>> stream = RandomStream(bytes(32))
    >>> [hex(value) for value in stream.uint16(2).tolist()]
    ['0x95dc', '0x78c0']
    """

    __slots__ = ("_encryptor",)

    def __init__(self, seed: bytes) -> None:
        if len(seed) != _SECRET_BYTES:
            raise ValueError(f"seed has {len(seed)} bytes; it must have exactly {_SECRET_BYTES}")
        cipher = Cipher(algorithms.AES(seed), modes.CTR(bytes(_COUNTER_BYTES)))
        self._encryptor = cipher.encryptor()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a RandomStream cannot be copied or pickled: two copies would repeat bits")

    def bytes(self, n: int) -> bytes:
        """Return the next `n` bytes of the stream.

        >>> len(RandomStream(bytes(32)).bytes(5))
        5
        """
        return self._keystream(n).tobytes()

    def uint16(self, n: int) -> npt.NDArray[np.uint16]:
        """Return the next `n` uniform 16-bit integers, shape (n,)."""
        return self._keystream(2 * n).view("<u2").astype(np.uint16, copy=False)

    def uint64(self, n: int) -> npt.NDArray[np.uint64]:
        """Return the next `n` uniform 64-bit integers, shape (n,)."""
        return self._keystream(8 * n).view("<u8").astype(np.uint64, copy=False)

    def select(self, draws: slice | npt.NDArray[np.int64]) -> RandomStream:
        """The stream itself: draws take bits in turn, whichever they are."""
        return self

    def _keystream(self, n: int) -> npt.NDArray[np.uint8]:
        if n < 0:
            raise ValueError(f"{n} bytes were requested of a stream; the number must be 0 or more")
        # Some versions of the cipher insist on space for one more block than they write.
        out = np.empty(n + _COUNTER_BYTES, dtype=np.uint8)
        for start in range(0, n, len(_ZEROS)):
            size = min(len(_ZEROS), n - start)
            room = out[start : start + size + _COUNTER_BYTES]
            self._encryptor.update_into(_ZEROS[:size], room.data)
        return out[:n]


class PlacedStreams:
    """Sequences of uniform random bits, one for each of 2^64 places; any of them may be read.

    What a place gives does not depend on which others are read, or when: noise of a tree too large
    to visit is a function of the node, drawn where it is looked at. Word w of place p is the first
    half of AES-256(seed, p || w): the blocks of a counter-mode stream, read out of turn.

    Args:
        seed: 32 bytes; the AES-256 key. Never use a seed for two streams.
        places: uint64, (n,); the streams of a second object for the same place start anew.

    Source: counter mode, NIST SP 800-38A, section 6.5, with places as the upper half of counters.

    >>> both = PlacedStreams(bytes(32), np.array([7, 3], np.uint64))
    >>> first, second = both.uint64(2), both.uint64(2)
    >>> alone = PlacedStreams(bytes(32), np.array([3], np.uint64))
    >>> [int(alone.uint64(1)[0]), int(alone.uint64(1)[0])] == [int(first[1]), int(second[1])]
    True
    """

    __slots__ = ("_encryptor", "_places", "_used", "_which")

    def __init__(self, seed: bytes, places: npt.NDArray[np.uint64]) -> None:
        if len(seed) != _SECRET_BYTES:
            raise ValueError(f"seed has {len(seed)} bytes; it must have exactly {_SECRET_BYTES}")
        self._encryptor = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()
        self._places = places
        self._used = np.zeros(places.size, np.uint64)
        self._which: slice | npt.NDArray[np.int64] = slice(0, places.size)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("PlacedStreams cannot be copied or pickled: two copies would repeat bits")

    def uint16(self, n: int) -> npt.NDArray[np.uint16]:
        """Return the next uniform 16-bit integer of each place, shape (n,)."""
        return self.uint64(n).astype(np.uint16)

    def uint64(self, n: int) -> npt.NDArray[np.uint64]:
        """Return the next uniform 64-bit integer of each place, shape (n,).

        Raises:
            ValueError: there are not `n` places.
        """
        places, used = self._places[self._which], self._used[self._which]
        if places.size != n:
            raise ValueError(f"{n} words were requested, of {places.size} places")
        blocks = np.empty((n, 2), "<u8")
        blocks[:, 0], blocks[:, 1] = places, used
        self._used[self._which] = used + np.uint64(1)
        out = np.empty(_BLOCK_BYTES * n + _BLOCK_BYTES, np.uint8)
        self._encryptor.update_into(blocks.tobytes(), out.data)
        words = out[: _BLOCK_BYTES * n].view("<u8")[::2]
        return words.astype(np.uint64)

    def select(self, draws: slice | npt.NDArray[np.int64]) -> PlacedStreams:
        """The streams of some of the places; what they give is not given again.

        Args:
            draws: which of the places, each once.
        """
        chosen = object.__new__(PlacedStreams)
        chosen._encryptor, chosen._places, chosen._used = self._encryptor, self._places, self._used
        whole = isinstance(self._which, slice) and self._which == slice(0, self._places.size)
        numbers = np.arange(self._places.size)[self._which] if not whole else None
        chosen._which = draws if numbers is None else numbers[draws]
        return chosen


class KeyedBlocks:
    """A pseudorandom permutation of blocks of 16 bytes: AES-256 under a key of its own.

    Choices that are no noise come from it (which rows of a unit stay): without the key nobody can
    distinguish its values from a random permutation (NIST FIPS 197). Two blocks never have
    one value.

    It is a pure function, which any number of threads may call at once: a call makes an encryptor
    of its own, since one that several threads use is an error or gives wrong values.

    Args:
        seed: 32 bytes; the AES-256 key. Never use a seed for anything else.

    >>> blocks = KeyedBlocks(bytes(32))
    >>> first, second = blocks(np.array([[0, 0], [1, 0]], np.uint64))
    >>> bool((first == blocks(np.zeros((1, 2), np.uint64))[0]).all()), bool((first == second).any())
    (True, False)
    """

    __slots__ = ("_seed",)

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def __call__(self, blocks: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Return the value of each block.

        Args:
            blocks: uint64, (n, 2), each the two halves of a block, little endian.

        Returns:
            uint64, (n, 2).
        """
        given = np.ascontiguousarray(blocks, "<u8").reshape(-1).view(np.uint8)
        # Some versions of the cipher insist on space for one more block than they write.
        out = np.empty(given.size + _BLOCK_BYTES, np.uint8)
        encryptor = Cipher(algorithms.AES(self._seed), modes.ECB()).encryptor()
        for start in range(0, given.size, len(_ZEROS)):
            part = given[start : start + len(_ZEROS)]
            room = out[start : start + part.size + _BLOCK_BYTES]
            encryptor.update_into(part.data, room.data)
        return out[: given.size].view("<u8").reshape(-1, 2).astype(np.uint64, copy=False)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a keyed permutation cannot be copied or pickled: it holds a secret")


class ReleaseKey:
    """The secret from which all random choices of a release are derived.

    The secret never shows: not in repr, and neither copying nor pickling is possible, so a key
    cannot travel inside a serialized function; each worker loads it by its reference.

    Args:
        secret: exactly 32 secret bytes.

    Raises:
        ValueError: if the secret is not 32 bytes long.

    Source: HMAC, RFC 2104, with SHA-256.

    >>> key = ReleaseKey(bytes(32))
    >>> key
    ReleaseKey(<secret>)
    >>> key.stream("noise", 3).bytes(4) == key.stream("noise", 3).bytes(4)
    True
    >>> key.stream("noise", 3).bytes(4) == key.stream("noise", "3").bytes(4)
    False
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) != _SECRET_BYTES:
            raise ValueError(f"the secret of a release key must be exactly {_SECRET_BYTES} bytes")
        self._secret = secret

    @classmethod
    def generate(cls) -> ReleaseKey:
        """Return a new key from the operating system's randomness.

        Only what is no noise uses it: making a key, a folder's nonce (`draw_nonce`), and drawing
        synthetic rows of what is released.

        >>> ReleaseKey.generate().check_value() == ReleaseKey.generate().check_value()
        False
        """
        return cls(secrets.token_bytes(_SECRET_BYTES))

    @classmethod
    def from_text(cls, text: str) -> ReleaseKey:
        """Return the key that `to_text` wrote; white space around it is ignored.

        Raises:
            ValueError: if the text is not of that form. The message never shows the text.

        >>> ReleaseKey.from_text(ReleaseKey(bytes(32)).to_text()).check_value().hex()[:8]
        'e7d3cc64'
        """
        secret = _decoded_secret(text.strip())
        if secret is None:
            raise ValueError(
                f"the text of a release key must be one line: {_TEXT_PREFIX!r} followed by "
                f"{_SECRET_BYTES} bytes in base64url"
            )
        return cls(secret)

    def to_text(self) -> str:
        """Return the secret as one line of text, for a key file or a secret manager.

        >>> ReleaseKey(bytes(32)).to_text()
        'dptrees-key-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
        """
        return _TEXT_PREFIX + base64.urlsafe_b64encode(self._secret).decode("ascii")

    def seal(self, secret: bytes, *parts: bytes | str | int) -> bytes:
        """Return bytes that reveal only the length of `secret` to anyone without the key.

        AES-256-SIV under a key of its own for each name. It is deterministic, so that a retry gives
        the same bytes; two seals of one name show whether what they hold is equal, and no more.

        Args:
            secret: what is sealed.
            parts: its name, as for `digest`.

        Returns:
            16 bytes more than `secret` has.

        Source: RFC 5297; Rogaway, Shrimpton, "A Provable-Security Treatment of the Key-Wrap
        Problem", EUROCRYPT 2006.

        >>> key = ReleaseKey(bytes(32))
        >>> key.opened(key.seal(b"count", "state", 3), "state", 3)
        b'count'
        """
        return AESSIV(self._seal_key(parts)).encrypt(secret, None)

    def opened(self, sealed: bytes, *parts: bytes | str | int) -> bytes:
        """Return what `seal` sealed under this key and name.

        Raises:
            ValueError: it was sealed under another key or name, or is damaged.
        """
        try:
            return AESSIV(self._seal_key(parts)).decrypt(sealed, None)
        except InvalidTag:
            raise ValueError("sealed under another key or name, or damaged") from None

    def _seal_key(self, parts: tuple[bytes | str | int, ...]) -> bytes:
        return self._mac("seal", 0, *parts) + self._mac("seal", 1, *parts)

    def check_value(self) -> bytes:
        """Return 32 bytes that identify the key and do not reveal it.

        It is HMAC-SHA256(key, encoding("check")): workers compare it to learn that they loaded
        the key that the release was started with.

        >>> len(ReleaseKey(bytes(32)).check_value())
        32
        """
        return self._mac("check")

    @property
    def key_id(self) -> str:
        """The public name of the key: the first 8 bytes of its check value, in hexadecimal.

        Manifests hold it, so that what was begun under one key is not finished under another. It
        is safe to publish: HMAC-SHA256 under a secret of 256 random bits is a pseudorandom function
        (see the docstring of this module), so its value at "check" reveals nothing of its values
        elsewhere, the seeds and digests among them, and anyone who would find the key by trying has
        2^256 to try, with the id or without. It is no hash of anything that could be guessed.

        >>> ReleaseKey(bytes(32)).key_id
        'e7d3cc645c3203e9'
        """
        return key_id_from_check(self.check_value())

    def digest(self, *parts: bytes | str | int) -> bytes:
        """Return HMAC-SHA256(key, encoding(parts)), 32 bytes.

        Args:
            parts: the name of what is digested; sequences that differ in number, type or value
                of their parts have different encodings.

        Raises:
            ValueError: if the first part is "stream" or "seal": that digest is the seed of a
                stream, or a key of what is sealed.
            TypeError: if a part is neither bytes nor text nor an integer.

        >>> key = ReleaseKey(bytes(32))
        >>> key.digest("a", "bc") == key.digest("ab", "c")
        False
        """
        if parts and isinstance(parts[0], str) and parts[0] == "stream":
            raise ValueError('the first part of a digest must not be "stream": it names seeds')
        if parts and isinstance(parts[0], str) and parts[0] == "seal":
            raise ValueError('the first part of a digest must not be "seal": it names keys')
        return self._mac(*parts)

    def stream(self, *parts: bytes | str | int) -> RandomStream:
        """Return the stream of random bits named by `parts`, from its start.

        Equal names give equal bits, so a name must cover everything that shapes the law of what
        is drawn from it (the same bits at two noise scales give the count
        away), and must be drawn from in one place only.

        Args:
            parts: as for `digest`.

        Raises:
            TypeError: if a part is neither bytes nor text nor an integer.

        >>> ReleaseKey(bytes(32)).stream("noise", 0).uint64(2).dtype
        dtype('uint64')
        """
        return RandomStream(self._mac("stream", *parts))

    def placed_streams(
        self, places: npt.NDArray[np.uint64], *parts: bytes | str | int
    ) -> PlacedStreams:
        """Return the streams of random bits named by `parts`, one for each of some places.

        Args:
            places: uint64, (n,), none twice.
            parts: as for `digest`; a name must cover all that shapes the law, as for `stream`.

        >>> places = np.arange(2, dtype=np.uint64)
        >>> ReleaseKey(bytes(32)).placed_streams(places, "noise").uint64(2).shape
        (2,)
        """
        return PlacedStreams(self._mac("stream", "placed", *parts), places)

    def blocks(self, *parts: bytes | str | int) -> KeyedBlocks:
        """Return the permutation of blocks of 16 bytes named by `parts`.

        Args:
            parts: as for `digest`; a name must cover all that the choices made by it hang on.

        >>> ReleaseKey(bytes(32)).blocks("choice")(np.zeros((3, 2), np.uint64)).shape
        (3, 2)
        """
        return KeyedBlocks(self._mac("stream", "blocks", *parts))

    def __repr__(self) -> str:
        return "ReleaseKey(<secret>)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            "a ReleaseKey cannot be copied or pickled: load it on the worker by its reference"
        )

    def _mac(self, *parts: bytes | str | int) -> bytes:
        return hmac.digest(self._secret, b"".join(map(_encoded_part, parts)), "sha256")


def key_id_from_check(check_value: bytes) -> str:
    """Return the id of the key with a check value, which travels in its place; "" for none."""
    return check_value[:_KEY_ID_BYTES].hex()


def draw_nonce() -> bytes:
    """Return a nonce from the operating system's randomness: `NONCE_BYTES` bytes, public.

    A folder of a release gets one, once, before its job starts. It is part of every seed, so that
    two folders with one key and the same counts get independent noise.

    >>> len(draw_nonce()), draw_nonce() == draw_nonce()
    (16, False)
    """
    return secrets.token_bytes(NONCE_BYTES)


def public_stream(*parts: bytes | str | int) -> RandomStream:
    """Return the stream named by `parts` under a constant that everybody knows.

    It is for simulations of public quantities (say, the quantiles of a sum of noises whose scales
    are public). It must never serve as the noise of a release: anybody can compute it.

    Raises:
        TypeError: if a part is neither bytes nor text nor an integer.

    >>> public_stream("doc").bytes(4) == public_stream("doc").bytes(4)
    True
    """
    return ReleaseKey(_PUBLIC_SECRET).stream(*parts)


def _encoded_part(part: bytes | str | int) -> bytes:
    """Type tag, length in 8 bytes, content: a prefix code, so joining parts is injective.

    >>> _encoded_part("a")
    b's\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01a'
    """
    if isinstance(part, bytes):
        tag, content = b"b", part
    elif isinstance(part, str):
        tag, content = b"s", part.encode("utf-8")
    elif isinstance(part, int) and not isinstance(part, bool):
        tag, content = b"i", part.to_bytes(part.bit_length() // 8 + 1, "big", signed=True)
    else:
        raise TypeError(f"a part of a name is {type(part).__name__}; it must be bytes, str or int")
    return tag + len(content).to_bytes(8, "big") + content


def _decoded_secret(text: str) -> bytes | None:
    if not text.startswith(_TEXT_PREFIX):
        return None
    try:
        secret = base64.b64decode(text[len(_TEXT_PREFIX) :], altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    # One text per secret: the decoder would also take "+" for "-" and stray bits at the end.
    canonical = _TEXT_PREFIX + base64.urlsafe_b64encode(secret).decode("ascii") == text
    return secret if canonical and len(secret) == _SECRET_BYTES else None
