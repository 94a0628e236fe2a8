"""Histograms to be accurate on: of public data where they are found, and synthetic ones.

The seeds are fixed, so that everybody measures on the same counts. A set gives a shape, from which
any number of rows is drawn, once for each number.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from dptrees.dpcore.arrays import Floats, Integers

CELLS = 4096
PROJECT = Path(__file__).resolve().parents[2]
SHARED_DATA = PROJECT.parent / "shared" / "data"
FLIGHTS = PROJECT / "data" / "flights"
_SEED = 17


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A histogram.

    Attributes:
        name: of the set.
        group: sets of one group have as many cells, or are as many as their values are.
        shape: (K,) what part of the rows each cell has.
        levels: of a hierarchy, the first cell of every node, by the name of its level; the cells
            are its leaves.
        codes: of a hierarchy, the (K,) codes of its leaves.
    """

    name: str
    group: str
    shape: Floats
    levels: Mapping[str, Integers] = field(default_factory=dict)
    codes: tuple[str, ...] = ()

    def counts(self, rows: int) -> Integers:
        """(K,) the exact counts of this many rows, always the same."""
        rng = np.random.default_rng([_SEED, rows, *self.name.encode()])
        return rng.multinomial(rows, self.shape).astype(np.int64)


def count_cells(values: Floats, lower: float, upper: float, cells: int) -> Floats:
    """(cells,) how many values lie in each; those outside in the nearest.

    >>> count_cells(np.array([-3.0, 0.0, 1.5, 9.0]), 0, 2, 4)
    array([2., 0., 0., 2.])
    """
    place = np.floor((values - lower) / (upper - lower) * cells).clip(0, cells - 1)
    return np.bincount(place.astype(np.int64), minlength=cells).astype(float)


def _flights(folder: Path, column: str) -> Floats:
    values = pq.read_table(folder, columns=[column])[column].drop_null()
    return values.to_numpy().astype(float)


@cache
def _adult(path: Path) -> Mapping[str, Floats]:
    with path.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def _gamma(rng: np.random.Generator) -> Floats:
    return count_cells(rng.gamma(2.0, CELLS / 16, 2_000_000), 0, CELLS, CELLS)


def _zipf(rng: np.random.Generator) -> Floats:
    return 1 / np.arange(1.0, CELLS + 1)


def _spiky(rng: np.random.Generator) -> Floats:
    """Nine tenths of the rows on forty cells, of Zipf's frequencies; others anywhere."""
    shape = np.full(CELLS, 0.1 / CELLS)
    places = rng.choice(CELLS, 40, replace=False)
    frequency = 1 / np.arange(1.0, 41.0)
    shape[places] += 0.9 * frequency / frequency.sum()
    return shape


# Names of the levels of a GEOID, and their digits.
LEVELS = {"state": 2, "county": 3, "tract": 6, "block group": 1, "block": 3}


def _blocks(path: Path) -> DataSet:
    """The people of each census block, as a hierarchy."""
    with path.open(encoding="utf-8") as lines:
        people = sorted((row["GEOID"], float(row["pop"])) for row in csv.DictReader(lines))
    codes = tuple(code for code, _ in people)
    counts = np.array([number for _, number in people])
    digits, levels = 0, {}
    for name, more in LEVELS.items():
        digits += more
        nodes = np.array([code[:digits] for code in codes])
        levels[name] = np.flatnonzero(np.append(True, nodes[1:] != nodes[:-1]))
    return DataSet(
        name="blocks of Rhode Island",
        group="hierarchy",
        shape=counts / counts.sum(),
        levels=levels,
        codes=codes,
    )


_SYNTHETIC: Mapping[str, Callable[[np.random.Generator], Floats]] = {
    "gamma": _gamma,
    "Zipf": _zipf,
    "spiky": _spiky,
}
# Column, lower and upper: public bounds, as somebody would choose who has not looked.
_FLIGHTS = {
    "delay": ("dep_delay", -60.0, 1380.0),
    "distance": ("distance", 0.0, 5000.0),
    "air time": ("air_time", 0.0, 720.0),
}
# Column and number of codes.
_ADULT = {
    "age": ("age", 85),
    "hours": ("hours-per-week", 99),
    "capital gain": ("capital-gain", 100),
}


def found_sets(data: Path = SHARED_DATA, flights: Path = FLIGHTS) -> list[DataSet]:
    """All sets whose files exist, the sets of 4,096 cells first."""
    made: list[tuple[str, str, Floats]] = []
    if flights.exists():
        for name, (column, lower, upper) in _FLIGHTS.items():
            made.append((name, "4096", count_cells(_flights(flights, column), lower, upper, CELLS)))
    native = []
    if (data / "adult.csv").exists():
        columns = _adult(data / "adult.csv")
        for name, (column, codes) in _ADULT.items():
            made.append((name, "4096", count_cells(columns[column], 0, codes, CELLS)))
            if name != "capital gain":
                native.append(
                    (f"{name}, native", "native", count_cells(columns[column], 0, codes, codes))
                )
    for name, make in _SYNTHETIC.items():
        made.append((name, "4096", make(np.random.default_rng([_SEED, *name.encode()]))))
    found = [
        DataSet(name=name, group=group, shape=counts / counts.sum())
        for name, group, counts in made + native
    ]
    blocks = data / "ri_2010_blocks.csv"
    return [*found, _blocks(blocks)] if blocks.exists() else found
