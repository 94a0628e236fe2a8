"""A sketch for each of several levels of one hierarchy: of the prefixes of codes.

The codes of a binary tree's leaves have `code_bits` bits; the node of level l above a leaf is the
first l bits. All levels have one shape, as in the paper, so the counters are one int64 array
(levels, rows, width): linear, so that arrays of parts of the data are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.packing import pack, unpack
from dptrees.dpcore.sketches.hashing import CODE_BITS, Codes, SketchHashes
from dptrees.dpcore.sketches.shape import SketchShape
from dptrees.dpcore.sketches.table import update

# Sorting a batch costs as much as counting it in one or two sketches, which is worth it where it
# leaves a quarter of the codes or fewer; so many of them say.
_SAMPLE = 1024
_ROWS_A_CODE = 4


@dataclass(frozen=True, kw_only=True)
class PrefixSketches:
    """The sketches of some levels of a binary hierarchy.

    Args:
        shape: of every level's sketch.
        code_bits: of a leaf's code, 1 to 64.
        levels: the lengths of prefixes, ascending, from 1 to `code_bits`; flat codes have the one
            level `code_bits`.

    Raises:
        Refusal: naming the field and the rule.

    >>> from dptrees.dpcore.sketches.shape import SketchKind
    >>> shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=1, width=8)
    >>> sketches = PrefixSketches(shape=shape, code_bits=20, levels=(10, 15, 20))
    >>> tables, hashes = sketches.empty(), sketches.hashes(ReleaseKey(bytes(32)), "doc")
    >>> sketches.update(hashes, tables, np.array([5, 2**19], np.uint64))
    >>> tables.sum(axis=(1, 2)).tolist()
    [2, 2, 2]
    """

    shape: SketchShape
    code_bits: int
    levels: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.code_bits <= CODE_BITS:
            raise Refusal("code_bits", f"{self.code_bits} is not from 1 to {CODE_BITS}")
        if not self.levels or list(self.levels) != sorted(set(self.levels)):
            raise Refusal("levels", f"{self.levels} do not ascend, or there are none")
        if self.levels[0] < 1 or self.levels[-1] > self.code_bits:
            raise Refusal("levels", f"{self.levels} are not from 1 to {self.code_bits}")

    @property
    def cells(self) -> int:
        """Number of integers that they hold together; 8 bytes each in memory."""
        return len(self.levels) * self.shape.cells

    def empty(self) -> Integers:
        """The counters of no rows of data: zeros, int64 (levels, rows, width)."""
        return np.zeros((len(self.levels), self.shape.rows, self.shape.width), np.int64)

    def hashes(self, key: ReleaseKey, *name: bytes | str | int) -> tuple[SketchHashes, ...]:
        """The hash functions of every level, in order: pure functions of the key and the name.

        Args:
            key: the release key.
            name: of the tree in its release; two sketches of one name have the same functions. It
                must not depend on the data: the sensitivity is that of functions chosen before.
        """
        shape = self.shape
        law = (shape.kind.value, shape.rows, shape.width, self.code_bits)
        return tuple(
            shape.hashes(key.stream("sketch", *name, *law, level), level) for level in self.levels
        )

    def prefixes(self, level: int, codes: Codes) -> Codes:
        """The first `level` bits of leaves' codes, uint64 (n,)."""
        prefixes: Codes = codes >> np.uint64(self.code_bits - level)
        return prefixes

    def update(
        self,
        hashes: Sequence[SketchHashes],
        tables: Integers,
        codes: Codes,
        counts: Integers | None = None,
    ) -> None:
        """Counts rows of data in the sketches of all levels, in place.

        Args:
            hashes: of every level.
            tables: int64 (levels, rows, width), changed.
            codes: uint64 (n,), of leaves.
            counts: int64 (n,), how often each code counts; once if not given.

        Raises:
            TypeError: codes are not uint64.
            ValueError: a code has too many bits.
        """
        if counts is None and _repeats(codes):
            codes, counts = np.unique(codes, return_counts=True)
        for level, functions, table in zip(self.levels, hashes, tables, strict=True):
            update(functions, table, self.prefixes(level, codes), counts)

    def to_bytes(self, tables: Integers) -> bytes:
        """The counters as bytes in flight; `from_bytes` gives them back."""
        return pack(tables)

    def from_bytes(self, data: bytes) -> Integers:
        """The counters of `to_bytes`.

        Raises:
            ValueError: the bytes are of another number of cells.
        """
        flat = unpack(data)
        if flat.size != self.cells:
            raise ValueError(f"counters of {flat.size} cells are not of {self.cells}")
        return flat.reshape(self.empty().shape)


def _repeats(codes: Codes) -> bool:
    """Whether each code comes about four times or more, by an evenly spaced sample.

    Of m codes out of D equally frequent ones, about m^2 / (2 D) repeat another of the sample.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> codes = public_stream("doc").uint64(2**16)
    >>> _repeats(codes % np.uint64(9973)), _repeats(codes)
    (True, False)
    """
    sample = codes[:: max(1, codes.size // _SAMPLE)]
    repeated = sample.size - np.unique(sample).size
    return bool(_ROWS_A_CODE * sample.size**2 < 2 * repeated * codes.size)
