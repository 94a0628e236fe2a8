"""Values of a unit as a declared type: one text for each value, null for what is none."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.bounding.unit_ids import check_unit_types, declared_values
from dptrees.dpcore.privacy.unit import Neighbors, NullUnits, PrivacyUnit, UnitType
from dptrees.dpcore.specification import Refusal

INTEGER, TEXT = UnitType.INTEGER, UnitType.TEXT


def person(type: UnitType, nulls: NullUnits = NullUnits.DROP) -> PrivacyUnit:
    return PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",), type=type, nulls=nulls)


def values(column: pa.Array, type: UnitType) -> list[str | None]:
    found = declared_values(column, type)
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    listed = found.to_pylist()
    return [each.decode() if isinstance(each, bytes) else each for each in listed]


@given(st.integers(-(10**30), 10**30), st.sampled_from(["", "+"]), st.integers(0, 3))
def test_every_way_to_write_an_integer_is_one_text(value: int, sign: str, zeros: int) -> None:
    digits = "0" * zeros + str(abs(value))
    sign = "-" if value < 0 else sign
    texts = [sign + digits, f" {sign}{digits}.", f"{sign}{digits}.{'0' * zeros}\t"]
    assert values(pa.array(texts), INTEGER) == [str(value)] * 3
    assert values(pa.array([Decimal(value)], pa.decimal256(40, 3)), INTEGER) == [str(value)]
    if abs(value) < 2**63:
        assert values(pa.array([value], pa.int64()), INTEGER) == [str(value)]
    if abs(value) < 2**53:
        assert values(pa.array([float(value)]), INTEGER) == [str(value)]


def test_zeros_are_one_text() -> None:
    zeros = [pa.array(["0", "-0", "+00", "-0.0", "000."]), pa.array([0.0, -0.0]), pa.array([0])]
    assert {each for column in zeros for each in values(column, INTEGER)} == {"0"}


def test_columns_with_a_dictionary() -> None:
    for type in (pa.int8(), pa.uint64(), pa.string(), pa.large_string()):
        column = pa.array(["7", None, "12", "7"]).cast(type).dictionary_encode()
        assert values(column, INTEGER) == ["7", None, "12", "7"], type


def test_texts_that_are_not_utf8_have_no_integer() -> None:
    odd = pa.array([b"\xff\xfe7", b"7", b"\xc3("])
    for column in (odd, pa.StringArray.from_buffers(3, *odd.buffers()[1:])):
        assert values(column, INTEGER) == [None, "7", None]


def test_declared_texts_are_as_they_are_written() -> None:
    assert values(pa.array(["7", "7.0", " 7", None]), TEXT) == ["7", "7.0", " 7", None]
    assert values(pa.array([7, None]), TEXT) == ["7", None]


def test_other_types_are_refused() -> None:
    for declared, column in (
        (INTEGER, pa.bool_()),
        (INTEGER, pa.date32()),
        (TEXT, pa.float64()),
        (TEXT, pa.dictionary(pa.int8(), pa.float32())),
        (TEXT, pa.decimal128(5, 2)),
    ):
        with pytest.raises(ValueError, match=f"of the declared type {declared.value} needs"):
            check_unit_types(person(declared), {"person": column})


def test_null_units_of_their_own_are_refused_beside_a_type() -> None:
    """A text that is no integer would be as many units as it has rows."""
    with pytest.raises(Refusal, match="null units of their own"):
        person(INTEGER, NullUnits.OWN)


def test_the_specification_names_a_type_where_it_is_declared() -> None:
    unit = person(INTEGER)
    assert PrivacyUnit.from_spec(unit.spec()) == unit
    plain = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("person",))
    assert "type" not in plain.spec()["unit"]  # type: ignore[operator]
    assert PrivacyUnit.from_spec(plain.spec()) == plain
