"""Sketches: counts of many codes in few cells, by strongly universal keyed hash functions.

The counters are an int64 table (rows, width), one per level of a hierarchy of prefixes: linear,
so that tables of parts of the data add up exactly. *Multiply-shift* maps codes of halves x_lo and
x_hi to l <= 33 bits by

    h(x) = ((a_1 x_lo + a_2 x_hi + b) mod 2^64) >> (64 - l),

or, for one bit, by the first bit of a x + b, with a, a_1, a_2 and b uniform on 64 bits. For any
two codes x != y the pair (h(x), h(y)) is uniform on 2^l x 2^l. Proof: let d = x - y, or the
difference of a half in which they differ: d = 2^s times an odd number, s <= 63 (s <= 31 of a
half). A uniform multiplier times an odd number is uniform, so a d is uniform on the multiples of
2^s. U = a y + b is uniform and, since b is, independent of the multipliers. So given U the first
64 - s bits of a x + b = U + a d are uniform, which are one or more (33 or more of halves). It is
computed as a_1 x + a_2 x_hi, which has the same law, as 2^32 a_1 + a_2 is uniform and independent
of a_1.

Pairs alone are not enough: multiply-shift maps codes 0 .. n - 1 to a sequence again (for 1,000
codes and 64 columns the relative sum of squared cells has a standard deviation of 2.2, against
0.17 for random columns). So codes are first scrambled by two keyed rounds of x <- k x mod 2^64 (k
odd); x <- x xor (x >> s), each one-to-one: pairs stay exactly uniform, and the deviation is that
of random columns (tests/dpcore/sketches).

Source: Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
arithmetic without primes", STACS 1996, theorem 3; Thorup, "High speed hashing for integers and
strings", arXiv 1504.06804, sections 3.2 and 3.5; the rounds are MurmurHash3's, with keyed
factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey
from dptrees.dpcore.rows.columns import pack, unpack
from dptrees.dpcore.specification import Coded, Refusal

Codes = npt.NDArray[np.uint64]

CODE_BITS: Final = 64
MAX_HASH_BITS: Final = 33
_HALF: Final = np.uint64(32)
_ROUNDS: Final = (np.uint64(32), np.uint64(29))


class MultiplyShift:
    """Independent strongly universal functions of codes; their numbers never show.

    The numbers follow from the release key, and who has them can choose rows that collide. So they
    are in no repr, and cannot be copied or pickled: each worker draws them anew.

    Args:
        stream: where the numbers are drawn from.
        functions: how many.
        bits: of a hash, 1 to 33.

    Raises:
        ValueError: a number is out of its range.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> hashing = MultiplyShift(public_stream("doc"), functions=2, bits=3)
    >>> hashing
    MultiplyShift(<secret>)
    >>> hashing(1, np.arange(5, dtype=np.uint64)).tolist()
    [1, 2, 3, 3, 4]
    """

    __slots__ = ("_addends", "_multipliers", "_shift")

    def __init__(self, stream: RandomStream, *, functions: int, bits: int) -> None:
        if functions < 1:
            raise ValueError(f"functions: {functions} must be at least 1")
        if not 1 <= bits <= MAX_HASH_BITS:
            raise ValueError(f"bits: {bits} must be from 1 to {MAX_HASH_BITS}")
        pieces = 1 if bits == 1 else 2
        self._multipliers = stream.uint64(functions * pieces).reshape(functions, pieces)
        self._addends = stream.uint64(functions)
        self._shift = np.uint64(CODE_BITS - bits)

    def __call__(self, number: int, codes: Codes) -> Integers:
        """The hashes of codes under one function.

        Args:
            number: of the function, from 0.
            codes: uint64, of any shape.

        Returns:
            int64, of the shape of the codes.
        """
        multipliers = self._multipliers[number]
        values: Codes = codes * multipliers[0]
        if multipliers.size == 2:
            values += (codes >> _HALF) * multipliers[1]
        values += self._addends[number]
        values >>= self._shift
        return values.view(np.int64)

    def __repr__(self) -> str:
        return "MultiplyShift(<secret>)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("hash functions cannot be copied or pickled: draw them from their stream")


class SketchHashes:
    """The hash functions of a sketch: for each of its rows a column and, if signed, a sign.

    Columns and signs are functions of their own, independent of each other: with that, pairwise
    independence of each is enough for the exact variance of a count sketch
    (`dpcore.sketches.estimates`).

    Args:
        stream: where their numbers are drawn from, not read before.
        rows: of the sketch.
        bits: of a column's number; the sketch has 2^bits columns.
        signed: whether rows have signs (a count sketch).
        code_bits: of a code, 1 to 64; a longer one is refused.

    Raises:
        ValueError: a number is out of its range.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> hashes = SketchHashes(public_stream("doc"), rows=2, bits=3, signed=True)
    >>> for columns, signs in hashes.cells(np.arange(5, dtype=np.uint64)):
    ...     print(columns.tolist(), signs.tolist())
    [1, 1, 3, 6, 6] [1, 1, 1, 1, -1]
    [1, 5, 3, 1, 5] [1, -1, 1, -1, -1]
    """

    __slots__ = ("_columns", "_factors", "_signs", "code_bits", "rows", "width")

    def __init__(
        self,
        stream: RandomStream,
        *,
        rows: int,
        bits: int,
        signed: bool,
        code_bits: int = CODE_BITS,
    ) -> None:
        if not 1 <= code_bits <= CODE_BITS:
            raise ValueError(f"code_bits: {code_bits} must be from 1 to {CODE_BITS}")
        self.rows, self.width, self.code_bits = rows, 2**bits, code_bits
        self._factors = stream.uint64(len(_ROUNDS)) | np.uint64(1)
        self._columns = MultiplyShift(stream, functions=rows, bits=bits)
        self._signs = MultiplyShift(stream, functions=rows, bits=1) if signed else None

    @property
    def signed(self) -> bool:
        """Whether rows have signs."""
        return self._signs is not None

    def cells(self, codes: Codes) -> Iterator[tuple[Integers, Integers | None]]:
        """The columns of codes in every row, in 0..width-1, and their signs, 1 or -1, if any.

        Args:
            codes: uint64 (n,).

        Yields:
            Two int64 arrays (n,) for each row; None in place of the second if it is not signed.
        """
        scrambled = self._scrambled(codes)
        for row in range(self.rows):
            columns = self._columns(row, scrambled)
            if self._signs is None:
                yield columns, None
                continue
            signs = self._signs(row, scrambled)
            signs *= -2
            signs += 1
            yield columns, signs

    def _scrambled(self, codes: Codes) -> Codes:
        for factor, shift in zip(self._factors, _ROUNDS, strict=True):
            codes = codes * factor
            codes ^= codes >> shift
        return codes

    def check(self, codes: Codes) -> None:
        """Refuse what are no codes of these functions.

        Raises:
            TypeError: they are not uint64.
            ValueError: one has too many bits.
        """
        if codes.dtype != np.uint64:
            raise TypeError(f"codes: {codes.dtype} is not uint64")
        # No value is shown: it may be a row's.
        if self.code_bits < CODE_BITS and codes.size and int(codes.max()) >> self.code_bits:
            raise ValueError(f"codes: one has more than {self.code_bits} bits")

    def __repr__(self) -> str:
        return f"SketchHashes({self.rows} x {self.width}, <secret>)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("hash functions cannot be copied or pickled: draw them from their stream")


# Far beyond use: every row costs noise. Below it binomial coefficients are floating-point numbers.
MAX_ROWS = 500


class SketchKind(Enum):
    """Kind of a sketch: how a code counts in its cell of a row."""

    COUNT_MIN = "count_min"  # by 1
    COUNT_SKETCH = "count_sketch"  # by 1 or -1, as the code's sign in that row says


@dataclass(frozen=True, kw_only=True)
class SketchShape(Coded):
    """The shape of a sketch: `rows` hash functions, each to `width` columns.

    Args:
        kind: count-min or count sketch.
        rows: j, 1 to 500.
        width: w, a power of two from 2 to 2^33.

    Raises:
        Refusal: naming the field and the rule.

    Source: Holland et al., Algorithm 1.

    >>> shape = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=3, width=256)
    >>> shape.cells, shape.empty().shape
    (768, (3, 256))
    """

    kind: SketchKind
    rows: int
    width: int

    def __post_init__(self) -> None:
        if not 1 <= self.rows <= MAX_ROWS:
            raise Refusal("rows", f"{self.rows} is not from 1 to {MAX_ROWS}")
        if self.width < 2 or self.width & (self.width - 1) or self.bits > MAX_HASH_BITS:
            raise Refusal("width", f"{self.width} is not a power of two from 2 to 2^33")

    @property
    def bits(self) -> int:
        """Length of a column's number in bits: log2 of the width."""
        return self.width.bit_length() - 1

    @property
    def signed(self) -> bool:
        """Whether a code counts with a sign."""
        return self.kind is SketchKind.COUNT_SKETCH

    @property
    def cells(self) -> int:
        """Number of integers that it holds; 8 bytes each in memory."""
        return self.rows * self.width

    def empty(self) -> Integers:
        """The table of no rows of data: zeros, int64 (rows, width)."""
        return np.zeros((self.rows, self.width), np.int64)

    def hashes(self, stream: RandomStream, code_bits: int = CODE_BITS) -> SketchHashes:
        """The hash functions of a sketch of this shape.

        Args:
            stream: named for this sketch alone, not read before.
            code_bits: of a code, 1 to 64.
        """
        return SketchHashes(
            stream, rows=self.rows, bits=self.bits, signed=self.signed, code_bits=code_bits
        )


