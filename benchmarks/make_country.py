"""Write the rows of a generated country in Parquet, deterministic and in flat memory.

    python -m benchmarks.make_country FOLDER [--fraction 0.01] [--rows 1000000]

The whole country has 330 million rows, one a person, in 8.1 million blocks of 220,000 block groups,
73,000 tracts, 3,140 counties and 51 states: about the sizes of the United States. A fraction of it
has so many of the rows and of the nodes, but all states, each smaller: fan-outs and populations of
blocks stay as they are. Above 1 it is a larger country of 51 states, whose counties have five
digits.

    FOLDER/blocks.parquet       the universe: the codes of all blocks, in order
    FOLDER/rows/part-*.parquet  the block of each person

Both have one int64 column ``block``: 15 digits, for state 2, county 3, tract 6, block group 1 and
block 3. Sizes of states, counties and so on are unequal as lognormal variables are. Of the blocks
3 in 10 are empty, and the populations of the others are lognormal too (their logarithms have the
standard deviation of the blocks of Rhode Island in 2010, 1.1).

A file is an even sample of the whole country, its rows shuffled: neither files nor rows are sorted
by place, since sorted rows would flatter caches. ``blocks.parquet`` is written last.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dptrees.dpcore.arrays import Floats, Integers

LEVELS = ("state", "county", "tract", "block group", "block")
DIGITS = (2, 3, 6, 1, 3)
LARGE_DIGITS = (2, 5, 6, 1, 3)
NODES = (51, 3_140, 73_000, 220_000, 8_100_000)
ROWS = 330_000_000

# How siblings are numbered: as in the census, counties oddly and tracts with two spare digits.
FIRST, STEP = (1, 1, 100, 1, 0), (1, 2, 100, 1, 1)
# Of the 56 two-digit codes of the states these are not given.
NO_STATE = (3, 7, 14, 43, 52)
# By level, the standard deviation of the logarithm of a node's size beside its siblings'.
SPREAD = (0.95, 1.3, 0.35, 0.55, 0.0)
EMPTY_BLOCKS = 0.3
POPULATION_SPREAD = 1.1

SEED = 2020
ROWS_PER_FILE = 8_250_000
ROWS_PER_GROUP = 1 << 20
COLUMN = "block"
SCHEMA = pa.schema([pa.field(COLUMN, pa.int64(), nullable=False)])


def level_sizes(fraction: float) -> tuple[int, ...]:
    """The number of nodes of each level below the root, in a fraction of the country."""
    below = (max(NODES[0], round(nodes * fraction)) for nodes in NODES[1:])
    return NODES[0], *below


def level_digits(fraction: float) -> tuple[int, ...]:
    """Return the number of digits of each level of a code."""
    return DIGITS if fraction <= 1 else LARGE_DIGITS


def row_count(fraction: float) -> int:
    """The number of rows of a fraction of the country."""
    return round(ROWS * fraction)


def shares(weights: Floats, total: int) -> Integers:
    """Whole numbers in the ratio of weights, (n,), each less than 1 off, that sum to a total."""
    sums = np.cumsum(weights)
    ends = np.rint(sums / sums[-1] * total).astype(np.int64)
    parts: Integers = np.diff(ends, prepend=0)
    return parts


def fanouts(weights: Floats, children: int, most: int) -> Integers:
    """How many children each node gets, by weight: at least 1 and at most ``most``."""
    if not len(weights) <= children <= most * len(weights):
        raise ValueError(f"{children} children do not fit {len(weights)} nodes of at most {most}")
    sizes = np.ones(len(weights), np.int64)
    while left := children - int(sizes.sum()):
        may_grow = np.where(sizes < most, weights, 0.0)
        sizes = np.minimum(sizes + shares(may_grow, left), most)
    return sizes


def block_codes(fraction: float) -> Integers:
    """The codes of all blocks of a fraction of the country, rising."""
    generator = np.random.default_rng([SEED, 0])
    sizes = level_sizes(fraction)
    codes = np.setdiff1d(np.arange(1, sizes[0] + len(NO_STATE) + 1), NO_STATE)
    normal = statistics.NormalDist()
    places = [normal.inv_cdf((state + 0.5) / sizes[0]) for state in range(sizes[0])]
    # States by quantiles, since a draw of 51 may be any country; in an order by chance.
    weights = np.exp(SPREAD[0] * generator.permutation(places))
    digits = level_digits(fraction)
    for level in range(1, len(sizes)):
        most = (10 ** digits[level] - 1 - FIRST[level]) // STEP[level] + 1
        counts = fanouts(weights, sizes[level], most)
        firsts = np.repeat(np.cumsum(counts) - counts, counts)
        numbers = FIRST[level] + STEP[level] * (np.arange(sizes[level]) - firsts)
        codes = np.repeat(codes, counts) * 10 ** digits[level] + numbers
        drawn = generator.lognormal(0.0, SPREAD[level], sizes[level])
        weights = np.repeat(weights / counts, counts) * drawn
    return codes


def populations(fraction: float, rows: int | None = None) -> Integers:
    """The number of rows of each block, in the order of `block_codes`.

    Args:
        fraction: of the country.
        rows: of all of it; None: as many as the fraction has.
    """
    generator = np.random.default_rng([SEED, 1])
    blocks = level_sizes(fraction)[-1]
    weights = generator.lognormal(0.0, POPULATION_SPREAD, blocks)
    weights[generator.random(blocks) < EMPTY_BLOCKS] = 0.0
    return shares(weights, row_count(fraction) if rows is None else rows)


def file_rows(codes: Integers, people: Integers, number: int, files: int) -> Integers:
    """The rows of file ``number``, shuffled: every ``files``-th person of the country from there.

    Args:
        codes: of all blocks, (blocks,).
        people: how many people live in this and all earlier blocks, (blocks,).
        number: 0..files - 1.
        files: how many there are.
    """
    before = (people - number + files - 1) // files
    rows: Integers = np.repeat(codes, np.diff(before, prepend=0))
    np.random.default_rng([SEED, 2, number]).shuffle(rows)
    return rows


def write_codes(path: Path, codes: Integers) -> None:
    """Write a file of codes."""
    # Hardly any code repeats within a row group, so a dictionary would only cost; split by bytes,
    # what the codes have in common is compressed.
    table = pa.table([pa.array(codes)], schema=SCHEMA)
    pyarrow.parquet.write_table(
        table,
        path,
        row_group_size=ROWS_PER_GROUP,
        compression="lz4",
        use_dictionary=False,
        use_byte_stream_split=True,
    )


def write_country(folder: Path, fraction: float, rows: int | None = None) -> None:
    """Write the rows, as many as the fraction has or other ones, and then the universe of a
    fraction of the country."""
    (folder / "rows").mkdir(parents=True, exist_ok=True)
    universe = folder / "blocks.parquet"
    for old in (universe, *(folder / "rows").glob("part-*.parquet")):
        old.unlink(missing_ok=True)
    codes, people = block_codes(fraction), np.cumsum(populations(fraction, rows))
    files = -(-int(people[-1]) // ROWS_PER_FILE)
    for number in range(files):
        path = folder / "rows" / f"part-{number + 1:04d}-of-{files:04d}.parquet"
        write_codes(path, file_rows(codes, people, number, files))
    write_codes(universe, codes)


def parse_fraction(text: str) -> float:
    """Parse a part of the country."""
    fraction = float(text)
    if not 1e-4 <= fraction <= 125:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.0001 to 125")
    return fraction


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files into the folder named on the command line."""
    parser = argparse.ArgumentParser(description="Write the rows of a generated country.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fraction", type=parse_fraction, default=1.0, help="such as 0.1 or 0.01")
    parser.add_argument("--rows", type=int, help="in all, rather than 41 a block")
    chosen = parser.parse_args(arguments)
    began = time.perf_counter()
    write_country(chosen.folder, chosen.fraction, chosen.rows)
    rows = row_count(chosen.fraction) if chosen.rows is None else chosen.rows
    seconds = time.perf_counter() - began
    blocks = level_sizes(chosen.fraction)[-1]
    print(f"{rows:,} rows in {blocks:,} blocks: {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
