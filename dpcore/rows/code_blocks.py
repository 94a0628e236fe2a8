"""A long list of different codes that comes in blocks, in any order, sorted without being held.

A code is a prefix and a last number below some radix. One pass over the blocks counts the codes of
each prefix; a part of the sorted list is then made of the blocks that reach into it. Where blocks
are in order these are one or two, else all of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray
from dptrees.dpcore.rows.parted import PartedIntegers

# Codes of a part: few enough to be held with their sorted copy, and so many that a list in no order
# is read seldom.
_PART_CODES = 2**22


class CodeBlocks:
    """Different codes in blocks.

    Args:
        blocks: how many there are.
        read: the codes of a block, (n,) at least 0; the same each time.
        radix: how many last numbers there can be.

    Attributes:
        prefixes: (n,) those that occur, rising.
        starts: (n + 1,) where the codes of each begin in the sorted list, and where it ends.

    >>> blocks = [np.array([205, 101]), np.array([103])]
    >>> codes = CodeBlocks(2, blocks.__getitem__, 100)
    >>> codes.prefixes.tolist(), codes.starts.tolist(), codes.last_numbers[:].tolist()
    ([1, 2], [0, 2, 3], [1, 3, 5])
    """

    def __init__(self, blocks: int, read: Callable[[int], Integers], radix: int) -> None:
        self._read, self._radix = read, radix
        self._ends = np.zeros((blocks, 2), np.int64)
        self._count()

    def _count(self) -> None:
        """One pass over the blocks."""
        found = _Counted()
        for block in range(len(self._ends)):
            codes = self._read(block)
            self._ends[block] = codes.min(), codes.max()
            found.add(codes // self._radix)
        self.prefixes, counts = found.total()
        self.starts = np.append(0, np.cumsum(counts))

    @property
    def last_numbers(self) -> PartedIntegers:
        """The last numbers of all codes, in the order of the codes.

        Raises (where a part is read):
            CodeTwice: a code occurs more than once.
            ValueError: the blocks are not what they were.
        """
        firsts = [0]
        while firsts[-1] < len(self.prefixes):
            limit = self.starts[firsts[-1]] + _PART_CODES
            after = int(np.searchsorted(self.starts, limit, side="right")) - 1
            firsts.append(max(after, firsts[-1] + 1))
        bounds = np.array(firsts, np.int64)

        def part(number: int) -> AnyArray:
            return self._part(int(bounds[number]), int(bounds[number + 1]))

        return PartedIntegers(self.starts[bounds], part)

    def _part(self, first: int, stop: int) -> AnyArray:
        """The last numbers of the codes of some prefixes."""
        low, high = self.prefixes[first] * self._radix, (self.prefixes[stop - 1] + 1) * self._radix
        reach = (self._ends[:, 0] < high) & (self._ends[:, 1] >= low)
        results = []
        for block in np.flatnonzero(reach).tolist():
            codes = self._read(block)
            inside = (codes >= low) & (codes < high)
            results.append(codes if inside.all() else codes[inside])
        codes = np.concatenate(results) if results else np.zeros(0, np.int64)
        if np.any(codes[1:] <= codes[:-1]):
            codes = np.sort(codes)
            twice = np.flatnonzero(codes[1:] == codes[:-1])
            if len(twice):
                raise CodeTwice(int(codes[twice[0]]))
        if len(codes) != self.starts[stop] - self.starts[first]:
            raise ValueError("the list of codes is not what it was when it was first read.")
        last: AnyArray = codes % self._radix
        return last.astype(np.int32) if self._radix <= 2**31 else last


class CodeTwice(ValueError):
    """A code occurs more than once.

    Args:
        code: which.
    """

    def __init__(self, code: int) -> None:
        super().__init__(f"the code {code} is listed more than once.")
        self.code = code


class _Counted:
    """Frequencies of integers, in memory of a few times the different ones."""

    def __init__(self) -> None:
        self._found, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._waiting: list[tuple[Integers, Integers]] = []
        self._many = 0

    def add(self, integers: Integers) -> None:
        """Counts some more."""
        if np.any(integers[1:] < integers[:-1]):
            integers = np.sort(integers)
        firsts = np.flatnonzero(np.diff(integers, prepend=integers[0] - 1))
        self._waiting.append((integers[firsts], np.diff(firsts, append=len(integers))))
        self._many += len(firsts)
        if self._many > max(_PART_CODES, len(self._found)):
            self.total()

    def total(self) -> tuple[Integers, Integers]:
        """The different ones, rising, and how often each occurred."""
        found, counts = zip((self._found, self._counts), *self._waiting, strict=True)
        integers, added = np.concatenate(found), np.concatenate(counts)
        order = np.argsort(integers, kind="stable")
        integers, added = integers[order], added[order]
        firsts = np.flatnonzero(np.diff(integers, prepend=-1))
        self._found, self._counts = integers[firsts], np.add.reduceat(added, firsts)
        self._waiting, self._many = [], 0
        return self._found, self._counts
