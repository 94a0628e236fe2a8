"""Rows as Arrow record batches, from files of several formats on any Beam filesystem.

    the launcher's list, or patterns -> files -> splits (runs of row groups; whole files of CSV)
    -> Reshuffle -> batches

Every step also gives increments to a balance that must come out at zero
(`transforms.conservation`). The heads of files are checked before: the contract about columns,
and the types of the privacy unit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from dptrees.dpcore.bounding.unit_ids import unit_families
from dptrees.dpcore.privacy.unit import PrivacyUnit
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms import flow
from dptrees.transforms.conservation import SPLITS_READ, advance, increase, residue
from dptrees.transforms.contract import SchemaContract
from dptrees.transforms.errors import InputError, may_pass
from dptrees.transforms.folder.files import failure_reason, is_local
from dptrees.transforms.folder.listing import (
    SealedList,
    check_unchanged,
    explained,
    list_files,
    path_columns,
    total_size,
)
from dptrees.transforms.folder.stores import FileInfo, store_of
from dptrees.transforms.readers.file_columns import columns_found
from dptrees.transforms.readers.formats import OF_TEXT, check_start, find_reader, read_start
from dptrees.transforms.readers.json_rows import check_stored_lines

BALANCE = "balance"
_BYTES = "bytes of files"
# So many files of an input are opened to find each column in one of them.
_MOST_LOOKED_AT = 32
# A head takes a store tens of milliseconds, in which no processor works.
_THREADS = 16
Looked = TypeVar("Looked")


# A split that is a whole file; where the file states its rows, its reader compares them.
WHOLE = (0, 0)


class FileSplit(NamedTuple):
    """A part of a file: a run of row groups of Parquet or of batches of Arrow, or `WHOLE`, as
    always of CSV and JSON lines."""

    path: str
    start: int
    stop: int
    size: int  # bytes; the sizes of all splits of a file add up to the file's
    listed_size: int = -1  # of the whole file, below 0: it is not checked
    listed_change: float = 0.0

    @property
    def file(self) -> FileInfo:
        """The file, as it was listed."""
        return FileInfo(self.path, self.listed_size, self.listed_change)


def open_file(path: str) -> Any:
    """A file to read from, random access; a local one by its path, which Arrow reads fastest.

    Raises:
        InputError: a file elsewhere cannot be opened.
    """
    if is_local(path):
        return path.removeprefix("file://")
    try:
        return store_of(path).open(path)
    except Exception as error:  # every filesystem has errors of its own
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: Exception) -> InputError:
    sentence = f"input: {path} cannot be read: {failure_reason(error)}"
    return InputError(sentence, again=may_pass(error))


def check_readable(
    paths: Sequence[str], format: str, plan: ReleasePlan, options: Mapping[str, Any]
) -> None:
    """Refuse files that cannot be read or lack what a plan reads, before a job starts.

    The heads of some local files are read, and of the first one in a store; of others the first
    bytes, at most 10,000 files here and 2,000 in a store. Workers find what is wrong with the rest,
    before noise is drawn. With ``missing_column: null`` as many
    files are looked at as are needed until one has been found that has each column, since a name
    that is spelled wrongly would be null everywhere.

    Args:
        paths: of the files.
        format: one of `transforms.readers.formats.FORMATS`.
        plan: says which columns are read.
        options: as of `ReadFiles`.

    Raises:
        InputError: a file cannot be read, the first one in order; or no file that was looked at has
            a column.
    """
    reader = find_reader(format)
    heads = set(spread(paths) if is_local(paths[0]) else paths[:1])

    def check(path: str) -> None:
        if path in heads:
            reader.splits(open_file(path), path, plan, **options)
        else:
            _check_start(path, format)

    for _ in for_each_file(check, spread(paths, 10_000 if is_local(paths[0]) else 2_000)):
        pass
    if options.get("missing_column") != "null":
        return
    missing, seen, looked = set(plan.columns), set[str](), 0
    for path in spread(paths):
        found = reader.describe_columns(open_file(path), path, **options)
        looked, missing = looked + 1, missing - found.keys() - path_columns(path).keys()
        seen |= found.keys()
        # A column of structs is described by its fields.
        missing -= {name for name in missing if any(each.startswith(f"{name}.") for each in found)}
        if not missing:
            return
    found_names = columns_found(min(missing), sorted(seen), plan.columns, in_schema=True)
    raise InputError(
        f"input.missing_column: none of {looked} files that were looked at has the column "
        f"{min(missing)!r}; {found_names}"
    )


def _check_start(path: str, format: str) -> None:
    """Refuse a file by its first bytes.

    Raises:
        InputError: they show another format; or they cannot be read.
    """
    try:
        start = read_start(path)
    except Exception as error:  # every filesystem has errors of its own
        raise _unreadable(path, error) from None
    check_start(start, path, format)
    if format == "json":
        check_stored_lines(start, path)


def for_each_file(look: Callable[[str], Looked], paths: Sequence[str]) -> Iterator[Looked]:
    """Yield what a function finds in each file, in order; several files are read at once.

    Args:
        look: is called with each path, by threads.
        paths: of the files.

    Raises:
        Exception: as of the function, for the first path in order.
    """
    pool = ThreadPoolExecutor(_THREADS)
    try:
        for each in [pool.submit(look, path) for path in paths]:
            yield each.result()
    finally:
        pool.shutdown(cancel_futures=True)


def spread(paths: Sequence[str], most: int = _MOST_LOOKED_AT) -> list[str]:
    """Some paths of many: the first, the last, and others spread between them.

    Args:
        paths: at least one, in order.
        most: at most so many.

    >>> spread(["a", "b", "c"]), len(spread([f"{number:03}" for number in range(1000)]))
    (['a', 'b', 'c'], 32)
    """
    step = 1 if len(paths) <= most else -(-len(paths) // (most - 1))
    return sorted({*paths[::step], paths[-1]})


@dataclass(frozen=True, kw_only=True)
class ReadFiles(flow.Transform):
    """The record batches of all files, with the columns that a plan reads.

    Args:
        patterns: globs, or folders; all files below a folder are read. They are matched when the
            job starts; a file that changes after that ends the job.
        format: one of `transforms.readers.formats.FORMATS`.
        plan: says which columns are read and which types they may have.
        options: of the reader of the format: ``csv``, a `transforms.readers.csv_format.CsvFormat`,
            or ``json``, a `transforms.readers.json_rows.JsonFormat`.
        listed: the files as a launcher listed them, in place of patterns.

    Returns:
        a pair: Collection[pa.RecordBatch], and the balance Collection[tuple[str, int]].
    """

    patterns: tuple[str, ...] = ()
    format: str
    plan: ReleasePlan
    options: Mapping[str, Any] | None = None
    listed: SealedList | None = None

    def expand(self, pbegin: Any) -> Any:
        reading = self.format, self.plan, self.options
        files, given = self._files(pbegin)
        splits = (
            files
            | "SpreadFiles" >> flow.Spread()
            # FileInfo -> Split
            | "Split" >> flow.Each(_SplitFile(*reading), also=(BALANCE,), main="splits")
        )
        rows = (
            splits["splits"]
            | "SpreadSplits" >> flow.Spread()
            # -> pa.RecordBatch
            | "Read" >> flow.Each(_ReadSplit(*reading), also=(BALANCE,), main="batches")
        )
        balance = (given, splits[BALANCE], rows[BALANCE]) | "Balance" >> flow.Join()
        return rows["batches"], balance

    def _files(self, pbegin: Any) -> tuple[Any, Any]:
        """Collection[tuple[str, int, float]], the fields of `FileInfo`, and its balance."""
        if self.listed is None:
            found = (
                pbegin
                | "Patterns" >> flow.Given([self.patterns])
                # -> (path, bytes, change)
                | "Match" >> flow.Each(_Match(), also=(BALANCE,), main="files")
            )
            return found["files"], found[BALANCE]
        shards = (
            pbegin
            | "List" >> flow.Given([self.listed.shards])
            # -> number of a shard
            | "Shards" >> flow.Each(_Shards(self.listed), also=(BALANCE,), main="shards")
        )
        files = (
            shards["shards"]
            | "SpreadShards" >> flow.Spread()
            # -> (path, bytes, change)
            | "ReadShard" >> flow.Each(_ReadShard(self.listed))
        )
        return files, shards[BALANCE]


# Tagged outputs are typed too: Beam pickles what has no type.
_BALANCE_TYPE = {BALANCE: tuple[str, int]}
_FILE_TYPE = tuple[str, int, float]


def _given(number: int, size: int) -> Iterator[Any]:
    """The balance of files that were listed."""
    yield flow.Tagged(BALANCE, ("files", number))
    yield flow.Tagged(BALANCE, (_BYTES, residue(size)))


@flow.gives(_FILE_TYPE, **_BALANCE_TYPE)
class _Match(flow.Step):
    def process(self, patterns: tuple[str, ...]) -> Iterator[Any]:
        files = list_files(patterns)
        yield from map(tuple, files)
        yield from _given(len(files), total_size(files))


@flow.gives(int, **_BALANCE_TYPE)
class _Shards(flow.Step):
    """The shards of a list, with the number and bytes of the files that the launcher saw."""

    def __init__(self, listed: SealedList) -> None:
        self._listed = listed

    def process(self, shards: int) -> Iterator[Any]:
        yield from range(shards)
        yield from _given(self._listed.number, self._listed.size)


@flow.gives(_FILE_TYPE)
class _ReadShard(flow.Step):
    def __init__(self, listed: SealedList) -> None:
        self._listed = listed

    def process(self, shard: int) -> Iterator[tuple[str, int, float]]:
        yield from map(tuple, self._listed.shard(shard))


class _OfFormat(flow.Step):
    def __init__(
        self, format: str, plan: ReleasePlan, options: Mapping[str, Any] | None = None
    ) -> None:
        self._format, self._plan, self._options = format, plan, dict(options or {})


@flow.gives(FileSplit, **_BALANCE_TYPE)
class _SplitFile(_OfFormat):
    def process(self, file: tuple[str, int, float]) -> Iterator[Any]:
        path, size, changed = file
        reader = find_reader(self._format)
        runs, rows = [WHOLE], 0
        if is_local(path) or size > reader.WHOLE_BYTES:
            with explained(FileInfo(*file)):
                runs, rows = reader.splits(open_file(path), path, self._plan, **self._options)
        if not runs:  # who reads a split checks the file
            check_unchanged(FileInfo(*file))
        left = size
        for number, (start, stop) in enumerate(runs, 1):
            part = left if number == len(runs) else size // len(runs)
            left -= part
            yield FileSplit(path, start, stop, part, size, changed)
        yield flow.Tagged(BALANCE, ("files", -1))
        yield flow.Tagged(BALANCE, ("splits", len(runs)))
        yield flow.Tagged(BALANCE, ("rows in files", rows))
        # Of a file without rows no split takes the bytes.
        yield flow.Tagged(BALANCE, (_BYTES, residue(-left)))


@flow.gives(pa.RecordBatch, **_BALANCE_TYPE)
class _ReadSplit(_OfFormat):
    def process(self, split: FileSplit) -> Iterator[Any]:
        split = FileSplit(*split)
        reader, rows = find_reader(self._format), 0
        with explained(split.file):
            for batch in reader.batches(open_file(split.path), split, self._plan, **self._options):
                rows += batch.num_rows
                yield batch
        check_unchanged(split.file)
        yield flow.Tagged(BALANCE, ("splits", -1))
        yield flow.Tagged(BALANCE, ("rows", rows))
        stated = 0 if (split.start, split.stop) == WHOLE else reader.COUNTS_ROWS
        yield flow.Tagged(BALANCE, ("rows in files", -rows * stated))
        yield flow.Tagged(BALANCE, (_BYTES, residue(-split.size)))
        increase(SPLITS_READ)
        advance("read", split.size)


def check_contract(
    contract: SchemaContract, paths: Sequence[str], format: str, options: Mapping[str, Any]
) -> None:
    """Refuse files that break a contract; the head of each one is read, and no row.

    Args:
        contract: about the columns.
        paths: of the files.
        format: one of `transforms.readers.formats.FORMATS` whose files state types.
        options: of its reader.

    Raises:
        InputError: a file breaks it, or cannot be read; the first one in order.
    """
    for path, types in _all_types(paths, format, options):
        contract.check(types, path)


def file_unit_families(
    unit: PrivacyUnit, paths: Sequence[str], format: str, options: Mapping[str, Any]
) -> dict[str, str]:
    """Return the families of the types of the unit's columns in files.

    Heads of some files are read, and more until one has a type for each column; workers compare
    the others (`transforms.readers.file_columns`).

    Args:
        unit: the privacy unit.
        paths: of the files.
        format: one of `transforms.readers.formats.FORMATS`; files of text have one type.
        options: of its reader.

    Raises:
        InputError: files have types of two families, or one cannot be read.
    """
    if format in OF_TEXT:
        return unit_families(unit, dict.fromkeys(unit.columns, "text"))
    found: dict[str, str] = {}
    looked = spread(paths) if unit.columns else []
    for path, types in _all_types(looked, format, options):
        found = joined_families(unit, path, types, found)
    for path in paths:
        if found.keys() >= set(unit.columns):
            break
        found = joined_families(unit, path, file_types(path, format, options), found)
    return found


def joined_families(
    unit: PrivacyUnit, path: str, types: Mapping[str, str], others: Mapping[str, str]
) -> dict[str, str]:
    """Return the families of the unit's columns in one more file, and in the others.

    Raises:
        InputError: they differ; it names the file.
    """
    try:
        return unit_families(unit, types, others)
    except ValueError as error:
        raise InputError(f"input: {path}: {error}") from None


def _all_types(
    paths: Sequence[str], format: str, options: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, str]]]:
    look = partial(file_types, format=format, options=options)
    return zip(paths, for_each_file(look, paths), strict=True)


def file_types(path: str, format: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The names of the types of a file's columns, and of the columns in its path.

    Args:
        path: of the file.
        format: one of `transforms.readers.formats.FORMATS`.
        options: of its reader.

    Raises:
        InputError: it cannot be read.
    """
    # A folder of the path states a string.
    stated: dict[str, str] = dict.fromkeys(path_columns(path), "string")
    return stated | find_reader(format).describe_columns(open_file(path), path, **options)
