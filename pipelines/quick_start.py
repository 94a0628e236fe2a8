"""What a process of the command does without, so that it starts sooner."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Objects between two collections of cycles. Python's 700 come every few modules of an import, which
# leave nothing to collect; so many take a few megabytes at most.
_OBJECTS = 10_000


# Beam imports them where they are installed, for types and stores that a command does not read;
# `transforms.s3_client` imports boto3 at the first request.
_UNUSED_BY_BEAM = ("pandas", "pymongo", "boto3")


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

    For a process that runs one command: Beam's data frames and its MongoDB source do not work in
    it. Where something else imports these packages afterwards, they are there.
    """
    if "apache_beam" in sys.modules:
        return
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # Beam warns of each package that it does not find
    try:
        with _without(*_UNUSED_BY_BEAM):
            import apache_beam  # noqa: F401
    finally:
        logging.disable(disabled)


@contextmanager
def without_collections() -> Iterator[None]:
    """Import modules without looking for cycles of garbage, which they do not leave; the first
    time, exempt all objects so far from every later search."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
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
