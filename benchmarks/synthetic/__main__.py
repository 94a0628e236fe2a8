"""Measures generators of synthetic rows, in Markdown.

    python -m benchmarks.synthetic [--short] [--write docs/synthetic-accuracy.md]
    python -m benchmarks.synthetic --only classifier --write docs/synthetic-accuracy.md

The second command writes one section. The section of the classifier is drawn from scores on disk,
which ``python -m benchmarks.synthetic.classifier`` measures.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import marked
from benchmarks.synthetic import classifier
from benchmarks.synthetic.study import (
    LONG,
    SHORT,
    Extent,
    main_tables,
    measure_tables,
    parameter_tables,
    settings_table,
)

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def classifier_tables(extent: Extent) -> str:
    """The tables of the stored scores, whatever the extent."""
    return classifier.section(classifier.read_scores(classifier.STORED))


# Names of sections for the command, their headings, and what makes their tables.
SECTIONS: dict[str, tuple[str, Callable[[Extent], str]]] = {
    "distance": ("## Expected distance", lambda extent: main_tables(extent)),
    "privhp": ("## PrivHP's parameters", lambda extent: parameter_tables(extent)),
    "choices": ("## The choices of a grown tree", lambda extent: settings_table(extent)),
    "measures": ("## Other measures", lambda extent: measure_tables(extent)),
    "classifier": ("## A classifier taught by synthetic rows", classifier_tables),
}


def sections(names: Sequence[str], extent: Extent) -> dict[str, str]:
    """Some sections by their headings, each with its tables."""
    made = (SECTIONS[name] for name in names)
    return {heading: f"{heading}\n\n{tables(extent)}" for heading, tables in made}


def replaced(page: str, made: dict[str, str]) -> str:
    """A page whose sections between the marks are replaced by new ones with the same headings.

    Sections that the page does not have come last.
    """
    parts = page.split(BEGIN)[1].split(END)[0].strip().split("\n\n## ")
    known = {}
    for part in filter(None, parts):
        text = part if part.startswith("## ") else f"## {part}"
        known[text.splitlines()[0]] = text.strip()
    text = "\n\n".join((known | made).values())
    return marked(page, "measured", f"{text}\n")


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables or writes them between the marks of a page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synthetic", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--short", action="store_true", help="fewer sizes and runs")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=SECTIONS,
        default=list(SECTIONS),
        metavar="SECTION",
        help="; ".join(SECTIONS),
    )
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to write")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    made = sections(options.only, SHORT if options.short else LONG)
    if options.write is None:
        print("\n\n".join(made.values()))
    else:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(replaced(page, made), encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
