"""Synthetic rows of wide tables: how far all pairs of columns are from the data's.

Run as ``python -m benchmarks.wide_tables [--data FOLDER] [--rho] [--runs 3] [--columns 4 6 8 12 14]
[--epsilons 0.1 1 10] [--peers PYTHON]``.

The number is the mean total variation over all pairs of columns, between the rows and as many
synthetic rows (`model`: between the rows and the model's own tables). ``apart`` are columns that
are measured alone, with all of the budget, and taken as independent. Data sets, as far as their
files are there:

    adult     the first columns of FOLDER/adult.csv, in the codes of that file (UCI Adult, 48,842
              rows; ages, weights of the survey and hours are ordered)
    adult*    its first seven columns with education twice, under other codes: as UCI has it

and four shapes that took no part in any choice of `dpcore.tables.plan`: a chain of ordered
columns, three latent classes, correlated normal columns, and independent ones, 50,000 rows each.

Under ``--rho`` the budget is the rho that is (e, 1e-5)-DP at an epsilon of e, as the peers have it;
else ours is pure epsilon. PYTHON has dpmm 0.1.9; its AIM, MST and PrivBayes have their defaults, on
the same codes, and take minutes each.

With ``--boxes`` it is the same number of a box (`kind: hypercube` with ``mechanism: adaptive``,
``optimize_for: counts``, and a guess of the rows) and of a table, by the number of columns of
Adult.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness import SHARED_DATA, print_lines, table
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.boxes.planner import PartitionChoices
from dptrees.dpcore.boxes.question import HypercubeWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey, public_stream
from dptrees.dpcore.noise.source import NoiseSource, add_noise
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share, Workload
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.estimates import MeasuredTables
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan, TableShape
from dptrees.dpcore.tables.question import TableWorkload, measure_tables

ORDERED_OF_ADULT = {
    *("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"),
}
SHAPE_ROWS = 50_000
DELTA = 1e-5
PEERS = {"AIM": "aim.AIMGM", "MST": "mst.MSTGM", "PrivBayes": "priv_bayes.PrivBayesGM"}
PEER = """
import importlib, sys, warnings
warnings.filterwarnings("ignore")
import numpy as np, pandas as pd
from numpy.random import RandomState
folder, name, epsilon, seed = sys.argv[1:]
module, kind = name.split(".")
data = np.load(folder + "/rows.npz")
names = ["c%d" % each for each in range(data["rows"].shape[1])]
domain = dict(zip(names, data["sizes"].tolist()))
frame = pd.DataFrame(data["rows"], columns=names)
kind = getattr(importlib.import_module("dpmm.models." + module), kind)
model = kind(epsilon=float(epsilon), delta=1e-5, domain=domain, n_jobs=1)
model.set_domain(domain)
model.set_random_state(RandomState(int(seed)))
model.fit(frame)
rows = model.generate(n_records=len(frame))[names].to_numpy()
np.save(folder + "/synthetic.npy", rows.astype(np.int64))
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Rows in cells.

    Attributes:
        name: of the data set.
        shape: its columns.
        columns: (rows,) cells of each.
    """

    name: str
    shape: TableShape
    columns: list[Integers]

    def first(self, number: int) -> Table:
        """The first columns."""
        shape = TableShape(sizes=self.shape.sizes[:number], ordered=self.shape.ordered[:number])
        return replace(self, shape=shape, columns=self.columns[:number])

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.columns[0])


def adult(folder: Path) -> Table:
    """All 14 columns of adult.csv."""
    sizes = json.loads((folder / "adult-domain.json").read_text(encoding="utf-8"))
    with (folder / "adult.csv").open(encoding="utf-8") as lines:
        names = lines.readline().strip().split(",")
    rows = np.loadtxt(folder / "adult.csv", delimiter=",", skiprows=1, dtype=np.int64)
    shape = TableShape(
        sizes=tuple(sizes[each] for each in names),
        ordered=tuple(each in ORDERED_OF_ADULT for each in names),
    )
    return Table(name="adult", shape=shape, columns=list(rows.T))


def with_education(whole: Table) -> Table:
    """The first columns of Adult as UCI has them: education, and its number."""
    places = [0, 1, 2, 3, 3, 4, 5, 6]
    columns = [whole.columns[each] for each in places]
    columns[3] = (columns[3] * 7 + 3) % whole.shape.sizes[3]
    ordered = [whole.shape.ordered[each] for each in places]
    ordered[3] = False
    sizes = tuple(whole.shape.sizes[each] for each in places)
    shape = TableShape(sizes=sizes, ordered=tuple(ordered))
    return Table(name="adult*", shape=shape, columns=columns)


def equal_cells(values: Floats, cells: int) -> Integers:
    """(n,) the cell of each value, of equal width between the least and the largest."""
    low, high = values.min(), values.max()
    return np.minimum(((values - low) / (high - low) * cells).astype(np.int64), cells - 1)


def shapes() -> Iterator[Table]:
    """Shapes of eight columns that took no part in the choice of any number of a plan."""
    rng = np.random.default_rng(11)
    rows = SHAPE_ROWS
    steps = np.cumsum(rng.normal(0, 1, (rows, 8)), axis=1)
    chain = [equal_cells(each, 40) for each in steps.T]
    yield made("chain", chain, (40,) * 8, ordered=True)
    classes = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    latent = []
    for size in (3, 5, 8, 12, 20, 4, 6, 10):
        laws = rng.dirichlet(np.full(size, 0.5), 3).cumsum(axis=1)
        latent.append((rng.random(rows)[:, None] > laws[classes]).sum(axis=1).clip(0, size - 1))
    yield made("latent", latent, (3, 5, 8, 12, 20, 4, 6, 10), ordered=False)
    factors = rng.normal(0, 1, (8, 8))
    normal = rng.normal(0, 1, (rows, 8)) @ (factors + 2 * np.eye(8))
    yield made("normal", [equal_cells(each, 32) for each in normal.T], (32,) * 8, ordered=True)
    apart = [rng.binomial(size - 1, 0.3, rows) for size in (4, 30, 8, 60, 12, 5, 20, 3)]
    yield made("apart", apart, (4, 30, 8, 60, 12, 5, 20, 3), ordered=True)


def made(name: str, columns: list[Integers], sizes: tuple[int, ...], *, ordered: bool) -> Table:
    """A table of columns that all are ordered, or none."""
    shape = TableShape(sizes=sizes, ordered=(ordered,) * len(sizes))
    return Table(name=name, shape=shape, columns=columns)


def distance(table: Table, counts: Integers, other: Integers) -> float:
    """Mean total variation of all pairs, between counters of as many rows."""
    parts = [np.abs(counts[at] - other[at]).sum() for at in pair_slices(table)]
    return float(np.mean(parts)) / 2 / table.rows


def pair_slices(table: Table) -> list[slice]:
    """The counters of each pair."""
    return [table.shape.pair_slice(*pair) for pair in table.shape.pairs]


def ours(table: Table, counts: Integers, budget: Budget) -> tuple[float, float]:
    """Distances of synthetic rows, and of the model, from the data."""
    plan = MarginalsPlan.planned(shape=table.shape, unit=ADD_REMOVE_ROW, budget=budget)
    model = TableModel.fitted(measure_tables(counts, plan, fresh_source(), "t"))
    rows = model.sample(table.rows, ReleaseKey.generate().stream("rows"))
    fitted = counts.astype(np.float64)
    for pair in table.shape.pairs:
        part = model.pair(*pair) * (table.rows / model.rows)
        fitted[table.shape.pair_slice(*pair)] = part.reshape(-1)
    return distance(table, counts, table.shape.counted(rows)), distance(table, counts, fitted)


def apart(table: Table, counts: Integers, budget: Budget) -> float:
    """Distance of synthetic rows whose columns are independent, from the data."""
    plan = MarginalsPlan.planned(shape=table.shape, unit=ADD_REMOVE_ROW, budget=budget)
    law = plan.law(budget.amount / table.shape.columns)
    source = fresh_source()
    columns = tuple(
        add_noise(law, table.shape.column_counts(counts, each), source.stream("t", 0, 0, each))
        for each in range(table.shape.columns)
    )
    model = TableModel.fitted(MeasuredTables(plan=plan, columns=columns, pairs=()))
    rows = model.sample(table.rows, ReleaseKey.generate().stream("rows"))
    return distance(table, counts, table.shape.counted(rows))


def fresh_source() -> NoiseSource:
    """Noise of a new key."""
    return NoiseSource(
        key=ReleaseKey(secrets.token_bytes(32)), release="r", spec_digest=b"", global_digest=b""
    )


def peer(table: Table, counts: Integers, epsilon: float, name: str, python: Path) -> float:
    """Distance of a peer's rows from the data."""
    cells = np.stack(table.columns, axis=1)
    rows = peer_rows(cells, table.shape.sizes, epsilon, name, python)
    return distance(table, counts, table.shape.counted(list(rows.T)))


