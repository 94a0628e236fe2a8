"""The codec of specifications: what is written is read back, and nothing else is."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.specification import CONTEXT, INLINE, Coded, coded


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Shape(Coded, ABC):
    """One of some shapes, by their kind."""

    tag = "kind"
    kind: ClassVar[str]

    @property
    @abstractmethod
    def area(self) -> Fraction: ...


@dataclass(frozen=True, kw_only=True)
class Square(Shape):
    kind: ClassVar[str] = "square"
    side: Fraction

    @property
    def area(self) -> Fraction:
        return self.side * self.side


@dataclass(frozen=True, kw_only=True)
class Box(Shape):
    kind: ClassVar[str] = "box"
    sides: tuple[int, int]

    @property
    def area(self) -> Fraction:
        return Fraction(self.sides[0] * self.sides[1])


@dataclass(frozen=True, kw_only=True)
class Price(Coded):
    """Two entries of their owner's; the currency is known to the reader."""

    currency: str = field(metadata=CONTEXT)
    amount: Decimal = field(metadata=coded(name="price"))
    until: date | None = None


@dataclass(frozen=True, kw_only=True)
class Order(Coded):
    """A value with every kind of field."""

    version: ClassVar[int] = 3
    written = (
        *("version", "name", "shape", "price", "colours", "number", "share", "pairs"),
        *("listed", "made", "rush", "note", "last", "total"),
    )
    leading = ("note", "version")

    name: str
    shape: Shape
    price: Price = field(metadata=INLINE)
    colours: tuple[Colour, ...] = ()
    number: int = 0
    share: float = 0.5
    pairs: tuple[tuple[int, str], ...] = ()
    listed: tuple[str, ...] | tuple[int, ...] = ()
    made: datetime = datetime(2020, 1, 1)
    rush: bool = False
    note: str | None = field(default=None, metadata=coded(omit=None))
    last: tuple[int, ...] = field(
        default=(0,),
        metadata=coded(
            write=lambda order: order.last[-1], read=lambda last: tuple(range(last + 1)), omit=(0,)
        ),
    )
    cached: int = field(init=False, default=7, compare=False)

    @property
    def total(self) -> int:
        """The number of colors and pairs."""
        return len(self.colours) + len(self.pairs)


NAMES, COUNTS = st.text(max_size=5), st.integers(-(2**70), 2**70)
SHAPES = st.one_of(
    st.builds(Square, side=st.fractions()), st.builds(Box, sides=st.tuples(COUNTS, COUNTS))
)
PRICES = st.builds(
    Price,
    currency=st.just("EUR"),
    amount=st.decimals(allow_nan=False, allow_infinity=False),
    until=st.none() | st.dates(),
)
ORDERS = st.builds(
    Order,
    name=NAMES,
    shape=SHAPES,
    price=PRICES,
    colours=st.lists(st.sampled_from(Colour), max_size=3).map(tuple),
    number=COUNTS,
    share=st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    pairs=st.lists(st.tuples(COUNTS, NAMES), max_size=3).map(tuple),
    listed=st.lists(NAMES, max_size=3).map(tuple) | st.lists(COUNTS, max_size=3).map(tuple),
    made=st.datetimes() | st.datetimes(timezones=st.just(timezone.utc)),
    rush=st.booleans(),
    note=st.none() | NAMES,
    last=st.integers(0, 4).map(lambda last: tuple(range(last + 1))),
)
ORDER = Order(
    name="a", shape=Box(sides=(2, 3)), price=Price(currency="EUR", amount=Decimal("9.50"))
)
SPEC = ORDER.spec()


def read(spec: dict[str, Any]) -> Order:
    """Read an order in euros."""
    return Order.from_spec(spec, currency="EUR")


@given(order=ORDERS)
def test_what_is_written_is_read_back(order: Order) -> None:
    spec = order.spec()
    again = read(json.loads(json.dumps(spec)))
    assert again == order and again.spec() == spec
    assert json.dumps(again.spec()) == json.dumps(spec)  # whole numbers stay whole


@given(order=ORDERS)
def test_a_specification_is_left_as_it_is_and_entries_are_taken(order: Order) -> None:
    spec = order.spec()
    held = json.dumps(spec)
    read(spec)
    assert json.dumps(spec) == held
    left = {"other": 1} | spec
    assert Order.from_entries(left, currency="EUR") == order and left == {"other": 1}


