"""All pairs of neighboring data sets of a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, permutations, product

import numpy as np

from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit

Row = tuple[int, int]  # key, cell
DROPPED: Row = (-1, -1)


def possible_rows(keys: int, cells: int, *, drops: bool) -> list[Row]:
    """Return every row that there may be; one that is dropped is a row."""
    rows = list(product(range(keys), range(cells)))
    return [*rows, DROPPED] if drops else rows


def neighbors(
    universe: Sequence[Row], relation: PrivacyUnit
) -> Iterator[tuple[tuple[Row, ...], tuple[Row, ...]]]:
    """Yield all pairs of neighboring data sets of at most 3 rows."""
    for size in range(3):
        for rows in combinations_with_replacement(universe, size):
            if relation.neighbors is Neighbors.ADD_REMOVE:
                yield from ((rows, (*rows, row)) for row in universe)
            else:
                pairs = permutations(universe, 2)
                yield from (((*rows, one), (*rows, other)) for one, other in pairs)


def norms(moves: np.ndarray) -> tuple[int, int]:
    """Return the largest L1 and squared L2 norm of rows."""
    return int(np.abs(moves).sum(axis=-1).max()), int((moves**2).sum(axis=-1).max())


def largest(
    sums: np.ndarray, neighbors: Neighbors, without: np.ndarray | int = 0
) -> tuple[int, int]:
    """Return the largest L1 and squared L2 distance between neighbors.

    Args:
        sums: (n, nodes) all sums that there may be with a unit.
        neighbors: whether the other one has no such unit, or another.
        without: the sums without the unit.
    """
    if neighbors is Neighbors.ADD_REMOVE:
        return norms(sums - without)
    found = [norms(sums - one) for one in sums]
    return max(l1 for l1, _ in found), max(l2 for _, l2 in found)
