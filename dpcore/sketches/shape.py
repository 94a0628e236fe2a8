"""Shape of a sketch before it counts: its kind, its number of rows, and its width."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.sketches.hashing import CODE_BITS, MAX_HASH_BITS, SketchHashes

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
