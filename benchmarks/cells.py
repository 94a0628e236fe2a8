"""Time the maps from columns to cells: nanoseconds per row, against bare NumPy passes.

Run as `python benchmarks/cells.py [--rows N]`. Each figure is the best of several runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import date, datetime
from functools import partial

import numpy as np
import pyarrow as pa

from dptrees.dpcore.ordered.make import (
    CategoryDomain,
    DateDomain,
    IntegerDomain,
    KeyList,
    NumberDomain,
    OrderedDomain,
    TimestampDomain,
)


def best_seconds(work: Callable[[], object], runs: int = 5) -> float:
    """The least time of several runs."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def number_cases(
    generator: np.random.Generator, rows: int
) -> list[tuple[str, OrderedDomain, pa.Array]]:
    """Domains of numbers and the columns to read with them."""
    normal = generator.normal(300.0, 100.0, rows)
    missing = generator.random(rows) < 0.05
    whole = np.floor(normal)

    def number(cells: int, **fields: str) -> NumberDomain:
        return NumberDomain(column="x", lower=0, upper=660, cells=cells, **fields)

    return [
        ("float64, K = 660", number(660), pa.array(normal)),
        ("float64 of whole numbers, K = 660", number(660), pa.array(whole)),
        ("float64, 5 % null", number(660), pa.array(normal, mask=missing)),
        ("float64, 5 % NaN", number(660), pa.array(np.where(missing, np.nan, normal))),
        ("float64, drop outside", number(400, outside="drop"), pa.array(normal)),
        ("float64, K = 2^17", number(2**17), pa.array(normal)),
        ("float64, K = 2^23", number(2**23), pa.array(normal)),
        ("float64 on edges, K = 660 * 2^20", number(660 * 2**20), pa.array(whole)),
        ("float32, K = 660", number(660), pa.array(normal.astype(np.float32))),
        ("int32, K = 660", number(660), pa.array(whole.astype(np.int32))),
    ]


def step_cases(
    generator: np.random.Generator, rows: int
) -> list[tuple[str, OrderedDomain, pa.Array]]:
    """Domains of integers, dates and timestamps and the columns to read with them."""
    whole = generator.integers(-100, 1000, rows)
    ages = IntegerDomain(column="x", lower=0, upper=900)
    tens = IntegerDomain(column="x", lower=0, upper=900, cells=90)
    inside = IntegerDomain(column="x", lower=0, upper=900, outside="drop")
    year = DateDomain(column="x", lower=date(2013, 1, 1), upper=date(2014, 1, 1))
    hours = TimestampDomain(
        column="x", lower=datetime(2013, 1, 1), upper=datetime(2014, 1, 1), cells=8760
    )
    days = pa.array(15_700 + whole.astype(np.int32), pa.int32()).cast(pa.date32())
    moments = pa.array((15_700 + whole) * 86_400_000_000, pa.int64())
    return [
        ("int64, one a cell", ages, pa.array(whole)),
        ("int32, one a cell", ages, pa.array(whole.astype(np.int32))),
        ("int64, ten a cell", tens, pa.array(whole)),
        ("int64, drop outside", inside, pa.array(whole)),
        ("float64 as integers", ages, pa.array(whole.astype(np.float64))),
        ("date32", year, days),
        ("timestamp[us], hours", hours, moments.cast(pa.timestamp("us"))),
    ]


def list_cases(
    generator: np.random.Generator, rows: int
) -> list[tuple[str, CategoryDomain | KeyList, pa.Array]]:
    """Listed values and the columns to read with them."""
    batch = min(rows, 65_536)
    names = tuple(f"key {i}" for i in range(1_000_000))
    few = pa.array(names[:20]).take(pa.array(generator.integers(0, 20, rows)))
    many = pa.array(names).take(pa.array(generator.integers(0, len(names), batch)))
    numbers = tuple(range(0, 3_000_000, 3))
    codes = generator.integers(0, 3_000_000, rows)
    sparse = tuple(int(number) * 2**30 for number in numbers[:1000])
    return [
        ("16 strings", CategoryDomain(column="x", categories=names[:16]), few),
        (
            "16 strings, dictionary",
            CategoryDomain(column="x", categories=names[:16]),
            few.dictionary_encode(),
        ),
        ("1e6 strings, one batch of 65,536", KeyList(column="x", keys=names), many),
        ("1e6 close integers", KeyList(column="x", keys=numbers), pa.array(codes)),
        ("1000 scattered integers", KeyList(column="x", keys=sparse), pa.array(codes * 2**30)),
    ]


def print_labels() -> None:
    """Time the labels of one chunk."""
    domains: dict[str, OrderedDomain] = {
        "numbers": NumberDomain(column="x", lower=-60, upper=600, cells=2**17),
        "integers": IntegerDomain(column="x", lower=0, upper=2**18, cells=2**17),
    }
    for name, domain in domains.items():
        seconds = best_seconds(partial(domain.labels, 0, 2**17))
        print(f"{name + ', 131,072 labels':40} {seconds * 1e3:8.1f} ms")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    rows = parser.parse_args().rows
    generator = np.random.default_rng(1)
    numbers = generator.normal(300.0, 100.0, rows)
    cells = np.clip(numbers, 0, 659).astype(np.int64)
    print(f"{'what':40} {'ns per row':>10}")
    print(f"{'bare np.floor':40} {best_seconds(lambda: np.floor(numbers)) / rows * 1e9:10.2f}")
    counted = best_seconds(lambda: np.bincount(cells, minlength=660))
    print(f"{'bare np.bincount, 660 cells':40} {counted / rows * 1e9:10.2f}")
    for name, domain, column in number_cases(generator, rows) + step_cases(generator, rows):
        seconds = best_seconds(partial(domain.cell_ids, column))
        print(f"{name:40} {seconds / rows * 1e9:10.2f}")
    for name, listed, column in list_cases(generator, rows):
        read = listed.cell_ids if isinstance(listed, CategoryDomain) else listed.codes
        seconds = best_seconds(partial(read, column))
        print(f"{name:40} {seconds / len(column) * 1e9:10.2f}")
    print_labels()


if __name__ == "__main__":
    main()
