"""Strongly universal hash functions of codes, drawn from a keyed stream.

A function of *multiply-shift* maps codes x of c bits to l bits by

    h(x) = ((a x + b) mod 2^64) >> (64 - l)                  where c + l <= 65,
    h(x) = ((a_1 x_lo + a_2 x_hi + b) mod 2^64) >> (64 - l)  for the 32-bit halves, l <= 33,

with a, a_1, a_2 and b uniform on 64 bits. It is strongly universal (pairwise independent): for any
two different codes the pair (h(x), h(y)) is uniform on 2^l x 2^l.

Proof. Let d = x - y, or the difference of a half in which they differ: d = 2^s times an odd number,
with s <= c - 1 (s <= 31 of a half). A uniform multiplier times an odd number is uniform, so a d is
uniform on the multiples of 2^s. U = a y + b is uniform and, since b is, independent of the
multipliers. So given U the first 64 - s bits of a x + b = U + a d are uniform, which are l or more
since l <= 65 - c <= 64 - s (l <= 33 <= 64 - s of halves).

The second form is computed as a_1 x + a_2 x_hi: as 2^32 a_1 + a_2 is uniform and independent of
a_1, the law is the same, and no code has its low half cut out.

Source: Dietzfelbinger, "Universal hashing and k-wise independent random variables via integer
arithmetic without primes", STACS 1996, theorem 3; Thorup, "High speed hashing for integers and
strings", arXiv 1504.06804, sections 3.2 and 3.5.
"""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np
import numpy.typing as npt

from dpcore.arrays import Integers
from dpcore.noise.randomness import RandomStream

Codes = npt.NDArray[np.uint64]

CODE_BITS: Final = 64
MAX_HASH_BITS: Final = 33
_HALF: Final = np.uint64(32)


class MultiplyShift:
    """Independent strongly universal functions of codes; their numbers never show.

    The numbers follow from the release key, and who has them can choose rows that collide. So they
    are in no repr, and cannot be copied or pickled: each worker draws them anew.

    Args:
        stream: where the numbers are drawn from, not read before.
        functions: how many.
        bits: of a hash, 1 to 33.
        code_bits: of a code, 1 to 64; fewer bits may save a multiplication.

    Raises:
        ValueError: a number is out of its range.

    >>> from dpcore.noise.randomness import public_stream
    >>> hashing = MultiplyShift(public_stream("doc"), functions=2, bits=3)
    >>> hashing
    MultiplyShift(<secret>)
    >>> hashing(1, np.arange(5, dtype=np.uint64)).tolist()
    [1, 2, 3, 3, 4]
    """

    __slots__ = ("_addends", "_multipliers", "_shift")

    def __init__(
        self, stream: RandomStream, *, functions: int, bits: int, code_bits: int = CODE_BITS
    ) -> None:
        for name, value, most in (
            ("functions", functions, None),
            ("bits", bits, MAX_HASH_BITS),
            ("code_bits", code_bits, CODE_BITS),
        ):
            if value < 1 or (most is not None and value > most):
                limit = "at least 1" if most is None else f"from 1 to {most}"
                raise ValueError(f"{name}: {value} must be {limit}")
        pieces = 1 if code_bits + bits <= CODE_BITS + 1 else 2
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
        code_bits: of a code.

    Raises:
        ValueError: a number is out of its range.

    >>> from dpcore.noise.randomness import public_stream
    >>> hashes = SketchHashes(public_stream("doc"), rows=2, bits=3, signed=True)
    >>> codes = np.arange(5, dtype=np.uint64)
    >>> hashes.columns(0, codes).tolist(), hashes.signs(0, codes).tolist()
    ([7, 5, 3, 1, 7], [-1, -1, -1, 1, 1])
    """

    __slots__ = ("_columns", "_signs", "code_bits", "rows", "width")

    def __init__(
        self,
        stream: RandomStream,
        *,
        rows: int,
        bits: int,
        signed: bool,
        code_bits: int = CODE_BITS,
    ) -> None:
        self.rows, self.width, self.code_bits = rows, 2**bits, code_bits
        self._columns = MultiplyShift(stream, functions=rows, bits=bits, code_bits=code_bits)
        self._signs = (
            MultiplyShift(stream, functions=rows, bits=1, code_bits=code_bits) if signed else None
        )

    @property
    def signed(self) -> bool:
        """Whether rows have signs."""
        return self._signs is not None

    def columns(self, row: int, codes: Codes) -> Integers:
        """The columns of codes in a row, int64 in 0..width-1."""
        return self._columns(row, codes)

    def signs(self, row: int, codes: Codes) -> Integers:
        """The signs of codes in a row, int64, 1 or -1; all 1 where rows have none."""
        if self._signs is None:
            return np.ones(codes.shape, np.int64)
        signs = self._signs(row, codes)
        signs *= -2
        signs += 1
        return signs

    def check(self, codes: Codes) -> None:
        """Refuses what are no codes of these functions.

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
