"""Shape of a sketch before it counts: its kind, its number of rows, and its width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, repeat
from operator import mul

import numpy as np

from dptrees.dpcore.arithmetic.elementary import log
from dptrees.dpcore.arithmetic.sums import binary_exponent
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

    @classmethod
    def from_error(cls, kind: SketchKind, *, error: float, failure: float) -> SketchShape:
        """The shape whose estimate of any one code fails its error bound at most so often.

        Count-min (minimum over rows): the estimate is never below the count c, and above
        c + error n with probability at most ``failure``. Width >= e / error: a row's excess has a
        mean of at most n / w, so by Markov it is beyond error n with probability p = 1 / (error w)
        <= 1/e, and all rows are with p^j.

        Count sketch (median over rows): the estimate is beyond error sqrt(F2) from c with
        probability at most ``failure``, F2 being the sum of all squared counts. Width >= 3 /
        error^2: a row's variance is at most F2 / w, so by Chebyshev it is beyond with probability
        p = 1 / (error^2 w) <= 1/3, and the median only if half of an odd number of rows are.

        Widths are rounded up to powers of two, and the rows do what is then left to do.

        Args:
            kind: count-min or count sketch.
            error: above 0, below 1.
            failure: the probability, above 0, below 1.

        Raises:
            Refusal: naming the field and the rule.

        Source: Cormode, Muthukrishnan 2005, theorem 1; Charikar, Chen, Farach-Colton 2002, with the
        exact binomial tail in place of Chernoff's bound.

        >>> SketchShape.from_error(SketchKind.COUNT_MIN, error=0.01, failure=0.01)
        SketchShape(kind=<SketchKind.COUNT_MIN: 'count_min'>, rows=3, width=512)
        """
        for field, value in (("error", error), ("failure", failure)):
            if not 0 < value < 1:
                raise Refusal(field, f"{value} is not between 0 and 1")
        if kind is SketchKind.COUNT_MIN:
            width = _power_of_two(math.e / error)
            rows = math.ceil(log(failure) / -log(error * width))
        else:
            width = _power_of_two(3 / (error * error))
            rows = _rows_of_median(1 / (error * error * width), failure)
        return cls(kind=kind, rows=max(rows, 1), width=width)


def _power_of_two(least: float) -> int:
    return 1 << max(1, binary_exponent(least))


def _rows_of_median(beyond: float, failure: float) -> int:
    """The least odd number of rows such that half of them or more are beyond with at most that
    probability; above `MAX_ROWS` if none is.

    >>> _rows_of_median(0.25, 0.25), _rows_of_median(0.25, 0.1)
    (1, 7)
    """
    rows = 1
    while rows <= MAX_ROWS and _upper_tail(rows, beyond) > failure:
        rows += 2
    return rows


def _upper_tail(rows: int, chance: float) -> float:
    """P(Binomial(rows, chance) > rows / 2), for odd rows."""
    beyond, within = (
        list(accumulate(repeat(each, rows), mul, initial=1.0)) for each in (chance, 1 - chance)
    )
    return math.fsum(
        math.comb(rows, k) * beyond[k] * within[rows - k] for k in range(rows // 2 + 1, rows + 1)
    )
