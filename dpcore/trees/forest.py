"""Interface of every forest: trees, one per key, cut in chunks that any worker measures and solves.

    measure      exact counts of a chunk -> noisy counts of its levels
    chunk_roots  noisy counts of a chunk -> z of its subtrees' roots, for the spine
    solve_spine  z of all roots of a key -> estimates of the spine, and each root's solution
    solve        noisy counts of a chunk, its roots' solution -> estimates, variances, counts

Each step is a pure function of its arguments, so any worker can run it on any chunk.

Implemented by `dpcore.uniform.forest` (equal fan-outs) and `dpcore.irregular.forest` (any), both by
`dpcore.trees.linear_forest`; by `dpcore.irregular.as_measured`; and, for mechanisms that need a
whole tree at once (`dpcore.trees.whole_trees`), by `dpcore.thresholds.forest` and
`dpcore.papers.forest`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Protocol, TypeVar

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.trees.chunks import SPINE as SPINE
from dptrees.dpcore.trees.chunks import Chunk, Chunking

Measurements = list[Integers | None]
Roots = TypeVar("Roots", bound="RootSolutions")


class Forest(Protocol):
    """The trees of one plan, one per key."""

    @property
    def chunking(self) -> Chunking:
        """The cut into chunks."""

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The noisy counts of the chunk's levels.

        Args:
            tree: the name of the tree.
            chunk: which one.
            counts: (leaves of the chunk,) exact.
            noise: the source.

        Returns:
            per level from the split level down, (rows, n) or None where not measured.
        """

    def chunk_totals(self, chunk: Chunk, counts: Integers) -> Integers:
        """(units,) the exact counts of the roots of the chunk's subtrees, from its leaves'."""

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        """(units,) z of the roots of the chunk's subtrees."""

    def solve_spine(
        self, tree: str, key: int, roots: Floats, totals: Integers, noise: NoiseSource
    ) -> tuple[RootSolutions, list[LevelSolution]]:
        """Solve the levels above the chunks.

        Args:
            tree: the name of the tree.
            key: the code of the (first) key.
            roots: (trees * spine leaves,) z of all subtrees' roots, in the order of leaf ids.
            totals: the same shape, their exact counts.
            noise: the source, for the spine's own levels.

        Returns:
            the solution of every root, same order; and of the levels above the split level.
        """

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution | None]:
        """Solve the levels of a chunk, from the split level to the leaves.

        Args:
            chunk: which one.
            measurements: from `measure`.
            roots: (units,) the solutions of its subtrees' roots.

        Returns:
            per level, (rows, n); and the prefixes that end in the chunk, None where leaves have no
            order.
        """


@dataclass(frozen=True, kw_only=True, eq=False)
class RootSolutions:
    """The state of the rest of the tree that a chunk needs, (units,) each, for its subtrees' roots.

    Attributes:
        estimate: u of the root; before, of all leaves left of it; total, of the whole tree.
        count: the final count of the root; before_count, of all left of it; total_count, of all.
    """

    integers: ClassVar[tuple[str, ...]] = ("count", "before_count", "total_count")

    estimate: Floats
    before: Floats
    total: Floats
    count: Integers
    before_count: Integers
    total_count: Integers

    @classmethod
    def from_spine(cls, estimates: list[Floats], counts: list[Integers]) -> RootSolutions:
        """The solutions of the spine's leaves, in the order of leaf ids."""
        last, final = estimates[-1], counts[-1]
        return cls(
            estimate=last.reshape(-1),
            before=(np.cumsum(last, axis=-1) - last).reshape(-1),
            total=np.broadcast_to(estimates[0], last.shape).reshape(-1),
            count=final.reshape(-1),
            before_count=(np.cumsum(final, axis=-1) - final).reshape(-1),
            total_count=np.broadcast_to(counts[0], final.shape).reshape(-1),
        )

    @classmethod
    def from_branch(cls, leaves: LevelSolution, roots: RootSolutions) -> RootSolutions:
        """Solutions of a branch's leaves, in their order, from the solutions of its roots."""
        estimate, count = leaves.estimate.reshape(-1), leaves.count.reshape(-1)
        return cls(
            estimate=estimate,
            before=roots.before[0] + np.cumsum(estimate) - estimate,
            total=np.full(len(estimate), roots.total[0]),
            count=count,
            before_count=roots.before_count[0] + np.cumsum(count) - count,
            total_count=np.full(len(count), roots.total_count[0]),
        )

    def with_counts(self: Roots, first: LevelSolution) -> Roots:
        """Return the roots with the counts that a chunk of whole trees came to itself; else as they
        are.

        Args:
            first: the chunk's first level.
        """
        if first.level:
            return self
        count = first.count.reshape(-1)
        return replace(self, count=count, total_count=count)

    def slice(self: Roots, start: int, stop: int) -> Roots:
        """The solutions of some of the roots."""
        return type(self)(**{f.name: getattr(self, f.name)[start:stop] for f in fields(self)})

    def to_array(self) -> Integers:
        """(fields, units) int64; floats keep their bits."""
        return np.stack([getattr(self, field.name).view(np.int64) for field in fields(self)])

    @classmethod
    def width(cls) -> int:
        """The number of fields, the rows of `to_array`."""
        return len(fields(cls))

    @classmethod
    def from_array(cls: type[Roots], array: Integers) -> Roots:
        """The inverse of `to_array`."""
        names = [field.name for field in fields(cls)]
        return cls(
            **{
                name: row if name in cls.integers else row.view(np.float64)
                for name, row in zip(names, array, strict=True)
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelSolution:
    """The answer for some nodes of one level, (rows, n) each."""

    level: int
    first_node: int
    estimate: Floats
    variance: Floats
    count: Integers


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixSolution:
    """The answer for the prefixes that end in a chunk, (rows, leaves) each.

    Attributes:
        estimate: of the count of all leaves up to and with this one.
        variance: of this estimate, and alpha, the coefficient of the whole tree's estimate in it.
        count: the final count of the same leaves.
    """

    estimate: Floats
    variance: Floats
    alpha: Floats
    count: Integers


def level_solutions(
    first_level: int,
    ranges: list[tuple[int, int]],
    estimates: list[Floats],
    variances: list[Floats],
    counts: list[Integers],
) -> list[LevelSolution]:
    """The answers of consecutive levels.

    Args:
        first_level: the uppermost.
        ranges: per level, the nodes.
        estimates, counts: per level, (rows, n).
        variances: per level, of a shape that broadcasts to it.
    """
    return [
        LevelSolution(
            level=first_level + depth,
            first_node=first,
            estimate=estimates[depth],
            variance=np.broadcast_to(variances[depth], estimates[depth].shape),
            count=counts[depth],
        )
        for depth, (first, _) in enumerate(ranges)
    ]
