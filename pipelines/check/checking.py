"""``dptrees check``: what a release would meet, and exact, not private results about its rows.

These results are only for people with access to the raw data. Nothing is written and no budget
is spent; the memory does not grow with the rows. Examples of malformed rows are no data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import chain
from string import ascii_lowercase
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.rows.policies import FRACTION
from dptrees.pipelines.check.places import NOT_FOR_PUBLICATION, Finding, several
from dptrees.pipelines.check.release_check import check_release
from dptrees.pipelines.check.tally import (
    UNREAD,
    Cause,
    SeenBatch,
    Tally,
    TreeTally,
    most_common,
    seen_batches,
    spelling_advice,
)
from dptrees.pipelines.config.configuration import Configuration, load_configuration
from dptrees.pipelines.monitoring import remark
from dptrees.pipelines.report.summary import guarantee_warnings
from dptrees.pipelines.run.job import check_filesystems
from dptrees.pipelines.terminal_text import escaped, print_json, print_line
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.listing import match_files, path_columns
from dptrees.transforms.readers.csv_format import ROW_BYTES, CsvFormat
from dptrees.transforms.readers.csv_rows import (
    FEWER,
    MORE,
    MORE_EMPTY,
    NOT_UTF8,
    OPEN,
    TOO_LONG,
    Malformed,
)
from dptrees.transforms.readers.file_columns import described, may_show
from dptrees.transforms.readers.formats import OF_TEXT, find_reader, text_stream
from dptrees.transforms.readers.read import FileSplit, check_contract, joined_families, open_file
from dptrees.transforms.tables.read import table_batches, table_splits


@dataclass(kw_only=True)
class ColumnLayout:
    """Files with the same columns.

    Attributes:
        columns: their names and types, as words.
        files: how many.
        first: the path of one.
        hidden: whether other names are left out, since they may be a row.
    """

    columns: dict[str, str]
    files: int = 0
    first: str = ""
    hidden: bool = False


@dataclass(kw_only=True)
class InputCheck:
    """What was seen of the rows of a configuration.

    Attributes:
        configuration: of the release.
        tally: of the rows.
        layouts: of the files.
        whole: whether all rows were read.
        malformed: how many rows were malformed; None where that is not known.
        malformed_csv: the same of CSV files, by what is wrong with them.
    """

    configuration: Configuration
    tally: Tally
    layouts: list[ColumnLayout] = field(default_factory=list)
    whole: bool = True
    malformed: int | None = 0
    malformed_csv: Malformed = field(default_factory=Malformed)

    @property
    def names(self) -> list[str]:
        """Names of the columns that files have."""
        return list(dict.fromkeys(name for each in self.layouts for name in each.columns))


_DATE = re.compile(r"^\s*9{1,4}[-/. ](9{1,2}|a)[-/. ]9{1,4}(?P<time>[ aT].*)?$|^9{8}$")
_PLAIN_DATE = re.compile(r"^9{4}-99-99$")
_THOUSANDS = re.compile(r"^[-+]?9{1,3}(,999)+(\.9+)?$")
_COMMA = re.compile(r"^[-+]?9+,9+$")
_FRACTION = re.compile(r"^[-+]?9*(\.\.\.)?\.9+(\.\.\.)?$")
_OF_FRACTIONS = "{} has fractions: give lower, upper and cells of type number"
_MARKED = re.compile(r"^[^9]*[-+]?9[9.,]*[^9]*$")
_INTEGERS = re.compile(r"u?int\d+")


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
    for axis in getattr(getattr(tree.question, "domain", None), "axes", ()):
        types = {each.columns.get(axis.column, "") for each in check.layouts}
        if axis.kind == "number" and any(map(_INTEGERS.fullmatch, types)):
            yield f"{axis.column} has whole numbers; synthetic rows have them with type: integer"
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


_MOST_FIELDS = 5
_ADVICE = {
    OPEN: "if values in quotes contain line ends, see input.newlines; if another character than a "
    "second quote is before a quote within quotes, input.escape; if none quotes, input.quote",
    NOT_UTF8: "if the files have another encoding, see input.encoding",
    TOO_LONG: "if its quote is never closed, see input.quote",
    FEWER: "if they are no rows, see input.skip_lines and input.comment; if quotes contain line "
    "ends, input.newlines",
    MORE: "values that contain the separator are in quotes (input.quote) or have another character "
    "before it (input.escape)",
    MORE_EMPTY: "if each row ends with a separator, set input.trailing_separator: true",
}


class MalformedClass(NamedTuple):
    """Malformed rows of one class.

    Attributes:
        kind: one of the names in `transforms.readers.csv_rows`.
        rows: how many.
        like: an invented row of the class.
        reason: why such a row is malformed.
        advice: what to do.
    """

    kind: str
    rows: int
    like: str
    reason: str
    advice: str


def malformed_classes(malformed: Malformed, csv: CsvFormat) -> Iterator[MalformedClass]:
    """Yield the classes of malformed rows, the most frequent first.

    Args:
        malformed: as the reader of CSV files counts them.
        csv: what a row is.

    >>> found = Malformed({(MORE_EMPTY, 2, 3): 14})
    >>> next(malformed_classes(found, CsvFormat()))[1:4]
    (14, 'a,b,', 'the header has 2 fields, these have 3, the last empty')
    """
    classes: dict[tuple[str, int], Malformed] = {}
    for (kind, header, fields), rows in malformed.items():
        if rows:
            classes.setdefault((kind, header), Malformed())[kind, header, fields] = rows
    for (kind, header), found in sorted(classes.items(), key=lambda each: -each[1].total()):
        numbers = [fields for _, _, fields in found]
        like, reason = _description(kind, header, numbers, csv)
        yield MalformedClass(kind, found.total(), like, reason, f"{_ADVICE[kind]} (docs/csv.md)")


def _description(kind: str, header: int, numbers: list[int], csv: CsvFormat) -> tuple[str, str]:
    """An invented row, and why it is malformed."""
    cut = csv.quote or csv.escape or ""
    if kind == OPEN:
        return _row(2, csv, cut + "b"), "a quote is not closed, or an escape is before the line end"
    if kind == NOT_UTF8:
        return _row(2, csv, "\ufffd"), f"these have bytes that are not {csv.encoding}"
    if kind == TOO_LONG:
        return _row(2, csv, "bbb..."), f"these are longer than {ROW_BYTES // 2**20} MiB"
    last = "" if kind == MORE_EMPTY else None
    several = "" if min(numbers) == max(numbers) else f" to {max(numbers)}"
    there = f"{'the header has' if not csv.columns else 'columns has'} {header} fields"
    reason = f"{there}, these have {min(numbers)}{several}"
    return _row(min(numbers), csv, last), reason + (", the last empty" if last == "" else "")


def _row(fields: int, csv: CsvFormat, last: str | None = None) -> str:
    """An invented row of so many fields."""
    names = list(ascii_lowercase[: min(fields, _MOST_FIELDS)])
    if last is not None:
        names[-1] = last
    if fields > _MOST_FIELDS:
        names.insert(-1, "...")
    return csv.separator.join(names)


_LAYOUTS_SHOWN = 5
_BECOMES = {
    "drop": "dropped",
    "clamp": "counted in the nearest cell",
    "first": "counted in the first cell",
    "last": "counted in the last cell",
    "zero": "counted as zero",
    "category": "counted as missing",
}
_CAUSES = {
    UNREAD: "is not a value of the type that is read",
    "missing": "is missing",
    FRACTION: "is a fraction, where only whole numbers are read",
    "unknown": "is not a listed value of the tree",
}


def input_lines(check: InputCheck, number: int, size: int) -> Iterator[str]:
    """The files and their columns."""
    configuration = check.configuration
    paths, form = ", ".join(configuration.input_paths), configuration.input_format
    yield ""
    if configuration.table is None:
        yield f"{escaped(paths)}: {several(number, 'file')} of {form}, {size:,} bytes"
    else:
        known = f", {size:,} bytes" if size else ""
        yield f"{escaped(configuration.table.name)}: {several(number, 'part')}{known}"
    for layout in check.layouts[:_LAYOUTS_SHOWN]:
        others = f" and {several(layout.files - 1, 'other')}" if layout.files > 1 else ""
        yield f"  {escaped(layout.first)}{others}:"
        for name, type in layout.columns.items():
            read = "" if name in check.tally.plan.columns else "  (not read)"
            yield f"    {escaped(name)}: {type}{read}"
        if layout.hidden:
            yield "    (other names are not shown: they may be a row)"
    if len(check.layouts) > _LAYOUTS_SHOWN:
        yield f"  ... and {len(check.layouts) - _LAYOUTS_SHOWN} more kinds of columns"


def check_lines(check: InputCheck) -> Iterator[str]:
    tally, unit = check.tally, check.tally.plan.unit
    yield ""
    yield f"{several(tally.rows, 'row')} read{'' if check.whole else ', not all'}"
    if check.malformed:
        outcome = "left out" if check.configuration.guarantee.drops_rows else "refused"
        yield f"{several(check.malformed, 'malformed row')} {outcome}"
        for each in _malformed_classes(check):
            yield f'  {each.rows:>12,} like "{escaped(each.like)}": {each.reason}'
            yield f"  advice: {each.advice}"
    if tally.without_unit:
        yield f"{several(tally.without_unit, 'row')} left out, without a {escaped(unit.name)}"
    advice = spelling_advice(unit, tally.spellings)
    if advice is not None:
        yield f"  advice: {escaped(advice)}"
    for tree in tally.trees:
        yield from _tree_lines(tree, check)
    if not unit.is_row:
        yield ""
        yield (
            f"A release counts {unit.bounds_in_words} of each {escaped(unit.name)}: the numbers "
            "here are before this bound."
        )


def _malformed_classes(check: InputCheck) -> list[MalformedClass]:
    """The classes of malformed rows that were counted; none where not all rows were read."""
    csv = check.configuration.input_options.get("csv")
    if not check.malformed or not isinstance(csv, CsvFormat):
        return []
    return list(malformed_classes(check.malformed_csv, csv))


def _tree_lines(tree: TreeTally, check: InputCheck) -> Iterator[str]:
    question = tree.question
    yield ""
    yield f"{question.name} ({', '.join(map(escaped, question.columns))})"
    yield f"  {tree.counted:>12,} counted"
    for cause in tree.in_order:
        becomes = _BECOMES.get(cause.policy, f"counted as {cause.policy!r}")
        reason = _CAUSES.get(cause.cause, f"is {cause.cause}")
        yield f"  {cause.rows:>12,} {becomes}: {escaped(cause.column)} {reason}"
        if cause.looks:
            looks = ", ".join(f'"{escaped(each)}"' for each in most_common(cause.looks))
            yield f"  {'':>12}   they look like: {looks} (a is a letter, 9 is a digit)"
    for sentence in tree_advice(tree, check):
        yield f"  advice: {escaped(sentence)}"


def check_entry(check: InputCheck, number: int) -> dict[str, Any]:
    """The check as plain values."""
    tally = check.tally
    return {
        "private": False,
        "files": number,
        "layouts": [
            {"files": each.files, "first": each.first, "columns": each.columns}
            for each in check.layouts
        ],
        "rows": tally.rows,
        "all_rows": check.whole,
        "malformed": check.malformed,
        "malformed_classes": [each._asdict() for each in _malformed_classes(check)],
        "without_unit": tally.without_unit,
        "unit_advice": spelling_advice(tally.plan.unit, tally.spellings),
        "trees": [
            {
                "name": tree.question.name,
                "counted": tree.counted,
                "causes": [
                    {
                        "column": cause.column,
                        "cause": cause.cause,
                        "policy": cause.policy,
                        "rows": cause.rows,
                        "looks_like": most_common(cause.looks),
                    }
                    for cause in tree.in_order
                ],
                "advice": list(tree_advice(tree, check)),
            }
            for tree in tally.trees
        ],
    }


def count_batches(check: InputCheck, batches: Iterable[SeenBatch], most: int | None) -> bool:
    """Add batches to the tally of a check; return whether there may be more.

    Args:
        check: the check.
        batches: the batches, read one by one.
        most: the largest number of rows to read of all batches; None: all.
    """
    tally = check.tally
    for seen in batches:
        left = None if most is None else most - tally.rows
        if left is not None and seen.rows.num_rows > left:
            tally.add(seen.first(left))
            check.whole = False
            return False
        tally.add(seen)
    return True


_BLOCK = 2**22


def count_lines(path: str) -> int:
    """How many lines of a file have anything but blanks' first byte: none are empty."""
    total, before = 0, True
    with closing(text_stream(open_file(path), path, "csv")) as stream:
        while data := stream.read(_BLOCK):
            codes = np.frombuffer(data, np.uint8)
            ends = (codes == ord("\n")) | (codes == ord("\r"))
            starts = ~ends & np.concatenate([[before], ends[:-1]])
            total, before = total + int(np.count_nonzero(starts)), bool(ends[-1])
    return total


