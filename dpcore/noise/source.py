"""Noise as a keyed pure function of the exact counts: drawn once, however often it is computed.

An engine may run a bundle any number of times. So the noise of a level of a chunk is an exact
sample from a keystream whose seed is HMAC-SHA256(release key, ...) of everything that
distinguishes this draw: the release, the nonce of its folder, its specification, the tree, key,
chunk and level, and the *global digest*, a keyed digest of all exact counts. A retry draws the
same bits; changed data, another specification or another folder draw all of them afresh. The
guarantee is computational: anyone who learns the key removes the privacy of every release made
under it. Source: the design, section 3.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.laws import NoiseLaw
from dptrees.dpcore.noise.randomness import Bits, PlacedStreams, RandomStream, ReleaseKey

# No table has more rows.
MAX_COUNT = 2**40
# The largest noisy number that is released: float64 holds estimates below it to a part of a row, so
# that integers add up.
LARGEST_MEASURED = 2**50
# The largest noisy sum that is divided before it is released, so that a part of it is less than a
# row; with the exact sum, at most twice as large, it fits 64 bits.
LARGEST_DIVIDED = 2**61


class LargeSumError(ValueError):
    """A noisy number is larger than the largest that is released: the sum behind it may be larger
    still. It is a function of noisy numbers alone.

    >>> str(LargeSumError(2**50))[:28]
    'a noisy sum is beyond 2^50, '
    """

    def __init__(self, largest: int) -> None:
        super().__init__(
            f"a noisy sum is beyond 2^{largest.bit_length() - 1}, the largest that is released: "
            "narrow the bounds of the values, or sum them in a larger unit or in fewer cells"
        )


@dataclass(frozen=True, kw_only=True)
class KeyedChoices:
    """Source of the random choices of counting, which are no noise: functions that hash.

    They are the same on every worker and in every run of a release under one key, so that partial
    counts add up; who has no key cannot choose rows that collide.

    Args:
        key: the release key, loaded on the worker that counts.
        release: the release's id.
        nonce: of the release's folder, public; for what is to differ between folders.
    """

    key: ReleaseKey
    release: str
    nonce: bytes = b""


@dataclass(frozen=True, kw_only=True)
class NoiseSource:
    """Source of the noise of one release on one data set.

    Args:
        key: the release key, loaded on the worker that draws.
        release: the release's id.
        spec_digest: of the specification: all that shapes the law of what is released.
        global_digest: from `counts_digest` of every chunk, summed.
        own_digest: of the counts that get the noise, see `for_counts`.
        nonce: of the release's folder, public; empty in memory, where equal counts under one key
            are to give equal noise, so that repetition averages nothing out.
        largest: the largest noisy number, see `add_noise`.
    """

    key: ReleaseKey
    release: str
    spec_digest: bytes
    global_digest: bytes
    own_digest: bytes = b""
    nonce: bytes = b""
    largest: int = LARGEST_MEASURED

    def for_counts(self, counts: Integers) -> NoiseSource:
        """The source for these counts alone.

        The global digest covers them already. Should an engine compute counts anew from files that
        have changed meanwhile, and use them with the old digest, they still get noise of their own.
        """
        body = hashlib.sha256(np.ascontiguousarray(counts, dtype="<i8").tobytes()).digest()
        return replace(self, own_digest=self.key.digest("own counts", counts.size, body))

    def padded_size(self, used: int, least: int, tree: str) -> int:
        """The size to which sealed data is filled up, so that it hardly shows how much is used.

        It is the least `least * 2^k` that holds `used` times a margin from 1 to 2, which is a keyed
        function of the release and the tree: all runs of a series have the same. So a size shows
        that the number is in a range of a factor of 4, nobody without the key knows where in that
        range the next size begins, and one more of n changes the size with a probability of at most
        2/n over the keys.

        Args:
            used: the number to hide; of several files that are padded alike, the largest.
            least: the least size, which shows nothing.
            tree: its name.
        """
        digest = self.key.digest("sealed size", self.release, tree)
        needed = used * (2**32 + int.from_bytes(digest[:4], "big")) >> 32
        while least < needed:
            least *= 2
        return least

    def stream(self, tree: str, key: int, chunk: int, level: int) -> RandomStream:
        """The keystream of the noise of one level of one chunk (chunk -1 is the spine)."""
        return self.key.stream("noise", *self._name, tree, key, chunk, level)

    def node_streams(
        self, tree: str, purpose: str, level: int, nodes: npt.NDArray[np.uint64]
    ) -> PlacedStreams:
        """A keystream of each node of a level, whichever other nodes are looked at, or when.

        Args:
            tree: its name.
            purpose: what is drawn; each has streams of its own.
            level: of the nodes.
            nodes: uint64, (n,) their numbers, none twice.
        """
        return self.key.placed_streams(nodes, "node noise", *self._name, tree, purpose, level)

    @property
    def _name(self) -> tuple[bytes | str, ...]:
        """Common prefix of the names of all streams of this draw."""
        return (
            self.release,
            self.nonce,
            self.spec_digest,
            self.global_digest,
            self.own_digest,
        )

    @property
    def choices(self) -> KeyedChoices:
        """The source of the choices of counting."""
        return KeyedChoices(key=self.key, release=self.release, nonce=self.nonce)

    def record(self) -> bytes:
        """Identification of this draw; it reveals nothing of the data to anyone without the key.

        Two records under one nonce are equal where the exact counts are: who has both learns that.
        """
        return self.key.digest(
            "record", self.release, self.nonce, self.spec_digest, self.global_digest
        )


def counts_digest(
    key: ReleaseKey, release: str, tree: str, first_key: int, chunk: int, counts: Integers
) -> int:
    """A keyed digest of the exact counts of one chunk, to be summed modulo 2^256 over all chunks.

    >>> secret = ReleaseKey(bytes(32))
    >>> counts_digest(secret, "r", "t", 0, 0, np.arange(3)) == counts_digest(
    ...     secret, "r", "t", 0, 0, np.arange(3))
    True
    """
    body = hashlib.sha256(np.ascontiguousarray(counts, dtype="<i8").tobytes()).digest()
    return int.from_bytes(
        key.digest("counts", release, tree, first_key, chunk, counts.size, body), "big"
    )


def combine_digests(total: int) -> bytes:
    """The global digest from the sum of the chunks' digests."""
    return (total % 2**256).to_bytes(32, "big")


