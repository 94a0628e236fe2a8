"""The tests of what changed since a commit, as paths for pytest: `make check` runs them.

A changed test is its own test; a module's are all of its package (dpcore/rows/keys.py:
tests/dpcore/rows), or of its name if it is in none (dpcore/numbers.py: tests/dpcore/numbers);
a page's are all of tests/docs. Which modules import a changed one is not looked at: `make
test-all` runs everything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

PROJECT = Path(__file__).resolve().parents[1]
ALWAYS = ("tests/test_layers.py", "tests/test_order.py")
PACKAGES = ("dpcore", "transforms", "pipelines")


def changed_files(since: str) -> list[str]:
    """The paths of files that differ from a commit, and of those that git does not know yet."""
    commands = (
        ("git", "diff", "--name-only", "--diff-filter=d", since),
        ("git", "ls-files", "--others", "--exclude-standard"),
    )
    return [
        line
        for command in commands
        for line in subprocess.run(
            command, cwd=PROJECT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]


def find_tests(path: str, present: set[str]) -> Iterator[str]:
    """Find the tests of a changed file.

    Args:
        path: from the project's folder.
        present: the paths of all test files.

    >>> present = {"tests/dpcore/rows/test_keys.py", "tests/dpcore/numbers/test_mean.py"}
    >>> list(find_tests("dpcore/rows/policies.py", present))
    ['tests/dpcore/rows/test_keys.py']
    >>> list(find_tests("dpcore/numbers.py", present))
    ['tests/dpcore/numbers/test_mean.py']
    >>> list(find_tests("docs/start.md", {"tests/docs/test_pages.py"}))
    ['tests/docs/test_pages.py']
    """
    file = PurePosixPath(path)
    if path in present:
        yield path
    elif file.suffix == ".md":
        yield from (each for each in present if each.startswith("tests/docs/"))
    elif file.suffix == ".py" and file.parts[0] in PACKAGES:
        is_package = len(file.parts) > 2
        folder = f"tests/{file.parent if is_package else file.with_suffix('')}/"
        yield from (each for each in present if each.startswith(folder))


def main(since: str) -> None:
    """Print the paths, sorted."""
    present = {
        path.relative_to(PROJECT).as_posix() for path in (PROJECT / "tests").rglob("test_*.py")
    }
    found = {test for path in changed_files(since) for test in find_tests(path, present)}
    print(*sorted(found | set(ALWAYS)), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "HEAD")
