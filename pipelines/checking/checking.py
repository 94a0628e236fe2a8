"""``dptrees check``: what a release would meet, and exact, not private results about its rows.

These results are only for people with access to the raw data. Nothing is written and no budget is
spent; the memory does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from dptrees.pipelines.checking.check import ColumnLayout, InputCheck
from dptrees.pipelines.checking.report import check_entry, check_lines, input_lines
from dptrees.pipelines.checking.tally import Tally
from dptrees.pipelines.checking.texts import OF_TEXT, SeenBatch, seen_batches
from dptrees.pipelines.configuration import load_configuration
from dptrees.pipelines.dry_run.dry_run import dry_run
from dptrees.pipelines.dry_run.finding import NOT_FOR_PUBLICATION, Finding
from dptrees.pipelines.faults.log import remark
from dptrees.pipelines.running.job import check_filesystems
from dptrees.pipelines.summary import guarantee_warnings
from dptrees.pipelines.terminal_text import print_json, print_line
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder import files
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_rows import Malformed
from dptrees.transforms.readers.file_columns import described, may_show, path_columns
from dptrees.transforms.readers.formats import find_reader, text_stream
from dptrees.transforms.readers.listing import match_files
from dptrees.transforms.readers.read import FileSplit, check_contract, joined_families, open_file
from dptrees.transforms.tables.read import table_batches, table_splits
from dptrees.transforms.tables.table import InputTable, TableSplit


def find_splits(check: InputCheck, table: InputTable) -> list[TableSplit]:
    """The parts of a pinned table, whose columns are noted first.

    Args:
        check: that notes them.
        table: pinned.

    Raises:
        InputError: it cannot be read, or lacks what the plan reads.
    """
    columns = described(table.schema())
    if (contract := check.configuration.input_schema) is not None:
        contract.check(columns, table.name)
    check.layouts.append(ColumnLayout(columns=columns, files=1, first=table.name))
    return table_splits(table, check.tally.plan)


def count_split(check: InputCheck, table: InputTable, split: TableSplit, most: int | None) -> bool:
    """Counts the rows of a part; whether there may be more.

    Args:
        check: whose tally they are added to.
        table: pinned.
        split: of it.
        most: at most so many rows are read of all parts; None: all.
    """
    tally = check.tally
    for batch in table_batches(table, split, tally.plan):
        seen = SeenBatch(rows=batch, texts=None)
        left = None if most is None else most - tally.rows
        if left is not None and batch.num_rows > left:
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
    found, plan = dry_run(configuration, arguments), configuration.plan()
    entry, lines, code = found.to_entry(), found.to_lines(), 0
    if with_rows:
        check = InputCheck(configuration=configuration, tally=Tally(plan=plan))
        number = count_input(check, most, shown=not as_json)
        if check.malformed and not configuration.terms.drops_rows:
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
    files.use_environment()
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
    with check.configuration.table.pinned() as table:
        splits = find_splits(check, table)
        if shown:
            _print_input(check, len(splits), sum(split.size for split in splits))
        for split in splits:
            if not count_split(check, table, split, most):
                break
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
        for seen in seen_batches(reader, split, tally.plan, options, of_text=of_text):
            left = None if most is None else most - tally.rows
            if left is not None and seen.rows.num_rows > left:
                tally.add(seen.first(left))
                check.whole, check.malformed = False, None
                return False
            tally.add(seen)
    if of_text and check.malformed is not None:
        check.malformed_csv += counted
        lines = count_lines(path) - (tally.rows - before) if csv is None else counted.total()
        check.malformed += max(0, lines)
    return True
