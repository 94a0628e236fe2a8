"""Folders of files: which of the files below a folder hold rows.

What writers leave beside their data is passed over: names that begin with `_` or `.` (`_SUCCESS`,
`_metadata`, `_temporary/`, `.part-0.parquet.crc`), checksums, and an object store's marks of
folders. Whatever else lies there must be a file of rows: one that is none is an error, so that no
rows are left out in silence.
"""

import os
import re
from collections.abc import Iterable

from dptrees.transforms.files import is_local, join

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
