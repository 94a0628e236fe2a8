"""A long list of integers that lies elsewhere in parts; a few parts are in memory at a time.

Requested integers are read part by part, so a pass through the list in order reads each part once
and holds no more than a few parts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray

# So many parts are held: two neighbors, and the parts of other readers.
_HELD = 4


class PartedIntegers:
    """A list of integers in parts; it is sliced, indexed and taken from as an array is.

    Args:
        bounds: (parts + 1,) where each part begins, from 0 on, and where the last one ends.
        read: the integers of a part, by its number; called by one thread at a time.
        tail: integers that follow the last part.

    >>> tens = PartedIntegers(np.array([0, 2, 3]), lambda part: np.array([[10, 20], [30]][part]))
    >>> len(tens), tens[1:3].tolist(), int(tens[-1]), tens.take(np.array([2, 0])).tolist()
    (3, [20, 30], 30, [30, 10])
    """

    def __init__(
        self, bounds: Integers, read: Callable[[int], AnyArray], *, tail: tuple[int, ...] = ()
    ) -> None:
        self.bounds, self.tail = bounds, tail
        self._read = read
        self._held: OrderedDict[int, AnyArray] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Send the whole list, since a reader of parts cannot be pickled."""
        return np.array, (self[:],)

    def __len__(self) -> int:
        return int(self.bounds[-1]) + len(self.tail)

    def followed_by(self, value: int) -> PartedIntegers:
        """The same with one more integer at the end."""
        return PartedIntegers(self.bounds, self._read, tail=(*self.tail, value))

    def __getitem__(self, place: int | slice) -> AnyArray:
        if not isinstance(place, slice):
            one: AnyArray = self.take(np.array([place % len(self)]))[0]
            return one
        start, stop, _ = place.indices(len(self))
        results = [
            self._part(number)[max(start - low, 0) : stop - low]
            for number, (low, high) in self._overlapping(start, stop)
        ]
        return np.concatenate(results) if results else np.zeros(0, np.int64)

    def _overlapping(self, start: int, stop: int) -> list[tuple[int, tuple[int, int]]]:
        """The parts that hold a piece of a range, with their bounds."""
        bounds = self._all_bounds
        first = int(np.searchsorted(bounds, start, side="right")) - 1
        last = int(np.searchsorted(bounds, stop, side="left"))
        return list(enumerate(pairwise(bounds[first : last + 1].tolist()), first))

    @cached_property
    def _all_bounds(self) -> Integers:
        return np.append(self.bounds, len(self)) if self.tail else self.bounds

    def take(self, places: Integers) -> AnyArray:
        """The integers at places, (n,) -> (n,)."""
        if not len(places):
            return np.zeros(0, np.int64)
        ends = np.array([places.min(), places.max()])
        first, last = (np.searchsorted(self._all_bounds, ends, side="right") - 1).tolist()
        if first == last:
            one: AnyArray = self._part(first).take(places - self._all_bounds[first])
            return one
        parts = np.searchsorted(self._all_bounds, places, side="right") - 1
        result = np.empty(len(places), np.int64)
        for number in np.flatnonzero(np.bincount(parts - first)) + first:
            own = np.flatnonzero(parts == number)
            result[own] = self._part(number).take(places[own] - self._all_bounds[number])
        return result

    def _part(self, number: int) -> AnyArray:
        if number == len(self.bounds) - 1:
            return np.array(self.tail, np.int64)
        with self._lock:
            if number not in self._held:
                self._held[number] = self._read(number)
                if len(self._held) > _HELD:
                    self._held.popitem(last=False)
            self._held.move_to_end(number)
            return self._held[number]
