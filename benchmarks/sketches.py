"""Time sketches: nanoseconds per row of data, level and row of the sketch, hashing included.

Run as `python benchmarks/sketches.py [--rows N]`. Three tables. First one level: beside it
a bare np.bincount of columns that are hashed already, and MurmurHash3 of one code at a time. Then a
hierarchy of 30 levels of codes of 40 bits, by the data: distinct codes, a multifractal, few codes.
Last strings to codes, by how many are distinct, beside MurmurHash3 of every row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import mmh3
import numpy as np
import pyarrow as pa

from benchmarks.papers.text_codes import TextHash
from dptrees.dpcore.noise.randomness import ReleaseKey, public_stream
from dptrees.dpcore.sketches.hashing import Codes
from dptrees.dpcore.sketches.prefixes import PrefixSketches
from dptrees.dpcore.sketches.shape import SketchKind, SketchShape
from dptrees.dpcore.sketches.table import update

RUNS = 3
BATCH = 2**16
WIDTHS = (2**8, 2**10, 2**12, 2**14, 2**17)
CODE_BITS = 40
LEVELS = tuple(range(11, CODE_BITS + 1))
ONE_AT_A_TIME = 100_000


def seconds(work: Callable[[], object]) -> float:
    """The least time of several runs."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def in_batches(work: Callable[[Codes], object], codes: Codes) -> float:
    """Nanoseconds a code."""

    def all_batches() -> None:
        for start in range(0, codes.size, BATCH):
            work(codes[start : start + BATCH])

    return seconds(all_batches) / codes.size * 1e9


def one_level(kind: SketchKind, rows: int, width: int, codes: Codes) -> str:
    """One line of the first table."""
    shape = SketchShape(kind=kind, rows=rows, width=width)
    hashes, table = shape.hashes(public_stream("benchmark")), shape.empty()
    took = in_batches(lambda batch: update(hashes, table, batch), codes)
    columns = (codes % np.uint64(width)).view(np.int64)
    bare = in_batches(lambda batch: np.bincount(batch, minlength=width), columns)
    return f"{kind.value:<13} {rows:>4} {width:>7} {took / rows:>10.2f} {bare:>10.2f}"


def murmur(codes: Codes) -> float:
    """Nanoseconds of MurmurHash3 of one code at a time."""
    some = [code.tobytes() for code in codes[:ONE_AT_A_TIME]]
    return seconds(lambda: [mmh3.hash64(code, 1)[0] for code in some]) / len(some) * 1e9


def data_sets(rows: int) -> dict[str, Codes]:
    """Codes of 40 bits."""
    rng = np.random.default_rng(1)
    fractal = np.zeros(rows, np.uint64)
    for _ in range(CODE_BITS):
        fractal = (fractal << np.uint64(1)) | (rng.random(rows) < 0.2).astype(np.uint64)
    few = rng.integers(0, 2**CODE_BITS, 10_000, dtype=np.uint64)
    return {
        "uniform": rng.integers(0, 2**CODE_BITS, rows, dtype=np.uint64),
        "fractal": fractal,
        "10,000": few[rng.integers(0, few.size, rows)],
    }


def hierarchy(kind: SketchKind, rows: int, name: str, codes: Codes) -> str:
    """One line of the second table."""
    shape = SketchShape(kind=kind, rows=rows, width=2**12)
    sketches = PrefixSketches(shape=shape, code_bits=CODE_BITS, levels=LEVELS)
    hashes, tables = sketches.hashes(ReleaseKey(bytes(32)), "benchmark"), sketches.empty()
    took = in_batches(lambda batch: sketches.update(hashes, tables, batch), codes)
    each = took / len(LEVELS) / rows
    return f"{kind.value:<13} {rows:>4} {name:>8} {each:>10.2f} {1e3 / took:>10.2f}"


def texts(distinct: int, rows: int) -> str:
    """One line of the third table."""
    rng = np.random.default_rng(2)
    words = pa.array([f"a text of some length {k}" for k in range(distinct)])
    column = words.take(pa.array(rng.integers(0, distinct, rows)))
    hashing = TextHash(public_stream("benchmark"))
    took = seconds(lambda: hashing.codes(column)) / rows * 1e9
    some = column.slice(0, ONE_AT_A_TIME)
    one = seconds(lambda: [mmh3.hash64(each.as_py())[0] for each in some]) / len(some) * 1e9
    return f"{distinct:>9} {took:>10.2f} {one:>10.2f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    rows = parser.parse_args().rows
    codes = np.random.default_rng(0).integers(0, 2**64, rows, dtype=np.uint64)
    print(f"MurmurHash3 of one code at a time, in Python: {murmur(codes):.0f} ns")
    print(f"{'sketch':<13} {'rows':>4} {'width':>7} {'ns':>10} {'bincount':>10}")
    for kind in SketchKind:
        for sketch_rows in (1, 3):
            for width in WIDTHS:
                print(one_level(kind, sketch_rows, width, codes))
    print(f"\n{len(LEVELS)} levels, width 4096; a row of data, a level, a row of the sketch")
    print(f"{'sketch':<13} {'rows':>4} {'codes':>8} {'ns':>10} {'M rows/s':>10}")
    sets = data_sets(rows)
    for kind in SketchKind:
        for sketch_rows in (1, 3):
            for name, values in sets.items():
                print(hierarchy(kind, sketch_rows, name, values))
    print(f"\n{'distinct':>9} {'ns a row':>10} {'each row':>10}")
    for distinct in (100, 10_000, 1_000_000):
        print(texts(distinct, rows))


if __name__ == "__main__":
    main()