# Codes that are hashed at once: their hashes stay in cache.
BLOCK = 2**14


def update(
    hashes: SketchHashes, table: Integers, codes: Codes, counts: Integers | None = None
) -> None:
    """Counts rows of data in a table, in place.

    Args:
        hashes: of the sketch.
        table: int64 (rows, width), changed.
        codes: uint64 (n,), of the rows of data; repeated ones count as often.
        counts: int64 (n,), how often each code counts; once if not given. Negative ones take back.

    Raises:
        TypeError: codes are not uint64, or counts are not int64.
        ValueError: a code has too many bits, or there are not as many counts as codes.

    Source: Holland et al., Algorithm 1, `update`.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> from dptrees.dpcore.sketches.sketch import SketchKind
    >>> shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=2, width=4)
    >>> hashes, table = shape.hashes(public_stream("doc")), shape.empty()
    >>> update(hashes, table, np.array([7, 7, 9], np.uint64))
    >>> table.sum(axis=1).tolist()
    [3, 3]
    """
    hashes.check(codes)
    # np.add.at costs 1 to 3 ns a code, as np.bincount does where a row fits the cache; it is exact
    # with counts too, and makes no array of the width for every block.
    if counts is not None and counts.dtype != np.int64:
        raise TypeError(f"counts: {counts.dtype} is not int64")
    if counts is not None and counts.shape != codes.shape:
        raise ValueError(f"counts: {counts.size} are not as many as codes, {codes.size}")
    for start in range(0, codes.size, BLOCK):
        block = codes[start : start + BLOCK]
        times = None if counts is None else counts[start : start + BLOCK]
        for row, (columns, signs) in zip(table, hashes.cells(block), strict=True):
            np.add.at(row, columns, _increments(signs, times))


