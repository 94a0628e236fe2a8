"""A file of the input as it was listed, and the check that it still is when it is read.

A folder can change between the listing and the end of a job, which may be minutes on an engine. A
file that vanished would take its rows out of the release without a word, so a file that is missing
or changed ends the job, and one that appears later is not read.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from dptrees.transforms.errors import InputError
from dptrees.transforms.files import is_local
from dptrees.transforms.passing import may_pass, not_now

# Beam converts an object's time with the local time zone, and may be off by an hour in summer: two
# processes in different zones disagree by that, and about nothing else.
_HOUR = 3600


class InputFile(NamedTuple):
    """A file of rows as it was listed.

    Attributes:
        path: of the file.
        size: in bytes; below 0: the file is not checked.
        changed: time of its last change, in seconds since 1970; 0: a store of
            objects does not say.
    """

    path: str
    size: int
    changed: float


@contextmanager
def explained(file: InputFile) -> Iterator[None]:
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


def check_unchanged(file: InputFile) -> None:
    """Refuse a file that is not as it was listed.

    Raises:
        InputError: it has been removed, replaced or written to since, or the filesystem does not
            answer; both may pass.
    """
    if file.size < 0:
        return
    try:
        found = _as_it_is(file.path)
    except (OSError, BeamIOError) as error:
        if may_pass(error):
            raise not_now(file.path, error) from None
        raise _changed(file.path, "it cannot be found any more") from None
    if found.size != file.size:
        raise _changed(file.path, "its size changed")
    if not _same_time(file, found):
        raise _changed(file.path, "it was written again")


def _as_it_is(path: str) -> InputFile:
    if is_local(path):
        status = os.stat(path.removeprefix("file://"))
        return InputFile(path, status.st_size, status.st_mtime)
    return listed(FileSystems.get_filesystem(path).metadata(path))


def listed(metadata: Any) -> InputFile:
    """The file that Beam's metadata describe."""
    changed = metadata.last_updated_in_seconds or 0.0
    return InputFile(metadata.path, metadata.size_in_bytes, float(changed))


def _same_time(one: InputFile, other: InputFile) -> bool:
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


def total_size(files: Sequence[InputFile]) -> int:
    """The bytes of all files.

    >>> total_size([InputFile("a", 3, 0.0), InputFile("b", 4, 0.0)])
    7
    """
    return sum(file.size for file in files)
