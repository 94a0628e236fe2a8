"""Systematic draws from many discrete laws at once: counts of cells are as even as they can be.

The rows of a batch that have one law are put into random order, and the k-th of n gets the cell
that holds (k + u) / n of the law, with one u in [0, 1) for all of them. So each row has the law, a
cell of probability p gets n p rows, rounded up or down, and nothing else of the rows matters.
Tables of these rows are closer to the model's than tables of independent draws.

Source: systematic sampling, Madow and Madow 1944.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arithmetic.sums import row_dots
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.randomness import RandomStream

# Random digits that order the rows of a law; equal ones keep their order.
_RANDOM_DIGITS = 2
_DIGIT_BITS = 16
_UNIT = 2.0**-53
_UNIT_BITS = np.uint64(11)


@dataclass(frozen=True, kw_only=True, eq=False)
class Laws:
    """Laws on cells 0, ..., n - 1.

    Attributes:
        cumulative: (laws, n) the probability of each cell and those before it; the last is 1.
    """

    cumulative: Floats

    @classmethod
    def from_weights(cls, weights: Floats) -> Laws:
        """The laws that are proportional to weights.

        Args:
            weights: (laws, n), at least 0, at most 2^23 laws; a row of sum 0 is a law on equal
                cells.

        >>> Laws.from_weights(np.array([[3.0, 1.0], [0.0, 0.0]])).cumulative.tolist()
        [[0.75, 1.0], [0.5, 1.0]]
        """
        sums = row_dots(weights, np.ones(weights.shape[1]))[:, np.newaxis]
        known = np.where(sums > 0, weights, 1.0)
        cumulative = np.cumsum(known, axis=1)
        return cls(cumulative=cumulative / cumulative[:, -1:])

    def draw(self, rows: int, stream: RandomStream, given: Integers | None) -> Integers:
        """(rows,) cells.

        Args:
            rows: of a batch.
            stream: 32 bits of each row and 64 of each law are read.
            given: (rows,) the law of each row; None: the first.
        """
        laws, cells = self.cumulative.shape
        given = np.zeros(rows, np.int64) if given is None else given
        order = _random_order(given, laws, stream)
        sizes = np.bincount(given, minlength=laws)
        starts = (stream.uint64(laws) >> _UNIT_BITS).astype(np.float64) * _UNIT
        upto = np.ceil(self.cumulative * sizes[:, np.newaxis] - starts[:, np.newaxis])
        bounds = np.clip(upto, 0, sizes[:, np.newaxis]).astype(np.int64)
        bounds[:, -1] = sizes
        counts = np.diff(bounds, axis=1, prepend=0).reshape(-1)
        result = np.empty(rows, np.int64)
        result[order] = np.repeat(np.tile(np.arange(cells), laws), counts)
        return result


def _random_order(given: Integers, laws: int, stream: RandomStream) -> Integers:
    """(rows,) the places of rows by law, and at random among the rows of a law.

    Args:
        given: (rows,) the law of each.
        laws: how many there are.
        stream: 16 bits of each row are read for each random digit.
    """
    digits = [stream.uint16(len(given)) for _ in range(_RANDOM_DIGITS)]
    for first in range(0, (laws - 1).bit_length(), _DIGIT_BITS):
        digits.append((given >> first).astype(np.uint16))
    # By the last digit first; digits of 16 bits are sorted in linear time.
    order = np.argsort(digits[0], kind="stable")
    for digit in digits[1:]:
        order = order[np.argsort(digit[order], kind="stable")]
    return order
