"""Universes of columns, codes, paths and parents against plain Python; every refusal."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.hierarchy import leaf_codes
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import MAX_DEPTH
from tests.dpcore.cases import for_each
from tests.dpcore.universe_reference import Leaf, check_refused, check_universe, escaped

LABEL = st.text("ab/\\ é10", min_size=1, max_size=3)
NUMBER = st.integers(-3, 12)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.booleans())
def test_parents(parents: list[int], text: bool) -> None:
    # Node i has a parent before it, or is below the root; names are not in that order.
    above = [None if choice >= i else choice for i, choice in enumerate(parents)]
    names: list[str | int] = [
        f"n{(7 * i) % 41}" if text else (7 * i) % 41 for i in range(len(above))
    ]

    def chain(node: int | None) -> Leaf:
        return () if node is None else (*chain(above[node]), names[node])

    leaves = [chain(node) for node in range(len(above)) if node not in above]
    node_names = pa.array(names)
    parent_names = pa.array([None if p is None else names[p] for p in above], node_names.type)
    universe = universe_from_parents(node_names, parent_names)
    check_universe(universe, leaves, escaped)


def test_a_column_that_is_sliced() -> None:
    codes = pa.array(["xx", "0102", None, "0203", "0101"])[3:]
    assert universe_from_codes(codes, (2, 2)).level_sizes == (1, 2, 2)


# --- refusals ---

TEXTS = pa.array(["a", "b"])
DEEP = "/".join("a" * (MAX_DEPTH + 1))
CHAIN = [str(i) for i in range(MAX_DEPTH + 1)]


@for_each(
    ("make", "message"),
    [
        (lambda: universe_from_columns({}), "levels must be at least one"),
        (lambda: universe_from_columns({"root": TEXTS}), "'root' must be a text"),
        (lambda: universe_from_columns({"": TEXTS}), "'' must be a text"),
        (lambda: universe_from_columns({"a": TEXTS, "b": TEXTS[:1]}), "a, b must have one length"),
        (lambda: universe_from_columns({"a": TEXTS[:0]}), "'a': a universe needs at least one"),
        (lambda: universe_from_columns({"a": pa.array(["a", None])}), "'a' must not be null"),
        (lambda: universe_from_columns({"a": pa.array(["a", ""])}), "'a' must not hold an empty"),
        (lambda: universe_from_columns({"a": pa.array([1.5])}), "'a' has type double, but a univ"),
        (lambda: universe_from_columns({"a": pa.array([True])}), "'a' has type bool"),
        (lambda: universe_from_columns({"a": pa.nulls(2)}), "'a' has type null"),
        (
            lambda: universe_from_columns({"a": pa.array([2**64 - 1], pa.uint64())}),
            "'a' must be 64-bit signed",
        ),
        (
            lambda: universe_from_columns({"a": pa.array([1, 2, 1]), "b": pa.array(list("xyx"))}),
            "columns a, b: the leaf '1/x' is listed more than once",
        ),
        (
            lambda: universe_from_columns({"a": TEXTS}, levels=("x", "y")),
            "1 columns need as many names, not 2",
        ),
        (lambda: universe_from_codes(TEXTS, ()), "'code': digits"),
        (lambda: universe_from_codes(TEXTS, (2, 0)), "whole numbers from 1"),
        (lambda: universe_from_codes(TEXTS, (2, True)), "whole numbers from 1"),
        (lambda: universe_from_codes(TEXTS, (9, 10)), "at most 18 together"),
        (
            lambda: universe_from_codes(pa.array(["0101", "011"]), (2, 2)),
            "a text of 4 digits, unlike '011'",
        ),
        (lambda: universe_from_codes(pa.array(["0101", "01x1"]), (2, 2)), "a text of 4 digits"),
        (
            lambda: universe_from_codes(pa.array([7, 10000]), (2, 2)),
            "at most 4 digits, unlike 10000",
        ),
        (lambda: universe_from_codes(pa.array([-1]), (2, 2)), "at most 4 digits"),
        (lambda: universe_from_codes(pa.array([1, None]), (2, 2)), "'code' must not be null"),
        (lambda: universe_from_codes(pa.array([1.0]), (2, 2)), "'code' has type double"),
        (lambda: universe_from_codes(pa.array([3, 103, 3]), (2, 2)), "leaf '0003' is listed more"),
        (
            lambda: universe_from_codes(pa.array([1]), (2, 2), levels=("a",)),
            "2 levels need as many",
        ),
        (lambda: universe_from_codes(pa.array([1]), (2, 2), levels=("a", "a")), "'a' more than"),
        (lambda: universe_from_paths(TEXTS, ""), "separator ''"),
        (lambda: universe_from_paths(pa.array([1]), "/"), "'path' has type int64"),
        (lambda: universe_from_paths(pa.array(["a", None]), "/"), "'path' must not be null"),
        (lambda: universe_from_paths(pa.array(["a/b", "a//b"]), "/"), "and 'a//b' does"),
        (lambda: universe_from_paths(pa.array(["/a"]), "/"), "must not begin or end with '/'"),
        (lambda: universe_from_paths(pa.array([DEEP]), "/"), "at most 32 labels; 'a/a/a"),
        (
            lambda: universe_from_paths(pa.array(["a/b", "c", "a/b"]), "/"),
            "leaf 'a/b' is listed more",
        ),
        (lambda: universe_from_paths(pa.array(["a/b", "a"]), "/"), "'a' is a leaf and has"),
        (lambda: universe_from_paths(pa.array(["x/a/b/c", "x/a"]), "/"), "'x/a' is a leaf and has"),
        (
            lambda: universe_from_paths(pa.array(["a/b", "c"]), "/", levels=("x", "y")),
            "as many labels as levels are named, 2; 'c' has 1",
        ),
        (
            lambda: universe_from_paths(pa.array(["a/b"]), "/", levels=("x",)),
            "as many labels as levels are named, 1; 'a/b' has 2",
        ),
        (
            lambda: universe_from_parents(pa.array(["a", "b", "c"]), pa.array([None, "c", "b"])),
            "not be its own ancestor, and 'b' is",
        ),
        (lambda: universe_from_parents(pa.array(["a"]), pa.array(["a"])), "its own ancestor"),
        (
            lambda: universe_from_parents(TEXTS, pa.array([None, "x"])),
            "every parent must be one of the nodes, and 'x' is none",
        ),
        (
            lambda: universe_from_parents(pa.array(["a", "a"]), pa.array([None, "x"])),
            "the node 'a' is listed more than once",
        ),
        (lambda: universe_from_parents(pa.array(["a", None]), TEXTS), "'node' must not be null"),
        (lambda: universe_from_parents(TEXTS, pa.array([None, 1])), "one length and one type"),
        (
            lambda: universe_from_parents(pa.array(CHAIN), pa.array([None, *CHAIN[:-1]])),
            "at most 32 levels are possible below the root, and '32' lies deeper",
        ),
    ],
)
def test_refusals(make: Callable[[], object], message: str) -> None:
    check_refused(make, message)


def test_labels_sort_as_their_type_does() -> None:
    for numbers, type, expected in (([10, 9], pa.int64(), "9 10"), ([9, 10], pa.string(), "10 9")):
        universe = universe_from_columns({"n": pa.array(numbers, pa.int64()).cast(type)})
        assert universe.labels(1, np.arange(2)).to_pylist() == expected.split()


def test_many_levels_whose_codes_do_not_fit_one_integer() -> None:
    labels = np.array([f"{i:03d}" for i in range(512)])
    columns = {f"c{level}": pa.array(np.roll(labels, 37 * level)) for level in range(9)}
    universe = universe_from_columns(columns)
    leaves = list(zip(*(column.to_pylist() for column in columns.values()), strict=True))
    expected = ["/".join(leaf) for leaf in sorted(leaves)]
    assert universe.paths(9, np.arange(512)).to_pylist() == expected


def test_too_many_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_codes, "MAX_LEAVES", 2)
    with pytest.raises(ValueError, match="at most 2 leaves"):
        universe_from_codes(pa.array([1, 2, 3]), (2, 2))
