"""Measures the accuracy of this project's mechanisms, released packages and papers, in Markdown.

python -m benchmarks.accuracy [--releases N] [--methods NAMES] [--rows ...] [--budgets ...]
    [--sets NAMES] [--asked ...] [--tables] [--write docs/accuracy.md]

Releases are kept in build/accuracy, and only those that are missing are made.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.accuracy.cases import (
    FLIGHTS,
    PROJECT,
    SHARED_DATA,
    Absent,
    Case,
    Method,
    Privacy,
    Records,
    found_sets,
    measure_errors,
)
from benchmarks.accuracy.ours import OURS
from benchmarks.accuracy.packages import PYTHON, package_methods
from benchmarks.accuracy.papers import PAPERS
from benchmarks.accuracy.tables import blocks
from benchmarks.harness import show_page


def record_key(method: Method, case: Case) -> str:
    """Name that distinguishes releases of one method and case from others."""
    return (
        f"{method.name} | {case.data.name} | {case.rows} | {case.privacy} | {case.quantile_count}"
    )


def measure(
    methods: Sequence[Method], cases: Sequence[Case], releases: int, records: Records
) -> None:
    """Makes as many releases of every case by every method that answers it as are missing.

    A method that is absent is said once, with what it says of itself.
    """
    made, reported = records.made(), set()
    for case in cases:
        for method in methods:
            first = made.get(record_key(method, case), 0)
            if not method.answers(case) or first >= releases:
                continue
            try:
                _measure_one(method, case, range(first, releases), records)
            except Absent as absent:
                if (said := f"{method.name}, {case.privacy}: {absent}") not in reported:
                    print(f"absent: {said}", file=sys.stderr, flush=True)
                    reported.add(said)


def _measure_one(method: Method, case: Case, numbers: range, records: Records) -> None:
    start = time.process_time()
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answers in method.run(case, numbers):
        for name, read in answers.items():
            for task, error in measure_errors(case, read).items():
                errors[name][task].append(error)
    records.add(
        {
            "key": record_key(method, case),
            "method": method.name,
            "data": case.data.name,
            "group": case.data.group,
            "rows": case.rows,
            "privacy": str(case.privacy),
            "releases": len(numbers),
            "seconds": round(time.process_time() - start, 3),
            "errors": errors,
        }
    )


KEPT = PROJECT / "build" / "accuracy" / "releases.jsonl"
ROWS = (1_000, 10_000, 100_000)
BUDGETS = ("epsilon=1", "epsilon=0.1", "rho=0.5")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accuracy", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--releases", type=int, default=50, help="of each point")
    parser.add_argument("--methods", nargs="*", metavar="NAME", help="these alone; * is a wildcard")
    parser.add_argument("--sets", nargs="*", metavar="NAME", help="these sets alone")
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--budgets", nargs="*", default=BUDGETS, metavar="MEASURE=NUMBER")
    parser.add_argument(
        "--asked",
        dest="quantile_counts",
        metavar="NUMBER",
        nargs="*",
        type=int,
        default=(0, 1, 3, 9),
        help="releases that answer everything (0) or this many quantiles alone",
    )
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--flights", type=Path, default=FLIGHTS, help="a folder of flights")
    parser.add_argument("--peers", type=Path, default=PYTHON, help="the Python that has packages")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where releases are kept")
    parser.add_argument("--tables", action="store_true", help="measure nothing more")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to write")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[Method]:
    every = [*OURS, *package_methods(options.peers), *PAPERS]
    if options.methods is None:
        return every
    return [
        each for each in every if any(fnmatch(each.name, pattern) for pattern in options.methods)
    ]


def _cases(options: argparse.Namespace) -> list[Case]:
    sets = found_sets(options.data, options.flights)
    return [
        Case(data=data, rows=rows, privacy=Privacy.of(budget), quantile_count=number)
        for budget in options.budgets
        for rows in options.rows
        for number in options.quantile_counts
        for data in sets
        if options.sets is None or data.name in options.sets
    ]


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables or writes each between its marks of a page."""
    options = _options(arguments)
    start = time.perf_counter()
    records = Records(options.kept)
    if not options.tables:
        measure(_chosen(options), _cases(options), options.releases, records)
    for name, text in blocks(records).items():
        show_page(text, options.write, name)
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
