"""Systematic draws from many laws."""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.tables.model import Laws

WEIGHTS = np.array([[1.0, 2.0, 5.0], [7.0, 0.0, 1.0]])


def test_counts_are_rounded_expectations() -> None:
    laws = Laws.from_weights(WEIGHTS)
    given = np.arange(1001) % 2
    for number in range(20):
        cells = laws.draw(1001, public_stream("laws", number), given)
        for law, weights in enumerate(WEIGHTS):
            counts = np.bincount(cells[given == law], minlength=3)
            wanted = (given == law).sum() * weights / weights.sum()
            assert (np.abs(counts - wanted) < 1).all()


def test_each_row_has_its_law() -> None:
    """Frequencies of the first row over 2,000 batches of 4: off by less than 5.5 standard
    deviations, 1 in 4 million for 6 cells; a row that is always the first in order is found."""
    laws = Laws.from_weights(WEIGHTS)
    given = np.array([0, 1, 0, 0])
    draws = np.array([laws.draw(4, public_stream("row", each), given) for each in range(2000)])
    for row, law in enumerate(given):
        chances = WEIGHTS[law] / WEIGHTS[law].sum()
        counts = np.bincount(draws[:, row], minlength=3)
        spread = np.sqrt(2000 * chances * (1 - chances))
        assert (np.abs(counts - 2000 * chances) <= 5.5 * spread).all()
    ordered = np.sort(draws[:, [0, 2, 3]], axis=1)
    first = np.bincount(ordered[:, 0], minlength=3) - 2000 * WEIGHTS[0] / 8
    assert np.abs(first).max() > 5.5 * np.sqrt(2000 / 4)


def test_columns_of_one_law_are_independent() -> None:
    """Two columns drawn from one stream: cells agree as often as independent ones do, within 6
    standard deviations; one order for both is found."""
    laws = Laws.from_weights(np.ones((1, 10)))
    stream = public_stream("two")
    one, two = (laws.draw(20_000, stream, None) for _ in range(2))
    assert abs((one == two).sum() - 2000) < 6 * np.sqrt(2000 * 0.9)
    same = (laws.draw(20_000, public_stream("same"), None) for _ in range(2))
    assert np.equal(*same).all()


def test_no_rows_and_empty_laws() -> None:
    laws = Laws.from_weights(np.zeros((2, 3)))
    assert laws.draw(0, public_stream("none"), None).shape == (0,)
    assert np.bincount(laws.draw(9, public_stream("even"), None)).tolist() == [3, 3, 3]
