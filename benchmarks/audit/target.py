"""A tiny release to attack: its plan, its claim, and two neighboring data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.audit.claim import Claim
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.release.in_memory import release_counts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.release import ReleaseReader

NAME = "tree"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A release and two data sets.

    Args:
        plan: the release.
        claim: what it claims.
        one, two: the exact counts of the leaves; of a sparse tree by the path of the leaf, of a box
            by the code of the cell.
        read: the released numbers of a release, as many for each.
        cost: of how many times fewer releases than of others it is judged, as they take longer.
    """

    plan: ReleasePlan
    claim: Claim
    one: Mapping[Any, int] | tuple[int, ...]
    two: Mapping[Any, int] | tuple[int, ...]
    read: Callable[[ReleaseReader], Floats] = field(repr=False)
    cost: int = 1

    def released(self, which: str, key: ReleaseKey) -> Floats:
        """Return the released numbers of one release of a data set.

        Args:
            which: as for `data`.
            key: the release key, which no other release has.
        """
        return self.read(release_counts(plan=self.plan, key=key, **self.data(which)))

    def data(self, which: str) -> dict[str, Any]:
        """The arguments of `release_counts` for a data set.

        Args:
            which: "one", "two", or "twice": as two, but with the row that one lacks twice.
        """
        if isinstance(self.one, tuple):
            assert isinstance(self.two, tuple)
            one, two = (np.array(counts, np.int64) for counts in (self.one, self.two))
            counts = {"one": one, "two": two, "twice": 2 * two - one}[which]
            return {"counts": {NAME: counts}}
        assert not isinstance(self.two, tuple)
        doubled = {path: 2 * n - self.one.get(path, 0) for path, n in self.two.items()}
        chosen = {"one": self.one, "two": self.two, "twice": doubled}[which]
        return {"counts": {NAME: node_counts(chosen)}}


def node_counts(counts: Mapping[Any, int]) -> NodeCounts:
    """Return the exact counts of nodes by their labels or codes."""
    keys = sorted(counts)
    return NodeCounts(
        keys=pa.array(keys, pa.large_string() if isinstance(keys[0], str) else pa.uint64()),
        counts=np.array([counts[key] for key in keys], np.int64),
    )
