"""In how many periods of a series each unit has been counted, so that none is counted in too many.

A unit is counted in its first p periods in which it has rows, and in no later one:

    rows of a shard's units, what earlier runs counted -> rows of units that may be counted,
                                                          and what the next run must know

*Why a unit moves the counts of at most p periods.* Whether its rows of a period are counted is a
function of the periods in which it had rows before, of no other unit and of no released number. So
the counts of all periods are sums over units, as in `dpcore.bounding.choice`, and a unit adds to
the counts of at most p periods. If it depended on other units, one unit more could move theirs too.

The state holds an id of 16 bytes under the release key and a number for each unit, sorted by id.
It is filled up with zeros to one size for all shards of a tree (`NoiseSource.padded_size`): the
sizes of 64 shards that are padded one by one add up to a precise number of units.

Source: the sensitivity is `dpcore.privacy.sensitivity.periods_sensitivity`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.bounding.runs import distinct_units
from dptrees.dpcore.bounding.unit_ids import Blocks
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import counts_digest

_NUMBER = "<u2"
_GROUP = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class CountedUnits:
    """Units of a shard, and the number of periods in which each has been counted.

    Args:
        units: (u, 2) ids, sorted by their first halves, no two alike.
        periods: (u,) from 1 on.

    >>> before = CountedUnits.none()
    >>> ids = np.array([[3, 0], [7, 1]], np.uint64)
    >>> may, first = before.admit(ids, 1)
    >>> may.tolist(), first.admit(np.array([[5, 5], [7, 1]], np.uint64), 1)[0].tolist()
    ([True, True], [True, False])
    """

    units: Blocks
    periods: Integers

    @classmethod
    def none(cls) -> CountedUnits:
        """No unit yet: before the first period."""
        return cls(units=np.empty((0, 2), np.uint64), periods=np.empty(0, np.int64))

    def admit(self, present: Blocks, most: int) -> tuple[Flags, CountedUnits]:
        """Decide which units of a period are counted.

        Args:
            present: (n, 2) ids of units with rows in the period, no two alike.
            most: p, in how many periods a unit is counted at most, from 1 to 2^16.

        Returns:
            (n,) whether each is counted; and what is known once they are.
        """
        units, codes = distinct_units(np.concatenate([self.units, present]))
        periods = np.zeros(len(units), np.int64)
        known = len(self.units)
        periods[codes[:known]] = self.periods
        counted: Flags = periods[codes[known:]] < most
        periods[codes[known:][counted]] += 1
        return counted, CountedUnits(units=units, periods=periods)

    def to_bytes(self, size: int = 0) -> bytes:
        """Write the units and their numbers.

        Args:
            size: the number of units to whose size zeros fill it up.
        """
        size = max(size, len(self.units))
        ids = np.zeros((size, 2), "<u8")
        numbers = np.zeros(size, _NUMBER)
        ids[: len(self.units)], numbers[: len(self.units)] = self.units, self.periods - 1
        used = np.array([len(self.units)], "<u8")
        return used.tobytes() + ids.tobytes() + numbers.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> CountedUnits:
        """The inverse of `to_bytes`."""
        (used,) = np.frombuffer(data, "<u8", count=1)
        size = (len(data) - 8) // 18
        ids = np.frombuffer(data, "<u8", count=2 * size, offset=8).reshape(-1, 2)
        numbers = np.frombuffer(data, _NUMBER, count=size, offset=8 + 16 * size)
        return cls(
            units=ids[: int(used)].astype(np.uint64),
            periods=numbers[: int(used)].astype(np.int64) + 1,
        )

    def digest(self, key: ReleaseKey, release: str, tree: str, shard: int) -> int:
        """A keyed digest, to be summed with the digests of the counts (`dpcore.noise.source`).

        Args:
            key: the release key.
            release: its id.
            tree, shard: whose units these are.
        """
        numbers = np.concatenate([self.units.view(np.int64).ravel(), self.periods])
        # No place of counts has a group below 0.
        return counts_digest(key, release, tree, _GROUP, shard, numbers)
