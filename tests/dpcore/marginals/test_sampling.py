"""Alias tables have the laws that they are made of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dpcore.arrays import Floats
from dpcore.marginals.sampling import AliasTable
from dpcore.noise.randomness import public_stream


def law(table: AliasTable) -> Floats:
    """(laws, n) the probabilities of a table's draws."""
    own = (table.thresholds / 2.0**32).reshape(-1, table.cells)
    result = own / table.cells
    laws = np.arange(len(own))[:, np.newaxis]
    np.add.at(result, (laws, table.aliases.reshape(own.shape)), (1 - own) / table.cells)
    return result


@given(
    arrays(
        np.float64,
        array_shapes(min_dims=2, max_dims=2, max_side=8),
        elements=st.floats(0, 1e6) | st.sampled_from([0.0, 1.0, 1e-12]),
    )
)
def test_a_table_has_its_laws(weights: Floats) -> None:
    weights[:, 0] += 1e-3
    wanted = weights / weights.sum(axis=1, keepdims=True)
    assert np.abs(law(AliasTable.from_weights(weights)) - wanted).max() < 2.0**-31 * 8


def test_draws_have_the_laws() -> None:
    """Frequencies are off by less than 5.5 standard deviations: of 6 cells, 1 in 4 million."""
    table = AliasTable.from_weights(np.array([[1.0, 2.0, 5.0], [7.0, 0.0, 1.0]]))
    rows = 40_000
    given = np.arange(rows) % 2
    cells = table.draw(rows, public_stream("alias"), given)
    for number, probabilities in enumerate(law(table)):
        counts = np.bincount(cells[given == number], minlength=3)
        spread = np.sqrt(rows / 2 * probabilities * (1 - probabilities))
        assert (np.abs(counts - rows / 2 * probabilities) <= 5.5 * spread + 1e-3).all()
    planted = np.bincount(cells[given == 0], minlength=3) - rows / 2 * np.array([0.2, 0.2, 0.6])
    assert np.abs(planted).max() > 5.5 * np.sqrt(rows / 2 * 0.25)
