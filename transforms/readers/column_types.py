"""The types in which columns are read that a file, or its path, holds as texts."""

from collections.abc import Collection

import pyarrow as pa

from dpcore.questions.question import Question
from dpcore.release.plan import ReleasePlan
from transforms.errors import InputError


def column_types(
    plan: ReleasePlan, *, of: str = "CSV", only: Collection[str] | None = None
) -> dict[str, pa.DataType]:
    """The type in which each column is read: that of the values of its domain or key list.

    Args:
        plan: whose columns they are.
        of: what tells no types, for messages.
        only: the columns of which it is asked; None: all.

    Raises:
        InputError: two trees read one column as different types; or a tree reads a column of the
            privacy unit as other than text: values of that type may be rounded, so that two units
            became one, and rows of one text that is no such value would be many units.
    """
    types: dict[str, pa.DataType] = {}
    for question in plan.questions:
        for column, wanted in _value_types(question).items():
            if only is not None and column not in only:
                continue
            if types.setdefault(column, wanted) != wanted:
                raise InputError(
                    f"trees: the {of} column {column!r} is read as {types[column]} by one tree and "
                    f"as {wanted} by another"
                )
    for question in plan.questions:
        for column in set(plan.unit.columns) & set(number_columns(question)):
            if only is None or column in only:
                raise InputError(
                    f"privacy.unit: the {of} column {column!r} names the unit, whose text is read "
                    f"exactly, but tree {question.name} reads it as {types[column]}, which may "
                    "round: give the tree a second column of the same values, or write Parquet"
                )
    # Of a unit what the file says is enough.
    return dict.fromkeys(plan.unit.columns, pa.string()) | types


def number_columns(question: Question) -> list[str]:
    """Return the columns that a tree reads as values of another type than text.

    Raises:
        InputError: the tree has no types of its own.
    """
    texts = (pa.string(), pa.large_string())
    return [column for column, type in _value_types(question).items() if type not in texts]


def _value_types(question: Question) -> dict[str, pa.DataType]:
    try:
        return question.value_types
    except ValueError as error:
        raise InputError(f"trees: {question.name}: {error}") from None
