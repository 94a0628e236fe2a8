"""Data sets, cases, tasks and methods of the study, and the errors of releases that are kept.

The seeds are fixed, so that everybody measures on the same counts. A set gives a shape, from which
any number of rows is drawn, once for each number.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache, cached_property
from math import sqrt
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow.parquet as pq
from scipy.optimize import isotonic_regression

from benchmarks.harness import PROJECT, SHARED_DATA
from dptrees.dpcore.arrays import Floats, Integers

CELLS = 4096
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
    made: list[tuple[str, Floats]] = []
    if flights.exists():
        for name, (column, lower, upper) in _FLIGHTS.items():
            made.append((name, count_cells(_flights(flights, column), lower, upper, CELLS)))
    if (data / "adult.csv").exists():
        columns = _adult(data / "adult.csv")
        for name, (column, codes) in _ADULT.items():
            made.append((name, count_cells(columns[column], 0, codes, CELLS)))
    for name, make in _SYNTHETIC.items():
        made.append((name, make(np.random.default_rng([_SEED, *name.encode()]))))
    found = [DataSet(name=name, group="4096", shape=counts / counts.sum()) for name, counts in made]
    blocks = data / "ri_2010_blocks.csv"
    return [*found, _blocks(blocks)] if blocks.exists() else found


PERCENTILES = tuple(Fraction(percent, 100) for percent in range(1, 100))
# Numbers of evenly spread quantiles that a user may request.
QUANTILES = {m: tuple(Fraction(i, m + 1) for i in range(1, m + 1)) for m in (1, 3, 9)}


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """A budget of the whole release, a row being added or removed.

    Attributes:
        measure: ``epsilon`` or ``rho``.
        amount: as it is written.
    """

    measure: str
    amount: str

    def __post_init__(self) -> None:
        if self.measure not in ("epsilon", "rho") or Decimal(self.amount) <= 0:
            raise ValueError(f"budget: {self} is no epsilon=NUMBER or rho=NUMBER above 0")

    @classmethod
    def of(cls, text: str) -> Privacy:
        """A budget as the command line has it.

        >>> Privacy.of("epsilon=0.1").scale, Privacy.of("rho=0.5").scale
        (0.1, 1.0)
        """
        measure, _, amount = text.partition("=")
        return cls(measure=measure, amount=amount)

    @property
    def is_pure(self) -> bool:
        return self.measure == "epsilon"

    @property
    def value(self) -> float:
        return float(self.amount)

    @property
    def scale(self) -> float:
        """What errors are multiplied by: epsilon, or the square root of 2 rho."""
        return self.value if self.is_pure else sqrt(2 * self.value)

    def __str__(self) -> str:
        return f"{self.measure}={self.amount}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One point of one set.

    Attributes:
        data: the histogram.
        rows: n.
        privacy: the budget.
        quantile_count: how many quantiles alone are requested; 0: everything.
    """

    data: DataSet
    rows: int
    privacy: Privacy
    quantile_count: int = 0

    @property
    def quantiles(self) -> tuple[Fraction, ...]:
        """Quantiles that a method has to name."""
        return QUANTILES[self.quantile_count] if self.quantile_count else PERCENTILES

    @cached_property
    def counts(self) -> Integers:
        """(K,) the exact counts."""
        return self.data.counts(self.rows)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a release says.

    Attributes:
        prefixes: (K,) the rows up to and with each cell; None: of quantiles alone.
        quantiles: the cell of each quantile; empty: read off the prefixes.
        nodes: the rows of every node of a hierarchy, by its level; empty: the rows of the cells.
    """

    prefixes: Floats | None = None
    quantiles: dict[Fraction, int] = field(default_factory=dict)
    nodes: dict[str, Floats] = field(default_factory=dict)


class Tree(Enum):
    """What is counted."""

    ORDERED = "ordered"
    HIERARCHY = "hierarchy"


ANY_TREE = frozenset(Tree)


class Absent(Exception):
    """A method is not installed, or has nothing for a budget: no number, and no fault."""


# The releases of these numbers; each says its answers by how they are read.
Run = Callable[[Case, Sequence[int]], list[Mapping[str, Answers]]]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to release.

    Attributes:
        name: title of its lines in the tables, followed by the way in which a release is read.
        run: gives releases, or raises `Absent`.
        trees: of what it can answer: cells in a row, a hierarchy.
        quantile_counts: the numbers of quantiles that it can release, one release each; 0: it
            answers everything.
    """

    name: str
    run: Run
    quantile_counts: tuple[int, ...] = (0,)
    trees: frozenset[Tree] = frozenset({Tree.ORDERED})

    def answers(self, case: Case) -> bool:
        """Whether it has something for a case."""
        tree = Tree.HIERARCHY if case.data.levels else Tree.ORDERED
        return case.quantile_count in self.quantile_counts and tree in self.trees


RANGES = 2000
# Of a task: whether a release has a mean square error or a mean absolute one.
Norm = Literal["square", "absolute"]
TASKS: Mapping[str, Norm] = {
    "ranges": "square",
    "prefixes": "square",
    "nodes, all levels": "square",
    **{f"nodes, {level}": "square" for level in LEVELS},
    **{f"{m} quantiles, rank": "absolute" for m in QUANTILES},
}