NOT_PRIVATE = (
    "NOT PRIVATE: exact results from the raw data; only for people with access to it. Do not "
    "publish them. Nothing is written, and no budget is spent."
)


_REFUSED_ROWS = "input.malformed: fail refuses a row that is malformed"


def run_check(
    path: str,
    arguments: Sequence[str],
    parameters: Mapping[str, str],
    *,
    most: int | None = None,
    with_rows: bool = True,
    as_json: bool = False,
) -> int:
    """Report what a release would meet, and what it would make of its rows.

    Args:
        path: of the configuration.
        arguments: Beam options.
        parameters: parameters of the configuration, by name.
        most: at most so many rows are read; None: all.
        with_rows: read rows; else no value of a row decides what is reported.
        as_json: for programs.

    Returns:
        0: without rows, the release would start; with rows, it would refuse none of them.

    Raises:
        UserError, ConfigurationError, ReleaseError: one sentence that says what to fix; without
            rows the release would end with it.
    """
    if not as_json:
        print_line(NOT_PRIVATE if with_rows else NOT_FOR_PUBLICATION)
    configuration = load_configuration(path, parameters)
    found, plan = check_release(configuration, arguments), configuration.plan()
    entry, lines, code = found.to_entry(), found.to_lines(), 0
    if with_rows:
        check = InputCheck(configuration=configuration, tally=Tally(plan=plan))
        number = count_input(check, most, shown=not as_json)
        if check.malformed and not configuration.guarantee.drops_rows:
            code = 2
            refused = Finding(name="rows", fault=InputError(_REFUSED_ROWS))
            found = replace(found, findings=[*found.findings, refused])
        entry = found.to_entry() | check_entry(check, number)
        lines = chain(check_lines(check), found.to_faults())
    if as_json:
        print_json(entry, indent=1)
    else:
        for line in lines:
            print_line(line)
        if configuration.id_of_all:
            remark(configuration.id_remark)
        for line in guarantee_warnings(plan):
            remark(line)
    # An analyst may read the rows and lack the key or the ledger: their faults are shown alone.
    if found.fault is not None and not with_rows:
        raise found.fault
    return code


