"""Growing a partition: which nodes are split, level by level.

Source: Holland, Camtepe, Thapa, Xue, Algorithm 3 (corrected: top-k is over the level that was just
added, and the loop ends at the finest level); Biswas, Cormode, Kanza, Srivastava, Zhou for the
threshold n / k (the paper's Appendix D); the threshold by noise is derived here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.partitions.consistency import GrowthConsistency, Running
from dptrees.dpcore.partitions.measurement import MeasuredNodes, Measurement
from dptrees.dpcore.partitions.tree import GrownLevel, GrownTree, Hierarchy, Nodes, descendant_nodes


@dataclass(frozen=True, kw_only=True)
class GrowthRule(Coded):
    """Rule that selects the nodes of a level to split, from their running estimates.

    Args:
        most: k, how many nodes of a level are split at most, those with the largest counts; at
            least 1.
        parts: a node is split only if it has at least 1 / parts of all rows (hierarchical heavy
            hitters, threshold n / k); None: no such threshold.
        errors: a node is split only if its estimate exceeds so many standard errors of the counts
            of its children, one of them; 0 or more; None: no such threshold. Of the root, whose
            estimate may be nothing, it is not measured.

    Raises:
        ValueError: a field out of range.

    >>> rule = GrowthRule(most=2, errors=2.0)
    >>> rule.chosen(np.array([9.0, 2.0, 5.0, 7.0]), 23.0, 1.5).tolist()
    [0, 3]
    """

    most: int
    parts: int | None = None
    errors: float | None = None

    def __post_init__(self) -> None:
        for name in ("most", "parts"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not at least 1")
        if self.errors is not None and not 0 <= self.errors < np.inf:
            raise ValueError(f"errors: {self.errors} is not a number of at least 0")

    def chosen(self, count: Floats, total: float, error: float | None) -> Integers:
        """(m,) the places of the nodes of a level that are split, rising.

        Args:
            count: (n,) the running estimates of those that can be split; NaN of the others.
            total: the running estimate of the root.
            error: the standard error of a count of the next level; None: of the root.
        """
        has_test = self.errors is not None and error is not None
        least = self.errors * error if has_test else -np.inf  # type: ignore[operator]
        places = np.flatnonzero(count > least)
        if self.parts is not None:
            places = places[count[places] >= max(total, 0.0) / self.parts]
        if len(places) > self.most:
            order = np.argsort(-count[places], kind="stable")
            places = np.sort(places[order[: self.most]])
        return places


def grow(
    hierarchy: Hierarchy,
    depths: Sequence[int],
    measurement: Measurement,
    rule: GrowthRule,
    consistency: GrowthConsistency,
) -> tuple[GrownTree, list[Running]]:
    """Grow a partition from the root.

    Args:
        hierarchy: the domain.
        depths: (h + 1,) of the levels, in bits, the root's 0 first, rising.
        measurement: noisy counts of any node of any level.
        rule: which nodes are split.
        consistency: how the counts that decide are estimated.

    Returns:
        the tree; and for each of its levels the estimates that decided.

    Source: Algorithm 3; see the docstring of this module.
    """
    root = np.zeros(1, np.uint64)
    measured = measurement.at(0, 0, root)
    levels = [_level(0, root, np.zeros(1, np.int64), measured)]
    running = [consistency.root(*measured)]
    for level, depth in enumerate(depths[1:], 1):
        last = levels[-1]
        divisible = hierarchy.is_divisible(last.depth, last.nodes)
        count = np.where(divisible, running[-1].estimate, np.nan)
        error = math.sqrt(measurement.variance(level)) if level > 1 else None
        places = rule.chosen(count, float(running[0].estimate[0]), error)
        if not len(places):
            break
        own = _split(hierarchy, measurement, level, depth, last.nodes[places], last.depth)
        fanout = 1 << (depth - last.depth)
        below = consistency.children(
            Running(*(values[places] for values in running[-1])),
            own.value.reshape(-1, fanout),
            own.variance.reshape(-1, fanout),
        )
        nodes = descendant_nodes(last.nodes[places], depth - last.depth)
        levels.append(_level(depth, nodes, np.repeat(places, fanout), own))
        running.append(Running(*(values.reshape(-1) for values in below)))
    return GrownTree(levels=tuple(levels)), running


def _split(
    hierarchy: Hierarchy,
    measurement: Measurement,
    level: int,
    depth: int,
    parents: Nodes,
    above: int,
) -> MeasuredNodes:
    """Measurements of the children of nodes; 0, and known, where no row can be."""
    nodes = descendant_nodes(parents, depth - above)
    filled = hierarchy.has_cells(depth, nodes)
    value, variance = np.zeros(len(nodes)), np.zeros(len(nodes))
    value[filled], variance[filled] = measurement.at(level, depth, nodes[filled])
    return MeasuredNodes(value, variance)


def _level(depth: int, nodes: Nodes, parents: Integers, measured: MeasuredNodes) -> GrownLevel:
    return GrownLevel(
        depth=depth,
        nodes=nodes,
        parents=parents,
        value=measured.value,
        variance=measured.variance,
    )