@cache
def draw_ranges(cells: int) -> tuple[Integers, Integers]:
    """Random ranges [start, stop) of cells, the same for every method."""
    rng = np.random.default_rng([17, cells])
    ends = np.sort(rng.integers(0, cells + 1, (2 * RANGES, 2)), axis=1)
    ends = ends[ends[:, 0] < ends[:, 1]][:RANGES]
    return ends[:, 0], ends[:, 1]


def measure_errors(case: Case, answers: Answers) -> dict[str, float]:
    """By task, the mean error of one release: squares of rows, or rows.

    Only requested tasks are measured.
    """
    if case.data.levels:
        return node_errors(case, answers)
    found: dict[str, float] = {}
    truth = case.counts.cumsum()
    if answers.prefixes is not None and not case.quantile_count:
        error = np.concatenate([[0.0], answers.prefixes - truth])
        start, stop = draw_ranges(truth.size)
        found["ranges"] = float(np.mean((error[stop] - error[start]) ** 2))
        found["prefixes"] = float(np.mean(error[1:] ** 2))
    cells = answers.quantiles
    if not cells and answers.prefixes is not None:
        cells = cells_at(answers.prefixes, case.quantiles)
    for number, fractions in QUANTILES.items():
        if number in (case.quantile_count or number,) and all(each in cells for each in fractions):
            found[f"{number} quantiles, rank"] = rank_error(
                truth, fractions, [cells[each] for each in fractions]
            )
    return found


def node_errors(case: Case, answers: Answers) -> dict[str, float]:
    """By level, the mean square error over its nodes, and the mean of these."""
    nodes = answers.nodes
    if not nodes:
        assert answers.prefixes is not None
        cells = np.diff(answers.prefixes, prepend=0.0)
        nodes = {name: np.add.reduceat(cells, starts) for name, starts in case.data.levels.items()}
    found = {
        f"nodes, {name}": float(np.mean((nodes[name] - np.add.reduceat(case.counts, starts)) ** 2))
        for name, starts in case.data.levels.items()
    }
    return {"nodes, all levels": float(np.mean([*found.values()])), **found}


def cells_at(prefixes: Floats, quantiles: Sequence[Fraction]) -> dict[Fraction, int]:
    """The cells of quantiles, by prefixes that need not rise: by the closest ones that do.

    >>> cells_at(np.array([1.0, 0.0, 4.0, 5.0]), [Fraction(1, 2)])
    {Fraction(1, 2): 2}
    """
    rising = np.asarray(isotonic_regression(prefixes).x).clip(0)
    ranks = np.array([float(each) for each in quantiles]) * rising[-1]
    cells = np.searchsorted(rising, ranks, side="left").clip(0, rising.size - 1)
    return dict(zip(quantiles, cells.tolist(), strict=True))


def rank_error(truth: Integers, quantiles: Sequence[Fraction], released: Sequence[int]) -> float:
    """The mean distance of requested ranks from the ranks of the released cells, in rows.

    >>> rank_error(np.array([10, 10, 30, 40]), [Fraction(1, 2)], [1])
    10.0
    """
    cells, ranks = np.asarray(released), np.array([float(each) for each in quantiles]) * truth[-1]
    before = np.concatenate([[0], truth])[cells]
    distances = np.maximum(0.0, np.maximum(before - ranks, ranks - truth[cells]))
    return float(distances.mean())


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """Where an error was measured."""

    task: str
    privacy: str
    rows: int
    method: str
    data: str


@dataclass(frozen=True, kw_only=True)
class Error:
    """An error, in rows times epsilon (or the square root of 2 rho).

    Attributes:
        mean: a root of a mean of squares, or a mean.
        deviation: its Monte Carlo standard error.
        releases: how many were made.
    """

    mean: float
    deviation: float
    releases: int

    @classmethod
    def of(cls, task: str, values: list[float], scale: float) -> Error:
        """Return the error over releases, each with one value as `measure_errors` makes
        it.

        >>> Error.of("ranges", [9.0, 9.0], 2.0)
        Error(mean=6.0, deviation=0.0, releases=2)
        """
        found = np.array(values)
        mean = float(found.mean())
        deviation = float(found.std(ddof=1)) / sqrt(found.size) if found.size > 1 else mean
        if TASKS[task] == "square":
            mean = sqrt(mean)
            deviation = deviation / (2 * mean) if mean else 0.0
        return cls(mean=mean * scale, deviation=deviation * scale, releases=found.size)


class Records:
    """The lines of a file.

    Args:
        path: of the file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, line: Mapping[str, object]) -> None:
        """Adds a line."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _lines(self) -> list[dict[str, object]]:
        if not self._path.exists():
            return []
        with self._path.open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def made(self) -> dict[str, int]:
        """How many releases there are, by what `find_key` calls them."""
        found: dict[str, int] = defaultdict(int)
        for line in self._lines():
            found[str(line["key"])] += int(str(line["releases"]))
        return found

    def errors(self) -> dict[Place, Error]:
        """All errors, over all lines."""
        values: dict[Place, list[float]] = defaultdict(list)
        for line in self._lines():
            for name, by_task in line["errors"].items():  # type: ignore[attr-defined]
                method = f"{line['method']}: {name}" if name else str(line["method"])
                for task, found in by_task.items():
                    at = Place(
                        task=task,
                        privacy=str(line["privacy"]),
                        rows=int(str(line["rows"])),
                        method=method,
                        data=str(line["data"]),
                    )
                    values[at] += found
        return {
            at: Error.of(at.task, found, Privacy.of(at.privacy).scale)
            for at, found in values.items()
        }
