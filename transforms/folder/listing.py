"""The list of an input's files: made once, checked to be complete, sent sealed to the workers.

Files whose names begin with `_` or `.`, checksums and an object store's marks of folders are
passed over; any other file must hold rows. A listed file that is missing or changed when it is
read ends the job, and a file that appears later is not read. The list is cut into shards beside
the release and sealed with the release key: a killed run leaves only how many names there are,
roughly.
"""

import json
import os
import re
import time
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import unquote

from dptrees.transforms.contract import AT_ONCE, Arrival, duration_text
from dptrees.transforms.errors import InputError, ReleaseError, may_pass, not_now
from dptrees.transforms.folder import files
from dptrees.transforms.folder.files import failure_reason, is_local, join
from dptrees.transforms.folder.names import input_list_name
from dptrees.transforms.folder.stores import FileInfo, store_of
from dptrees.transforms.keys import KeyReference

# The folder of a value that is null.
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ALL = re.compile(r"\*+")
_WILDCARD = re.compile(r"[*?[]")
TEMPORARY = "_temporary"
_NO_DATA = (".crc", "_$folder$")


def names_folder(pattern: str) -> bool:
    """Whether a path is that of a folder: it ends in a slash, or is one on a local disk.

    >>> names_folder("gs://bucket/visits/"), names_folder("gs://bucket/visits/*.parquet")
    (True, False)
    """
    return pattern.endswith("/") or (
        is_local(pattern) and os.path.isdir(pattern.removeprefix("file://"))
    )


def may_name_folder(pattern: str) -> bool:
    """Whether a path without a file of its name may be a folder of an object store.

    >>> may_name_folder("gs://bucket/visits"), may_name_folder("gs://bucket/visits/*")
    (True, False)
    """
    return not is_local(pattern) and not _WILDCARD.search(pattern)


def all_below(folder: str) -> str:
    """The glob of all files below a folder, whatever letters are in its name.

    >>> all_below("data/visits[1]/")
    'data/visits[[]1]/**'
    """
    return join(re.sub(_WILDCARD, r"[\g<0>]", folder.rstrip("/")), "**")


def holds_rows(path: str, glob: str) -> bool:
    """Whether a file that a glob matches is one of rows. Only a glob that takes whatever there is,
    as `visits/*` does, takes what has no rows too.

    >>> paths = "visits/a.parquet", "visits/_SUCCESS", "visits/.a.crc", "visits/_new/a.parquet"
    >>> [holds_rows(path, "visits/**") for path in paths]
    [True, False, False, False]
    >>> holds_rows("visits/_a.parquet", "visits/*.parquet")
    True
    """
    if path.endswith("/"):  # the mark of a folder in an object store
        return False
    segments = glob.split("/")
    if not _ALL.fullmatch(segments[-1]):
        return True
    fixed = next(place for place, each in enumerate(segments) if _WILDCARD.search(_plain(each)))
    below = path.split("/")[fixed:]
    return not path.endswith(_NO_DATA) and not any(each.startswith(("_", ".")) for each in below)


def has_temporary(folder: str, paths: Iterable[str]) -> bool:
    """Whether a job is writing below a folder: Hadoop's and Spark's writers collect their files in
    a folder `_temporary` until they end.

    Args:
        folder: whose files are read.
        paths: of the files below it.

    >>> has_temporary("s3://b/visits", ["s3://b/visits/_temporary/0/part-0"])
    True
    >>> has_temporary("/_temporary/visits", ["/_temporary/visits/part-0"])
    False
    """
    start = len(folder.rstrip("/"))
    if any(TEMPORARY in path[start:].split("/")[:-1] for path in paths):
        return True
    return is_local(folder) and os.path.isdir(
        os.path.join(folder.removeprefix("file://"), TEMPORARY)
    )


