"""What every forest offers: trees, one per key, cut in chunks that any worker measures and solves.

    measure      exact counts of a chunk -> noisy counts of its levels
    chunk_roots  noisy counts of a chunk -> z of its subtrees' roots, for the spine
    solve_spine  z of all roots of a key -> estimates of the spine, and each root's solution

How a chunk is solved differs with what is asked of it (`dpcore.questions.answers`).
`dpcore.uniform.forest` has the trees of equal fan-outs, `dpcore.irregular.forest` all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from dpcore.noise.source import Integers, NoiseSource
from dpcore.trees.least_squares import Floats
from dpcore.uniform.forest import LevelSolution, Measurements, RootSolutions


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
