"""Which files an input consists of, and whether all of them are there yet."""

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dptrees.transforms import files
from dptrees.transforms.errors import InputError
from dptrees.transforms.files import failure_reason, is_local
from dptrees.transforms.passing import may_pass
from dptrees.transforms.readers.arrival import AT_ONCE, Arrival, duration_text
from dptrees.transforms.readers.file_columns import path_columns
from dptrees.transforms.readers.folders import (
    all_below,
    folders_above,
    has_temporary,
    holds_rows,
    may_name_folder,
    names_folder,
)
from dptrees.transforms.readers.input_file import InputFile, listed


@dataclass(kw_only=True)
class ListedOnce:
    """The files of an input, which all stages of a run read as they were first listed.

    Args:
        found: the files, once they are listed.
    """

    found: list[InputFile] = field(default_factory=list)

    def files(self, patterns: Sequence[str], arrival: Arrival = AT_ONCE) -> list[InputFile]:
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


def list_files(patterns: Sequence[str], arrival: Arrival = AT_ONCE) -> list[InputFile]:
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
    found: dict[str, InputFile] = {}
    for pattern, glob, result in zip(patterns, globs, _matches(globs), strict=True):
        rows = _listed_files(result, glob)
        if not rows and may_name_folder(glob):
            glob = all_below(glob)
            (result,) = _matches([glob])
            rows = _listed_files(result, glob)
        _check_complete(pattern, glob, result, list(rows), arrival)
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


def _check_age(chosen: list[InputFile], max_age: int, now: float) -> None:
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
    pattern: str, glob: str, result: Any, rows: list[str], arrival: Arrival
) -> None:
    """Refuse a folder that is still being written.

    Raises:
        InputError: it may pass.
    """
    is_folder = glob.endswith("/**") and glob != pattern
    if is_folder and has_temporary(pattern, (each.path for each in result.metadata_list)):
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
    """What all names of a file share: of a local one that they lead to one place."""
    if not is_local(path):
        return path
    folder, name = os.path.split(path.removeprefix("file://"))
    real = os.path.join(real_folder(folder), name)
    return os.path.realpath(real) if os.path.islink(real) else real


def _listed_files(result: Any, glob: str) -> dict[str, InputFile]:
    found = result.metadata_list
    return {each.path: listed(each) for each in found if holds_rows(each.path, glob)}


def _matches(patterns: Sequence[str]) -> list[Any]:
    try:
        with warnings.catch_warnings():
            # Of Beam's own expression for a name that has a bracket.
            warnings.simplefilter("ignore", FutureWarning)
            return list(FileSystems.match([*map(_from_here, patterns)]))
    except BeamIOError as error:
        raise InputError(
            f"input.path: {', '.join(patterns)} cannot be listed: {failure_reason(error)}",
            again=may_pass(error),
        ) from None


def _from_here(pattern: str) -> str:
    """A glob that Beam can match: of one that begins with a wildcard it looks into no folder."""
    return f"./{pattern}" if set("*?[") & set(pattern.partition("/")[0]) else pattern