def count_input(check: InputCheck, most: int | None, *, shown: bool = False) -> int:
    """Counts the rows of the input of a configuration.

    Args:
        check: whose tally they are added to.
        most: at most so many rows are read; None: all.
        shown: print the files and their columns.

    Returns:
        how many files, or parts of a table, there are.

    Raises:
        UserError, ReleaseError: one sentence that says what to fix.
    """
    check_filesystems(check.configuration.input_paths)
    counted = _count_files if check.configuration.table is None else _count_table
    return counted(check, most, shown=shown)


def _count_files(check: InputCheck, most: int | None, *, shown: bool) -> int:
    """Counts the rows of files; returns how many there are."""
    found = match_files(check.configuration.input_paths, check.configuration.input_arrival)
    _find_columns(check, found)
    if shown:
        _print_input(check, len(found), sum(size for _, size in found))
    for name, size in found:
        if not _count_file(check, name, size, most):
            break
    return len(found)


def _count_table(check: InputCheck, most: int | None, *, shown: bool) -> int:
    """Counts the rows of a table; returns how many parts it has."""
    assert check.configuration.table is not None
    plan, contract = check.tally.plan, check.configuration.input_schema
    with check.configuration.table.pinned() as table:
        columns = described(table.schema())
        if contract is not None:
            contract.check(columns, table.name)
        check.layouts.append(ColumnLayout(columns=columns, files=1, first=table.name))
        splits = table_splits(table, plan)
        if shown:
            _print_input(check, len(splits), sum(split.size for split in splits))
        batches = (each for split in splits for each in table_batches(table, split, plan))
        count_batches(check, (SeenBatch(rows=each, texts=None) for each in batches), most)
    return len(splits)


