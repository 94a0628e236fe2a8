"""What to do about rows that are not counted, where it shows from what their values look like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import pyarrow as pa

from dptrees.dpcore.rows.policies import FRACTION
from dptrees.pipelines.checking.check import InputCheck
from dptrees.pipelines.checking.tally import UNREAD, Cause, TreeTally, most_common

_DATE = re.compile(r"^\s*9{1,4}[-/. ](9{1,2}|a)[-/. ]9{1,4}(?P<time>[ aT].*)?$|^9{8}$")
_PLAIN_DATE = re.compile(r"^9{4}-99-99$")
_THOUSANDS = re.compile(r"^[-+]?9{1,3}(,999)+(\.9+)?$")
_COMMA = re.compile(r"^[-+]?9+,9+$")
_FRACTION = re.compile(r"^[-+]?9*(\.\.\.)?\.9+(\.\.\.)?$")
_OF_FRACTIONS = "{} has fractions: give lower, upper and cells of type number"
_MARKED = re.compile(r"^[^9]*[-+]?9[9.,]*[^9]*$")


def tree_advice(tree: TreeTally, check: InputCheck) -> Iterator[str]:
    """What to do, in sentences.

    Args:
        tree: one of the check's.
        check: of all rows.
    """
    tally, is_csv = check.tally, check.configuration.input_format == "csv"
    for column in tree.question.columns:
        if tally.rows and tally.missing[column] == tally.rows:
            yield _nothing_in(column, check.names)
    for cause in tree.in_order:
        wanted = tree.question.value_types.get(cause.column)
        if cause.cause == UNREAD and wanted is not None:
            for what, key in _string_advice(cause, wanted):
                yield what + (f": see input.{key} (docs/csv.md)" if is_csv and key else "")
        elif cause.cause == FRACTION:
            yield _OF_FRACTIONS.format(cause.column)
        elif cause.cause == "unknown" and any(look != look.strip() for look in cause.looks):
            how = ": see input.trim (docs/csv.md)" if is_csv else ""
            yield f"{cause.column} has values with blanks around them{how}"
    if tally.rows and not tree.counted:
        yield f"no row is counted: a release of {tree.question.name} would be noise alone"


def _nothing_in(column: str, names: list[str]) -> str:
    close = get_close_matches(column, [name for name in names if name != column], n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"no row has a value of {column}{hint}"


def _string_advice(cause: Cause, target_type: pa.DataType) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with strings that are no values, and the key of CSV that helps."""
    looks = most_common(cause.looks)
    if pa.types.is_temporal(target_type):
        if any(_DATE.match(look) and not _PLAIN_DATE.match(look) for look in looks):
            yield (
                f"{cause.column} is not written as dates and times are read, 2024-07-04 or "
                "2024-07-04 18:00:00 where nothing else is said",
                "date_format",
            )
    elif any(_THOUSANDS.match(look) for look in looks):
        yield f"{cause.column} has commas between thousands", "thousands"
    elif any(_COMMA.match(look) for look in looks):
        yield f"{cause.column} has a comma before decimals", "decimal"
    elif any(_FRACTION.match(look) for look in looks) and pa.types.is_integer(target_type):
        yield _OF_FRACTIONS.format(cause.column), ""
    elif any(_MARKED.match(look) for look in looks):
        yield f"{cause.column} has signs beside its numbers: write the numbers alone", ""
