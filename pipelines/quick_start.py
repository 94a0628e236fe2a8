"""What the command leaves out of a process that needs it not: it starts a third sooner."""

from __future__ import annotations

import sys
from collections.abc import Sequence


class _NoPandas:
    """A finder of modules that has no pandas."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


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
