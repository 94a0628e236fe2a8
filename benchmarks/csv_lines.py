"""Time the reading of CSV files: rows separated line by line, against bare Arrow.

Run as `python benchmarks/csv_lines.py [--rows N]`. They take turns, and each figure is the best of
several runs, in millions of rows per second. Of six columns two are read, numbers and strings.
Bare Arrow is the streaming reader with the options that dptrees had before lines were separated,
and with malformed rows skipped, but it joins the lines between stray quotes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from dptrees.dpcore.levels.planner import plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.make import CategoryDomain, NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.uniform.setting import TreeSetting
from dptrees.transforms.readers import csv_rows
from dptrees.transforms.readers.column_types import column_types
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_values import typed
from dptrees.transforms.readers.read import FileSplit

DOMAINS = (
    NumberDomain(column="delay", lower=-60, upper=600, cells=660),
    CategoryDomain(column="carrier", categories=("UA", "AA", "DL")),
)


def plan_of_domains() -> ReleasePlan:
    """A plan that reads both columns."""
    share = Budget(measure=Measure.EPSILON, amount=1)
    questions = [
        OrderedQuestion(
            name=domain.column,
            domain=domain,
            mechanism=UniformMechanism(
                plan=plan_tree(TreeSetting(leaves=domain.cells, budget=share, unit=ADD_REMOVE_ROW))
            ),
        )
        for domain in DOMAINS
    ]
    whole = Budget(measure=Measure.EPSILON, amount=len(questions))
    return ReleasePlan(name="csv", unit=ADD_REMOVE_ROW, budget=whole, questions=tuple(questions))


def flight_rows(rows: int) -> pa.Table:
    """Rows like the flights."""
    generator = np.random.default_rng(1)
    carriers = pa.array(["UA", "AA", "DL", "B6", "WN"])
    return pa.table(
        {
            "day": generator.integers(1, 365, rows),
            "carrier": carriers.take(pa.array(generator.integers(0, 5, rows))),
            "flight": generator.integers(1, 9999, rows),
            "delay": np.round(generator.normal(10, 40, rows), 1),
            "distance": generator.integers(100, 3000, rows),
            "origin": pa.array(["Newark", "Kennedy"]).take(
                pa.array(generator.integers(0, 2, rows))
            ),
        }
    )


def spoilt(lines: list[bytes], bad: tuple[bytes, ...], every: int) -> bytes:
    """The lines of a file with some replaced by bad ones, in turn."""
    for turn, place in enumerate(range(every // 2, len(lines), every)):
        lines[place] = bad[turn % len(bad)]
    return b"\n".join(lines)


def write_files(folder: Path, rows: int) -> dict[str, Path]:
    """The files to read, by what they hold."""
    names = ["unquoted", "with accents", "fully quoted", "1 % ragged", "1 % malformed"]
    paths = {name: folder / f"{number}.csv" for number, name in enumerate(names)}
    table = flight_rows(rows)
    none = pa_csv.WriteOptions(quoting_style="none")
    pa_csv.write_csv(table, paths["unquoted"], none)
    texts = table.cast(pa.schema([(name, pa.string()) for name in table.schema.names]))
    pa_csv.write_csv(texts, paths["fully quoted"], pa_csv.WriteOptions(quoting_style="all_valid"))
    plain = paths["unquoted"].read_bytes()
    paths["with accents"].write_bytes(plain.replace(b"Newark", "Orléans".encode()))
    ragged = (b"1,UA,1,2.0,3", b"1,UA,1,2.0,3,4,5")
    others = (b'"1,UA,1,2.0,3,Newark', b"1,\xe9,1,2.0,3,x")
    paths["1 % ragged"].write_bytes(spoilt(plain.split(b"\n"), ragged, 100))
    paths["1 % malformed"].write_bytes(spoilt(plain.split(b"\n"), ragged + others, 100))
    return paths


def reader_batches(path: Path, plan: ReleasePlan, csv: CsvFormat) -> Iterator[pa.RecordBatch]:
    """The batches of the reader."""
    return csv_rows.batches(str(path), FileSplit(str(path), 0, 0, 0), plan, csv)


def bare(path: Path, plan: ReleasePlan) -> Iterator[pa.RecordBatch]:
    """The batches of Arrow's reader, as values."""
    names, types = list(plan.columns), column_types(plan)
    reader = pa_csv.open_csv(
        pa.input_stream(str(path)),
        read_options=pa_csv.ReadOptions(block_size=2**24),
        parse_options=pa_csv.ParseOptions(
            newlines_in_values=True, invalid_row_handler=lambda row: "skip"
        ),
        convert_options=pa_csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    with reader:
        for batch in reader:
            columns = [typed(batch.column(name), types[name]) for name in names]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def best_rates(works: list[Callable[[], Iterator[pa.RecordBatch]]], runs: int) -> list[float]:
    """The best rate of each, in rows per second; they take turns. 0 for one that fails."""
    rates = [0.0] * len(works)
    for _ in range(runs):
        for place, work in enumerate(works):
            start = time.perf_counter()
            try:
                rows = sum(batch.num_rows for batch in work())
            except (pa.ArrowException, UnicodeDecodeError):
                continue
            rates[place] = max(rates[place], rows / (time.perf_counter() - start))
    return rates


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    plan = plan_of_domains()
    lines, records = CsvFormat(), CsvFormat(newlines=True)
    print(
        f"{'millions of rows per second':28} {'lines':>8} {'records':>8} {'Arrow':>8} {'ratio':>8}"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, path in write_files(Path(folder), arguments.rows).items():
            rates = best_rates(
                [
                    lambda path=path: reader_batches(path, plan, lines),
                    lambda path=path: reader_batches(path, plan, records),
                    lambda path=path: bare(path, plan),
                ],
                arguments.runs,
            )
            figures = [f"{rate / 1e6:8.2f}" if rate else f"{'fails':>8}" for rate in rates]
            ratio = f"{rates[0] / rates[2]:8.2f}" if rates[2] else f"{'':>8}"
            print(f"{name:28} {' '.join(figures)} {ratio}")


if __name__ == "__main__":
    main()
