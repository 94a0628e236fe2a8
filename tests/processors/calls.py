"""Which functions give other results for the same arguments on another processor.

    python -m tests.processors.calls FOLDER NAME

makes one release of `tests.processors.releases` and prints a line for every call of a function of
the three packages: the function, a digest of its arguments and one of its result. A function is
where a difference begins if, on two processors, the same arguments gave two results and no function
that it called did so too.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = ("dptrees.dpcore", "dptrees.transforms", "dptrees.pipelines")
# Longer arguments and results are not looked at.
_MOST_BYTES = 1 << 22


def digest(value: object) -> str:
    """Return a digest of a value, "" of what cannot be pickled."""
    try:
        data = pickle.dumps(value, protocol=5)
    except Exception:
        return ""
    return "" if len(data) > _MOST_BYTES else hashlib.sha256(data).hexdigest()[:12]


class Calls:
    """A profiler that notes arguments and results of calls; caches make later calls invisible."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str, int]] = []
        self._open: list[tuple[FrameType, str, str, int]] = []

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(PACKAGES) or frame.f_code.co_name.startswith("<"):
            return
        if event == "call":
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = {each: frame.f_locals.get(each) for each in names}
            own = f"{name}.{code.co_qualname}:{code.co_firstlineno}"
            self._open.append((frame, own, digest(given), len(self._open)))
        elif event == "return" and self._open and self._open[-1][0] is frame:
            _, own, given, depth = self._open.pop()
            is_generator = frame.f_code.co_flags & 0x20
            if not is_generator:
                self.lines.append((own, given, digest(result), depth))


def noted(folder: Path, name: str) -> Iterator[str]:
    """Make a release and yield a line for every call."""
    from tests.processors.releases import make

    calls = Calls()
    sys.setprofile(calls)
    try:
        for _ in make(folder, (name,)):
            pass
    finally:
        sys.setprofile(None)
    for own, given, result, depth in calls.lines:
        yield f"{depth} {own} {given or '-'} {result or '-'}"


if __name__ == "__main__":
    for line in noted(Path(sys.argv[1]), sys.argv[2]):
        print(line)