def _increments(signs: Integers | None, counts: Integers | None) -> Integers | int:
    """Increments that codes add to their cells."""
    if signs is None:
        return 1 if counts is None else counts
    return signs if counts is None else signs * counts


def to_bytes(table: Integers) -> bytes:
    """A table as bytes in flight; `from_bytes` gives it back."""
    return pack(table)


def from_bytes(shape: SketchShape, data: bytes) -> Integers:
    """The table of `to_bytes`.

    Raises:
        ValueError: the bytes are of another shape.

    >>> from dptrees.dpcore.sketches.sketch import SketchKind
    >>> shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=1, width=4)
    >>> from_bytes(shape, to_bytes(shape.empty())).tolist()
    [[0, 0, 0, 0]]
    """
    flat = unpack(data)
    if flat.size != shape.cells:
        raise ValueError(f"a table of {flat.size} cells is not of {shape.rows} x {shape.width}")
    return flat.reshape(shape.rows, shape.width)


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

    >>> from dptrees.dpcore.sketches.sketch import SketchKind
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
        if counts is None and repeats(codes):
            codes, counts = np.unique(codes, return_counts=True)
        for level, functions, table in zip(self.levels, hashes, tables, strict=True):
            update(functions, table, self.prefixes(level, codes), counts)


def repeats(codes: Codes) -> bool:
    """Whether each code comes about four times or more, by an evenly spaced sample.

    Of m codes out of D equally frequent ones, about m^2 / (2 D) repeat another of the sample.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> codes = public_stream("doc").uint64(2**16)
    >>> repeats(codes % np.uint64(9973)), repeats(codes)
    (True, False)
    """
    sample = codes[:: max(1, codes.size // _SAMPLE)]
    repeated = sample.size - np.unique(sample).size
    return bool(_ROWS_A_CODE * sample.size**2 < 2 * repeated * codes.size)
