"""Cases by area: scripts of commands, which are text files, and functions of a shell.

A file of `scripts` has a case below each heading. Its lines are commands of dptrees, or

    config NAME        write NAME.yaml: the lines below, which are indented; $N is a domain
    rows FILE N FIRST  write N rows from number FIRST on, as Parquet or CSV
    write FILE TEXT    write a text, in which \\n is the end of a line
    show FILE          keep the content of a file
    files FOLDER       keep a hash for each file of a folder
    page FILE          keep the words of a page
    copy A B, delete A
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from tests.golden.rows import table, write_config
from tests.golden.shell import Shell, table_text

Script = Callable[[Shell], None]
SCRIPTS: dict[str, dict[str, Script]] = {}
TEXTS = Path(__file__).with_name("scripts")

N = "domain: {column: n, type: integer, lower: 0, upper: 100}"
X = "domain: {column: x, lower: 0, upper: 100, cells: 50}"
PAY = "domain: {column: pay, type: integer, lower: 0, upper: 4096, cells: 1024}"
COLOURS = "group_by: {column: colour, keys: [red, blue, green]}"
PLACES = "domain: {kind: hierarchy, columns: [town, street], table: places.csv, unknown: other}"
CODES = (
    "domain: {kind: hierarchy, column: code, digits: [2, 2], levels: [area, code], "
    "table: codes.parquet}"
)
DAYS = (
    "domain: {kind: hierarchy, column: day, calendar: [quarter, month, day], "
    "lower: 2024-01-01, upper: 2025-01-01}"
)
BOX = (
    "domain: {kind: hypercube, columns: [{column: x, lower: 0, upper: 100, cells: 64}, "
    "{column: day, lower: 2024-01-01, upper: 2025-01-01, out_of_range: drop}, "
    "{column: colour, categories: [red, blue]}]}"
)
TWO = "domain: {kind: hypercube, columns: [x, pay], lower: [0, 0], upper: [100, 5000]}"
WIDE = (
    "domain: {kind: table, columns: [{column: n, type: integer, lower: 0, upper: 100}, "
    "{column: colour, categories: [red, blue]}, {column: town, categories: [t0, t1, t2, t4]}, "
    "{column: day, lower: 2024-01-01, upper: 2025-01-01}]}"
)
DELTA = "{epsilon: 4, delta: 0.000001, neighbors: add_remove}"
PERSON = "{epsilon: 4, delta: 0.000001, neighbors: add_remove, unit: person, max_rows: 3}"
DOMAINS = {
    **{"N": N, "X": X, "PAY": PAY, "COLOURS": COLOURS, "PLACES": PLACES, "CODES": CODES},
    **{"DAYS": DAYS, "BOX": BOX, "TWO": TWO, "WIDE": WIDE, "DELTA": DELTA, "PERSON": PERSON},
}


def script(area: str) -> Callable[[Script], Script]:
    """Add a script to an area."""

    def add(function: Script) -> Script:
        SCRIPTS.setdefault(area, {})[function.__name__] = function
        return function

    return add


def blocks(name: str) -> dict[str, list[str]]:
    """Read the lines of a text file below each of its headings."""
    text = (TEXTS / f"{name}.txt").read_text(encoding="utf-8")
    parts = (part.strip("\n").splitlines() for part in re.split("^# ", text, flags=re.M)[1:])
    return {heading: lines for heading, *lines in parts}


def filled(text: str) -> str:
    """Return a text with domains in place of their names."""
    return re.sub(r"\$([A-Z]+)\b", lambda found: DOMAINS[found[1]], text)


def play(run: Shell, lines: list[str]) -> None:
    """Run the lines of a script."""
    for number, line in enumerate(lines):
        word, _, rest = line.partition(" ")
        first, _, more = rest.partition(" ")
        if word == "config":
            write_lines(first, lines[number + 1 :])
        elif word == "rows":
            write_rows(first, table(*map(int, more.split())))
        elif word == "write":
            Path(first).write_text(more.replace("\\n", "\n"))
        elif word == "show":
            show(run, rest)
        elif word == "files":
            run.files(rest)
        elif word == "page":
            run.page(rest)
        elif word == "copy":
            shutil.copytree(first, more)
        elif word == "delete":
            shutil.rmtree(rest)
        elif word == "release":
            run.release(first, more)
        elif word:
            run(line)


def write_rows(name: str, rows: pa.Table) -> None:
    """Write rows as Parquet or CSV."""
    Path(name).parent.mkdir(exist_ok=True)
    if name.endswith(".csv"):
        pyarrow.csv.write_csv(rows.drop_columns(["clock", "stay"]), name)
    else:
        pq.write_table(rows, name)


def write_lines(name: str, lines: list[str]) -> None:
    """Write a configuration of the indented lines: sections and trees."""
    trees: list[str] = []
    sections = {}
    for line in lines:
        if not line.startswith("  "):
            break
        if line.startswith("  - "):
            trees.append(filled(line[4:]))
        else:
            key, _, value = filled(line).strip().partition(":")
            sections[key] = value.strip()
    write_config(name, *trees, **sections)


def show(run: Shell, name: str) -> None:
    """Keep the content of a table or of a text, without lines of times."""
    if name.endswith(".parquet"):
        run.keep(f"rows of {name}", table_text(pq.read_table(name)))
    else:
        lines = Path(name).read_text().splitlines()
        run.keep(name, "\n".join(line for line in lines if not re.search("seconds|time", line)))


for _file in sorted(TEXTS.glob("*.txt")):
    if _file.stem not in ("failures", "edits"):
        for _case, _lines in blocks(_file.stem).items():
            SCRIPTS.setdefault(_file.stem, {})[_case] = lambda run, lines=_lines: play(run, lines)
