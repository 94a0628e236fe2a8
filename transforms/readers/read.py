"""Rows as Arrow record batches, from files of several formats on any Beam filesystem.

    patterns -> files -> splits (runs of row groups; whole files of CSV) -> Reshuffle -> batches

Beside the batches, every step tells how much it took and gave, as increments to a balance that must
come out at zero (`transforms.conservation`): an engine that loses a split or a batch is found out.
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dpcore.release.plan import ReleasePlan
from transforms.errors import InputError
from transforms.files import is_local, reason_of
from transforms.metrics import SPLITS_READ
from transforms.passing import may_pass
from transforms.progress import advance
from transforms.readers.folders import all_below, holds_rows, may_name_folder, names_folder
from transforms.readers.formats import reader_of
from transforms.readers.path_columns import path_columns

BALANCE = "balance"


class Split(NamedTuple):
    """A part of a file: a run of row groups of Parquet or of batches of Arrow, or a whole file of
    CSV or JSON lines (0, 0)."""

    path: str
    start: int
    stop: int
    size: int  # bytes, for the progress


def match_files(patterns: tuple[str, ...]) -> list[tuple[str, int]]:
    """The files of rows that globs match, or that lie below folders, as (path, bytes), each once
    and in order, however many of its names they match.

    Raises:
        InputError: there is none of a glob or a folder, or the filesystem does not tell; or a file
            lies below folders that tell different columns.
    """
    globs = [all_below(each) if names_folder(each) else each for each in patterns]
    sizes: dict[str, int] = {}
    for pattern, glob, result in zip(patterns, globs, _matches(tuple(globs)), strict=True):
        files = _of_rows(result, glob)
        if not files and may_name_folder(glob):
            (result,) = _matches((all_below(glob),))
            files = _of_rows(result, all_below(glob))
        if not files:
            raise InputError(f"input.path: no file matches {pattern}")
        sizes |= files
    return [(path, sizes[path]) for path in _each_once(sorted(sizes))]


def _each_once(paths: list[str]) -> Iterator[str]:
    """One name of each file: rows that are read twice would count twice.

    Raises:
        InputError: by the folders of its names a file would have other rows.
    """
    first: dict[str, str] = {}
    for path in paths:
        other = first.setdefault(_file_of(path), path)
        if other == path:
            yield path
        elif path_columns(other) != path_columns(path):
            raise InputError(f"input.path: {other} and {path} are one file: leave one of them out")


def _file_of(path: str) -> str:
    """What all names of a file share: of a local one that they lead to one place."""
    return os.path.realpath(path.removeprefix("file://")) if is_local(path) else path


def _of_rows(result: Any, glob: str) -> dict[str, int]:
    found = result.metadata_list
    return {each.path: each.size_in_bytes for each in found if holds_rows(each.path, glob)}


def _matches(patterns: tuple[str, ...]) -> list[Any]:
    try:
        with warnings.catch_warnings():
            # Of Beam's own expression for a name that has a bracket.
            warnings.simplefilter("ignore", FutureWarning)
            return list(FileSystems.match([*map(_from_here, patterns)]))
    except BeamIOError as error:
        raise InputError(
            f"input.path: {', '.join(patterns)} cannot be listed: {reason_of(error)}",
            again=may_pass(error),
        ) from None


def _from_here(pattern: str) -> str:
    """A glob that Beam can match: of one that begins with a wildcard it looks into no folder."""
    return f"./{pattern}" if set("*?[") & set(pattern.partition("/")[0]) else pattern


def open_file(path: str) -> Any:
    """A file to read from, random access; a local one by its path, which Arrow reads fastest.

    Raises:
        InputError: a file elsewhere cannot be opened.
    """
    if is_local(path):
        return path.removeprefix("file://")
    try:
        return FileSystems.open(path)  # decompressed where the name says so
    except Exception as error:  # every filesystem has errors of its own
        raise InputError(
            f"input: {path} cannot be read: {reason_of(error)}", again=may_pass(error)
        ) from None


class ReadBatches(beam.PTransform):
    """The record batches of all files, with the columns that a plan reads.

    Args:
        patterns: globs, or folders, of which all files below are read.
        format: one of `transforms.readers.formats.FORMATS`.
        plan: says which columns are read and which types they may have.
        options: of the reader of the format: ``csv``, a `transforms.readers.csv_format.CsvFormat`,
            or ``json``, a `transforms.readers.json_format.JsonFormat`.

    Returns:
        a pair: PCollection[pa.RecordBatch], and the balance PCollection[tuple[str, int]].
    """

    def __init__(
        self,
        *,
        patterns: tuple[str, ...],
        format: str,
        plan: ReleasePlan,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._patterns, self._format, self._plan = patterns, format, plan
        self._options = dict(options or {})

    def expand(self, pbegin: Any) -> Any:
        files = (
            pbegin
            | "Patterns" >> beam.Create([self._patterns], reshuffle=False)
            # -> (path, bytes)
            | "Match" >> beam.ParDo(_Match()).with_outputs(BALANCE, main="files")
        )
        splits = (
            files["files"]
            | "SpreadFiles" >> beam.Reshuffle()
            # -> Split
            | "Split"
            >> beam.ParDo(_SplitFile(self._format, self._plan, self._options)).with_outputs(
                BALANCE, main="splits"
            )
        )
        rows = (
            splits["splits"]
            | "SpreadSplits" >> beam.Reshuffle()
            # -> pa.RecordBatch
            | "Read"
            >> beam.ParDo(_ReadSplit(self._format, self._plan, self._options)).with_outputs(
                BALANCE, main="batches"
            )
        )
        balance = (
            files[BALANCE],
            splits[BALANCE],
            rows[BALANCE],
        ) | "Balance" >> beam.Flatten()
        return rows["batches"], balance


# Tagged outputs are typed too: Beam pickles what has no type.
_BALANCE_TYPE = {BALANCE: tuple[str, int]}


@beam.typehints.with_output_types(tuple[str, int], **_BALANCE_TYPE)
class _Match(beam.DoFn):
    def process(self, patterns: tuple[str, ...]) -> Iterator[Any]:
        files = match_files(patterns)
        yield from files
        yield beam.pvalue.TaggedOutput(BALANCE, ("files", len(files)))


@beam.typehints.with_output_types(Split, **_BALANCE_TYPE)
class _SplitFile(beam.DoFn):
    def __init__(
        self, format: str, plan: ReleasePlan, options: Mapping[str, Any] | None = None
    ) -> None:
        self._format, self._plan, self._options = format, plan, dict(options or {})

    def process(self, file: tuple[str, int]) -> Iterator[Any]:
        path, size = file
        reader = reader_of(self._format)
        runs, rows = reader.splits(open_file(path), path, self._plan, **self._options)
        for start, stop in runs:
            yield Split(path, start, stop, size // len(runs))
        yield beam.pvalue.TaggedOutput(BALANCE, ("files", -1))
        yield beam.pvalue.TaggedOutput(BALANCE, ("splits", len(runs)))
        yield beam.pvalue.TaggedOutput(BALANCE, ("rows in files", rows))


@beam.typehints.with_output_types(pa.RecordBatch, **_BALANCE_TYPE)
class _ReadSplit(beam.DoFn):
    def __init__(
        self, format: str, plan: ReleasePlan, options: Mapping[str, Any] | None = None
    ) -> None:
        self._format, self._plan, self._options = format, plan, dict(options or {})

    def process(self, split: Split) -> Iterator[Any]:
        split = Split(*split)
        reader, rows = reader_of(self._format), 0
        for batch in reader.batches(open_file(split.path), split, self._plan, **self._options):
            rows += batch.num_rows
            yield batch
        yield beam.pvalue.TaggedOutput(BALANCE, ("splits", -1))
        yield beam.pvalue.TaggedOutput(BALANCE, ("rows", rows))
        yield beam.pvalue.TaggedOutput(BALANCE, ("rows in files", -rows * reader.COUNTS_ROWS))
        SPLITS_READ.inc()
        advance("read", split.size)
