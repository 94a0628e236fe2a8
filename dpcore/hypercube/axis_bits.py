"""Codes from the bits of several axes, and back: a Morton order of any widths.

Level by level the axes are halved in turn, each until its bits are used up; the first bit of a code
says which half of the first axis. A table of each axis holds its positions with their bits spread,
so that a code is one lookup an axis, whatever their number and widths.

Source: Morton 1966, here with axes of different widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.partitions.tree import Nodes

# Positions are looked up so many bits at a time: a table of 2^12 codes lies in the first cache.
_DIGIT = 12


@dataclass(frozen=True, kw_only=True)
class AxisBits:
    """The order in which axes are halved.

    Args:
        depths: (d,) how often each axis is halved.

    >>> bits = AxisBits(depths=(1, 3))
    >>> bits.order  # the axis that each level halves
    (0, 1, 1, 1)
    >>> codes = bits.codes([np.array([0, 1]), np.array([5, 2])])
    >>> [f"{code:04b}" for code in codes.tolist()]
    ['0101', '1010']
    """

    depths: tuple[int, ...]

    @cached_property
    def order(self) -> tuple[int, ...]:
        """(r,) the axis that each level below the root halves."""
        turns = range(max(self.depths, default=0))
        return tuple(axis for turn in turns for axis, n in enumerate(self.depths) if turn < n)

    @property
    def bits(self) -> int:
        """r, of a code."""
        return sum(self.depths)

    def halvings(self, depth: int) -> tuple[int, ...]:
        """(d,) how often each axis is halved above a depth."""
        return tuple(self.order[:depth].count(axis) for axis in range(len(self.depths)))

    def codes(self, positions: Sequence[Integers]) -> Nodes:
        """(n,) the codes of positions.

        Args:
            positions: of each axis (n,), from 0 to 2^depth - 1.
        """
        result = np.zeros(len(positions[0]), np.uint64)
        for position, tables in zip(positions, self._tables, strict=True):
            for number, table in enumerate(tables):
                digit = position >> (number * _DIGIT)
                if number + 1 < len(tables):
                    digit &= (1 << _DIGIT) - 1
                result |= table.take(digit, mode="clip")
        return result

    def positions(self, depth: int, nodes: Nodes) -> list[Integers]:
        """Return, for each axis, the positions (n,) of nodes of a depth, in halves of that depth.

        >>> [each.tolist() for each in AxisBits(depths=(2, 2)).positions(3, np.array([5, 6],
        ...                                                              np.uint64))]
        [[3, 2], [0, 1]]
        """
        result = [np.zeros(len(nodes), np.int64) for _ in self.depths]
        for level, axis in enumerate(self.order[:depth]):
            bit = (nodes >> np.uint64(depth - 1 - level)) & np.uint64(1)
            result[axis] = (result[axis] << 1) | bit.astype(np.int64)
        return result

    @cached_property
    def _tables(self) -> tuple[tuple[Nodes, ...], ...]:
        """Places in the code of each group of bits of each axis, lowest first."""
        places: list[list[int]] = [[] for _ in self.depths]
        for level, axis in enumerate(self.order):
            places[axis].insert(0, self.bits - 1 - level)
        return tuple(
            tuple(_spread(own[start : start + _DIGIT]) for start in range(0, len(own), _DIGIT))
            for own in places
        )


def _spread(places: Sequence[int]) -> Nodes:
    """(2^m,) for every number of m bits a code with bit i at the place i says."""
    table = np.zeros(1, np.uint64)
    for place in places:
        table = np.concatenate([table, table | np.uint64(1 << place)])
    return table
