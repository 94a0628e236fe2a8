"""The errors that tables of adaptive trees should tell, from the shapes and estimates in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from dpcore.adaptive.drawn_trees import DrawnTrees, listed_of
from dpcore.adaptive.plan import AdaptivePlan
from dpcore.adaptive.roots import DrawnPrefixes
from dpcore.questions.intervals import Intervals
from dpcore.questions.mechanism import ReportedErrors
from dpcore.questions.tables import CDF, ERROR_COLUMNS, NODES
from dpcore.trees.forest import LevelSolution


def told_of_nodes(
    plan: AdaptivePlan,
    keys: int,
    nodes: pa.Table,
    intervals: Callable[[LevelSolution, float | None], Intervals],
) -> tuple[DrawnTrees, float | None, Iterator[ReportedErrors]]:
    """Return the drawn trees, the public number of rows, and the stated errors of all nodes by
    level.

    Args:
        plan: of the trees.
        keys: how many they are.
        nodes: their rows.
        intervals: of a solved level.

    Raises:
        ValueError: as `DrawnTrees`.
    """
    listed = {
        column: listed_of(plan.tree.height, keys, nodes, column)
        for column in ("ended", "estimate", *ERROR_COLUMNS)
    }
    drawn = DrawnTrees.of_listed(plan, keys, listed["ended"])
    levels = drawn.levels(listed["estimate"])
    total = float(levels[0].estimate[0, 0]) if plan.public_total else None

    def told() -> Iterator[ReportedErrors]:
        for level, solved in enumerate(levels):
            at = listed["estimate"][level][0]
            estimate, error, low, high = (each[:, at] for each in intervals(solved, total))
            found = [listed[column][level][1] for column in ERROR_COLUMNS]
            yield NODES, (estimate, error, low, high), found

    return drawn, total, told()


def told_of_points(
    drawn: DrawnTrees,
    points: pa.Table,
    intervals: Callable[[DrawnPrefixes], Intervals],
) -> ReportedErrors:
    """Return the stated errors of the points of the CDFs.

    Args:
        drawn: the trees.
        points: their rows, in the order of keys and leaves.
        intervals: of solved prefixes.
    """
    estimate, *found = (
        np.asarray(points[column].fill_null(-1.0).to_numpy().reshape(len(drawn.ended[0]), -1))
        for column in ("estimate", *ERROR_COLUMNS)
    )
    return CDF, intervals(drawn.prefixes(estimate)), found
