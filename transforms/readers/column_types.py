"""The types in which columns are read that a file, or its path, holds as texts."""

from collections.abc import Collection

import pyarrow as pa

from dpcore.privacy.unit import NullUnits
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
            privacy unit as other than text, and rows without a unit are each their own: many rows
            of one text that is no such value would be many units.
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
    for column in plan.unit.columns if plan.unit.nulls is NullUnits.OWN else ():
        if types.get(column, pa.string()) not in (pa.string(), pa.large_string()):
            raise InputError(
                f"privacy.null_unit: own does not go with the {of} column {column!r}, which names "
                f"the unit and is read as {types[column]} by a tree: a text that is none would be "
                "as many units as it has rows; drop them, or write Parquet"
            )
    # Of a unit what the file says is enough.
    return dict.fromkeys(plan.unit.columns, pa.string()) | types


def _value_types(question: Question) -> dict[str, pa.DataType]:
    try:
        return question.value_types
    except ValueError as error:
        raise InputError(f"trees: {question.name}: {error}") from None
