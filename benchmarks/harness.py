"""Shared code of the benchmarks: processes that are measured, tables, and marked parts of pages."""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
SHARED_DATA = PROJECT.parent / "shared" / "data"

# What a program of `measured` may call to print its times.
PEAK = """
import resource
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
"""
# A release by the command, whose imports are timed apart.
RELEASE = """
import sys, time
start = time.perf_counter()
from dptrees.pipelines.process import import_beam, start_quickly, without_collections
start_quickly()
with without_collections():
    import_beam()
    from dptrees.pipelines.cli.command import main
    import dptrees.pipelines.run.metrics
    import dptrees.pipelines.run.releasing
begun = time.perf_counter()
sys.stdout = open("/dev/null", "w")
code = main(["release", "{config}"])
sys.stdout = sys.__stdout__
assert code == 0
print(begun - start, time.perf_counter() - begun, peak())
"""


# --- processes ---


def measured(code: str) -> tuple[float, float, float]:
    """Run a program in a process of its own; return (start-up s, work s, peak MB), as it prints."""
    command = [sys.executable, "-c", PEAK + code]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    startup, seconds, peak = map(float, run.stdout.split()[-3:])
    return startup, seconds, peak


def make_key(folder: str | Path) -> None:
    """Write a new key, `release.key` in the folder."""
    command = [sys.executable, "-m", "dptrees", "keygen", f"{folder}/release.key"]
    subprocess.run(command, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)


# --- Markdown ---


def section(title: str, *blocks: str) -> str:
    """A heading and blocks below it; all but tables are wrapped."""
    wrapped = [block if block.startswith("|") else paragraph(block) for block in blocks]
    return "\n\n".join([f"## {title}", *wrapped]) + "\n"


def paragraph(text: str) -> str:
    """Text in lines of at most 100 characters."""
    return textwrap.fill(
        " ".join(text.split()), width=100, break_long_words=False, break_on_hyphens=False
    )


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose other columns are numbers."""
    rule = ["---", *["---:"] * (len(headers) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rule, *rows))


def number(value: float) -> str:
    """Four significant digits, and all of those before the point."""
    if abs(value) >= 1e9:
        return f"{value:.4g}"
    digits = max(0, 3 - len(f"{abs(value):.0f}") + 1) if abs(value) >= 1 else 4
    return f"{value:,.{digits}f}"


def deviation(value: float) -> str:
    """A difference in standard errors."""
    return f"{value:+.1f}"


def shape(fanouts: Sequence[int]) -> str:
    """The fan-outs, with repetitions as powers."""
    runs = ((fanout, len(list(run))) for fanout, run in itertools.groupby(fanouts))
    return " · ".join(f"{fanout}^{count}" if count > 1 else str(fanout) for fanout, count in runs)


def holds(fact: bool) -> str:
    """Whether a claim was found true."""
    return "yes" if fact else "**no**"


# --- pages ---


def print_lines(about: str | None, lines: Callable[[], Iterator[str]]) -> None:
    """Run a program that has no arguments but ``--help``.

    Args:
        about: its docstring, whose first line is the help.
        lines: what it prints.
    """
    argparse.ArgumentParser(description=(about or "").splitlines()[0]).parse_args()
    for line in lines():
        print(line, flush=True)


def show_page(text: str, path: Path | None, name: str = "measured") -> None:
    """Print a text, or write it between the marks of a page.

    Args:
        text: in Markdown.
        path: of the page; None: print.
        name: of the marks, ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
    """
    if path is None:
        print(text, end="")
    else:
        page = path.read_text(encoding="utf-8")
        path.write_text(marked(page, name, text), encoding="utf-8")


def marked(page: str, name: str, text: str) -> str:
    """Return a page with another text between its marks.

    >>> marked("<!-- x: begin -->\\nold\\n<!-- x: end -->", "x", "new\\n")
    '<!-- x: begin -->\\nnew\\n<!-- x: end -->'
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    return page.split(begin)[0] + begin + text + end + page.split(end)[1]
