"""Ids of units: equal where values are, whatever their types; apart where they are not."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.bounding.unit_ids import UnitIds, check_unit_types, value_ids
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit
from tests.dpcore.bounding.slow_choice import chained, permutation, text_block, unit_id
from tests.processor import takes_less

KEY = ReleaseKey(bytes(range(32)))
PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",))
IDS = UnitIds(KeyedChoices(key=KEY, release="release"))


def numeric_ids(*columns: pa.Array) -> list[int | None]:
    """Ids as numbers; None where there is no unit."""
    ids, missing = IDS.row_ids(columns)
    none = np.zeros(len(ids), bool) if missing is None else missing
    pairs = zip(ids.tolist(), none.tolist(), strict=True)
    return [None if is_none else low | high << 64 for (low, high), is_none in pairs]


SEVEN: dict[str, pa.Array] = {
    **{
        str(t): pa.array([7, None, 0], t) for t in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64())
    },
    **{str(t): pa.array([7.0, None, -0.0], t) for t in (pa.float32(), pa.float64())},
    "float16": pa.array(np.array([7, 1, 0], np.float16), mask=np.array([False, True, False])),
    "nan": pa.array([7.0, np.nan, 0.0]),
    "decimal": pa.array([Decimal("7.00"), None, Decimal(0)], pa.decimal128(20, 2)),
    "decimal256": pa.array([Decimal(7), None, Decimal(0)], pa.decimal256(50, 0)),
    "dictionary": pa.array([7, None, 0]).dictionary_encode(),
    "null in the dictionary": pa.DictionaryArray.from_arrays([1, 0, 2], pa.array([None, 7, 0])),
    "slice": pa.array([5, 7, None, 0, 5])[1:4],
}


def test_numbers_are_what_they_are_worth() -> None:
    for column in SEVEN.values():
        assert numeric_ids(column) == [unit_id(KEY, "release", 7), None, unit_id(KEY, "release", 0)]


TEXTS = ["", "a", "0123456789", "0123456789a", "x" * 26, "x" * 27, "é" * 40, "a\0", "\0"]


def test_texts_are_their_bytes() -> None:
    for type in (
        *(pa.string(), pa.large_string(), pa.string_view()),
        *(pa.binary(), pa.large_binary(), pa.binary_view()),
        *(pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_binary())),
    ):
        plain = type.value_type if pa.types.is_dictionary(type) else type
        given: list[Any] = [*TEXTS, None]
        binary = any(check(plain) for check in (pa.types.is_binary, pa.types.is_large_binary))
        if binary or pa.types.is_binary_view(plain):
            given = [None if each is None else each.encode() for each in given]
        column = pa.array(["skipped", *given] if not isinstance(given[0], bytes) else [b"", *given])
        column = column.cast(plain) if plain == type else column.cast(plain).dictionary_encode()
        expected = [unit_id(KEY, "release", text) for text in TEXTS]
        assert numeric_ids(column[1:]) == [*expected, None], type


def test_long_texts_are_hashed_first() -> None:
    texts = ["y" * size for size in (4096, 4097, 5000, 5001)]
    first, second, third, fourth = numeric_ids(pa.array([texts[0], texts[1], texts[2], texts[3]]))
    assert len({first, second, third, fourth}) == 4
    assert first == unit_id(KEY, "release", texts[0])
    assert numeric_ids(pa.array(texts[:1:-1], pa.large_string())) == [fourth, third]
    assert takes_less(5, lambda: numeric_ids(pa.array(["z" * 10**7, "a"])))


def test_fixed_size_bytes_and_extension_types() -> None:
    names = [bytes(range(16)), b"0123456789abcdef", None]
    fixed, plain = pa.array(names, pa.binary(16)), pa.array(names)
    assert numeric_ids(fixed) == numeric_ids(plain) == numeric_ids(fixed.cast(pa.uuid()))


def test_moments_are_when_they_are() -> None:
    noon = datetime(2013, 1, 1, 12)
    columns = [pa.array([noon, None], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]
    columns.append(pa.array([noon, None], pa.timestamp("ms", tz="UTC")))
    assert len({tuple(numeric_ids(column)) for column in columns}) == 1
    midnight = [
        pa.array([date(1913, 1, 1)], pa.date32()),
        pa.array([date(1913, 1, 1)], pa.date64()),
        pa.array([datetime(1913, 1, 1)], pa.timestamp("us")),
    ]
    assert len({numeric_ids(column)[0] for column in midnight}) == 1
    spans = [pa.array([timedelta(seconds=3)], pa.duration(unit)) for unit in ("s", "ns")]
    spans += [pa.array([time(0, 0, 3)], type) for type in (pa.time32("ms"), pa.time64("ns"))]
    assert len({numeric_ids(column)[0] for column in spans}) == 1
    assert numeric_ids(columns[0])[0] != numeric_ids(midnight[0])[0] != numeric_ids(spans[0])[0]


def test_what_is_not_equal_has_another_id() -> None:
    """One of each kind of encoding, and neighbors of them."""
    columns = [
        pa.array([0, 1, -1, 7, 2**62, -(2**63), 2**63 - 1]),
        pa.array([2**63, 2**64 - 1], pa.uint64()),
        pa.array([0.5, -0.5, 2.0**53, 2.0**60, np.inf, -np.inf, 1e300]),
        pa.array([Decimal("0.25"), Decimal("-0.25"), Decimal(10**30)], pa.decimal128(38, 2)),
        pa.array([date(1970, 1, 2)]),
        pa.array([timedelta(seconds=86_400), timedelta(microseconds=1)]),
        pa.array(["", "0", "7", "0.5", "x" * 50, "x" * 51]),
    ]
    found = [each for column in columns for each in numeric_ids(column)]
    assert None not in found and len(set(found)) == len(found)


def test_numbers_beyond_64_bits_and_fractions() -> None:
    big = 2**63 + 1
    assert numeric_ids(pa.array([Decimal(big)], pa.decimal128(38, 0))) == numeric_ids(
        pa.array([big], pa.uint64())
    )
    half = [pa.array([Decimal("2.5")], pa.decimal128(10, scale)) for scale in (1, 3)]
    half.append(pa.array([Decimal("2.50")], pa.decimal256(60, 5)))
    assert len({numeric_ids(column)[0] for column in half}) == 1
    widths = [pa.array([2.5, 2.0**70], type) for type in (pa.float32(), pa.float64())]
    assert numeric_ids(widths[0]) == numeric_ids(widths[1])
    assert numeric_ids(pa.array([True, False, None])) == numeric_ids(pa.array([1, 0, None]))


def test_the_ends_of_a_signed_integer_are_one_unit_in_every_type() -> None:
    """A person with two ids could contribute twice as much as the bounds allow."""
    values = [0, 2**63 - 2, 2**63 - 1]
    expected = [unit_id(KEY, "release", value) for value in values]
    for type in (pa.int64(), pa.uint64(), pa.decimal128(38, 0), pa.decimal256(40, 2)):
        column = pa.array([Decimal(value) for value in values], pa.decimal128(38, 0)).cast(type)
        assert numeric_ids(column) == expected
        assert numeric_ids(column.dictionary_encode()) == expected


def test_decimals_with_fractions_are_their_sign_digits_and_exponent() -> None:
    """In every version: a release that another version finishes must keep the same rows."""
    column = pa.array([Decimal("2.50"), Decimal("-0.003")], pa.decimal128(10, 3))
    named = permutation(KEY, "unit", "release")
    expected = [chained(named, text_block(text, tag=6)) for text in (b"0 25 -1", b"1 3 -3")]
    assert numeric_ids(column) == expected


def test_several_columns() -> None:
    first, second = pa.array(["a", "ab", None, "a"]), pa.array(["bc", "c", "x", None])
    found = numeric_ids(first, second)
    assert found[2:] == [None, None] and found[0] != found[1]
    several = permutation(KEY, "unit of several columns", "release")
    parts = [(2).to_bytes(16, "little")]
    parts += [unit_id(KEY, "release", text).to_bytes(16, "little") for text in ("a", "bc")]
    assert found[0] == chained(several, b"".join(parts))
    assert numeric_ids(second, first)[0] != found[0] != numeric_ids(first)[0]


def test_ids_are_keyed() -> None:
    column = pa.array(["a"])
    other = UnitIds(KeyedChoices(key=KEY, release="another")).row_ids([column])[0]
    assert (other != IDS.row_ids([column])[0]).all()
    found = value_ids(column, KEY.blocks("x"))[0].tolist()[0]
    assert found[0] | found[1] << 64 == chained(permutation(KEY, "x"), text_block(b"a"))


def test_nothing_but_nulls_or_no_row() -> None:
    assert numeric_ids(pa.nulls(2)) == [None, None]
    for column in (
        pa.array([], pa.string()),
        pa.array([], pa.int8()),
        pa.array([]).cast(pa.int64()),
    ):
        assert numeric_ids(column) == [] == numeric_ids(column.dictionary_encode())
    unused = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int8()), pa.array(["a"]))
    assert numeric_ids(unused) == [None, None]
    sparse = pa.DictionaryArray.from_arrays(
        pa.array([99, None, 3], pa.int32()),
        pa.array([str(n) for n in range(100)]).cast(pa.string_view()),
    )
    assert numeric_ids(sparse) == [
        unit_id(KEY, "release", "99"),
        None,
        unit_id(KEY, "release", "3"),
    ]


def test_a_type_without_ids_is_refused() -> None:
    for type in (
        pa.list_(pa.int8()),
        pa.struct([]),
        pa.decimal128(5, -2),
        pa.month_day_nano_interval(),
    ):
        with pytest.raises(
            ValueError, match=r"column 'person' has type .*, but a privacy unit needs"
        ):
            check_unit_types(PERSON, {"person": type})
    check_unit_types(PERSON, {"person": pa.dictionary(pa.int8(), pa.string())})


def test_no_value_stops_a_release() -> None:
    """The ends of every type, and bytes that are no text."""
    least, most = -(2**63), 2**63 - 1
    wide = pa.array([least, most, None], pa.int64())
    odd = pa.array([b"\xff\xfe", b"\xc3(", b"ok"])
    columns = [
        *(wide.cast(pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        *(wide.cast(pa.duration(unit)) for unit in ("s", "ns")),
        wide.view(pa.date64()),
        pa.array([-(2**31), 2**31 - 1, None], pa.int32()).view(pa.date32()),
        pa.array([-1, 2**40, None], pa.int64()).view(pa.time64("ns")),
        pa.array([np.inf, -np.inf, 5e-324]),
        pa.array(np.array([0x7FF0000000000001, 1, 2], np.uint64)).view(pa.float64()),
        pa.array([Decimal(10**75), Decimal(-(10**75)), None], pa.decimal256(76, 0)),
        pa.array([Decimal("1e-76"), Decimal(0), None], pa.decimal256(76, 76)),
        pa.StringArray.from_buffers(3, *odd.buffers()[1:]),
        odd.cast(pa.binary_view()),
    ]
    for column in columns:
        check_unit_types(PERSON, {"person": column.type})
        found = numeric_ids(column)
        assert len(set(found)) == 3


def test_no_memory_of_a_whole_buffer_is_taken_for_a_slice() -> None:
    """Slices of one large table must not read it again and again."""
    column = pa.array(["x" * 100] * 200_000)
    slices = [column.slice(first, 1000) for first in range(0, 200_000, 1000)]
    assert takes_less(2, lambda: [IDS.row_ids([each]) for each in slices])