def folders_above(paths: Iterable[str], glob: str) -> list[list[str]]:
    """The folders that may say whether files are complete: for each folder of a file it and those
    above it, up to the last one that the glob names without a wildcard.

    >>> folders_above(["visits/day=1/a", "visits/day=2/b"], "visits/day=*/*")
    [['visits/day=1', 'visits'], ['visits/day=2', 'visits']]
    >>> folders_above(["visits/a", "visits/b"], "visits/a")
    [['visits']]
    """
    segments = glob.split("/")
    wild = [place for place, each in enumerate(segments) if _WILDCARD.search(_plain(each))]
    least = min([*wild, len(segments) - 1])
    found = {}
    for path in paths:
        parts = path.split("/")[:-1]
        found["/".join(parts)] = [
            "/".join(parts[:stop]) or ("/" if path.startswith("/") else ".")
            for stop in range(len(parts), min(least, len(parts)) - 1, -1)
        ]
    return [found[folder] for folder in sorted(found)]


def _plain(segment: str) -> str:
    """A segment of a glob without its escaped characters."""
    return re.sub(r"\[[*?[]\]", "", segment)


# Beam converts an object's time with the local time zone, and may be off by an hour in summer: two
# processes in different zones disagree by that, and about nothing else.
_HOUR = 3600


@contextmanager
def explained(file: FileInfo) -> Iterator[None]:
    """Distinguish a file that cannot be read because it changed from one that is damaged.

    Args:
        file: as it was listed.

    Raises:
        InputError: as of `check_unchanged`, where it changed; else as the reader raised it.
    """
    try:
        yield
    except InputError:
        check_unchanged(file)
        raise


def check_unchanged(file: FileInfo) -> None:
    """Refuse a file that is not as it was listed.

    Raises:
        InputError: it has been removed, replaced or written to since, or the filesystem does not
            answer; both may pass.
    """
    if file.size < 0:
        return
    try:
        found = store_of(file.path).info(file.path)
    except OSError as error:
        if may_pass(error):
            raise not_now(file.path, error) from None
        raise _changed(file.path, "it cannot be found any more") from None
    if found.size != file.size:
        raise _changed(file.path, "its size changed")
    if not _same_time(file, found):
        raise _changed(file.path, "it was written again")


def _same_time(one: FileInfo, other: FileInfo) -> bool:
    if is_local(one.path):
        return one.changed == other.changed
    if not (one.changed and other.changed):
        return True
    # A store's listing may have fractions of a second that the object's own metadata lack.
    return (int(one.changed) - int(other.changed)) % _HOUR == 0


def _changed(path: str, how: str) -> InputError:
    return InputError(
        f"input: {path} changed while the job ran: {how}; run again when nothing writes there",
        again=True,
    )


def total_size(files: Sequence[FileInfo]) -> int:
    """The bytes of all files.

    >>> total_size([FileInfo("a", 3, 0.0), FileInfo("b", 4, 0.0)])
    7
    """
    return sum(file.size for file in files)


@dataclass(kw_only=True)
class ListedOnce:
    """The files of an input, which all stages of a run read as they were first listed.

    Args:
        found: the files, once they are listed.
    """

    found: list[FileInfo] = field(default_factory=list)

    def files(self, patterns: Sequence[str], arrival: Arrival = AT_ONCE) -> list[FileInfo]:
        """The files of the input.

        Args:
            patterns: as of `list_files`.
            arrival: likewise.

        Raises:
            InputError: as of `list_files`.
        """
        if not self.found:
            self.found.extend(list_files(patterns, arrival))
        return self.found


def match_files(patterns: Sequence[str], arrival: Arrival = AT_ONCE) -> list[tuple[str, int]]:
    """The files of an input as (path, bytes).

    Raises:
        InputError: as of `list_files`.
    """
    return [(file.path, file.size) for file in list_files(patterns, arrival)]


