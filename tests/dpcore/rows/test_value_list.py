"""Lists of values: any bytes among rows of strings, numbers of any type among integers."""

from __future__ import annotations

import pickle
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa

from dptrees.dpcore.rows.value_lists import ValueList
from tests.dpcore.odd_rows import NUMBERS, TEXTS, as_texts
from tests.processor import takes_less

FEW, MANY = tuple(map(str, range(10))), tuple(map(str, range(5000)))


def test_texts_that_are_not_utf8_are_not_listed() -> None:
    for values, type in product((FEW, MANY), TEXTS):
        rows = as_texts([b"3", b"\xff", None, b"7", b"3\xff", b"\xed\xa0\x80", b"", b"3\0"], type)
        found = pickle.loads(pickle.dumps(ValueList(values)))
        assert found.codes(rows).tolist() == [3, -1, -1, 7, -1, -1, -1, -1], (values, type)
        assert found.codes(rows[3:5]).tolist() == [7, -1], (values, type)
        assert found.codes(rows[:0]).tolist() == [], (values, type)


def test_a_long_list_finds_what_is_listed_and_nothing_else() -> None:
    rows = [str(number) for number in np.random.default_rng(0).integers(0, 9000, 20_000)]
    expected = [int(row) if int(row) < 5000 else -1 for row in rows]
    assert ValueList(MANY).codes(pa.array(rows)).tolist() == expected


def test_a_text_much_longer_than_those_listed_takes_no_longer() -> None:
    values, row = ValueList(MANY), pa.array(["7" * 2**26])
    values.codes(row[:0])
    # Some 0.2 s; read to its end it takes minutes.
    assert takes_less(10, lambda: values.codes(row), runs=1)
    assert values.codes(row).tolist() == [-1]


def test_integers_are_found_in_columns_of_every_type_of_numbers() -> None:
    for type, values in product(NUMBERS, ((3, 7, 100), (3, 7, 100, 2**62))):
        numbers = [7, 100, None, 4, 3]
        rows = (
            [None if n is None else Decimal(n) for n in numbers] if "dec" in str(type) else numbers
        )
        assert ValueList(values).codes(pa.array(rows, type)).tolist() == [1, 2, -1, -1, 0]


def test_a_null_that_made_floats_of_integers_changes_no_other_row() -> None:
    values = ValueList((3, 7, -4, 2**53 - 1, 2**53))
    whole = pa.array([3, 7, -4, 2**53 - 1, 8])
    floats = pa.array([3.0, 7.0, -4.0, 2.0**53 - 1, 8.0, np.nan, None])
    assert values.codes(floats).tolist() == [*values.codes(whole).tolist(), -1, -1]
    none = pa.array([3.5, np.inf, -np.inf, 2.0**53, 2.0**63, -(2.0**63), 1e300])
    assert values.codes(none).tolist() == [-1] * 7


def test_literals_are_found_by_their_values() -> None:
    """A text that writes an integer is one only in a list of integers."""
    texts, numbers = ValueList(("a", "7", " 8")), ValueList((3, -7, 100))
    given = ["a", "7", " 8", "8", 7, True, 1.0, None, np.str_("a")]
    assert [texts.position(each) for each in given] == [0, 1, 2, *[None] * 5, 0]
    given = [3, "-7", " 100 ", "+3", "3.0", "x", "", True, None, np.int64(100)]
    assert [numbers.position(each) for each in given] == [0, 1, 2, 0, *[None] * 5, 2]
