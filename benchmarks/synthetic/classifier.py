"""What a classifier learns from synthetic rows: trained on them, tested on real ones held out.

Rows are codes, as in adult.csv: an integer below its column's size. Needs scikit-learn (`pip
install -e '.[bench]'`).

The wide table (`kind: table`) is planned, measured and sampled by this project's own code. The
peers are of dpmm 0.1.9 and run in a Python that has it.

    python -m benchmarks.synthetic.classifier [--data FOLDER] [--splits 3] [--epsilons 0.1 1 10]
        [--columns six all] [--generators NAME ...] [--peers PYTHON] [--limit 1200]

Scores are kept in classifier_scores.json beside this file, so that generators that take long can be
measured one by one; each run replaces the scores that it measures again. The page draws its section
from all that are there: ``python -m benchmarks.synthetic --only classifier --write PAGE``.

The columns of Adult are six, or all 14. The peers AIM, MST and PrivBayes run only where ``--peers``
names a Python that has dpmm 0.1.9; they have its defaults, and the same codes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import SHARED_DATA, table
from benchmarks.synthetic.generators import GENERATORS, Generator
from benchmarks.wide_tables import DELTA, ORDERED_OF_ADULT, PEERS, peer_rows
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.tables.model import TableModel
from dptrees.dpcore.tables.plan import MarginalsPlan, TableShape
from dptrees.dpcore.tables.question import measure_tables

# (m, c) rows, as many synthetic ones as there are of these, from an rng.
Synthesize = Callable[[Integers, np.random.Generator], Integers]

LABEL = "income>50K"
COLUMNS = (
    "age",
    "education-num",
    "marital-status",
    "capital-gain",
    "hours-per-week",
    LABEL,
)
HELD_OUT = 16_281


@dataclass(frozen=True, kw_only=True)
class Score:
    """Score of a classifier on real rows.

    Attributes:
        accuracy: the fraction of right answers.
        area: under the receiver operating characteristic; 1/2 is chance.
    """

    accuracy: float
    area: float


def read_codes(path: Path, columns: Sequence[str] = COLUMNS) -> Integers:
    """(n, c) codes of chosen columns of a CSV file."""
    with path.open(encoding="utf-8") as lines:
        names = lines.readline().strip().split(",")
    table = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64)
    return table[:, [names.index(each) for each in columns]]


def by_partition(generator: Generator, epsilon: float, sizes: Sequence[int]) -> Synthesize:
    """Rows by way of the cube: codes as middles of their cells, points as their cells' codes."""
    cells = np.array(sizes)

    def synthesize(rows: Integers, rng: np.random.Generator) -> Integers:
        released = generator.release((rows + 0.5) / cells, epsilon, rng)
        points = released.partition.sample(rng, len(rows))
        return np.minimum((points * cells).astype(np.int64), cells - 1)

    return synthesize


def majority(test: Integers, train: Integers) -> Score:
    """Score of the answer that most training rows have; the label is the last column."""
    answer = int(train[:, -1].mean() >= 0.5)
    return Score(accuracy=float((test[:, -1] == answer).mean()), area=0.5)


def score(train: Integers, test: Integers) -> Score:
    """Score of gradient boosted trees; the label, 0 or 1, is the last column.

    Where all training rows have one label, the classifier is that answer.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    if np.unique(train[:, -1]).size < 2:
        return majority(test, train)
    model = HistGradientBoostingClassifier(random_state=0).fit(train[:, :-1], train[:, -1])
    chances = model.predict_proba(test[:, :-1])[:, 1]
    return Score(
        accuracy=float(((chances >= 0.5) == test[:, -1]).mean()),
        area=float(roc_auc_score(test[:, -1], chances)),
    )


def compare(
    rows: Integers, synthesizers: Mapping[str, Synthesize], *, seed: int, held_out: int = HELD_OUT
) -> dict[str, Score]:
    """Scores of real rows, of the majority and of each synthesizer, on the same held-out rows."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    test, train = rows[order[:held_out]], rows[order[held_out:]]
    found = {"real rows": score(train, test), "majority": majority(test, train)}
    for name, synthesize in synthesizers.items():
        found[name] = score(synthesize(train, rng), test)
    return found


def by_table(shape: TableShape, budget: Budget) -> Synthesize:
    """Rows of a wide table's model.

    Args:
        shape: of the columns.
        budget: of all measurements together.
    """
    plan = MarginalsPlan.planned(shape=shape, unit=ADD_REMOVE_ROW, budget=budget)

    def synthesize(rows: Integers, rng: np.random.Generator) -> Integers:
        key = ReleaseKey(rng.bytes(32))
        source = NoiseSource(key=key, release="r", spec_digest=b"", global_digest=b"")
        counts = shape.counted(list(rows.T))
        model = TableModel.fitted(measure_tables(counts, plan, source, "t"))
        return np.stack(model.sample(len(rows), key.stream("rows")), axis=1)

    return synthesize


def pure_budget(epsilon: float) -> Budget:
    """The budget of a pure epsilon."""
    return Budget(measure=Measure.EPSILON, amount=Fraction(str(epsilon)))


def stated_budget(epsilon: float) -> Budget:
    """The largest rho that is known to be (epsilon, 1e-5)-DP, the peers' guarantee."""
    rho = Fraction(zcdp_rho(Fraction(str(epsilon)), DELTA)).limit_denominator(10**9)
    return Budget(measure=Measure.RHO, amount=rho)


