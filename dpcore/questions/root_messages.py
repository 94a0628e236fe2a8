"""Messages between the chunks, branches and spine of a tree of known leaves, as bytes.

up     z of roots, and their exact counts: of what the noise above is a function
down   the solution of each root
kept   the noisy counts of the levels of a chunk, or of a branch
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.questions.place import Place
from dptrees.dpcore.rows.packing import pack, pack_many, unpack, unpack_many
from dptrees.dpcore.trees.forest import Measurements, RootSolutions


def pack_roots(roots: Floats, totals: Integers) -> bytes:
    """Pack the message up from a chunk, or from a branch.

    Args:
        roots: (units,) z of its roots; of adaptive trees (units, 2), z and a.
        totals: (units,) their exact counts.
    """
    return pack_many([roots.tobytes(), pack(totals)])


@dataclass(frozen=True, kw_only=True, eq=False)
class SentRoots:
    """The messages up from several places, in the order of leaf ids.

    Attributes:
        places: in this order.
        stops: after how many roots the roots of each place end.
        roots: (n,) z of all roots; or (n, 2), z and a.
        totals: (n,) their exact counts.

    >>> one = pack_roots(np.array([.5]), np.array([1]))
    >>> two = pack_roots(np.ones(2), np.zeros(2, int))
    >>> sent = SentRoots.from_messages({Place(0, 1): two, Place(0, 0): one})
    >>> sent.roots.tolist(), sent.totals.tolist(), sent.stops
    ([0.5, 1.0, 1.0], [1, 0, 0], [1, 3])
    """

    places: Sequence[Place]
    stops: Sequence[int]
    roots: Floats
    totals: Integers

    @classmethod
    def from_messages(cls, sent: Mapping[Place, bytes]) -> SentRoots:
        """Read the messages of places, from `pack_roots`."""
        # The numbers of branches fall from -2 on.
        places = sorted(sent, key=lambda place: (place.group, abs(place.number)))
        messages = [unpack_many(sent[place]) for place in places]
        roots = np.concatenate([np.frombuffer(each) for each, _ in messages])
        totals = [unpack(each) for _, each in messages]
        stops = np.cumsum([len(each) for each in totals]).tolist()
        return cls(
            places=places,
            stops=stops,
            roots=roots if len(roots) == stops[-1] else roots.reshape(stops[-1], -1),
            totals=np.concatenate(totals),
        )


def pack_solutions(
    solutions: RootSolutions, places: Sequence[Place], stops: Sequence[int]
) -> dict[Place, bytes]:
    """Pack the messages down to each place.

    Args:
        solutions: of all roots.
        places: in the order of leaf ids.
        stops: after how many roots the roots of each place end.
    """
    starts = [0, *stops[:-1]]
    return {
        place: solutions.slice(start, stop).to_array().tobytes()
        for place, start, stop in zip(places, starts, stops, strict=True)
    }


def unpack_solutions(returned: bytes, kind: type[RootSolutions] = RootSolutions) -> RootSolutions:
    """Unpack the message down to a place, about its roots."""
    array = np.frombuffer(returned, dtype=np.int64)
    return kind.from_array(array.reshape(kind.width(), -1))


def pack_measured(measured: Measurements) -> bytes:
    """The noisy counts of levels."""
    return pack_many([b"" if level is None else pack(level) for level in measured])


def unpack_measured(kept: bytes, rows: int) -> Measurements:
    """The inverse of `pack_measured`, per level (rows, n)."""
    return [unpack(level).reshape(rows, -1) if level else None for level in unpack_many(kept)]