def add_noise(
    law: NoiseLaw, counts: Integers, stream: Bits, *, largest: int = LARGEST_MEASURED
) -> Integers:
    """The noisy counts of one level: exact integers plus exact integer noise.

    Args:
        law: of the noise of every node of the level.
        counts: (..., n) exact counts.
        stream: the keystream of this level and chunk, or of each of its nodes, not read before.
        largest: the largest noisy number that the mechanism releases, at most `LARGEST_DIVIDED`.

    Counts beyond twice the largest, which only sums of large values reach, are taken as that: a row
    moves a count by no more than before, and the noisy number is refused like the sum's own would
    be, as no noise is larger than 2^49 but with a probability below e^-512. Counts are to come from
    `dpcore.trees.chunks`, whose sums do not wrap before they are clipped here.

    Raises:
        TypeError: counts that are not 64-bit integers: integer noise hides no fraction.
        LargeSumError: a noisy number is beyond the largest.
    """
    if counts.dtype != np.int64:
        raise TypeError(f"counts: {counts.dtype} is not int64")
    counts = np.clip(counts, -2 * largest, 2 * largest)
    noisy: Integers = counts + law.sample(stream, counts.size).reshape(counts.shape)
    check_held(noisy, largest)
    return noisy


def check_held(noisy: Integers | Floats, largest: int = LARGEST_MEASURED) -> None:
    """Refuse noisy numbers, or estimates from them, that are beyond the largest.

    Raises:
        LargeSumError: one is.
    """
    if noisy.size and (noisy.max() > largest or noisy.min() < -largest):
        raise LargeSumError(largest)