def list_files(patterns: Sequence[str], arrival: Arrival = AT_ONCE) -> list[FileInfo]:
    """The files of rows that globs match, or that lie below folders, each once and in order,
    however many of its names they match.

    Args:
        patterns: globs, or folders; all files below a folder are listed.
        arrival: what must be there.

    Raises:
        InputError: a glob or a folder has no file, or the filesystem does not answer; a file
            lies below folders that name different columns; or a folder is not complete.
    """
    globs = [all_below(each) if names_folder(each) else each for each in patterns]
    found: dict[str, FileInfo] = {}
    for pattern, glob in zip(patterns, globs, strict=True):
        matched = _matched(glob)
        rows = _with_rows(matched, glob)
        if not rows and may_name_folder(glob):
            glob = all_below(glob)
            matched = _matched(glob)
            rows = _with_rows(matched, glob)
        _check_complete(pattern, glob, matched, list(rows), arrival)
        if not rows:
            raise InputError(f"input.path: no file matches {pattern}", again=arrival.is_awaited)
        found |= rows
    chosen = [found[path] for path in _each_once(sorted(found))]
    if len(chosen) < arrival.min_files:
        raise InputError(
            f"input.min_files: {len(chosen)} files are there yet, of at least "
            f"{arrival.min_files}; run again once they are written",
            again=True,
        )
    if arrival.max_age:
        _check_age(chosen, arrival.max_age, time.time())
    return chosen


def _check_age(chosen: list[FileInfo], max_age: int, now: float) -> None:
    """Refuse files that are all too old: the files of today may be yet to come.

    Args:
        chosen: at least one file.
        max_age: of the newest file, in seconds.
        now: the time, in seconds since 1970.

    Raises:
        InputError: the newest file is older, which may pass; or no file states its time.
    """
    newest = max(chosen, key=lambda file: file.changed)
    if not newest.changed:
        raise InputError(
            f"input.max_age: the filesystem of {newest.path} does not state when a file changed; "
            "remove max_age, or use require"
        )
    age = int(now - newest.changed)
    if age > max_age:
        raise InputError(
            f"input.max_age: the newest file, {newest.path}, changed "
            f"{duration_text(_rounded(age))} ago, and at most {duration_text(max_age)} are "
            "allowed; run again once a newer file is there",
            again=True,
        )


def _rounded(seconds: int) -> int:
    """Whole minutes from an hour on, and whole hours from two days on."""
    unit = 3600 if seconds >= 172_800 else 60 if seconds >= 3600 else 1
    return seconds // unit * unit


def _check_complete(
    pattern: str, glob: str, found: list[FileInfo], rows: list[str], arrival: Arrival
) -> None:
    """Refuse a folder that is still being written.

    Raises:
        InputError: it may pass.
    """
    is_folder = glob.endswith("/**") and glob != pattern
    if is_folder and has_temporary(pattern, (each.path for each in found)):
        raise InputError(
            f"input.path: {pattern} holds _temporary/, so a job is still writing there; run again "
            "once it has ended, or delete _temporary/ if it failed",
            again=True,
        )
    if not arrival.require:
        return
    for folders in [[pattern]] if is_folder else folders_above(rows, glob):
        if not any(_holds(each, arrival.require) for each in folders):
            raise InputError(
                f"input.require: {folders[0]} does not hold {arrival.require} yet; run again once "
                "it is complete",
                again=True,
            )


def _holds(folder: str, name: str) -> bool:
    try:
        return files.exists(files.join(folder, name))
    except files.OutputError as error:
        sentence = error.sentence.removeprefix("output: ")
        raise InputError(f"input.require: {sentence}", again=error.again) from None


def _each_once(paths: list[str]) -> Iterator[str]:
    """One name of each file: rows that are read twice would count twice.

    Raises:
        InputError: by the folders of its names a file would have other rows.
    """
    first: dict[str, str] = {}
    real_folder = cache(os.path.realpath)  # many files lie in each
    for path in paths:
        other = first.setdefault(_real_file(path, real_folder), path)
        if other == path:
            yield path
        elif path_columns(other) != path_columns(path):
            raise InputError(f"input.path: {other} and {path} are one file: leave one of them out")


def _real_file(path: str, real_folder: Callable[[str], str]) -> str:
    """Return what all names of a file have in common: for a local file, its real path."""
    if not is_local(path):
        return path
    folder, name = os.path.split(path.removeprefix("file://"))
    real = os.path.join(real_folder(folder), name)
    return os.path.realpath(real) if os.path.islink(real) else real


def _with_rows(matched: Sequence[FileInfo], glob: str) -> dict[str, FileInfo]:
    return {each.path: each for each in matched if holds_rows(each.path, glob)}


