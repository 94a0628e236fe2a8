"""Adaptive trees of a release: the shapes that came out are possible, and errors follow from them.

Standard errors and intervals are computed anew from the column ``ended``, which is the shape, from
the plan, and from the estimates that the intervals are around.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.questions.messages import Part
from dptrees.dpcore.questions.planning import ReportedErrors
from dptrees.dpcore.questions.released import CDF, ERROR_COLUMNS, NODES
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.trees.chunks import SPINE
from dptrees.pipelines.proof.check import CheckFailed

_TOLERANCE, _ROUNDING = 1e-6, 1e-9

ReadRows = Callable[[Part], pa.Table]


def check_drawn(question: TreeQuestion[Any], read: ReadRows) -> None:
    """Check that the errors in the tables of an adaptive tree follow from the released trees.

    Args:
        question: the tree.
        read: gives the rows of its parts, whose public columns match the specification.

    Raises:
        CheckFailed: they are not.
    """
    for keys, nodes, points in _groups(question, read):
        try:
            for reported in question.mechanism.reported_errors(question.rule, keys, nodes, points):
                _compare(question, reported)
        except ValueError as error:
            raise CheckFailed(f"tree {question.name}: {error}") from None


def _groups(
    question: TreeQuestion[Any], read: ReadRows
) -> Iterator[tuple[int, pa.Table, pa.Table | None]]:
    """Some keys at a time: how many, the rows of all their nodes, and the points of their CDF."""
    chunking = question.forest.chunking
    spine = [SPINE] if chunking.spine.height else []
    for first, places in groupby(question.places, key=lambda place: place.group):
        numbers = [place.number for place in places]
        keys = 1 if chunking.split_level else chunking[chunking.number(first, 0)].rows

        def together(kind: str, of: Sequence[int], first: int = first) -> pa.Table:
            parts = (Part(kind=kind, tree=question.name, key=first, index=each) for each in of)
            return pa.concat_tables(map(read, parts))

        points = together(CDF, numbers) if CDF in question.tables else None
        yield keys, together(NODES, [*spine, *numbers]), points


def _compare(question: TreeQuestion[Any], reported: ReportedErrors) -> None:
    kind, expected, found = reported
    exact = _ROUNDING * (1.0 + np.abs(expected[0]))  # ends are differences of such numbers
    for column, one, other in zip(ERROR_COLUMNS, expected[1:], found, strict=True):
        known = np.nan_to_num(one, nan=-1.0)
        relative = np.abs(known) if column == "std_error" else 1.0
        if not (np.abs(known - other) <= exact + _TOLERANCE * relative).all():
            raise CheckFailed(
                f"{kind} of tree {question.name}: {column} is not that of the resulting tree"
            )
