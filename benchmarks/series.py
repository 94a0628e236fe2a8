"""A series of releases: what its days cost, and how far off its totals to date are.

    python -m benchmarks.series [--periods 8] [--rows 200000] [--cells 1024]
    python -m benchmarks.series --units 100000000     what a bound of the periods of a unit costs
    python -m benchmarks.series --sums 365            what a run by weighted sums costs, in memory
    python -m benchmarks.series --people 10000000 --rows 1000000 --periods 10

- Cost: a series of rows made for it is released day by day by the command in this process (seconds
  on the clock and of the processor, with what every command costs once: none of the first day's
  imports), beside a release of one day alone. Day T closes a node of every temporal level.
- Error: the root mean square error of totals to date over the periods, of a count, in units of the
  error of one release of all rows at once, at the same total budget and privacy unit (a row of a
  period). T releases of a day each, added up, cost the same, since a row is in one of them: that is
  the tree of one level. T releases of all rows so far cost T times as much, so that each gets its
  part. Predicted for the best and for the binary tree, for the tree of boxes, which are estimated
  from single nodes, and for weighted sums of periods.
- Unknown length: the same errors of the first periods of a series that was planned for more, and of
  one series after the other, each twice as long as the one before, the first of 7 periods.
- Units: the same errors where all rows of a unit are protected together and it is counted in at
  most so many periods; and what remembered units weigh and cost in a run, by one of the 64 shards.
- People: days of rows of so many units, each counted in at most three periods, by a process a day.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.harness import make_key, run_command
from dptrees.dpcore.bounding.row_choice import CountedUnits
from dptrees.dpcore.noise.randomness import ReleaseKey, public_stream
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.ordered.workload import OrderedWorkload
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.messages import STATE, UNIT_SHARDS, Place
from dptrees.dpcore.questions.planning import ReleaseTerms, Share
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.series.question import CarriedCounts, SeriesQuestion
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.series.temporal import (
    MOST_PERIODS,
    TemporalSetting,
    TemporalTree,
    best_split,
    estimated_variances,
    split_of_fanout,
)
from dptrees.dpcore.series.totals_to_date import PeriodSums, WeightedPeriods
from dptrees.dpcore.series.workload import SeriesWorkload
from dptrees.pipelines.run.releasing import run_release

PREDICTED = (14, 90, 365, 3650)
LONGER = (1, 2, 4, 10)
BOUNDS = (1, 5, 10, 30)
UNITS = {"unit": "per_series", "max_periods": 3}
POWERS = {Measure.EPSILON: 2, Measure.RHO: 1}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--periods", type=int, default=8)
    parser.add_argument("--rows", type=int, default=200_000, help="of a day")
    parser.add_argument("--cells", type=int, default=1024)
    parser.add_argument("--units", type=int, default=0, help="remembered; nothing else is printed")
    parser.add_argument("--sums", type=int, default=0, help="periods; nothing else is printed")
    parser.add_argument("--people", type=int, default=0, help="units; nothing else is printed")
    chosen = parser.parse_args()
    if chosen.people:
        print_people(chosen.people, chosen.rows, chosen.periods)
        return
    if chosen.sums:
        print_sums(chosen.sums, chosen.cells)
        return
    if chosen.units:
        print_bounds()
        print_remembered(chosen.units)
        return
    print_cost(chosen.periods, chosen.rows, chosen.cells)
    print_predicted()
    print_longer()


# --- what days cost ---


def print_cost(periods: int, rows: int, cells: int) -> None:
    """The time of every day of a binary series, and of a day that is alone."""
    print(f"{rows:,} rows a day, one ordered tree of {cells:,} cells, rho 1, {periods} periods")
    print(f"{'day':>6} {'closes':>7} {'carries':>8} {'seconds':>8} {'cpu':>6} {'state bytes':>12}")
    with tempfile.TemporaryDirectory() as name:
        folder, tree = Path(name), TemporalTree.from_fanout(periods, 2)
        make_key(folder)
        _write_rows(folder, rows, cells)
        _day(folder, cells, None)  # imports, and what is computed once
        shutil.rmtree(folder / "out")
        print(_line("alone", "", "", _day(folder, cells, None), ""))
        for period in range(1, periods + 1):
            spent = _day(folder, cells, {"periods": periods, "period": period, "fanout": 2})
            state = folder / "series" / f"period-{period:04d}" / "state"
            size = sum(path.stat().st_size for path in state.glob("*"))
            closes, carries = len(tree.closing(period)), len(tree.carried(period))
            print(_line(period, closes, carries, spent, f"{size:,}"))


def _line(day: object, closes: object, carries: object, spent: Any, size: object) -> str:
    return f"{day:>6} {closes:>7} {carries:>8} {spent[0]:>8.2f} {spent[1]:>6.2f} {size:>12}"


def _write_rows(folder: Path, rows: int, cells: int) -> None:
    values = (public_stream("series", rows).uint64(rows) % np.uint64(cells)).astype(np.int64)
    pq.write_table(pa.table({"x": values}), folder / "rows.parquet")


def _config(folder: Path, name: str, privacy: dict[str, Any], cells: int, series: Any) -> str:
    """Write a configuration of one tree; its path."""
    domain = {"column": "x", "type": "integer", "lower": 0, "upper": cells}
    settings: dict[str, Any] = {
        "release": name,
        "input": {"format": "parquet", "path": str(folder / "rows.parquet")},
        "output": str(folder / name),
        "key_file": str(folder / "release.key"),
        "privacy": {"rho": 1, "neighbors": "add_remove", **privacy},
        "trees": [{"name": "x", "domain": domain}],
    }
    if series is not None:
        settings["series"] = series
    path = folder / "release.yaml"
    path.write_text(yaml.safe_dump(settings))
    return str(path)


def _day(folder: Path, cells: int, series: dict[str, object] | None) -> tuple[float, float]:
    path = _config(folder, "out" if series is None else "series", {}, cells, series)
    clock, spent = time.perf_counter(), os.times()
    with redirect_stdout(io.StringIO()):
        run_release(path, [])
    after = os.times()
    cpu = after.user + after.system - spent.user - spent.system
    return time.perf_counter() - clock, cpu


def print_sums(periods: int, cells: int) -> None:
    """What a run by weighted sums takes over and leaves, and the CPU seconds of noise, estimates
    and tables."""
    domain = IntegerDomain(column="x", lower=0, upper=cells)
    workload = SeriesWorkload.from_workload(
        OrderedWorkload(name="x", domain=domain), Series(periods=periods, period=1)
    )
    budget = Budget(measure=Measure.RHO, amount=Fraction(1))
    first = workload.planned(Share(budget=budget), ReleaseTerms(unit=ADD_REMOVE_ROW))
    assert isinstance(first, WeightedPeriods)
    print(f"one ordered tree of {cells:,} cells, rho 1, {periods} periods")
    print(f"{'day':>6} {'cpu':>6} {'takes over, bytes':>18} {'leaves, bytes':>14} {'in all':>12}")
    key, releases, left_so_far = ReleaseKey.generate(), list[Any](), 0
    for period in range(1, periods + 1):
        question = replace(first, period=period)
        carried = _carried(question, releases, key)
        plan = ReleasePlan(name="series", unit=first.unit, budget=budget, questions=(question,))
        counts = (public_stream("days", period).uint64(cells) % np.uint64(1000)).astype(np.int64)
        began = time.process_time()
        given = {first.name: CarriedCounts(period=counts, carried=carried)}
        made: Any = release_counts(plan, given, key)
        seconds = time.process_time() - began
        releases.append(made)
        left = 0
        if question.left_places:
            left = len(made._read(STATE, first.name, *question.places[0])["sealed"][0].as_py())
        left_so_far += left
        if period in (1, 10, 100, 255, 256, 365, 1000, periods - 1, periods):
            taken = sum(len(each) for messages in carried.values() for each in messages)
            print(f"{period:>6} {seconds:>6.2f} {taken:>18,} {left:>14,} {left_so_far:>12,}")


def print_people(people: int, rows: int, periods: int) -> None:
    """The time, the memory and the state of every day of a series that protects whole units."""
    print(f"{rows:,} rows a day of {people:,} units, in at most 3 of {periods} periods")
    print(f"{'day':>6} {'seconds':>8} {'cpu':>6} {'peak MB':>8} {'units known':>12} {'bytes':>14}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_key(folder)
        known = np.zeros(people, bool)
        for period in range(1, periods + 1):
            random = public_stream("people", period)
            who = (random.uint64(rows) % np.uint64(people)).astype(np.int64)
            known[who] = True
            table = pa.table({"x": who % 1024, "who": who})
            pq.write_table(table, folder / "rows.parquet")
            series = {"periods": periods, "period": period} | UNITS
            path = _config(folder, "out", {"unit": "who", "max_rows": 2}, 1024, series)
            run = run_command(["release", path])
            units = folder / "out" / f"period-{period:04d}" / "units"
            size = sum(path.stat().st_size for path in units.glob("*"))
            print(
                f"{period:>6} {run.seconds:8.1f} {run.processor:6.1f} {run.peak:8,.0f} "
                f"{known.sum():>12,} {size:>14,}",
                flush=True,
            )


# --- how far off totals to date are ---


def print_predicted() -> None:
    """The errors by how many periods there are."""
    print()
    print("root mean square error of totals to date, in that of one release of everything")
    heading = (
        "separate to date",
        "days added",
        "binary",
        "temporal tree",
        "single nodes",
        "weighted sums",
        "lower bound",
        "spans",
    )
    print(f"{'':10} {'T':>5} " + " ".join(f"{each:>16}" for each in heading))
    for measure, power in POWERS.items():
        for periods in PREDICTED:
            planned = best_split(periods, TemporalSetting(power=power))
            separate = periods ** (power / 2)
            binary = split_of_fanout(periods, 2, TemporalSetting(power=power))
            single = best_split(periods, TemporalSetting(power=power, from_below=False))
            added = math.sqrt((periods + 1) / 2)
            errors = (separate, added, binary.error, planned.error, single.error)
            columns = " ".join(f"{each:>16.3g}" for each in errors)
            sums = PeriodSums.for_periods(periods).error_to_date(1)
            gaussian = (sums, least_error(periods))
            shown = [f"{each:.3g}" if measure is Measure.RHO else "" for each in gaussian]
            columns += "".join(f" {each:>16}" for each in shown)
            spans = " ".join(map(str, planned.tree.spans))
            print(f"{measure.value:10} {periods:>5} {columns}  {spans}")


def least_error(periods: int) -> float:
    """The least error of totals to date that any mechanism of linear measurements with Gaussian
    noise can have, in that of one release.

    Of measurements C and a reconstruction L with L C = A, the matrix of totals to date, the mean
    squared error is |L|_F^2 times the largest squared column norm of C, over T; that is at least
    |L|_F^2 |C|_F^2 / T^2, which is at least the squared sum of A's singular values over T^2. These
    are 1 / (2 sin((2 i - 1) pi / (4 T + 2))).

    Source: Li, Miklau, "Optimal error of query sets under the differentially-private matrix
    mechanism", ICDT 2013, for A of prefix sums.
    """
    angles = (2 * np.arange(1, periods + 1) - 1) * np.pi / (4 * periods + 2)
    return float((1 / (2 * np.sin(angles))).sum() / periods)


# --- a number of periods that is not known ---


def print_longer() -> None:
    """The errors of the first periods of series that were planned for more of them."""
    print()
    print("errors as above, of a series that is ended before its last period, planned for ...")
    names = [f"{factor} times" for factor in LONGER] + [f"{MOST_PERIODS:,}", "doubling"]
    print(f"{'':10} {'runs':>5} " + " ".join(f"{each:>10}" for each in names))
    for measure, power in POWERS.items():
        setting = TemporalSetting(power=power)
        for runs in PREDICTED[1:3]:
            lengths = [factor * runs for factor in LONGER] + [MOST_PERIODS]
            found = [_planned(each, setting)[:runs] for each in lengths]
            errors = [math.sqrt(sum(each) / runs) for each in (*found, _doubled(setting, runs))]
            print(f"{measure.value:10} {runs:>5} " + " ".join(f"{each:>10.3g}" for each in errors))


def _planned(periods: int, setting: TemporalSetting) -> list[float]:
    """The variance of each total to date, of a series as it is planned."""
    if setting.power == 1:
        sums = PeriodSums.for_periods(periods)
        _, l2_squared = sums.sensitivities(1)
        return (l2_squared * sums.strategy.prefix_variances).tolist()
    split = best_split(periods, setting)
    variances = tuple(share**-setting.power for share in split.shares)
    own = estimated_variances(split.tree, variances)
    every = range(1, periods + 1)
    return [sum(own[node.level] for node in split.tree.roots(period)) for period in every]


def _doubled(setting: TemporalSetting, runs: int) -> list[float]:
    """The same where a series of its own is begun whenever one is over, twice as long."""
    found: list[float] = []
    periods = 7
    while len(found) < runs:
        before = found[-1] if found else 0.0
        found += [before + each for each in _planned(periods, setting)]
        periods *= 2
    return found[:runs]


# --- at most so many periods of a unit ---


def print_bounds() -> None:
    """The errors by how many periods of a unit are counted."""
    print("root mean square error of totals to date, in that of one release of everything that")
    print("counts one row of a unit")
    print(f"{'':10} {'T':>5} " + " ".join(f"{f'{each} periods':>12}" for each in (*BOUNDS, "all")))
    for measure, power in POWERS.items():
        for periods in PREDICTED[1:]:
            bounds = [each for each in BOUNDS if each < periods]
            errors = [
                _bounded(periods, TemporalSetting(power=power, max_periods=each))
                for each in (*bounds, periods)
            ]
            texts = [f"{each:.3g}" for each in errors]
            texts[-1:-1] = [""] * (len(BOUNDS) - len(bounds))
            print(f"{measure.value:10} {periods:>5} " + " ".join(f"{each:>12}" for each in texts))


def _bounded(periods: int, setting: TemporalSetting) -> float:
    """The error of totals to date, of a series as it is planned."""
    tree = best_split(periods, setting).error
    if setting.power != 1:
        return tree
    return min(tree, PeriodSums.for_periods(periods).error_to_date(setting.max_periods))


def print_remembered(units: int) -> None:
    """What a shard of remembered units weighs, and the CPU seconds that a run spends on it."""
    number, key = units // UNIT_SHARDS, ReleaseKey.generate()
    ids = public_stream("units", units).uint64(2 * number).reshape(-1, 2)
    ids = ids[np.argsort(ids[:, 0])]
    known = CountedUnits(units=ids, periods=np.ones(number, np.int64))
    sealed = key.seal(known.to_bytes(), "units")
    began = time.process_time()
    opened = CountedUnits.from_bytes(key.opened(sealed, "units"))
    _, after = opened.admit(ids[:: max(1, number // 20_000)], 5)
    after.digest(key, "series", "tree", 0)
    key.seal(after.to_bytes(), "units")
    seconds = time.process_time() - began
    print()
    print(
        f"{units:,} units, of a tree: {UNIT_SHARDS} files of {len(sealed) / 1e6:.1f} MB; a run "
        f"spends {seconds:.2f} s of CPU on a shard, {UNIT_SHARDS * seconds:.0f} s on all"
    )


def _carried(
    question: SeriesQuestion, releases: Sequence[Any], key: ReleaseKey
) -> dict[Place, list[bytes]]:
    """What a run takes over, of all releases before it."""
    found: dict[Place, list[bytes]] = {place: [] for place in question.carried_places}
    for place, messages in found.items():
        for run in question.state_runs:
            sealed = releases[run - 1]._read(STATE, question.name, *place)["sealed"][0].as_py()
            earlier = replace(question, period=run)
            messages.append(earlier.opened(place, sealed, key, "series", b""))
    return found


if __name__ == "__main__":
    main()
