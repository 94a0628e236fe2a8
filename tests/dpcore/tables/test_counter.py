"""The counter of all tables: parts of the rows in any order, and what conservation sees."""

from __future__ import annotations

import numpy as np

from dptrees.dpcore.questions.messages import Increments
from dptrees.dpcore.rows.columns import pack, unpack
from dptrees.dpcore.tables import domain
from dptrees.dpcore.tables.domain import (
    ALL_TABLES,
    TableCounter,
    row_texts,
)
from tests.dpcore.tables.tables import people, people_domain

DOMAIN = people_domain()


def texts(rows: int, seed: int = 0) -> Increments:
    table = people(rows, seed)
    codes, _ = DOMAIN.row_codes({name: table[name].combine_chunks() for name in DOMAIN.columns})
    return Increments(row_texts(codes, DOMAIN.sizes))


def taken(*parts: Increments) -> bytes:
    made = TableCounter(DOMAIN.shape)
    for part in parts:
        assert made.add(part, len(part.cells)) == len(part.cells)
    (partial,) = made.take()
    assert partial.place == ALL_TABLES
    return partial.data


def test_parts_of_the_rows_add_up_in_any_order(monkeypatch) -> None:
    ones, twos = texts(100, 1), texts(70, 2)
    together = unpack(taken(ones, twos))
    for parts in ([taken(ones), taken(twos)], [taken(twos), b"", taken(ones)]):
        np.testing.assert_array_equal(DOMAIN.shape.merged(parts).counts, together)
    monkeypatch.setattr(domain, "_BLOCK", 7)
    np.testing.assert_array_equal(unpack(taken(ones, twos)), together)


def test_no_rows_leave_no_bytes_and_a_second_take_none() -> None:
    assert taken() == taken(texts(0)) == b""
    made = TableCounter(DOMAIN.shape)
    made.add(texts(5), 5)
    assert next(made.take()).data and not next(made.take()).data


def test_the_total_is_the_number_of_rows() -> None:
    counts = DOMAIN.shape.merged([taken(texts(40)), taken(texts(2, 3))])
    assert counts.total == 42
    # A cell that is lost anywhere is missing from the total.
    lost = counts.counts.copy()
    lost[np.flatnonzero(lost)[-1]] -= 1
    assert DOMAIN.shape.merged([pack(lost)]).total == 41
