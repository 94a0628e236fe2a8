"""Runs the pages of docs/ as a reader would, and compares what they print with what they show.

    python -m tests.docs.pages --write [PAGE ...]

writes what is printed now into pages with a block of another shape, and --anew into all.
Commands run in this process; what noise changes (numbers) is not compared.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dptrees.pipelines.cli.command import main
from tests.docs.blocks import REST, Block, agrees, read_blocks

PROJECT = Path(__file__).resolve().parents[2]
DOCS = PROJECT / "docs"
FLIGHTS = PROJECT / "data" / "flights"
# The pages that a reader can follow from their first block to their last.
RUN = (
    "start.md",
    "choosing.md",
    "tour.md",
    "tutorials/series.md",
    "operations.md",
    "operations-failures.md",
    "operations-keys.md",
    "reference/python.md",
    "spark.md",
    "tables.md",
    *(f"cookbook/{path.name}" for path in sorted((DOCS / "cookbook").glob("*.md"))),
)
# In place of the folder in which a page runs.
HOME = "/home/me"
_FAILS = re.compile(r"\s+# exit (\d+)$")
_FLIGHTS = "<!-- needs data: flights -->"
# A part of a page that is there with a file of the project, as docs/site/hook.py reads it.
_IF = re.compile(r"^<!-- if: (\S+) -->\n.*?^<!-- end -->\n", re.MULTILINE | re.DOTALL)
_NEEDS = re.compile(r"<!-- needs: ([\w, ]+) -->")


class PageFailed(Exception):
    """A block of a page does not do what the page says."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """An output that a page shows, and what was printed."""

    block: Block
    printed: str

    @property
    def is_right(self) -> bool:
        """Whether both have one shape."""
        return agrees(self.block.text, self.printed)


def required_modules(page: str) -> list[str]:
    """Return the modules that a page needs beside the modules of the project.

    >>> required_modules("<!-- needs: pandas, duckdb -->")
    ['pandas', 'duckdb']
    """
    return [name.strip() for found in _NEEDS.findall(page) for name in found.split(",")]


def needs_flights(page: str) -> bool:
    """Whether a page speaks of the flights that `make demo` fetches."""
    return _FLIGHTS in page


def run_blocks(page: str) -> Iterator[Shown]:
    """Runs the blocks of a page in the working directory.

    Yields:
        each output that the page shows.

    Raises:
        PageFailed: a command ends with another code than the page says, or is none that can be run.
    """
    namespace: dict[str, Any] = {"__name__": "__page__"}
    printed: str | None = None
    absent = [part.span() for part in _IF.finditer(page) if not (PROJECT / part[1]).exists()]
    for block in read_blocks(page):
        if any(start <= block.start < stop for start, stop in absent):
            continue
        if block.title:
            path = Path(block.title)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            printed = _of_commands(block.text)
        elif block.language == "python":
            printed = _caught(lambda text=block.text: exec(text, namespace))[0]
        elif block.language == "text" and printed is not None:
            yield Shown(block=block, printed=printed.replace(str(Path.cwd()), HOME))
            printed = None


def rewritten(page: str, outputs: list[Shown]) -> str:
    """A page with what was printed in place of all that it shows, so that its numbers come from
    one release.

    What was cut short before is cut as short again: as many lines at both ends.
    """
    for shown in reversed(outputs):
        cut = cut_like(shown.block.text, shown.printed)
        page = page[: shown.block.start] + cut + page[shown.block.stop :]
    return page


def cut_like(shown: str, printed: str) -> str:
    """What was printed, without its middle where a page leaves one out.

    >>> cut_like("a\\n...\\nz\\n", "1\\n2\\n3\\n4\\n")
    '1\\n...\\n4\\n'
    """
    lines, parts = printed.splitlines(keepends=True), shown.split(f"{REST}\n")
    first, last = parts[0].count("\n"), parts[-1].count("\n")
    if len(parts) == 1 or first + last >= len(lines):
        return printed
    return "".join([*lines[:first], f"{REST}\n", *lines[len(lines) - last :]])


def _of_commands(text: str) -> str:
    """What the commands of a block print; standard error only of those that are to fail."""
    return "".join(map(_of_command, filter(None, text.replace("\\\n", " ").splitlines())))


def _of_command(line: str) -> str:
    fails = _FAILS.search(line)
    expected = 0 if fails is None else int(fails[1])
    program, *arguments = shlex.split(_FAILS.sub("", line), comments=True) or ["true"]
    if program not in _PROGRAMS:
        raise PageFailed(f"{line}: a page cannot run {program}; only to be read it is a bash block")
    out, err, code = _caught_code(lambda: _PROGRAMS[program](arguments))
    if code != expected:
        raise PageFailed(f"{line}: exit code {code}, not {expected}\n{out}{err}")
    return out if expected == 0 else out + err


def _run_python(arguments: list[str]) -> int:
    script, *rest = arguments
    before, sys.argv = sys.argv, [script, *rest]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = before
    return 0


def _make_folders(arguments: list[str]) -> int:
    for name in arguments:
        if name != "-p":
            Path(name).mkdir(parents=True, exist_ok=True)
    return 0


def _copy(arguments: list[str]) -> int:
    shutil.copy(*arguments)
    return 0


def _move(arguments: list[str]) -> int:
    shutil.move(*arguments)
    return 0


def _list_files(arguments: list[str]) -> int:
    for name in arguments or ["."]:
        print(*sorted(path.name for path in Path(name).iterdir()), sep="\n")
    return 0


_PROGRAMS: dict[str, Callable[[list[str]], int]] = {
    "dptrees": main,
    "python": _run_python,
    "mkdir": _make_folders,
    "cp": _copy,
    "mv": _move,
    "ls": _list_files,
    "true": lambda arguments: 0,
}


def _caught(run: Callable[[], object]) -> tuple[str, str]:
    """What is printed meanwhile, on standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        run()
    return out.getvalue(), err.getvalue()


