"""Scores of a classifier that synthetic rows of Adult have taught, by generator.

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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.reproduction.markdown import table
from benchmarks.synthetic.compared import GENERATORS
from benchmarks.synthetic.machine_learning import (
    COLUMNS,
    Synthesize,
    by_partition,
    compare,
    read_codes,
)
from benchmarks.synthetic.table_generators import by_peer, by_table, pure_budget, stated_budget
from benchmarks.wide_tables import ORDERED_OF_ADULT, PEERS
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.marginals.shape import TableShape

SHARED_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
STORED = Path(__file__).with_name("classifier_scores.json")
SIX, ALL = "six", "all"
EPSILONS = (0.1, 1.0, 10.0)
LIMIT = 1200.0
# Bounds of both: what no generator is.
REAL, MAJORITY = "real rows", "majority"
WITH_DELTA = ", delta 1e-5"
TABLES = {"dptrees table": pure_budget, f"dptrees table{WITH_DELTA}": stated_budget}
PEER_NAMES = {
    "AIM": f"AIM{WITH_DELTA}",
    "MST": f"MST{WITH_DELTA}",
    "PrivBayes": f"PrivBayes{WITH_DELTA}",
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The score of one generator on one split of the rows.

    Attributes:
        columns: `SIX` or `ALL`.
        epsilon: of the generator.
        name: of the generator.
        split: the number of the split.
        accuracy: the fraction of right answers; None: the generator has not finished in time.
        area: under the receiver operating characteristic; None likewise.
        seconds: that generator and classifier took.
    """

    columns: str
    epsilon: float
    name: str
    split: int
    accuracy: float | None
    area: float | None
    seconds: float

    @property
    def place(self) -> tuple[str, float, str, int]:
        """What is measured once."""
        return self.columns, self.epsilon, self.name, self.split


def read_scores(path: Path) -> list[Measured]:
    """The scores of a file; none if it does not exist."""
    if not path.exists():
        return []
    return [Measured(**each) for each in json.loads(path.read_text(encoding="utf-8"))]


def add_score(path: Path, score: Measured) -> None:
    """Add a score to a file, in place of an earlier one of the same place."""
    known = {each.place: each for each in read_scores(path)} | {score.place: score}
    lines = [json.dumps(asdict(known[place])) for place in sorted(known)]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def adult_columns(data: Path, columns: str) -> tuple[str, ...]:
    """The names of six columns of Adult, or of all; the label is the last."""
    if columns == SIX:
        return COLUMNS
    with (data / "adult.csv").open(encoding="utf-8") as lines:
        return tuple(lines.readline().strip().split(","))


def synthesizers(
    names: Sequence[str], sizes: dict[str, int], epsilon: float, options: argparse.Namespace
) -> dict[str, Synthesize]:
    """All generators of some columns, by their names.

    Args:
        names: of the columns.
        sizes: the number of codes of each column.
        epsilon: of each generator.
        options: with ``peers``, a Python or None, and ``limit``.
    """
    cells = [sizes[each] for each in names]
    shape = TableShape(
        sizes=tuple(cells), ordered=tuple(each in ORDERED_OF_ADULT for each in names)
    )
    found: dict[str, Synthesize] = {}
    if len(names) == len(COLUMNS):
        able = [each for each in GENERATORS if each.columns >= len(names)]
        found |= {each.name: by_partition(each, epsilon, cells) for each in able}
    found |= {name: by_table(shape, budget(epsilon)) for name, budget in TABLES.items()}
    if options.peers is not None:
        found |= {
            name: by_peer(peer, cells, epsilon, options.peers, limit=options.limit)
            for peer, name in PEER_NAMES.items()
        }
    return found


def measure(
    rows: Integers, columns: str, epsilon: float, split: int, name: str, synthesize: Synthesize
) -> Iterator[Measured]:
    """Yield the scores of a generator, of real rows and of the majority on one split."""
    start = time.perf_counter()
    place = {"columns": columns, "epsilon": epsilon, "split": split}
    try:
        scores = compare(rows, {name: synthesize}, seed=split)
    except subprocess.TimeoutExpired:
        seconds = time.perf_counter() - start
        yield Measured(name=name, accuracy=None, area=None, seconds=seconds, **place)
        return
    seconds = time.perf_counter() - start
    for each, score in scores.items():
        yield Measured(
            name=each,
            accuracy=score.accuracy,
            area=score.area,
            seconds=round(seconds, 1) if each == name else 0.0,
            **place,
        )


def section(scores: Sequence[Measured]) -> str:
    """The tables of all scores, means over the splits of each."""
    parts = []
    for columns, words in ((SIX, "Six columns"), (ALL, "All 14 columns")):
        own = [each for each in scores if each.columns == columns]
        if own:
            header = ["epsilon, trained on", "accuracy", "area under the curve", "splits"]
            parts += [f"{words}:", table(header, list(_lines(own)))]
    return "\n\n".join(parts)


def _lines(scores: Sequence[Measured]) -> Iterator[list[str]]:
    """The lines of a table, in the order in which the generators are named above."""
    order = [REAL, MAJORITY, *(each.name for each in GENERATORS), *TABLES, *PEER_NAMES.values()]
    for epsilon in sorted({each.epsilon for each in scores}):
        for name in order:
            own = [each for each in scores if (each.epsilon, each.name) == (epsilon, name)]
            done = [each for each in own if each.accuracy is not None]
            if done:
                means = np.mean([[each.accuracy, each.area] for each in done], axis=0)
                yield [f"{epsilon:g}, {name}", *(f"{each:.3f}" for each in means), f"{len(done)}"]
            elif own:
                late = f"not finished in {max(each.seconds for each in own) / 60:.0f} minutes"
                yield [f"{epsilon:g}, {name}", late, "", "0"]


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
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a peer's run")
    parser.add_argument("--scores", type=Path, default=STORED, help="the file of the scores")
    options = parser.parse_args(arguments)
    sizes = json.loads((options.data / "adult-domain.json").read_text(encoding="utf-8"))
    for columns in options.columns:
        names = adult_columns(options.data, columns)
        rows = read_codes(options.data / "adult.csv", names)
        for epsilon in options.epsilons:
            makers = synthesizers(names, sizes, epsilon, options)
            for name in options.generators or makers:
                for split in range(options.splits):
                    for found in measure(rows, columns, epsilon, split, name, makers[name]):
                        add_score(options.scores, found)
                        print(found, flush=True)


if __name__ == "__main__":
    main()
