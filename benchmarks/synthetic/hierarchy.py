"""The binary midpoint hierarchy of [0, 1]^d: level l halves column (l - 1) mod d.

A node of level l has a code of l bits; the codes of the deepest level order the points (Morton's
order), and a node is an interval of them. Holland et al., Section 9: the l-infinity diameter of a
node of level l is 2^-floor(l / d).
"""

from __future__ import annotations

import numpy as np

from benchmarks.synthetic.partition import Partition
from dptrees.dpcore.arrays import Floats, Integers


def depth(dimensions: int) -> int:
    """The deepest level: as many bits a column as 62 bits allow, and at most a float's 53."""
    return min(62 // dimensions, 53) * dimensions


def encode_points(points: Floats) -> Integers:
    """(n,) codes of the deepest level of (n, d) points in the cube; 1 belongs to the last cell.

    >>> level = depth(2) - 2
    >>> (encode_points(np.array([[0.0, 0.9], [0.9, 0.0]])) >> level).tolist()
    [1, 2]
    """
    dimensions = points.shape[1]
    bits = depth(dimensions) // dimensions
    cells = np.minimum((points * 2.0**bits).astype(np.int64), 2**bits - 1)
    codes = np.zeros(len(points), np.int64)
    for level in range(depth(dimensions)):
        bit = cells[:, level % dimensions] >> (bits - 1 - level // dimensions) & 1
        codes = codes << 1 | bit
    return codes


def make_partition(codes: Integers, levels: Integers, mass: Floats, dimensions: int) -> Partition:
    """The boxes of nodes.

    Args:
        codes: (m,) of nodes, each of its own level's number of bits.
        levels: (m,).
        mass: (m,).
        dimensions: d.
    """
    lower = np.zeros((len(codes), dimensions))
    upper = np.ones((len(codes), dimensions))
    for level in range(int(levels.max(initial=0))):
        inside = levels > level
        bit = codes >> np.maximum(levels - 1 - level, 0) & 1
        column = level % dimensions
        middle = (lower[:, column] + upper[:, column]) / 2
        lower[:, column] = np.where(inside & (bit == 1), middle, lower[:, column])
        upper[:, column] = np.where(inside & (bit == 0), middle, upper[:, column])
    return Partition(lower=lower, upper=upper, mass=mass)


def box_intervals(partition: Partition) -> tuple[Floats, Floats]:
    """(m,) and (m,): each box as an interval of codes, these as fractions of [0, 1].

    A uniform point of the box is uniform in the interval.

    Raises:
        ValueError: a box is no node of the hierarchy.
    """
    dimensions = partition.dimensions
    volume = np.prod(partition.upper - partition.lower, axis=1)
    first = encode_points(partition.lower) / 2.0 ** depth(dimensions)
    levels = np.round(-np.log2(volume)).astype(np.int64)
    codes = encode_points((partition.lower + partition.upper) / 2) >> depth(dimensions) - levels
    made = make_partition(codes, levels, partition.mass, dimensions)
    if not (
        np.array_equal(made.lower, partition.lower) and np.array_equal(made.upper, partition.upper)
    ):
        raise ValueError("a box is no node of the binary midpoint hierarchy")
    return first, first + volume


def diameters(levels: int, dimensions: int) -> Floats:
    """(levels + 1,) gamma_l of levels 0, ..., `levels` in l-infinity.

    >>> diameters(4, 2).tolist()
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    return 2.0 ** -(np.arange(levels + 1) // dimensions).astype(np.float64)
