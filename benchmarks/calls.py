"""The functions and files of dptrees that a query runs, imports left out.

    python -m benchmarks.calls RELEASE [QUERY ...]

runs ``dptrees query RELEASE QUERY ...`` in this process (by default ``quantile 0.5``), and prints
how many functions ran, in how many files, and which. A function is counted once, by its code; what
runs while a module is imported, and comprehensions, are not counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

from dptrees.pipelines.cli.command import main

PROJECT = Path(__file__).resolve().parents[1]
PACKAGES = ("dpcore", "dptrees", "pipelines", "transforms")


class _Profile:
    """A profile function of Python that collects the code that runs."""

    def __init__(self) -> None:
        self.codes: set[CodeType] = set()
        self._modules = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_name == "<module>":
            self._modules += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self._modules:
            self.codes.add(code)


def functions_run(run: Callable[[], object]) -> dict[str, list[str]]:
    """Return the functions of this project that a call runs, by the file that has them.

    Args:
        run: the call.

    >>> functions_run(lambda: None)
    {}
    """
    profile, found = _Profile(), dict[str, list[str]]()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    for code in profile.codes:
        file = Path(code.co_filename).resolve()
        is_own = file.is_relative_to(PROJECT) and file.relative_to(PROJECT).parts[0] in PACKAGES
        if is_own and not code.co_name.startswith("<"):
            found.setdefault(str(file.relative_to(PROJECT)), []).append(code.co_name)
    return {file: sorted(found[file]) for file in sorted(found)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("release", help="its folder")
    parser.add_argument("query", nargs=argparse.REMAINDER, help="default: quantile 0.5")
    given = parser.parse_args()
    query = given.query or ["quantile", "0.5"]
    ran = functions_run(lambda: main(["query", given.release, *query]))
    print(f"{sum(map(len, ran.values()))} functions in {len(ran)} files")
    for name, functions in ran.items():
        print(f"{name}: {', '.join(functions)}")
