"""Which names of columns a message may show: names in a schema, and names that are no row.

The first line of a CSV file without a header is a row. So are the names in the objects of a JSON
file, and of a frame that was made from either. Nothing in `Anna Example,Bern` shows that it is no
header. So names outside a schema are shown only if all of them look like names, and one of them is
a name that the configuration reads, whatever its case and marks.
"""

import difflib
import re
from collections.abc import Collection, Sequence

from dptrees.transforms.readers.first_bytes import text_kind

_NAMES_SHOWN = 20
# It begins with a letter: numbers, dates, quotes, brackets, `=`, `:` and `@` are marks of data.
_NAME = re.compile(r"[^\W\d][\w .()/%#-]{0,99}")
_MARKS = re.compile(r"[\W_]+")
_NOT_SHOWN = (
    "its names are not shown, since they may be a row: one of them does not look like a name, or "
    "none is a column that is read"
)


def are_names(names: Sequence[str]) -> bool:
    """Whether all strings look like names of columns.

    >>> are_names(["age", "Größe (cm)", "col-1"]), are_names(["age", "41"]), are_names(["a=1"])
    (True, False, False)
    """
    return bool(names) and all(_NAME.fullmatch(name) and name.isprintable() for name in names)


def may_show(names: Sequence[str], read: Collection[str]) -> bool:
    """Whether a message may show names that no schema states.

    Args:
        names: all names that were found.
        read: the columns that the configuration reads.

    >>> may_show(["Age", "sex"], ["age"]), may_show(["Anna Example", "Bern"], ["age"])
    (True, False)
    """
    known = {_plain(name) for name in read} - {""}
    return are_names(names) and any(_plain(name) in known for name in names)


def _plain(name: str) -> str:
    return _MARKS.sub("", name.casefold())


def columns_found(
    missing: str,
    names: Sequence[str],
    read: Collection[str],
    *,
    in_schema: bool = False,
    start: bytes = b"",
) -> str:
    """Say which columns there are in place of one that is missing, if they may be shown.

    Args:
        missing: the name that was looked for.
        names: all names that were found.
        read: the columns that the configuration reads.
        in_schema: whether a schema states the names.
        start: the first bytes of a text file; their kind is named where the names are not shown.

    >>> columns_found("Age", ["age", "sex"], ["Age"])
    'its columns are age, sex; did you mean age?'
    >>> columns_found("age", ["Anna Example", "Bern"], ["age"]) == _NOT_SHOWN
    True
    """
    if not (in_schema or may_show(names, [missing, *read])):
        kind = text_kind(start)
        return f"{_NOT_SHOWN}; {kind}" if kind else _NOT_SHOWN
    plain = {each.strip().casefold(): each for each in reversed(names)}
    near = [] if missing in names else difflib.get_close_matches(missing.casefold(), plain, n=1)
    meant = f"; did you mean {_readable(plain[near[0]])}?" if near else ""
    shown = ", ".join(map(_readable, names[:_NAMES_SHOWN])) or "none"
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"its columns are {shown}{more}{meant}"


def _readable(name: str) -> str:
    """A name as it is, where blanks and marks in it can be seen."""
    return name if name.isprintable() and name == name.strip() else repr(name)
