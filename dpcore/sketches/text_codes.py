"""Strings and byte strings to 64-bit codes, by MurmurHash3 under a keyed seed.

Only the distinct values of a column are hashed, one at a time; rows then look their code up. A code
is one half of the 128-bit hash. Two of D strings share one with a chance of about D^2 / 2^65, if
they were not chosen for it: MurmurHash3 is no universal family, and strings are known that collide
under every seed. Who chooses such rows spoils estimates of their own codes; the guarantee holds for
any codes at all.

Source: Appleby, MurmurHash3 (x64, 128 bits); Aumasson, Bernstein 2012 (collisions).
"""

from __future__ import annotations

from typing import NoReturn

import mmh3
import numpy as np
import pyarrow as pa

from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.rows.columns import is_text
from dptrees.dpcore.sketches.sketch import Codes


class TextHash:
    """A keyed function from strings to 64-bit codes; its seed never shows, as for hash functions.

    Args:
        stream: where the seed is drawn from, not read before.

    >>> from dptrees.dpcore.noise.randomness import public_stream
    >>> codes = TextHash(public_stream("doc")).codes(pa.array(["a", "b", "a"]))
    >>> codes.dtype, bool(codes[0] == codes[2]), bool(codes[0] == codes[1])
    (dtype('uint64'), True, False)
    """

    __slots__ = ("_seed",)

    def __init__(self, stream: RandomStream) -> None:
        self._seed = int(stream.uint64(1)[0]) & 0xFFFFFFFF

    def code(self, value: bytes) -> int:
        """The code of one byte string; of a text that of its UTF-8."""
        return int(mmh3.mmh3_x64_128_utupledigest(value, self._seed)[0])

    def codes(self, column: pa.Array | pa.ChunkedArray) -> Codes:
        """The codes of a column's rows.

        Args:
            column: strings or byte strings, (rows,), plain or dictionary-encoded, without nulls.

        Returns:
            uint64 (rows,).

        Raises:
            TypeError: the column holds something else.
            ValueError: a row is null.
        """
        parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        codes: Codes = np.concatenate([np.zeros(0, np.uint64), *map(self._part, parts)])
        return codes

    def _part(self, column: pa.Array) -> Codes:
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        if encoded.dictionary.null_count:
            encoded = encoded.dictionary_decode().dictionary_encode()
        distinct = encoded.dictionary
        if not is_text(distinct.type):
            raise TypeError(f"column: {column.type} is neither text nor bytes")
        if encoded.null_count:
            raise ValueError("column: a row is null, which has no code")
        values = distinct.cast(pa.large_binary()).to_pylist()
        codes = np.fromiter(map(self.code, values), np.uint64, len(values))
        found: Codes = codes[encoded.indices.to_numpy(zero_copy_only=False)]
        return found

    def __repr__(self) -> str:
        return "TextHash(<secret>)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a TextHash cannot be copied or pickled: draw it from its stream")
