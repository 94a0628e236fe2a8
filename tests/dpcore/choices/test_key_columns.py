"""Columns of keys that nobody lists: every column type and odd value, packed and read back."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.choices.key_selection import KeyColumns
from dptrees.dpcore.rows.key_tables import TEXT, KeyTable
from dptrees.dpcore.specification import Refusal

SHOP = KeyColumns(columns=("shop",), types=("text",))
YEAR = KeyColumns(columns=("year",), types=("integer",))
BOTH = KeyColumns(columns=("shop", "year", "town"), types=("text", "integer", "text"))
TEXTS = ["b", "", None, "a/b", "a\\", "a", "é", "\x00", "\x01A", "b"]
TEXT_TYPES = [
    *(pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view()),
]


def key_values(columns: KeyColumns, keys: pa.Array) -> list[tuple[object, ...] | None]:
    table = columns.table(keys.drop_null()).to_pydict()
    rows = iter(list(zip(*table.values(), strict=True)))
    return [next(rows) if valid else None for valid in keys.is_valid().to_pylist()]


def test_texts_of_every_type_are_the_same_keys() -> None:
    for type in TEXT_TYPES:
        plain = pa.array([None if t is None else t.encode() for t in TEXTS], pa.binary()).cast(type)
        expected = [(t,) if t else None for t in TEXTS]
        assert key_values(SHOP, SHOP.row_keys({"shop": plain})) == expected, type
        if "view" not in str(type):
            encoded = plain.dictionary_encode()
            assert key_values(SHOP, SHOP.row_keys({"shop": encoded})) == expected, type
        assert key_values(SHOP, SHOP.row_keys({"shop": plain[3:7]})) == expected[3:7], type


def test_texts_that_are_not_utf8_are_no_keys() -> None:
    rows = pa.array([b"\xff", b"ok"], pa.binary())
    assert SHOP.row_keys({"shop": rows}).to_pylist() == [None, "ok"]


def test_numbers_of_every_type_are_integers() -> None:
    for rows, expected in (
        (pa.array([2013, None, -(2**63), 2**63 - 1]), [2013, None, -(2**63), 2**63 - 1]),
        (pa.array([7, 2**64 - 1, None], pa.uint64()), [7, None, None]),
        (pa.array([7.0, 7.5, np.nan, None, -0.0, np.inf]), [7, None, None, None, 0, None]),
        (pa.array([Decimal("7.00"), Decimal("7.50"), None]), [7, None, None]),
        (pa.array([7, 8, 7, None], pa.int8()).dictionary_encode(), [7, 8, 7, None]),
        (pa.nulls(2), [None, None]),
        (pa.array([], pa.int32()), []),
    ):
        keys = YEAR.row_keys({"year": rows})
        assert keys.type == pa.uint64(), (rows, expected)
        assert key_values(YEAR, keys) == [None if each is None else (each,) for each in expected]


def test_packed_integers_rise_as_the_integers_do() -> None:
    rows = np.array([-(2**63), -1, 0, 1, 2**63 - 1])
    packed = YEAR.row_keys({"year": pa.array(rows)}).to_pylist()
    assert packed == sorted(packed)


@given(
    st.lists(
        st.tuples(
            st.text(alphabet="ab/\\\x00\x01AB", max_size=4) | st.none(),
            st.integers(-(2**63), 2**63 - 1) | st.none(),
            st.text(alphabet="ab/\\\x00\x01AB", max_size=4) | st.none(),
        ),
        max_size=30,
    )
)
def test_tuples_come_back_as_they_were(tuples: list[tuple[object, ...]]) -> None:
    shops, years, towns = zip(*tuples, strict=True) if tuples else ((), (), ())
    rows = {
        "shop": pa.array(shops, pa.string()),
        "year": pa.array(years, pa.int64()),
        "town": pa.array(towns, pa.string()).dictionary_encode(),
    }
    expected = [None if {None, ""} & set(each) else each for each in tuples]
    keys = BOTH.row_keys(rows)
    assert key_values(BOTH, keys) == expected
    known = list(dict.fromkeys(each for each in expected if each is not None))
    assert len(keys.drop_null().unique()) == len(known)
    if known:
        # The table of these keys finds every row again.
        table = KeyTable(BOTH.table(keys.drop_null().unique()))
        places = table.positions(rows).tolist()
        assert places == [-1 if each is None else known.index(each) for each in expected]
        for place, label in enumerate(table.labels_between(0, len(table)).to_pylist()):
            assert table.find_position(label) == place


def test_a_column_of_another_type_is_refused_with_what_to_say() -> None:
    with pytest.raises(ValueError, match="unless by says type: integer"):
        SHOP.check_types({"shop": pa.int64()})
    with pytest.raises(ValueError, match="unless by says type: text"):
        YEAR.check_types({"year": pa.string()})
    SHOP.check_types({"shop": pa.null()})


def test_columns_that_are_none_are_refused() -> None:
    for columns, types in (((), ()), (("a", "a"), ("text", "text")), (("a",), ("date",))):
        with pytest.raises(Refusal):
            KeyColumns(columns=columns, types=types)
    assert pa.large_string() == TEXT
