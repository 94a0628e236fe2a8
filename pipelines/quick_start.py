"""What a process of the command does without, so that it starts sooner."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dptrees.pipelines.quiet_logs import quiet_logs

# Objects between two collections of cycles. Python's 700 come every few modules of an import, which
# leave nothing to collect; so many take a few megabytes at most.
_OBJECTS = 10_000


# Beam imports them where they are installed, for types and stores that a command does not read;
# `transforms.folder.files` imports boto3 at the first request.
_UNUSED_BY_BEAM = ("pandas", "pymongo", "boto3")


# Processes of one command, as against programs that call `main`, which may need these packages.
_is_command = False


class _Without:
    """A finder of modules that refuses some packages.

    Args:
        packages: their names.
    """

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        """Raise ModuleNotFoundError for a refused package; leave others to the next finder."""
        if name in self._packages:
            raise ModuleNotFoundError(name)


def start_quickly() -> None:
    """Prepare a process that runs one command, before it imports what the command needs."""
    global _is_command
    _is_command = True
    gc.set_threshold(_OBJECTS)
    # Plugins would see configurations, and looking for them opens the metadata of every package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    leave_pandas_out()


def end_quickly() -> None:
    """Prepare the end of such a process: Python would look for cycles in all that it holds."""
    gc.freeze()


def leave_pandas_out() -> None:
    """Let pyarrow find no pandas: it imports pandas at the first array, where it is installed.

    The command has no frames. Where something else imports pandas afterwards, it is there.
    """
    if "pandas" in sys.modules:
        return
    with _without("pandas"):
        import pyarrow as pa

        pa.array([0])


def import_beam() -> None:
    """Import Beam without the optional packages that take half of its time.

    In a process that runs one command, after `start_quickly`: Beam's data frames and its MongoDB
    source do not work in it. Other processes import Beam as usual, when it is needed.
    """
    if not _is_command or "apache_beam" in sys.modules:
        return
    # Beam warns of each package that it does not find.
    with quiet_logs(logging.WARNING), _without(*_UNUSED_BY_BEAM):
        import apache_beam  # noqa: F401


@contextmanager
def without_collections() -> Iterator[None]:
    """Import modules without looking for cycles of garbage, which they do not leave, and exempt all
    objects so far from every later search; in a process that runs one command."""
    if not _is_command:
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


@contextmanager
def _without(*packages: str) -> Iterator[None]:
    """Refuse packages that are not imported yet."""
    finder = _Without(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
