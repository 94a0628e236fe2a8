"""The errors that tables of adaptive trees must have, from the shapes and estimates in them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from dptrees.dpcore.adaptive.drawn_trees import DrawnTrees, listed_nodes
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.questions.intervals import IntervalRule
from dptrees.dpcore.questions.mechanism import ReportedErrors
from dptrees.dpcore.questions.tables import CDF, ERROR_COLUMNS, NODES


def node_errors(
    plan: AdaptivePlan,
    keys: int,
    nodes: pa.Table,
    rule: IntervalRule,
) -> tuple[DrawnTrees, float | None, Iterator[ReportedErrors]]:
    """Return the drawn trees, the public number of rows, and the stated errors of all nodes by
    level.

    Args:
        plan: of the trees.
        keys: how many they are.
        nodes: their rows.
        rule: the intervals of the release.

    Raises:
        ValueError: as `DrawnTrees`.
    """
    listed = {
        column: listed_nodes(plan.tree.height, keys, nodes, column)
        for column in ("ended", "estimate", *ERROR_COLUMNS)
    }
    drawn = DrawnTrees.from_listed(plan, keys, listed["ended"])
    levels = drawn.levels(listed["estimate"])
    total = float(levels[0].estimate[0, 0]) if plan.public_total else None
    top = np.inf if total is None else total

    def by_level() -> Iterator[ReportedErrors]:
        for level, solved in enumerate(levels):
            at = listed["estimate"][level][0]
            estimate, error, low, high = (each[:, at] for each in rule.nodes(solved, 0.0, top))
            results = [listed[column][level][1] for column in ERROR_COLUMNS]
            yield NODES, (estimate, error, low, high), results

    return drawn, total, by_level()


def point_errors(
    drawn: DrawnTrees,
    points: pa.Table,
    total: float | None,
    rule: IntervalRule,
) -> ReportedErrors:
    """Return the stated errors of the points of the CDFs.

    Args:
        drawn: the trees.
        points: their rows, in the order of keys and leaves.
        total: the public number of rows, None where it is private.
        rule: the intervals of the release.
    """
    estimate, *found = (
        np.asarray(points[column].fill_null(-1.0).to_numpy().reshape(len(drawn.ended[0]), -1))
        for column in ("estimate", *ERROR_COLUMNS)
    )
    return CDF, rule.prefixes(drawn.prefixes(estimate), total), found
