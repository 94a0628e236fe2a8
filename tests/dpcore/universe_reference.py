"""What the tests of universes share: a plain Python reference of a tree, and a small fleet."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.leaf_codes import universe_from_table
from dptrees.dpcore.hierarchy.leaves import universe_from_columns
from dptrees.dpcore.hierarchy.universe import Universe

Leaf = tuple[str | int, ...]


def escaped(leaf: Leaf) -> str:
    """Return the path of a leaf, its labels joined by "/"."""
    return "/".join(str(part).replace("\\", "\\\\").replace("/", "\\/") for part in leaf)


def check_refused(make: Callable[[], object], message: str) -> None:
    """Check that something is refused in one line that holds a message."""
    with pytest.raises(ValueError) as refused:
        make()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def nodes_by_level(leaves: Sequence[Leaf]) -> list[list[tuple[str | int | None, ...]]]:
    """The nodes of every level in order: prefixes of the sorted leaves, continued with None."""
    height = max(map(len, leaves))
    padded = [leaf + (None,) * (height - len(leaf)) for leaf in sorted(leaves)]
    return [list(dict.fromkeys(leaf[:level] for leaf in padded)) for level in range(height + 1)]


def check_universe(
    universe: Universe, leaves: Sequence[Leaf], path_of: Callable[[Leaf], str]
) -> None:
    """Compare a whole universe with the reference: shape, labels, paths, depths, search."""
    levels = nodes_by_level(leaves)
    assert universe.level_sizes == tuple(map(len, levels))
    for level, nodes in enumerate(levels):
        ids = np.arange(len(nodes))
        real = [tuple(part for part in node if part is not None) for node in nodes]
        paths = [path_of(node) for node in real]
        assert universe.paths(level, ids).to_pylist() == paths
        assert universe.paths(level, ids[::-1]).to_pylist() == paths[::-1]
        if level > 0:
            first = [levels[level - 1].index(node[:-1]) for node in nodes]
            assert universe.parents(level, ids).tolist() == first
            starts = universe.child_starts[level - 1]
            assert starts.dtype == np.int64 and starts[0] == 0 and starts[-1] == len(nodes)
            assert np.repeat(np.arange(len(starts) - 1), np.diff(starts)).tolist() == first
            nulls = [label is None for label in universe.labels(level, ids).to_pylist()]
            assert nulls == [node[-1] is None for node in nodes]
        for node, here in zip(real, paths, strict=True):
            if len(node) == level:
                assert universe.find(here) == (level, nodes.index(node))
    depths = [sum(part is not None for part in leaf) for leaf in levels[-1]]
    assert universe.depths(np.arange(universe.leaves)).tolist() == depths
    check_restored(universe)


def check_restored(universe: Universe) -> None:
    table = universe.to_table()
    for restored in (universe_from_table(table), pickle.loads(pickle.dumps(universe))):
        assert restored == universe and hash(restored) == hash(universe)
        assert restored.to_table().equals(table, check_metadata=True)
        for mine, theirs in zip(universe.child_starts, restored.child_starts, strict=True):
            assert np.array_equal(mine, theirs)


def fleet(order: Sequence[int] = (0, 1, 2)) -> Universe:
    carrier, tail = pa.array(["UA", "AA", "UA"]), pa.array([7, 30, 5])
    rows = pa.array(order)
    return universe_from_columns({"carrier": carrier.take(rows), "tail": tail.take(rows)})