def _caught_code(run: Callable[[], int]) -> tuple[str, str, int]:
    code = 0

    def with_code() -> None:
        nonlocal code
        try:
            code = run()
        except SystemExit as ended:
            code = int(ended.code or 0)

    out, err = _caught(with_code)
    return out, err, code


@contextlib.contextmanager
def folder_of_a_reader(page: str = "") -> Iterator[Path]:
    """A working directory that holds the project's examples, and the flights for a page of them."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("examples").symlink_to(PROJECT / "examples")
        if needs_flights(page):
            Path("data").mkdir()
            Path("data/flights").symlink_to(FLIGHTS)
        try:
            yield Path(folder)
        finally:
            os.chdir(before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run pages, and write what they print.")
    parser.add_argument("pages", nargs="*", default=RUN, metavar="PAGE", help="below docs/")
    parser.add_argument("--write", action="store_true", help="into the pages of another shape")
    parser.add_argument("--anew", action="store_true", help="into all pages")
    chosen = parser.parse_args()
    for name in chosen.pages:
        text = (DOCS / name).read_text(encoding="utf-8")
        if needs_flights(text) and not FLIGHTS.is_dir():
            print(f"{name}: left out, there are no flights: run make demo")
            continue
        if absent := [module for module in required_modules(text) if find_spec(module) is None]:
            print(f"{name}: left out, there is no {', '.join(absent)}")
            continue
        with folder_of_a_reader(text):
            outputs = list(run_blocks(text))
        wrong = [each for each in outputs if not each.is_right]
        print(f"{name}: {len(outputs)} outputs, {len(wrong)} of another shape")
        for each in wrong:
            print(each.printed if not chosen.write else "", end="")
        if chosen.anew or (chosen.write and wrong):
            (DOCS / name).write_text(rewritten(text, outputs), encoding="utf-8")