def _print_input(check: InputCheck, number: int, size: int) -> None:
    for line in input_lines(check, number, size):
        print_line(line)


def _find_columns(check: InputCheck, found: list[tuple[str, int]]) -> None:
    configuration = check.configuration
    reader, contract = find_reader(configuration.input_format), configuration.input_schema
    if contract is not None:
        paths = [name for name, _ in found]
        check_contract(contract, paths, configuration.input_format, configuration.input_options)
    for name, _ in found:
        columns = reader.describe_columns(open_file(name), name, **configuration.input_options)
        read = check.tally.plan.columns
        hidden = configuration.input_format in OF_TEXT and not may_show(list(columns), read)
        if hidden:
            columns = {each: type for each, type in columns.items() if each in read}
        columns |= {each: "of the path" for each in path_columns(name) if each not in columns}
        same = next((each for each in check.layouts if each.columns == columns), None)
        if same is None:
            same = ColumnLayout(columns=columns, first=name, hidden=hidden)
            check.layouts.append(same)
        same.files += 1
    families: dict[str, str] = {}
    for each in check.layouts if configuration.input_format not in OF_TEXT else ():
        unit = check.tally.plan.unit
        families = joined_families(unit, each.first, each.columns, families)


def _count_file(check: InputCheck, path: str, size: int, most: int | None) -> bool:
    """Counts the rows of a file; whether there may be more."""
    configuration, tally = check.configuration, check.tally
    reader = find_reader(configuration.input_format)
    options: dict[str, Any] = dict(configuration.input_options)
    counted = Malformed()
    if isinstance(csv := options.get("csv"), CsvFormat):  # a row is explained before it is refused
        options |= {"csv": replace(csv, malformed="drop"), "malformed": counted}
    of_text = configuration.input_format in OF_TEXT
    runs, _ = reader.splits(open_file(path), path, tally.plan, **configuration.input_options)
    before = tally.rows
    for start, stop in runs:
        split = FileSplit(path, start, stop, size)
        batches = seen_batches(reader, split, tally.plan, options, of_text=of_text)
        if not count_batches(check, batches, most):
            check.malformed = None
            return False
    if of_text and check.malformed is not None:
        check.malformed_csv += counted
        lines = count_lines(path) - (tally.rows - before) if csv is None else counted.total()
        check.malformed += max(0, lines)
    return True
