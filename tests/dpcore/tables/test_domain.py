"""Columns of a table: their cells by brute force, their labels, the specification, and refusals."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.steps import StepDomain, UnitRowsDomain
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.domain import (
    MOST_CELLS,
    TableDomain,
    cells_text,
    row_texts,
    text_cells,
    text_codes,
)
from tests.dpcore.refusals import check_refusals
from tests.dpcore.tables.tables import people, people_domain


def whole(cells: int, name: str = "x", **policies: str) -> StepDomain:
    return StepDomain(kind="integer", column=name, lower=0, upper=cells, **policies)


def names(size: int, name: str = "kind") -> CategoryDomain:
    return CategoryDomain(column=name, categories=tuple(f"c{place}" for place in range(size)))


@given(st.integers(2, 200), st.integers(2, 40))
@settings(deadline=None, max_examples=60)
def test_groups_are_as_few_as_the_limit_and_alike(cells: int, most: int) -> None:
    domain = TableDomain(axes=(whole(cells), names(3)), cells=most)
    starts = domain.starts(0)
    assert starts[0] == 0 and starts[-1] == cells and len(starts) == domain.sizes[0] + 1
    sizes = np.diff(starts)
    assert len(sizes) <= most and len(set(sizes[:-1].tolist())) <= 1
    assert 0 < sizes[-1] <= sizes[0]
    codes, kept = domain.row_codes({"x": pa.array(range(cells)), "kind": pa.array(["c0"] * cells)})
    assert kept is None
    np.testing.assert_array_equal(codes[0], np.searchsorted(starts, range(cells), "right") - 1)


def test_a_row_that_one_policy_drops_is_dropped_from_all() -> None:
    domain = TableDomain(axes=(whole(8, outside="drop"), names(2)), cells=4)
    rows = {"x": pa.array([0, -1, 7, 3]), "kind": pa.array(["c0", "c1", "other", "c1"])}
    codes, kept = domain.row_codes(rows)
    assert [code.tolist() for code in codes] == [[0, 1], [0, 1]]
    assert kept is not None and kept.tolist() == [0, 3]
    assert [outcome.rows.tolist() for outcome in domain.row_outcomes(rows) if outcome.rows.any()]


def test_counts_of_all_tables_by_brute_force() -> None:
    domain, rows = people_domain(), people(300)
    columns = {name: rows[name].combine_chunks() for name in domain.columns}
    counts, (codes, _) = domain.leaf_counts(columns), domain.row_codes(columns)
    cells = list(zip(*(code.tolist() for code in codes), strict=True))
    for place, size in enumerate(domain.sizes):
        expected = [sum(row[place] == cell for row in cells) for cell in range(size)]
        assert counts[domain.shape.column_slice(place)].tolist() == expected
    for first, second in combinations(range(len(domain.sizes)), 2):
        found = counts[domain.shape.pair_slice(first, second)]
        pairs = found.reshape(domain.sizes[first], domain.sizes[second])
        expected = np.zeros_like(pairs)
        for row in cells:
            expected[row[first], row[second]] += 1
        np.testing.assert_array_equal(pairs, expected)


def test_one_row_moves_one_cell_of_every_table() -> None:
    """The sensitivity: what the plan assumes of the counts."""
    domain, rows = people_domain(), people(50)
    columns = {name: rows[name].combine_chunks() for name in domain.columns}
    fewer = {name: column.slice(1) for name, column in columns.items()}
    moved = domain.leaf_counts(columns) - domain.leaf_counts(fewer)
    places = [domain.shape.column_slice(place) for place in range(5)]
    places += [domain.shape.pair_slice(*pair) for pair in combinations(range(5), 2)]
    assert len(moved) == domain.shape.length == sum(each.stop - each.start for each in places)
    for each in places:
        assert sorted(moved[each].tolist())[-2:] == [0, 1] and moved[each].sum() == 1


def test_labels_name_runs_and_categories() -> None:
    domain = people_domain()
    assert domain.label(0, np.array([0, 1, 5])) == "age [16, 24) or [36, 40)"
    assert domain.label(0, np.array([15]), clamped=True) == "age 76 and above"
    assert domain.label(3, np.array([0, 2]), clamped=True) == "town oslo or lima"
    assert domain.label(0, np.array([], np.int64)) == "age nothing"


@given(st.sets(st.integers(0, 30), min_size=1))
@settings(deadline=None)
def test_texts_of_cells_come_back(cells: set[int]) -> None:
    rising = np.array(sorted(cells))
    np.testing.assert_array_equal(text_cells(cells_text(rising)), rising)


def test_rows_as_texts_come_back() -> None:
    random, sizes = np.random.default_rng(1), (2, 128, 129, 1024)
    codes = [random.integers(0, size, 50) for size in sizes]
    for own, again in zip(codes, text_codes(row_texts(codes, sizes), sizes), strict=True):
        np.testing.assert_array_equal(own, again)
    row_texts(codes, sizes).validate(full=True)
    part = row_texts(codes, sizes).slice(7, 20)
    np.testing.assert_array_equal(text_codes(part, sizes)[3], codes[3][7:27])


def test_it_comes_back_from_its_specification() -> None:
    domain = people_domain()
    assert TableDomain.from_spec(json.loads(json.dumps(domain.spec()))) == domain


def test_what_is_refused() -> None:
    many = tuple(whole(2, f"x{place}") for place in range(65))
    wide = tuple(whole(1024, f"x{place}") for place in range(4))
    rows: list[tuple[tuple[OrderedDomain, ...], int, str]] = [
        ((whole(4),), 32, "columns: there are 1; a table has from 2 to 64"),
        (many, 32, "columns: there are 65"),
        ((whole(4), whole(5)), 32, "columns: 'x' is there twice"),
        ((whole(4), whole(1, "y")), 32, "columns: 'y' has one cell, so it says nothing"),
        ((whole(4), whole(4, "y")), 1, "cells: 1 is not from 2 to 1024"),
        ((whole(4), names(MOST_CELLS + 1)), 32, "'kind' has 1025 categories; a column of a table "),
        (wide, 1024, "cells: all columns and pairs of columns have 6,295,552 cells"),
        ((whole(4), UnitRowsDomain(column="u", most=5)), 32, "counts units, not rows"),
    ]
    fields = [({"axes": axes, "cells": cells}, words) for axes, cells, words in rows]
    check_refusals(TableDomain, fields, Refusal)
