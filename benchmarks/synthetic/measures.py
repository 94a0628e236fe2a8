"""How far a generator, as a partition or a sample, is from the data.

W1 in one column is the integral of |F - G| (Vallender), exact for a sample against a partition.
In more columns: sliced W1 and the optimal assignment between samples, and an upper bound of W1
against a partition itself by a tree metric that dominates l-infinity. Beside them the
Kolmogorov-Smirnov distance of the worst column, and the error of fractions of boxes.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from benchmarks.synthetic.grown_tree import Partition, box_intervals, depth, encode_points
from dptrees.dpcore.arrays import Floats

# Ground metrics by the names that SciPy gives them; Holland et al. have l-infinity.
METRICS = {"linf": "chebyshev", "l1": "cityblock", "l2": "euclidean"}
# Distances that one assignment may hold at once, a gigabyte.
MOST_PAIRS = 2**27
BLOCK = 2**22


def marginal(partition: Partition, column: int) -> tuple[Floats, Floats]:
    """The distribution function of a column: (e,) edges, (e,) its values there, linear between."""
    low, high = partition.lower[:, column], partition.upper[:, column]
    edges, place = np.unique(np.concatenate((low, high)), return_inverse=True)
    density = partition.probability / (high - low)
    steps = np.bincount(place, np.concatenate((density, -density)), edges.size)
    rises = np.maximum(np.cumsum(steps)[:-1], 0) * np.diff(edges)
    cumulative = np.concatenate(([0.0], np.cumsum(rises)))
    return edges, cumulative / cumulative[-1]


def line_distance(sample: Floats, partition: Partition) -> float:
    """W1 of (n, 1) points and a partition of [0, 1], exact but for rounding.

    >>> whole = Partition(lower=np.zeros((1, 1)), upper=np.ones((1, 1)), mass=np.ones(1))
    >>> line_distance(np.array([[0.5]]), whole)
    0.25
    """
    if sample.shape[1] != 1 or partition.dimensions != 1:
        raise ValueError("the distance on a line is of one column")
    values = np.sort(sample[:, 0])
    edges, cumulative = marginal(partition, 0)
    points = np.sort(np.concatenate((values, edges)))
    below = np.searchsorted(values, points[:-1], side="right") / values.size
    released = np.interp(points, edges, cumulative)
    left, right = released[:-1] - below, released[1:] - below
    crossing = left * right < 0
    spread = np.where(crossing, np.abs(left - right), 1.0)
    mean = np.where(crossing, (left**2 + right**2) / (2 * spread), np.abs(left + right) / 2)
    return float(mean @ np.diff(points))


def sliced_distance(
    sample: Floats, other: Floats, *, rng: np.random.Generator, directions: int = 100
) -> float:
    """The mean W1 of projections of two samples on random directions (Bonneel et al.)."""
    turns = rng.standard_normal((directions, sample.shape[1]))
    turns /= np.linalg.norm(turns, axis=1, keepdims=True)
    return float(np.mean([wasserstein_distance(sample @ turn, other @ turn) for turn in turns]))


def transport_distance(sample: Floats, other: Floats, *, metric: str = "linf") -> float:
    """W1 of two samples of equal size: the best assignment, which is the best transport (Birkhoff).

    Args:
        sample: (n, d).
        other: (n, d).
        metric: of `METRICS`.

    Raises:
        ValueError: sizes differ, or their distances do not fit in memory.
    """
    if len(sample) != len(other):
        raise ValueError(f"samples have {len(sample)} and {len(other)} points")
    if len(sample) ** 2 > MOST_PAIRS:
        raise ValueError(f"{len(sample)}^2 distances are more than {MOST_PAIRS}")
    distances = cdist(sample, other, METRICS[metric])
    return float(distances[linear_sum_assignment(distances)].mean())


def tree_bound(sample: Floats, partition: Partition, *, rounds: int | None = None) -> float:
    """An upper bound of W1 in l-infinity, exact in what it bounds by: no sampling.

    Points whose last common node has sides 2^-j are at most 2^-j apart. The tree with edges of
    2^-(j+1) above the cells of side 2^-j, j = 1, ..., J, puts leaves 2^-j - 2^-J apart, so

        W1 <= sum_j 2^-j * 1/2 sum_cells |P(cell) - Q(cell)| + 2^-J.

    Args:
        sample: (n, d) points.
        partition: whose boxes are nodes of the binary midpoint hierarchy.
        rounds: J; by default the first where the cells are more than the points.
    """
    dimensions = partition.dimensions
    most = depth(dimensions) // dimensions
    if rounds is None:
        rounds = min(most, 1 + int(np.ceil(np.log2(len(sample)) / dimensions)))
    first, last = box_intervals(partition)
    order = np.argsort(first)
    edges = np.stack((first[order], last[order]), axis=1).ravel()
    ends = np.cumsum(partition.probability[order])
    cumulative = np.stack((ends - partition.probability[order], ends), axis=1).ravel()
    codes = np.sort(encode_points(sample))
    total = 2.0**-rounds
    for level in range(1, rounds + 1):
        bits = level * dimensions
        cells, counts = np.unique(codes >> depth(dimensions) - bits, return_counts=True)
        mass = np.interp((cells + 1) / 2.0**bits, edges, cumulative)
        mass -= np.interp(cells / 2.0**bits, edges, cumulative)
        apart = np.abs(mass - counts / codes.size).sum() + max(0.0, 1 - mass.sum())
        total += 2.0**-level * apart / 2
    return float(total)


def kolmogorov_smirnov(sample: Floats, partition: Partition) -> float:
    """The largest |F - G| of any column, exact: G is continuous, so it is at a point of data."""
    return max(_column_gap(sample[:, each], partition, each) for each in range(sample.shape[1]))


def _column_gap(values: Floats, partition: Partition, column: int) -> float:
    points, counts = np.unique(values, return_counts=True)
    upper = np.cumsum(counts) / values.size
    released = np.interp(points, *marginal(partition, column))
    lower = upper - counts / values.size
    return float(max(np.abs(upper - released).max(), np.abs(lower - released).max()))


def random_boxes(rng: np.random.Generator, boxes: int, dimensions: int) -> tuple[Floats, Floats]:
    """(boxes, d) and (boxes, d): corners, in each column two sorted uniform numbers."""
    ends = np.sort(rng.random((2, boxes, dimensions)), axis=0)
    return ends[0], ends[1]


def box_errors(sample: Floats, partition: Partition, boxes: tuple[Floats, Floats]) -> Floats:
    """(q,) by how much the released fraction of each box is off, in absolute value.

    The partition's fraction is by exact volumes of overlap, the data's by counting.
    """
    return np.abs(released_fractions(partition, boxes) - sample_fractions(sample, boxes))


def released_fractions(partition: Partition, boxes: tuple[Floats, Floats]) -> Floats:
    """(q,) the probability of each box."""
    sides = partition.upper - partition.lower
    found = np.empty(len(boxes[0]))
    step = max(1, BLOCK // len(sides))
    for start in range(0, len(found), step):
        low, high = (corner[start : start + step, None] for corner in boxes)
        share = np.ones((low.shape[0], len(sides)))
        for column in range(partition.dimensions):
            upper = np.minimum(high[..., column], partition.upper[:, column])
            lower = np.maximum(low[..., column], partition.lower[:, column])
            share *= np.maximum(upper - lower, 0) / sides[:, column]
        found[start : start + step] = share @ partition.probability
    return found


def sample_fractions(sample: Floats, boxes: tuple[Floats, Floats]) -> Floats:
    """(q,) the fraction of points in each box."""
    found = np.empty(len(boxes[0]))
    step = max(1, BLOCK // len(sample))
    for start in range(0, len(found), step):
        low, high = (corner[start : start + step, None] for corner in boxes)
        inside = np.ones((low.shape[0], len(sample)), bool)
        for column in range(sample.shape[1]):
            values = sample[:, column]
            inside &= (low[..., column] <= values) & (values <= high[..., column])
        found[start : start + step] = inside.mean(axis=1)
    return found