def peer_rows(
    rows: Integers,
    sizes: Sequence[int],
    epsilon: float,
    name: str,
    python: Path,
    *,
    seed: int = 0,
    limit: float | None = None,
) -> Integers:
    """(n, c) synthetic rows of a peer, as many as there are rows.

    Args:
        rows: (n, c) cells.
        sizes: of each column, the number of cells.
        epsilon: with delta 1e-5, where the peer has a delta.
        name: of `PEERS`.
        python: has dpmm 0.1.9.
        seed: of the peer's random numbers.
        limit: the most seconds; None: any.

    Raises:
        subprocess.TimeoutExpired: the peer has not finished in time.
    """
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "rows.npz", rows=rows, sizes=np.array(sizes))
        arguments = [str(python), "-c", PEER, folder, PEERS[name], str(epsilon), str(seed)]
        subprocess.run(arguments, check=True, capture_output=True, timeout=limit)
        result: Integers = np.load(Path(folder) / "synthetic.npy")
    return result


def tables(options: argparse.Namespace) -> Iterator[Table]:
    """All tables to measure."""
    if (options.data / "adult.csv").exists():
        whole = adult(options.data)
        for number in options.columns:
            yield replace(whole.first(number), name=f"adult, {number}")
        yield with_education(whole)
    if options.shapes:
        yield from shapes()


