"""Strongly universal hash functions of 64-bit codes, drawn from a keyed stream.

A function of *multiply-shift* maps codes x, of halves x_lo and x_hi, to l <= 33 bits by

    h(x) = ((a_1 x_lo + a_2 x_hi + b) mod 2^64) >> (64 - l),

or, for one bit, by the first bit of a x + b, with a, a_1, a_2 and b uniform on 64 bits. It is
strongly universal (pairwise independent): for any two different codes x and y the pair (h(x),
h(y)) is uniform on 2^l x 2^l.

Proof. Let d = x - y, or the difference of a half in which they differ: d = 2^s times an odd number,
with s <= 63 (s <= 31 of a half). A uniform multiplier times an odd number is uniform, so a d is
uniform on the multiples of 2^s. U = a y + b is uniform and, since b is, independent of the
multipliers. So given U the first 64 - s bits of a x + b = U + a d are uniform, which are one or
more (33 or more of halves).

It is computed as a_1 x + a_2 x_hi: as 2^32 a_1 + a_2 is uniform and independent of a_1, the law is
the same, and no code has its low half cut out.

Pairs alone are not enough in practice. The codes of a level are often all of 0 .. n - 1, and
multiply-shift maps such a sequence to a sequence again: in most draws its collisions are fewer than
chance would have them, in a few draws many more (for 1,000 codes in a row and 64 columns the sum of
squared cells, relative to its mean, has a standard deviation of 2.2, against 0.17 for random
columns). So a sketch first scrambles codes by two keyed rounds of

    x <- k x mod 2^64 (k odd);  x <- x xor (x >> s),

and each step is one-to-one. Different codes stay different, so pairs stay exactly uniform, and
sequences are broken: the deviation is that of random columns (tests/dpcore/sketches).

Source: Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
arithmetic without primes", STACS 1996, theorem 3; Thorup, "High speed hashing for integers and
strings", arXiv 1504.06804, sections 3.2 and 3.5. The rounds come from MurmurHash3's finaliser,
with keyed factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import RandomStream

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
    (`dpcore.sketches.row_error`).

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
