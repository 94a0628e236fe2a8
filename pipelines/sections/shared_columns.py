"""Columns that several trees read: whether one type of column can serve them all.

A file says its types when it is read; that no type at all would do is known before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import pyarrow as pa

from dptrees.dpcore.questions.question import TreeColumns
from dptrees.pipelines.sections.error import RuleBroken

# One of each family of types that a reader gives.
_TYPES = (
    pa.int64(),
    pa.float64(),
    pa.decimal128(18, 2),
    pa.string(),
    pa.binary(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", tz="UTC"),
    pa.time64("us"),
    pa.duration("us"),
)


def check_shared_columns(questions: Sequence[TreeColumns]) -> None:
    """Refuse trees that read one column as incompatible types.

    Args:
        questions: of the trees, in their order.

    Raises:
        RuleBroken: at the later one of two trees, below the list of trees.
    """
    readers: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        for column in question.columns:
            readers.setdefault(column, []).append(index)
    for column, trees in readers.items():
        if len(trees) > 1:  # the check of a tree of millions of labels takes a while
            _check_column(column, {index: _refused(questions[index], column) for index in trees})


def _check_column(column: str, refused: Mapping[int, Mapping[pa.DataType, str]]) -> None:
    """Refuses two trees that read a column as no type in common.

    Args:
        column: by its name.
        refused: the types that each tree does not read it as, with what it says of them.
    """
    for (first, others), (index, own) in combinations(refused.items(), 2):
        if all(type in own or type in others for type in _TYPES):
            raise RuleBroken(
                f"no type of the column {column!r} serves this tree and trees[{first}]: here "
                f"{_needed(own.values())}, there {_needed(others.values())}",
                at=f"[{index}]",
            )


def _refused(question: TreeColumns, column: str) -> dict[pa.DataType, str]:
    """The types that a tree does not read a column as, with what it says of them; none where it
    says so of all, since then another column is at fault."""
    refused = dict(_refusals(question, column))
    return {} if len(refused) == len(_TYPES) else refused


def _refusals(question: TreeColumns, column: str) -> Iterator[tuple[pa.DataType, str]]:
    for type in _TYPES:
        try:
            question.check_types(dict.fromkeys(question.columns, pa.null()) | {column: type})
        except ValueError as error:
            yield type, str(error)


def _needed(sentences: Iterable[str]) -> str:
    """What a tree needs, from one of its refusals."""
    return next(iter(sentences)).rpartition(", but ")[2].removesuffix(".")
