"""The types in which columns are read that a file, or its path, holds as strings."""

from collections.abc import Collection, Mapping

import pyarrow as pa

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.errors import InputError

# Below it every whole number is a double of its own.
_DOUBLES = 2**53


def column_types(
    plan: ReleasePlan, *, of: str = "CSV", only: Collection[str] | None = None
) -> dict[str, pa.DataType]:
    """The type in which each column is read: that of the values of its domain or key list.

    Where one tree reads whole numbers of a range and another numbers, both read numbers, as of a
    Parquet column of doubles: every whole number of the range is one.

    Args:
        plan: whose columns they are.
        of: what declares no types, for messages.
        only: the columns concerned; None: all.

    Raises:
        InputError: two trees read one column as types that do not go together; or a tree reads a
            column of the privacy unit as other than text: values of that type may be rounded, so
            that two units became one, and rows of one text that is no such value would be many.
    """
    types: dict[str, pa.DataType] = {}
    readers: dict[str, list[Question]] = {}
    for question in plan.questions:
        for column, wanted in _value_types(question).items():
            if only is not None and column not in only:
                continue
            readers.setdefault(column, []).append(question)
            if types.setdefault(column, wanted) != wanted:
                types[column] = _wider(column, readers[column], of)
    for question in plan.questions:
        for column in set(plan.unit.columns) & set(_number_columns(question)):
            if only is None or column in only:
                raise InputError(
                    f"privacy.unit: the {of} column {column!r} names the unit, whose text is read "
                    f"exactly, but tree {question.name} reads it as {types[column]}, which may "
                    "round: give the tree a second column of the same values, or write Parquet"
                )
    # Of a unit what the file says is enough.
    return dict.fromkeys(plan.unit.columns, pa.string()) | types


def _wider(column: str, questions: list[Question], of: str) -> pa.DataType:
    """Return the type in which several trees read one column.

    Raises:
        InputError: there is none.
    """
    types = [_value_types(each)[column] for each in questions]
    integers = [each for each, type in zip(questions, types, strict=True) if type == pa.int64()]
    fitting = all(_fits_doubles(each, column) for each in integers)
    if set(types) == {pa.int64(), pa.float64()} and fitting:
        return pa.float64()
    raise InputError(
        f"trees: the {of} column {column!r} is read as {types[0]} by tree {questions[0].name} and "
        f"as {types[-1]} by tree {questions[-1].name}: give both trees one type, or write Parquet, "
        "whose columns have types"
    )


def _fits_doubles(question: Question, column: str) -> bool:
    """Return whether a tree reads whole numbers of a range that are all doubles."""
    domain = question.spec().get("domain")
    if not isinstance(domain, Mapping) or domain.get("column") != column:
        return False
    bounds = [domain.get("lower"), domain.get("upper")]
    return all(isinstance(each, int) and abs(each) < _DOUBLES for each in bounds)


def _number_columns(question: Question) -> list[str]:
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
