"""Synthetic rows of a table: their types and bounds, their counts, and their number."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.ordered.columns import RowSampler
from dptrees.dpcore.tables import released
from tests.dpcore.tables.tables import people, released_people

ROWS = people(4000)


@cache
def sampler() -> RowSampler:
    return released_people(ROWS).sampler()


def drawn(rows: int, seed: int = 0) -> pa.Table:
    batches = sampler().batches(rows, public_stream("sample", seed))
    return pa.Table.from_batches(batches, schema=sampler().schema)


def test_types_bounds_and_number(monkeypatch) -> None:
    monkeypatch.setattr(released, "BATCH_ROWS", 300)
    found = drawn(1000)
    assert found.num_rows == 1000 and drawn(0).num_rows == 0
    assert found.schema.names == ROWS.schema.names
    assert all(column.null_count == 0 for column in found.columns)
    ends = {name: pc.min_max(found[name]).as_py() for name in ("age", "hours", "day")}
    assert ends["age"]["min"] >= 16 and ends["age"]["max"] < 80
    assert ends["hours"]["min"] >= 0 and ends["hours"]["max"] < 100
    assert ends["day"]["min"].year == ends["day"]["max"].year == 2020
    assert set(found["town"].unique().to_pylist()) <= {"oslo", "rome", "lima"}


def test_the_same_bits_give_the_same_rows() -> None:
    assert drawn(500, 3).equals(drawn(500, 3)) and not drawn(500, 3).equals(drawn(500, 4))


def test_values_are_spread_over_the_cells_that_a_group_holds() -> None:
    ages = drawn(20_000)["age"].to_numpy()
    # All four years of a group with many rows occur.
    assert set(range(32, 44)) <= set(ages.tolist())


@pytest.mark.parametrize("name", ["education", "town"])
def test_counts_of_a_column_are_those_of_the_rows(name: str) -> None:
    """Within six standard deviations of a draw of so many rows: 2e-9 each."""
    many = 20_000
    found = drawn(many)[name].to_numpy(zero_copy_only=False)
    own = ROWS[name].to_numpy(zero_copy_only=False)
    for value in set(own.tolist()):
        share = np.mean(own == value)
        limit = 6 * np.sqrt(share * (1 - share) / many)
        assert abs(np.mean(found == value) - share) < limit
