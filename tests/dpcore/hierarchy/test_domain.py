"""Rows to leaves against Python dictionaries: forms, policies, many levels; every refusal."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.hierarchy.domain import HierarchyDomain, hierarchy_domain_from_spec
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import Universe
from tests.dpcore.cases import for_each
from tests.dpcore.hierarchy_rows import (
    CODED,
    DAYS,
    NUMBERED,
    SPLIT,
    check_rows,
    fate,
    hierarchy_domain,
)
from tests.dpcore.universe_reference import check_refused, check_universe, escaped

LABEL = st.text("ab/\\ é10", min_size=1, max_size=3)
POLICY = st.sampled_from(["drop", "other"])
# Those that a column of int64 can have.
LARGE = st.integers(-(2**63), 2**63 - 1)


@given(st.data(), st.integers(1, 3), POLICY, POLICY)
def test_columns(data: st.DataObject, height: int, unknown: str, missing: str) -> None:
    kinds = [data.draw(st.sampled_from([LABEL, st.integers(-3, 5), LARGE])) for _ in range(height)]
    leaves = data.draw(st.lists(st.tuples(*kinds), min_size=1, max_size=20, unique=True))
    names = tuple(f"c{level}" for level in range(height))
    types = [pa.array([part]).type for part in leaves[0]]
    parts = zip(names, zip(*leaves, strict=True), types, strict=True)
    listed = {name: pa.array(part, type) for name, part, type in parts}
    universe = universe_from_columns(listed)
    check_universe(universe, leaves, escaped)
    assert universe.level_names == ("root", *names)
    chunked = {name: pa.chunked_array([each[:1], each[1:]]) for name, each in listed.items()}
    encoded = {name: each.dictionary_encode() for name, each in listed.items()}
    assert universe_from_columns(chunked) == universe == universe_from_columns(encoded)
    domain = HierarchyDomain(universe=universe, columns=names, unknown=unknown, missing=missing)
    # Rows mix the labels of different leaves, so that each may be known and the leaf may not.
    pools = [
        st.one_of(st.sampled_from([*part, None]), kind)
        for part, kind in zip(zip(*leaves, strict=True), kinds, strict=True)
    ]
    rows = data.draw(st.lists(st.one_of(st.sampled_from(leaves), st.tuples(*pools)), max_size=30))
    ids = {leaf: place for place, leaf in enumerate(sorted(leaves))}
    expected = [fate(ids.get(row), None in row, domain) for row in rows]
    columns = {
        name: pa.array([row[level] for row in rows], types[level])
        for level, name in enumerate(names)
    }
    check_rows(domain, columns, expected)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data(), POLICY, POLICY)
def test_codes(digits: list[int], data: st.DataObject, unknown: str, missing: str) -> None:
    width = sum(digits)
    number = st.integers(0, 10**width - 1)
    numbers = data.draw(st.lists(number, min_size=1, max_size=20, unique=True))
    universe = universe_from_codes(pa.array(numbers), digits)
    codes, ends = [f"{each:0{width}d}" for each in numbers], np.cumsum([0, *digits])
    leaves = [tuple(code[start:end] for start, end in pairwise(ends)) for code in codes]
    check_universe(universe, leaves, "".join)
    for type in (pa.string(), pa.string_view()):
        assert universe_from_codes(pa.array(codes, type), digits) == universe
    domain = HierarchyDomain(universe=universe, columns=("x",), unknown=unknown, missing=missing)
    ids = {value: place for place, value in enumerate(sorted(numbers))}
    rows = data.draw(
        st.lists(st.one_of(st.sampled_from([*numbers, None, -1, 10**width]), number), max_size=30)
    )
    expected = [fate(ids.get(row), row is None, domain) for row in rows]
    check_rows(domain, {"x": pa.array(rows, pa.int64())}, expected)
    written = [None if row is None else f"{row:0{width}d}" for row in rows]
    check_rows(domain, {"x": pa.array(written, pa.string())}, expected)
    assert domain.leaf_ids({"x": pa.array(written, pa.string_view())}).tolist() == expected
    wrong = ["", "x" * width, "0" * (width + 1), " " * width]
    lost = domain.leaf_ids({"x": pa.array([*wrong, *written], pa.large_string())})
    assert lost.tolist() == [fate(None, False, domain)] * len(wrong) + expected


@given(st.data(), st.sampled_from(["/", "::"]), POLICY, POLICY)
def test_paths(data: st.DataObject, separator: str, unknown: str, missing: str) -> None:
    path = st.lists(st.sampled_from("abc"), min_size=1, max_size=5).map(tuple)
    drawn = data.draw(st.sets(path, min_size=1, max_size=25))
    leaves = [leaf for leaf in drawn if not any(leaf == o[: len(leaf)] != o for o in drawn)]
    universe = universe_from_paths(pa.array(map(separator.join, leaves)), separator)
    check_universe(universe, leaves, separator.join)
    domain = HierarchyDomain(universe=universe, columns=("x",), unknown=unknown, missing=missing)
    ids = {separator.join(leaf): place for place, leaf in enumerate(sorted(leaves))}
    odd = [None, "", separator, f"a{separator}", "other"]
    choice = st.one_of(st.sampled_from([*ids, *odd]), path.map(separator.join))
    rows = data.draw(st.lists(choice, max_size=30))
    expected = [fate(ids.get(row), row is None, domain) for row in rows]
    check_rows(domain, {"x": pa.array(rows, pa.string())}, expected)


# --- the domain as a value ---


@for_each("universe", [NUMBERED, CODED, SPLIT, DAYS])
@for_each(("unknown", "missing"), [("drop", "other"), ("other", "drop")])
def test_the_specification_restores_the_domain(
    universe: Universe, unknown: str, missing: str
) -> None:
    domain = hierarchy_domain(universe, unknown=unknown, missing=missing)
    spec = json.loads(json.dumps(domain.spec()))
    assert hierarchy_domain_from_spec(spec, universe) == domain
    assert spec["universe"] == universe.digest and spec["levels"] == list(universe.levels)
    assert len(json.dumps(spec)) < 500
    with pytest.raises(ValueError, match="not the one"):
        hierarchy_domain_from_spec(spec, universe.extended)
    with pytest.raises(ValueError, match="map_version"):
        hierarchy_domain_from_spec(spec | {"map_version": 0}, universe)


def test_the_tree_has_the_leaf_other_only_where_rows_go_to_it() -> None:
    assert hierarchy_domain(CODED).tree is CODED and hierarchy_domain(CODED).cells == 2
    wider = hierarchy_domain(CODED, missing="other")
    assert wider.tree.has_other and wider.cells == 3 and wider.drops_rows
    assert not hierarchy_domain(CODED, missing="other", unknown="other").drops_rows


@for_each(
    ("fields", "message"),
    [
        ({"universe": NUMBERED, "columns": ("a",)}, "must be 2 different names"),
        ({"universe": NUMBERED, "columns": ("a", "a")}, "must be 2 different names"),
        ({"universe": CODED, "columns": ("a", "b")}, "must be 1 different names"),
        ({"universe": CODED, "columns": ("",)}, "column '' must be a text"),
        ({"universe": CODED, "columns": ("x",), "unknown": "clamp"}, "unknown 'clamp' must be one"),
        ({"universe": CODED, "columns": ("x",), "missing": "first"}, "missing 'first' must be one"),
        ({"universe": CODED.extended, "columns": ("x",)}, "universe must not have the leaf"),
        (
            {
                "universe": universe_from_paths(pa.array(["other"]), "/"),
                "columns": ("x",),
                "unknown": "other",
            },
            "must not have the label 'other'",
        ),
    ],
)
def test_refusals(fields: dict[str, Any], message: str) -> None:
    check_refused(lambda: HierarchyDomain(**fields), message)


# --- many levels ---


def test_levels_whose_codes_do_not_fit_one_integer() -> None:
    # Powers of two: a product that overflowed would lose the first levels altogether.
    random = np.random.default_rng(9)
    labels = pa.array([f"{i:04d}" for i in range(2048)])
    columns = {f"c{i}": labels.take(pa.array(random.permutation(2048))) for i in range(7)}
    universe = universe_from_columns(columns)
    domain = HierarchyDomain(universe=universe, columns=tuple(columns))
    leaves = domain.leaf_ids(columns)
    assert sorted(leaves) == list(range(2048))
    paths = ["/".join(row) for row in zip(*(c.to_pylist() for c in columns.values()), strict=True)]
    assert universe.paths(7, leaves).to_pylist() == paths
    for name in columns:
        shifted = {**columns, name: labels.take(pa.array(np.arange(2048)))}
        same = np.array(
            [
                a == b
                for a, b in zip(*(t[name].to_pylist() for t in (columns, shifted)), strict=True)
            ]
        )
        assert np.array_equal(domain.leaf_ids(shifted) >= 0, same)


def test_later_runs_of_levels_start_from_the_nodes_found_so_far() -> None:
    # Ten levels of 2^12 labels and 2^12 leaves: an integer holds five levels, or a node and four.
    # If five levels followed a node, only the node's last four bits would stay.
    leaves, random = np.arange(2**12), np.random.default_rng(10)
    labels = [leaves, *(random.permutation(2**12) for _ in range(9))]
    columns = {f"c{level}": pa.array(each) for level, each in enumerate(labels)}
    domain = HierarchyDomain(universe=universe_from_columns(columns), columns=tuple(columns))
    assert np.array_equal(domain.leaf_ids(columns), leaves)
    # The first five labels are of one leaf and the last five of another.
    for shift in 2 ** np.arange(12):
        mixed = [each if level < 5 else np.roll(each, shift) for level, each in enumerate(labels)]
        rows = {name: pa.array(each) for name, each in zip(columns, mixed, strict=True)}
        assert np.all(domain.leaf_ids(rows) == -1)