def by_peer(
    name: str, sizes: Sequence[int], epsilon: float, python: Path, *, limit: float
) -> Synthesize:
    """Rows of a generator of dpmm.

    Args:
        name: of `benchmarks.wide_tables.PEERS`.
        sizes: of each column, the number of cells.
        epsilon: with delta 1e-5, where the peer has a delta.
        python: has dpmm 0.1.9.
        limit: the most seconds; beyond, `subprocess.TimeoutExpired` is raised.
    """

    def synthesize(rows: Integers, rng: np.random.Generator) -> Integers:
        seed = int(rng.integers(2**31))
        return peer_rows(rows, sizes, epsilon, name, python, seed=seed, limit=limit)

    return synthesize


STORED = Path(__file__).with_name("classifier_scores.json")
SIX, ALL = "six", "all"
EPSILONS = (0.1, 1.0, 10.0)
# Bounds of both: what no generator is.
REAL, MAJORITY = "real rows", "majority"
WITH_DELTA = ", delta 1e-5"
TABLES = {"dptrees table": pure_budget, f"dptrees table{WITH_DELTA}": stated_budget}
PEER_NAMES = {f"{each}{WITH_DELTA}": each for each in PEERS}
# What is measured once: columns, epsilon, name and split; and accuracy, area and seconds.
Stored = dict[str, Any]


def read_scores(path: Path) -> list[Stored]:
    """The scores of a file; none if it does not exist."""
    stored: list[Stored] = json.loads(path.read_text()) if path.exists() else []
    return stored


def add_score(path: Path, found: Stored) -> None:
    """Add a score to a file, in place of an earlier one of the same place."""
    known = {
        (each["columns"], each["epsilon"], each["name"], each["split"]): each
        for each in [*read_scores(path), found]
    }
    lines = [json.dumps(known[place]) for place in sorted(known)]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def synthesizers(
    names: Sequence[str], sizes: dict[str, int], epsilon: float, options: argparse.Namespace
) -> dict[str, Synthesize]:
    """All generators of some columns, by their names."""
    cells = [sizes[each] for each in names]
    ordered = tuple(each in ORDERED_OF_ADULT for each in names)
    shape = TableShape(sizes=tuple(cells), ordered=ordered)
    found: dict[str, Synthesize] = {}
    if len(names) == len(COLUMNS):
        able = [each for each in GENERATORS if each.columns >= len(names)]
        found |= {each.name: by_partition(each, epsilon, cells) for each in able}
    found |= {name: by_table(shape, budget(epsilon)) for name, budget in TABLES.items()}
    if options.peers is not None:
        limit = options.limit
        for name, peer in PEER_NAMES.items():
            found[name] = by_peer(peer, cells, epsilon, options.peers, limit=limit)
    return found


def measure(rows: Integers, place: Stored, synthesize: Synthesize) -> Iterator[Stored]:
    """Yield the scores of a generator, of real rows and of the majority on one split."""
    start = time.perf_counter()
    try:
        scores = compare(rows, {place["name"]: synthesize}, seed=place["split"])
    except subprocess.TimeoutExpired:
        yield place | {"accuracy": None, "area": None, "seconds": time.perf_counter() - start}
        return
    seconds = round(time.perf_counter() - start, 1)
    for name, found in scores.items():
        own = seconds if name == place["name"] else 0.0
        yield place | {"name": name, **vars(found), "seconds": own}


def section(scores: Sequence[Stored]) -> str:
    """The tables of all scores, means over the splits of each."""
    parts = []
    for columns, words in ((SIX, "Six columns"), (ALL, "All 14 columns")):
        own = [each for each in scores if each["columns"] == columns]
        if own:
            header = ["epsilon, trained on", "accuracy", "area under the curve", "splits"]
            parts += [f"{words}:", table(header, list(_lines(own)))]
    return "\n\n".join(parts)


def _lines(scores: Sequence[Stored]) -> Iterator[list[str]]:
    """The lines of a table, in the order in which the generators are named above."""
    order = [REAL, MAJORITY, *(each.name for each in GENERATORS), *TABLES, *PEER_NAMES]
    for epsilon in sorted({each["epsilon"] for each in scores}):
        for name in order:
            own = [each for each in scores if (each["epsilon"], each["name"]) == (epsilon, name)]
            done = [each for each in own if each["accuracy"] is not None]
            if done:
                means = np.mean([[each["accuracy"], each["area"]] for each in done], axis=0)
                yield [f"{epsilon:g}, {name}", *(f"{each:.3f}" for each in means), f"{len(done)}"]
            elif own:
                minutes = max(each["seconds"] for each in own) / 60
                yield [f"{epsilon:g}, {name}", f"not finished in {minutes:.0f} minutes", "", "0"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and keep the scores."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synthetic.classifier", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data", type=Path, default=SHARED_DATA, help="a folder with adult.csv")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS)
    parser.add_argument("--columns", nargs="*", choices=(SIX, ALL), default=(SIX, ALL))
    parser.add_argument("--generators", nargs="*", metavar="NAME", help="by default all")
    parser.add_argument("--peers", type=Path, help=f"a Python that has {', '.join(PEERS)} of dpmm")
    parser.add_argument("--limit", type=float, default=1200, help="seconds of a peer's run")
    options = parser.parse_args(arguments)
    sizes = json.loads((options.data / "adult-domain.json").read_text(encoding="utf-8"))
    for columns in options.columns:
        names = COLUMNS if columns == SIX else tuple(sizes)
        rows = read_codes(options.data / "adult.csv", names)
        for epsilon in options.epsilons:
            makers = synthesizers(names, sizes, epsilon, options)
            for name in options.generators or makers:
                for split in range(options.splits):
                    place = {"columns": columns, "epsilon": epsilon, "name": name, "split": split}
                    for found in measure(rows, place, makers[name]):
                        add_score(STORED, found)
                        print(found, flush=True)


if __name__ == "__main__":
    main()
