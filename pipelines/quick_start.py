"""What a process of the command does without, so that it starts sooner."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

# Objects between two collections of cycles. Python's 700 come every few modules of an import, which
# leave nothing to collect; so many take a few megabytes at most.
_OBJECTS = 10_000


class _NoPandas:
    """A finder of modules that has no pandas."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def start_quickly() -> None:
    """Prepare a process that runs one command, before it imports what the command needs."""
    gc.set_threshold(_OBJECTS)
    # Plugins would see configurations, and looking for them opens the metadata of every package.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    leave_pandas_out()


def leave_pandas_out() -> None:
    """Let pyarrow find no pandas: it imports pandas at the first array, where it is installed.

    The command has no frames. Where something else imports pandas afterwards, it is there.
    """
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)
