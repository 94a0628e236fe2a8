"""Keys as a table: lookups against a dictionary, labels that no two keys share, refusals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.rows.key_tables import (
    INTEGER,
    TEXT,
    KeyTable,
    TableKeys,
    product_table,
    split_label,
)
from dptrees.dpcore.specification import Refusal

TEXTS = st.text(alphabet="ab/\\é", max_size=4)


def make_table(*rows: tuple[str, int]) -> KeyTable:
    return KeyTable(
        pa.table(
            {
                "shop": pa.array([shop for shop, _ in rows], TEXT),
                "year": pa.array([year for _, year in rows], INTEGER),
            }
        )
    )


@given(
    st.lists(st.tuples(TEXTS, st.integers(0, 3)), min_size=1, max_size=20, unique=True),
    st.lists(st.tuples(TEXTS | st.none(), st.integers(0, 4) | st.none()), max_size=20),
)
def test_rows_are_found_as_in_a_dictionary(listed: Any, rows: Any) -> None:
    table = make_table(*listed)
    known = {each: place for place, each in enumerate(listed)}
    columns = {
        "shop": pa.array([shop for shop, _ in rows], pa.string()),
        "year": pa.array([year for _, year in rows], pa.int32()),
    }
    assert table.positions(columns).tolist() == [known.get(each, -1) for each in rows]
    labels = table.labels_between(0, len(table)).to_pylist()
    assert len(set(labels)) == len(labels)
    for place, (label, own) in enumerate(zip(labels, listed, strict=True)):
        assert table.find_position(label) == place
        assert split_label(label) == [own[0], str(own[1])]


@pytest.mark.parametrize("size", [50, 20_000])
def test_many_keys_of_one_column_are_found(size: int) -> None:
    random = np.random.default_rng(3)
    for values in (
        pa.array([f"user-{n}" for n in range(size)], TEXT),
        pa.array(random.permutation(10**12 // size * np.arange(size))),
    ):
        table = KeyTable(pa.table({"user": values}))
        places = random.integers(0, size, 5000)
        rows = values.take(pa.array(places))
        assert np.array_equal(table.positions({"user": rows}), places)
        assert np.array_equal(table.positions({"user": rows.dictionary_encode()}), places)
        strangers = pa.array(["nobody"] if values.type == TEXT else [-5])
        assert table.positions({"user": strangers}).tolist() == [-1]


def test_many_columns_do_not_overflow() -> None:
    size = 5000
    columns = {f"c{n}": pa.array(np.arange(size) * (n + 1)) for n in range(6)}
    table = KeyTable(pa.table(columns))
    assert np.array_equal(table.positions(columns), np.arange(size))
    mixed = {name: each if name != "c5" else each[::-1] for name, each in columns.items()}
    found = table.positions({n: pa.array(np.array(e)) for n, e in mixed.items()})
    assert np.all(found == -1)


def test_the_digest_distinguishes_tables() -> None:
    one = make_table(("a", 1), ("b", 2))
    others = [
        make_table(("b", 2), ("a", 1)),
        make_table(("ab", 1), ("", 2)),
        KeyTable(one.to_table().rename_columns(["shop", "age"])),
        KeyTable(one.to_table().select(["shop"])),
    ]
    digests = {one.digest, *(each.digest for each in others)}
    assert len(digests) == 5
    again = KeyTable(pa.concat_tables([one.to_table()[:1], one.to_table()[1:]]))
    assert again.digest == one.digest and again == one and hash(again) == hash(one)
    assert pickle.loads(pickle.dumps(one)) == one


def test_labels_that_are_none_are_not_found() -> None:
    table = make_table(("a", 1), ("b/c", 2))
    assert table.find_position("b\\/c/2") == 1
    for label in ("a", "a/1/", "a/x", "b/c/2", "a\\", "c/1", "a/99999999999999999999", 5):
        assert table.find_position(label) is None


def test_tables_that_hold_no_keys_are_refused() -> None:
    for table, sentence in (
        ({"a": pa.array([], TEXT)}, "must be from 1 to"),
        ({"a": pa.array(["x", None], TEXT)}, "must hold no null in column 'a'"),
        ({"a": pa.array([1.5])}, "must be texts or integers in column 'a'"),
        ({"a": pa.array(["x", "x"], TEXT)}, "hold a key more than once"),
        ({"a": pa.array([1, 1]), "b": pa.array([2, 2])}, "hold a key more than once"),
    ):
        with pytest.raises(Refusal) as refused:
            KeyTable(pa.table(table))
        assert sentence in str(refused.value)


def test_a_product_too_large_is_refused_before_it_is_made() -> None:
    thousand = tuple(range(1000))
    with pytest.raises(Refusal, match="must be at most 33554432 tuples, not 1000000000"):
        product_table({"a": thousand, "b": thousand, "c": thousand})


def test_the_keys_of_a_table_keep_their_policy() -> None:
    table = make_table(("a", 1), ("b", 2))
    rows = {"shop": pa.array(["a", "b", None]), "year": pa.array([1, 1, 1])}
    dropped, other = TableKeys(table=table), TableKeys(table=table, unknown="other")
    assert dropped.row_codes(rows).tolist() == [0, -1, -1] and dropped.drops_rows
    assert other.row_codes(rows).tolist() == [0, 2, 2] and not other.drops_rows
    assert (dropped.size, other.size) == (2, 3)
    assert other.labels_between(1, 3).to_pylist() == ["b/2", "other"]
    assert other.find_code("other") == 2 and other.find_code("b/2") == 1
    with pytest.raises(ValueError, match="'other' is not a listed key"):
        dropped.find_code("other")
    with pytest.raises(ValueError, match="need a column of integers"):
        other.check_types({"shop": pa.string(), "year": pa.string()})
    plain = KeyTable(pa.table({"a": pa.array(["other"], TEXT)}))
    with pytest.raises(ValueError, match="must not hold 'other'"):
        TableKeys(table=plain, unknown="other")
