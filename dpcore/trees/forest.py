"""What every forest offers: trees, one per key, cut in chunks that any worker measures and solves.

    measure      exact counts of a chunk -> noisy counts of its levels
    chunk_roots  noisy counts of a chunk -> z of its subtrees' roots, for the spine
    solve_spine  z of all roots of a key -> estimates of the spine, and each root's solution

How a chunk is solved differs with what is asked of it (`TreeQuestion.chunk_answer`).
`dpcore.uniform.forest` has the trees of equal fan-outs, `dpcore.irregular.forest` all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpcore.arrays import Floats, Integers
from dpcore.noise.source import NoiseSource


class AnyChunk(Protocol):
    """A run of leaves of one key, or of whole trees; see `dpcore.trees.chunks`."""

    @property
    def key(self) -> int:
        """The code of its (first) key."""

    @property
    def index(self) -> int:
        """Its place among the chunks of that key, 0 where chunks hold whole trees."""

    @property
    def start(self) -> int:
        """The global leaf id of its first leaf."""

    @property
    def leaves(self) -> int:
        """The leaves of all its subtrees."""

    @property
    def units(self) -> int:
        """The roots of its subtrees, over all its keys."""

    @property
    def rows(self) -> int:
        """The rows of an array of the chunk."""


class AnyChunking(Protocol):
    """The cut of a tree, once per key, into chunks."""

    @property
    def cells(self) -> int:
        """The leaves of all keys."""

    @property
    def split_level(self) -> int:
        """The level of the chunks' subtrees' roots: 0 where a chunk holds whole trees."""

    @property
    def chunks_per_key(self) -> int:
        """How many chunks a key has; 1 where chunks hold whole trees."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[AnyChunk]: ...

    def __getitem__(self, number: int, /) -> AnyChunk: ...

    def number(self, key: int, index: int) -> int:
        """The running number of the chunk that a key code and an index name."""

    def numbers(self, leaf_ids: Integers) -> Integers:
        """The running number of the chunk of each global leaf id, (n,) -> (n,)."""


class ChunkedForest(Protocol):
    """The trees of one plan, one per key. A chunk is one of the forest's own."""

    @property
    def chunking(self) -> AnyChunking:
        """The cut into chunks."""

    def measure(self, tree: str, chunk: Any, counts: Integers, noise: NoiseSource) -> Measurements:
        """The noisy counts of a chunk's levels from its leaves' exact counts, (leaves,)."""

    def chunk_totals(self, chunk: Any, counts: Integers) -> Integers:
        """(units,) the exact counts of the roots of a chunk's subtrees, from its leaves'."""

    def chunk_roots(self, chunk: Any, measurements: Measurements) -> Floats:
        """(units,) z of the roots of a chunk's subtrees."""

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """The solution of every chunk root of a key, and of the levels above."""


SPINE = -1
Measurements = list[Integers | None]


@dataclass(frozen=True, kw_only=True, eq=False)
class RootSolutions:
    """What a chunk needs to know of the rest of the tree, (units,) each, for its subtrees' roots.

    Attributes:
        estimate: u of the root; before, of all leaves left of it; total, of the whole tree.
        count: the final count of the root; before_count, of all left of it; total_count, of all.
    """

    estimate: Floats
    before: Floats
    total: Floats
    count: Integers
    before_count: Integers
    total_count: Integers

    def slice(self, start: int, stop: int) -> RootSolutions:
        """The solutions of some of the roots."""
        return RootSolutions(**{f.name: getattr(self, f.name)[start:stop] for f in fields(self)})

    def to_array(self) -> npt.NDArray[np.int64]:
        """(fields, units) int64; floats keep their bits."""
        return np.stack([getattr(self, field.name).view(np.int64) for field in fields(self)])

    @classmethod
    def width(cls) -> int:
        """The number of fields, the rows of `to_array`."""
        return len(fields(cls))

    @classmethod
    def from_array(cls, array: npt.NDArray[np.int64]) -> RootSolutions:
        """The inverse of `to_array`."""
        names = [field.name for field in fields(cls)]
        return cls(
            **{
                name: row if name.endswith("count") else row.view(np.float64)
                for name, row in zip(names, array, strict=True)
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelSolution:
    """The answer for some nodes of one level, (units, n) each."""

    level: int
    first_node: int
    estimate: Floats
    variance: Floats
    count: Integers