def measure(table: Table, options: argparse.Namespace) -> Iterator[list[str]]:
    """A line of the table for each epsilon."""
    counts = table.shape.counted(table.columns)
    for epsilon in options.epsilons:
        exact = Fraction(str(epsilon))
        budget = Budget(measure=Measure.EPSILON, amount=exact)
        if options.rho:
            rho = Fraction(zcdp_rho(exact, DELTA)).limit_denominator(10**9)
            budget = Budget(measure=Measure.RHO, amount=rho)
        runs = [ours(table, counts, budget) for _ in range(options.runs)]
        found = [*np.mean(runs, axis=0), apart(table, counts, budget)]
        if options.peers is not None:
            found += [peer(table, counts, epsilon, each, options.peers) for each in PEERS]
        yield [f"{table.name}, {epsilon:g}", *(f"{each:.3f}" for each in found)]


# --- a box or a table ---


def axes(sizes: Mapping[str, int]) -> tuple[OrderedDomain, ...]:
    """The domains of columns of codes."""
    return tuple(
        IntegerDomain(column=name, lower=0, upper=size)
        if name in ORDERED_OF_ADULT
        else CategoryDomain(column=name, categories=tuple(range(size)), ordered=False)
        for name, size in sizes.items()
    )


def workloads(sizes: Mapping[str, int], rows: int) -> dict[str, Workload]:
    """A box and a table of the same columns."""
    own = axes(sizes)
    box = HypercubeDomain(axes=own, depths=tuple(map(cell_bits, own)))
    choices = PartitionChoices.from_mechanism("adaptive", rows=rows, decided_apart=False)
    return {
        "box": HypercubeWorkload(name="t", domain=box, mechanism="adaptive", choices=choices),
        "table": TableWorkload(name="t", domain=TableDomain(axes=own)),
    }


def synthetic(workload: Workload, rows: pa.Table, epsilon: Fraction, seed: int) -> pa.Table:
    """Return as many synthetic rows as there are rows."""
    share = Share(budget=Budget(measure=Measure.EPSILON, amount=epsilon))
    question = workload.planned(share, ReleaseTerms(unit=ADD_REMOVE_ROW))
    plan = ReleasePlan(name="t", unit=ADD_REMOVE_ROW, budget=share.budget, questions=(question,))
    key = ReleaseKey(bytes([seed]) * 32)
    sampler = release_rows(plan, rows.to_batches(), key).tree("t").sampler()
    batches = sampler.batches(len(rows), public_stream("sample", seed))
    return pa.Table.from_batches(batches, schema=sampler.schema)


def kind_lines(folder: Path, repeat: int) -> Iterator[str]:
    """The table of boxes and tables of the first columns of Adult."""
    whole = adult(folder)
    names = [*json.loads((folder / "adult-domain.json").read_text(encoding="utf-8"))]
    yield "| columns | epsilon | box | table |\n| ---: | ---: | ---: | ---: |"
    for number in (2, 3, 4, 5, 6, 8):
        own = whole.first(number)
        sizes = dict(zip(names, own.shape.sizes, strict=False))
        rows, counts = pa.table(own.columns, names=list(sizes)), own.shape.counted(own.columns)
        for epsilon in (Fraction(1), Fraction(1, 10)):
            cells = []
            for workload in workloads(sizes, own.rows).values():
                made = (synthetic(workload, rows, epsilon, seed) for seed in range(repeat))
                columns = ([each[name].to_numpy() for name in sizes] for each in made)
                found = [distance(own, counts, own.shape.counted(each)) for each in columns]
                cells.append(f"{np.mean(found):.3f}")
            yield f"| {number} | {float(epsilon):g} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--rho", action="store_true", help="zCDP in place of a pure epsilon")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--columns", type=int, nargs="*", default=[4, 6, 8, 12, 14])
    parser.add_argument("--epsilons", type=float, nargs="*", default=[0.1, 1.0, 10.0])
    parser.add_argument("--peers", type=Path, help="a Python that has dpmm 0.1.9")
    parser.add_argument("--no-shapes", dest="shapes", action="store_false")
    text = "of the first columns of Adult as a box and as a table, alone"
    parser.add_argument("--boxes", action="store_true", help=text)
    options = parser.parse_args(arguments)
    if options.boxes:
        print_lines(kind_lines(options.data, options.runs))
        return
    names = list(PEERS) if options.peers is not None else []
    lines = [line for each in tables(options) for line in measure(each, options)]
    print(table(["data, epsilon", "ours", "model", "apart", *names], lines))


if __name__ == "__main__":
    main()
