"""benchmarks/synthetic/classifier.py on rows whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.synthetic import classifier
from benchmarks.synthetic.generators import GENERATORS
from dptrees.dpcore.arrays import Integers

pytest.importorskip("sklearn", reason="scikit-learn is of the extra bench")


@pytest.fixture
def rows() -> Integers:
    """The label is whether the first of two codes is above 9."""
    codes = np.random.default_rng(0).integers(0, (16, 8), (4000, 2))
    return np.column_stack((codes, codes[:, 0] > 9))


def test_real_rows_and_their_copy_teach_the_same(rows: Integers) -> None:
    found = classifier.compare(rows, {"copy": lambda train, rng: train}, seed=1, held_out=1000)
    assert found["real rows"] == found["copy"]
    assert found["copy"].accuracy == 1 and found["copy"].area == 1
    assert found["majority"].area == 0.5
    assert 0.55 < found["majority"].accuracy < 0.7


def test_random_labels_teach_nothing(rows: Integers) -> None:
    def shuffled(train: Integers, rng: np.random.Generator) -> Integers:
        return np.column_stack((train[:, :-1], rng.permutation(train[:, -1])))

    found = classifier.compare(rows, {"shuffled": shuffled}, seed=1, held_out=1000)
    assert 0.3 < found["shuffled"].area < 0.7


def test_one_label_is_the_majority(rows: Integers) -> None:
    def positive(train: Integers, rng: np.random.Generator) -> Integers:
        return np.column_stack((train[:, :-1], np.ones(len(train), np.int64)))

    found = classifier.compare(rows, {"positive": positive}, seed=1, held_out=1000)
    assert found["positive"].area == 0.5


def test_a_partition_without_noise_teaches_the_answer(rows: Integers) -> None:
    grown = next(each for each in GENERATORS if each.name == "dptrees")
    synthesize = classifier.by_partition(grown, 1e6, (16, 8, 2))
    made = synthesize(rows, np.random.default_rng(0))
    assert made.shape == rows.shape and made.dtype == np.int64
    assert (made >= 0).all() and (made < [16, 8, 2]).all()
    found = classifier.compare(rows, {"grown": synthesize}, seed=1, held_out=1000)
    assert found["grown"].accuracy > 0.95
