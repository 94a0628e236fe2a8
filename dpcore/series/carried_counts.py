"""The exact counts of a place of a series: of its period, and what earlier periods carry on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import counts_digest
from dptrees.dpcore.questions.leaf_counts import ChunkCounts
from dptrees.dpcore.questions.place import Place
from dptrees.dpcore.rows.packing import pack, pack_many

# No partial counts of a tree whose leaves are known begin so: it would be a length of 4 GB.
CARRIED = b"\xff\xff\xff\xff"


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesCounts:
    """The exact counts of one place: of the period, and of every temporal node that holds it.

    Args:
        own: of the period.
        levels: of the nodes of the counted levels, (leaves,) each.
    """

    own: ChunkCounts
    levels: tuple[Integers, ...]

    @property
    def total(self) -> int:
        """Sum the counts of the period's rows; carried counts were balanced in their own run."""
        return self.own.total

    def to_bytes(self) -> bytes:
        return pack_many([pack(each) for each in self.levels])

    def digest(self, key: ReleaseKey, release: str, tree: str, place: Place) -> int:
        return counts_digest(key, release, tree, *place, np.concatenate(self.levels))


@dataclass(frozen=True, kw_only=True)
class CarriedCounts:
    """Exact counts at hand, as `SeriesQuestion.split_counts` takes them.

    Args:
        period: of the period, as the question of a level takes them.
        carried: by place, what runs before carried on (`SeriesQuestion.opened`), one message from
            each of `SeriesQuestion.state_runs`.
    """

    period: object
    carried: Mapping[Place, Sequence[bytes]]


def set_aside(
    partials: Iterable[bytes], carried: list[bytes], mark: bytes = CARRIED
) -> Iterator[bytes]:
    """The partial counts of the period's rows; what was carried on goes into a list.

    Args:
        partials: of a place, all together.
        carried: the list.
        mark: in front of what was carried on, and of no partial counts.
    """
    for data in partials:
        if data.startswith(mark):
            carried.append(data[len(mark) :])
        else:
            yield data
