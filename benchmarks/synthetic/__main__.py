"""Measures generators of synthetic rows, in Markdown.

python -m benchmarks.synthetic [--short] [--data FOLDER] [--write docs/synthetic.md]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.reproduction.markdown import table
from benchmarks.synthetic.compared import GENERATORS
from benchmarks.synthetic.machine_learning import COLUMNS, by_partition, compare, read_codes
from benchmarks.synthetic.settings import settings_table
from benchmarks.synthetic.study import (
    LONG,
    SHORT,
    Extent,
    main_tables,
    measure_tables,
    parameter_tables,
)

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def document(extent: Extent, data: Path) -> str:
    """Return the text between the marks."""
    parts = [
        "## Expected distance",
        main_tables(extent),
        "## PrivHP's parameters",
        parameter_tables(extent),
        "## The choices of a grown tree",
        settings_table(extent),
        "## Other measures",
        measure_tables(extent),
    ]
    if (data / "adult.csv").exists() and importlib.util.find_spec("sklearn"):
        parts += ["## A classifier taught by synthetic rows", classifier_table(data)]
    return "\n\n".join(parts)


def classifier_table(data: Path, *, seeds: int = 3) -> str:
    """Accuracy and area under the curve on Adult, means over splits of the rows."""
    sizes = json.loads((data / "adult-domain.json").read_text(encoding="utf-8"))
    rows = read_codes(data / "adult.csv")
    able = [each for each in GENERATORS if each.columns >= len(COLUMNS)]
    lines = []
    for epsilon in (0.1, 1.0, 10.0):
        makers = {
            each.name: by_partition(each, epsilon, [sizes[name] for name in COLUMNS])
            for each in able
        }
        found = [compare(rows, makers, seed=seed) for seed in range(seeds)]
        for name in found[0]:
            scores = [(each[name].accuracy, each[name].area) for each in found]
            accuracy, area = np.mean(scores, axis=0)
            lines.append([f"{epsilon:g}, {name}", f"{accuracy:.3f}", f"{area:.3f}"])
    return table(["epsilon, trained on", "accuracy", "area under the curve"], lines)


def main(arguments: list[str] | None = None) -> int:
    """Prints the tables or writes them between the marks of a page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synthetic", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--short", action="store_true", help="fewer sizes and runs")
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="the page to write")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    tables = document(SHORT if options.short else LONG, options.data)
    if options.write is None:
        print(tables)
    else:
        page = options.write.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        text = f"{before}{BEGIN}\n{tables}\n{END}{after}"
        options.write.write_text(text, encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} seconds", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