def test_names_order_and_constants() -> None:
    assert list(SPEC) == [
        *("version", "name", "shape", "price", "until", "colours", "number", "share"),
        *("pairs", "listed", "made", "rush", "total"),
    ]
    assert SPEC["shape"] == {"kind": "box", "sides": [2, 3]} and SPEC["price"] == "9.50"
    noted = replace(ORDER, note="x", last=(0, 1)).spec()
    assert list(noted)[:3] == ["note", "version", "name"] and noted["last"] == 1


def test_what_has_its_default_is_left_out_where_a_field_says_so() -> None:
    assert not {"note", "last", "cached", "currency"} & SPEC.keys()
    assert read(SPEC).note is None and read(SPEC).last == (0,)


def test_values_of_the_context_are_not_read() -> None:
    assert Order.from_spec(SPEC, currency="USD").price.currency == "USD"
    square = Square(side=Fraction(1, 3))
    assert Order.from_spec(SPEC | {"shape": 0}, currency="EUR", shape=square).shape == square


def test_an_absent_entry_is_refused() -> None:
    for name in SPEC:
        with pytest.raises(ValueError, match=f"^(Order|Price) needs the field '{name}'"):
            read({key: value for key, value in SPEC.items() if key != name})


def test_an_unknown_entry_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^'extra' is not a field of Order: use version, name"):
        read(SPEC | {"extra": 1})
    with pytest.raises(ValueError, match=r"^'extra' is not a field of Box: use kind, sides\.$"):
        read(SPEC | {"shape": SPEC["shape"] | {"extra": 1}})


WRONG = [
    ("name", 7, "name 7 must be a string."),
    ("number", "7", "number '7' must be a whole number."),
    ("number", True, "number True must be a whole number."),
    ("number", 1.0, "number 1.0 must be a whole number."),
    ("share", "x", "share 'x' must be a number."),
    ("share", False, "share False must be a number."),
    ("rush", 0, "rush 0 must be true or false."),
    ("note", 3, "note 3 must be a string."),
    ("colours", ["red", "green"], "colours 'green' must be one of red, blue."),
    ("colours", "red", "colours 'red' must be a list."),
    ("pairs", [[1, "a"], [2]], "pairs [2] must be a list of 2."),
    ("pairs", [[1, 2]], "pairs 2 must be a string."),
    ("listed", [1, "a"], "listed 'a' must be a whole number."),
    ("shape", [], "shape [] must be an object."),
    ("shape", {"kind": "disk"}, "kind is 'disk'; it must be one of box, square"),
    ("shape", {"kind": "square", "side": "1/0"}, "side '1/0' must be a fraction as a string."),
    ("shape", {"kind": "square", "side": 2}, "side 2 must be a fraction as a string."),
    ("price", "x", "price 'x' must be a decimal as a string."),
    ("until", "2020-13-01", "until '2020-13-01' must be an ISO 8601 date."),
    ("made", "noon", "made 'noon' must be an ISO 8601 date and time."),
    ("version", 4, "version 4 must be 3."),
    ("total", 1, "total 1 must be 0."),
]


def test_a_wrong_value_is_refused_by_field_value_and_rule() -> None:
    for name, value, message in WRONG:
        with pytest.raises(ValueError, match=r".") as caught:
            read(SPEC | {name: value})
        assert str(caught.value) == message


def test_what_is_written_by_hand_must_be_what_would_be_written() -> None:
    with pytest.raises(ValueError, match=r"^last 2\.0 must be"):
        Doubled.from_spec({"last": 2.0})
    with pytest.raises(ValueError, match=r"^levels: it does not follow from the other fields$"):
        Levels.from_spec({"count": 2, "levels": [0, 1, 2]})


@dataclass(frozen=True, kw_only=True)
class Doubled(Coded):
    half: int = field(
        metadata=coded(name="last", write=lambda value: 2 * value.half, read=lambda last: last // 4)
    )


@dataclass(frozen=True, kw_only=True)
class Levels(Coded):
    written = ("count", "levels")
    count: int

    @property
    def levels(self) -> tuple[int, ...]:
        """The numbers of the levels."""
        return tuple(range(self.count))