def _matched(glob: str) -> list[FileInfo]:
    try:
        with warnings.catch_warnings():
            # Of Beam's own expression for a name that has a bracket.
            warnings.simplefilter("ignore", FutureWarning)
            return store_of(glob).match(_from_here(glob))
    except (OSError, re.error) as error:
        raise InputError(
            f"input.path: {glob} cannot be listed: {failure_reason(error)}", again=may_pass(error)
        ) from None


def _from_here(pattern: str) -> str:
    """Prefix "./" to a glob that begins with a wildcard: stores search no folder for one."""
    return f"./{pattern}" if set("*?[") & set(pattern.partition("/")[0]) else pattern


# A shard of so many names takes some 3 MB of memory.
_SHARD_FILES = 10_000
_PURPOSE = "input files"


@dataclass(frozen=True, kw_only=True)
class SealedList:
    """A reference to a list of files, small enough to travel in a job graph.

    Args:
        folder: that the list lies in.
        token: random, of this listing alone, in hexadecimal.
        shards: number of files that hold the list.
        number: of files in the list.
        size: of those files together, in bytes.
        key: where the key lies that seals the list.
    """

    folder: str
    token: str
    shards: int
    number: int
    size: int
    key: KeyReference

    def path(self, shard: int) -> str:
        """The place of a shard."""
        return files.join(self.folder, input_list_name(self.token, shard))

    def is_gone(self) -> bool:
        """Whether somebody deleted the list."""
        return not files.exists(self.path(0))

    def shard(self, number: int) -> list[FileInfo]:
        """The files of a shard.

        Raises:
            InputError: the shard was deleted, or is not what the launcher wrote.
        """
        path = self.path(number)
        if not files.exists(path):
            raise InputError(
                f"output: {path}, the list of the input's files, is no longer there: another run "
                "into the folder has ended; run again",
                again=True,
            )
        try:
            sealed = files.read_bytes(path)
            data = self.key.load().opened(sealed, _PURPOSE, self.token, number)
        except ValueError:
            raise InputError(f"output: {path} is not the file that the launcher wrote") from None
        return [FileInfo(*entry) for entry in json.loads(zlib.decompress(data))]


@contextmanager
def written_list(
    listed: Sequence[FileInfo], folder: str, key: KeyReference, *, keep: bool
) -> Iterator[SealedList]:
    """Write a list that exists while a job runs.

    Args:
        listed: the files.
        folder: of the release, which all workers reach.
        key: where the release key lies.
        keep: the job runs later, when this process has ended: the list stays.

    Yields:
        the reference that travels.

    Raises:
        OutputError: the folder cannot be written.
    """
    reference = SealedList(
        folder=folder,
        token=uuid.uuid4().hex,
        shards=-(-len(listed) // _SHARD_FILES),
        number=len(listed),
        size=total_size(listed),
        key=key,
    )
    try:
        _write(reference, listed)
        yield reference
    finally:
        if not keep:
            with suppress(ReleaseError):  # the next run sweeps it; the job's end is what matters
                files.delete([reference.path(shard) for shard in range(reference.shards)])


def _write(reference: SealedList, listed: Sequence[FileInfo]) -> None:
    key = reference.key.load()
    for number in range(reference.shards):
        shard = listed[number * _SHARD_FILES : (number + 1) * _SHARD_FILES]
        data = zlib.compress(json.dumps(shard, separators=(",", ":")).encode(), 1)
        sealed = key.seal(data, _PURPOSE, reference.token, number)
        files.write_whole(reference.path(number), sealed)


def path_columns(path: str) -> Mapping[str, str | None]:
    """The columns in the folders of a path, the deepest one where two have one name.

    >>> path_columns("gs://visits/year=2024/place=S%C3%A3o%20Paulo/month=07/part=0.parquet")
    {'year': '2024', 'place': 'São Paulo', 'month': '07'}
    >>> path_columns("visits/year=__HIVE_DEFAULT_PARTITION__/0.parquet")
    {'year': None}
    """
    folders = [folder.partition("=") for folder in path.split("/")[:-1]]
    return {
        unquote(name): None if value == _NULL_FOLDER else unquote(value)
        for name, equals, value in folders
        if name and equals
    }
