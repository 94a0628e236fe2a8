"""What a classifier learns from synthetic rows: trained on them, tested on real ones held out.

Rows are codes, as in adult.csv: an integer below its column's size. Needs scikit-learn
(`pip install -e '.[bench]'`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.synthetic.generators import Generator
from dptrees.dpcore.arrays import Integers

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
