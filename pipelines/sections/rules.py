"""The rules for values of a configuration, each with its sentence, and the base section.

A rule takes a value as `pipelines.sections.document` reads it (numbers are int or Decimal) and
returns what it represents, or raises `RuleBroken`. A section refuses all keys without a rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator
from pydantic import model_validator as section_rule

from dptrees.pipelines.sections.document import RuleBroken, missing_space, shown, unknown_key
from dptrees.pipelines.sections.values import LedgerUrl
from dptrees.transforms.contract import SchemaContract, arrow_type, duration_seconds
from dptrees.transforms.keys import has_scheme, is_reference, written

_Value = TypeVar("_Value")
_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,100}")
# Budgets and weights lie in 10^-15 to 10^15: the fraction of 1e-999999999 would fill the memory.
_LARGEST_EXPONENT = 15


def at(place: str, rule: Callable[[object], _Value], value: object) -> _Value:
    """The value by its rule, whose refusal is put at a place."""
    try:
        return rule(value)
    except RuleBroken as broken:
        raise RuleBroken(str(broken), at=place + broken.at) from None


def each_by(rule: Callable[[object], _Value], values: Iterable[object]) -> tuple[_Value, ...]:
    """Apply a rule to each value of a list; a refusal is put at the value's place."""
    return tuple(at(f"[{index}]", rule, each) for index, each in enumerate(values))


def text(value: object) -> str:
    """A text that is not blank.

    >>> text("dep_delay")
    'dep_delay'
    """
    if not isinstance(value, str):
        is_table = hasattr(value, "__dataframe__") or hasattr(value, "__arrow_c_stream__")
        quotes = "" if is_table or isinstance(value, (list, dict)) else "; put it in quotes"
        raise RuleBroken(f"{shown(value)} must be a string{quotes}")
    if not value.strip():
        raise RuleBroken("must not be empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        value = "\0"
    if "\0" in value:
        raise RuleBroken("contains a character that a text file cannot contain")
    return value


def name(value: object) -> str:
    """A name that is safe in a path and on a command line."""
    if not _NAME.fullmatch(text(value)):
        raise RuleBroken(
            f"{shown(value)} must be 1 to 100 letters, digits, '.', '_' or '-', and not dots alone"
        )
    return str(value)


def amount(value: object) -> Fraction:
    """A positive number, exactly as written.

    >>> amount(Decimal("0.1"))
    Fraction(1, 10)
    """
    number = _number(value)
    if number is None or not number > 0:
        raise RuleBroken(f"{shown(value)} must be a number above 0{_quotes(value)}")
    if not number.adjusted() >= -_LARGEST_EXPONENT or number > 10**_LARGEST_EXPONENT:
        raise RuleBroken(f"{shown(value)} must be from 1e-15 to 1e15")
    return Fraction(number)


def share(value: object) -> Fraction:
    """A part of the budget: a number above 0 and below 1."""
    result = amount(value)
    if result >= 1:
        raise RuleBroken(f"{shown(value)} must be below 1: the rest of the budget is needed too")
    return result


def delta(value: object) -> Fraction:
    """A probability above 0 and far below 1."""
    number = _number(value)
    if number is None or not 0 < number < 1:
        raise RuleBroken(f"{shown(value)} must be a number above 0 and below 1{_quotes(value)}")
    if number.adjusted() < -100:
        raise RuleBroken(f"{shown(value)} must be at least 1e-100")
    return Fraction(number)


def whole_numbers(value: object) -> tuple[int, ...]:
    """A list of at least one whole number above 0."""
    numbers = []
    for index, each in enumerate(several(value)):
        if isinstance(each, bool) or not isinstance(each, int) or each < 1:
            raise RuleBroken(f"{shown(each)} must be a whole number above 0", at=f"[{index}]")
        numbers.append(each)
    return tuple(numbers)


def whole_number(value: object) -> int:
    """A whole number, also below 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise RuleBroken(f"{shown(value)} must be a whole number")
    return value


@dataclass(frozen=True)
class Whole:
    """The rule that a value is a whole number in a range.

    >>> Whole(1, 2**40)(7)
    7
    """

    least: int
    most: int

    def __call__(self, value: Any) -> int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and self.least <= value <= self.most:
            return int(value)
        raise RuleBroken(f"{shown(value)} must be {self.words}")

    @property
    def words(self) -> str:
        """What it takes."""
        exponent = self.most.bit_length() - 1
        most = f"2^{exponent}" if self.most == 2**exponent >= 2**20 else self.most
        return f"a whole number from {self.least} to {most}"


def weight(value: object) -> float:
    """A number from 0 up."""
    number = _number(value)
    if number is None or number < 0 or number.adjusted() > _LARGEST_EXPONENT:
        raise RuleBroken(f"{shown(value)} must be a number from 0 to 1e15")
    return float(number)


def weights(value: object) -> tuple[float, ...]:
    """A list of numbers from 0 up, not all of them 0."""
    numbers = each_by(weight, several(value))
    if not any(number > 0 for number in numbers):
        raise RuleBroken("must contain a number above 0")
    return numbers


def level_budgets(value: object) -> str | tuple[Fraction, ...]:
    """``equal``, ``optimal``, or a list of budgets, where the root's may be 0."""
    if isinstance(value, str):
        return choice("equal", "optimal")(value)
    return tuple(
        Fraction(0) if _number(each) == 0 else at(f"[{index}]", amount, each)
        for index, each in enumerate(several(value))
    )


def guessed_parts(value: object) -> tuple[tuple[object, float], ...]:
    """A list of pairs: a value of the domain, and the part of the rows below it."""
    pairs = []
    for index, each in enumerate(several(value)):
        if not isinstance(each, list) or len(each) != 2:
            raise RuleBroken(f"{shown(each)} must be a pair [value, part]", at=f"[{index}]")
        pairs.append((plain_value(each[0]), at(f"[{index}][1]", quantile, each[1])))
    return tuple(pairs)


def quantile(value: object) -> float:
    """A number from 0 to 1."""
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        raise RuleBroken(f"{shown(value)} must be a number from 0 to 1")
    return float(number)


def confidence(value: object) -> float:
    """The confidence of intervals."""
    number = _number(value)
    if number is None or not 0 < float(number) <= 0.9999:
        raise RuleBroken(
            f"{shown(value)} must be a number above 0 and at most 0.9999{_quotes(value)}"
        )
    return float(number)


def _quotes(value: object) -> str:
    """Advice on a number that is written as a string.

    >>> _quotes("0.5"), _quotes("half"), _quotes(-1)
    ('; remove the quotes', '', '')
    """
    if isinstance(value, str) and re.fullmatch(r"(0|[1-9]\d*)(\.\d+)?", value):
        return "; remove the quotes"
    return ""


def _number(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    number = Decimal(value)
    return number if number.is_finite() else None


def several(value: object) -> tuple[object, ...]:
    """A list of at least one value."""
    if not isinstance(value, list):
        raise RuleBroken(f"{shown(value)} must be a list")
    if not value:
        raise RuleBroken("must have at least one value")
    return tuple(value)


def labels(value: object) -> tuple[object, ...] | dict[str, object]:
    """A list of labels, or a section of them by value."""
    if isinstance(value, Mapping):
        return {str(key): at(f".{key}", text, each) for key, each in value.items()}
    return each_by(text, several(value))


def names_of(values: Iterable[object], given: Any) -> tuple[str, ...]:
    """The labels of listed values, in their order.

    Args:
        values: listed.
        given: of `labels`.

    >>> names_of((1, 2), {"2": "women", "1": "men"})
    ('men', 'women')
    """
    if not isinstance(given, Mapping):
        return tuple(map(str, given))
    listed = [str(value) for value in values]
    if set(given) != set(listed):
        missing = [each for each in listed if each not in given]
        strange = [each for each in given if each not in listed]
        what = f"has none of {missing[0]}" if missing else f"{strange[0]} is not listed"
        raise RuleBroken(f"{what}; each listed value needs one, and nothing else has one")
    return tuple(str(given[each]) for each in listed)


def one_or_several(value: object) -> tuple[object, ...]:
    """One value, or a list of at least one."""
    return several(value if isinstance(value, list) else [value])


def each_once(values: tuple[_Value, ...]) -> tuple[_Value, ...]:
    """Values that differ."""
    seen = set()
    for index, value in enumerate(values):
        if value in seen:
            raise RuleBroken(f"{value} is listed twice", at=f"[{index}]")
        seen.add(value)
    return values


@dataclass(frozen=True)
class Choice:
    """The rule that a value is one of a few words.

    Args:
        allowed: the words.
        elsewhere: words that lead to another section, and are shown beside them.
        page: of the documentation, which has more about the choice.
    """

    allowed: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    page: str = ""

    def __call__(self, value: object) -> str:
        *others, last = (*self.allowed, *self.elsewhere)
        words = f"{', '.join(others)} or {last}" if others else last
        if not isinstance(value, str) or value not in self.allowed:
            more = f"; {self.page} has more" if self.page else ""
            raise RuleBroken(f"{shown(value)} must be {words}{more}")
        return value


def choice(
    *allowed: str,
    elsewhere: tuple[str, ...] = (),
    page: str = "",
) -> Choice:
    """The rule that a value is one of these words; see `Choice`."""
    return Choice(allowed, elsewhere, page)


def plain_value(value: object) -> object:
    """A value as dpcore takes it: floats for decimals, also in a list."""
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    return float(value) if isinstance(value, Decimal) else value


def null_or_fail(value: object) -> str:
    """The word null or fail."""
    if value not in ("null", "fail"):
        raise RuleBroken(f"{shown(value)} must be null or fail")
    return str(value)


def truth(value: object) -> bool:
    """true or false."""
    if not isinstance(value, bool):
        raise RuleBroken(f"{shown(value)} must be true or false")
    return value


def duration(value: object) -> int:
    """A duration with its unit, in seconds.

    >>> duration("26h")
    93600
    """
    try:
        return duration_seconds(value if isinstance(value, str) else "")
    except ValueError:
        raise RuleBroken(f"{shown(value)} must be a duration such as 90m, 26h or 2d") from None


def column_types(value: object) -> SchemaContract:
    """Columns, each with the name of its type."""
    given = section(value)
    if not given:
        raise RuleBroken("must name at least one column")
    types = {}
    for name, stated in given.items():
        try:
            types[name] = arrow_type(at(f".{name}", text, stated))
        except ValueError as error:
            if isinstance(error, RuleBroken):
                raise
            raise RuleBroken(str(error), at=f".{name}") from None
    return SchemaContract(types=types)


def key_reference(value: object) -> str:
    """Where the release key lies. The value is not shown: it may be the key itself."""
    if not isinstance(value, str) or not is_reference(value):
        raise RuleBroken(f"must be {written()}, the place of the key and not the key")
    _refuse_key_itself(value.partition(":")[2])
    return value


def key_file(value: object) -> str:
    """The path of the release key. The value is not shown: it may be the key itself."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise RuleBroken("must be the path of a file")
    _refuse_key_itself(value)
    return value


def signing_key(value: object) -> str:
    """The place of a signing key: a path or a reference. The value is not shown."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise RuleBroken(f"must be the path of a file, {written()}")
    if "PRIVATE KEY" in value or "\n" in value:
        raise RuleBroken(
            "must be the place of the signing key and not the key; this key is public "
            "now, so make another one"
        )
    if not has_scheme(value):
        return f"file:{value}"
    if not is_reference(value):
        raise RuleBroken(f"must be the path of a file, {written()}")
    return value


def _refuse_key_itself(place: str) -> None:
    if place.strip().startswith("dptrees-key-"):
        raise RuleBroken(
            "must be the place of the key and not the key; this key is public now, "
            "so make another one"
        )


def section(value: object) -> dict[str, object]:
    """A section of keys and values."""
    if not isinstance(value, dict):
        remark = missing_space(value) if isinstance(value, str) else ""
        raise RuleBroken(f"{shown(value)} must be a section of keys and values{remark}")
    return dict(value)


def known_keys(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Check that every key of a section is known and has a value."""
    names = list(known)
    for key, value in given.items():
        if key not in names:
            raise RuleBroken(unknown_key(key, names), at=f".{key}")
        if value is None:
            raise RuleBroken("has no value", at=f".{key}")


def fields(value: object, by_key: Mapping[str, Callable[[object], Any]]) -> dict[str, Any]:
    """The values of a section, each by its rule, without the kind that it names."""
    given = section(value)
    known_keys(given, by_key)
    found = {key: at(f".{key}", by_key[key], each) for key, each in given.items()}
    return {key: each for key, each in found.items() if key != "kind"}


def exactly_one(**values: object) -> None:
    """Check that one of two keys is given, and not both.

    >>> exactly_one(epsilon=1, rho=None)
    """
    if sum(value is not None for value in values.values()) != 1:
        raise RuleBroken(f"needs exactly one of {' and '.join(values)}")


def ledger_url(value: object) -> LedgerUrl:
    """The place of a ledger. The value is not shown: it may hold a password."""
    if not isinstance(value, str):
        raise RuleBroken("must be a string: sqlite:///FILE or postgresql://USER@HOST/DATABASE")
    try:
        return LedgerUrl(text(value))
    except ValueError as error:
        raise RuleBroken(str(error)) from None


def column_pairs(value: object) -> tuple[tuple[str, str], ...]:
    """A list of lists of two columns."""
    lists = each_by(lambda names: each_by(text, several(names)), several(value))
    if any(len(each) != 2 for each in lists):
        raise RuleBroken("each must be a list of two columns")
    return tuple((first, second) for first, second in lists)


Text = Annotated[str, PlainValidator(text)]
Name = Annotated[str, PlainValidator(name)]
Amount = Annotated[Fraction, PlainValidator(amount)]


class Section(BaseModel):
    """A section whose keys are its fields; `misplaced` holds keys of another kind of section, each
    with a sentence about it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        arbitrary_types_allowed=True,
        # Most sections are checked only as parts of the file, and need no validator of their own.
        defer_build=True,
    )
    misplaced: ClassVar[Mapping[str, str]] = {}

    @section_rule(mode="before")
    @classmethod
    def _check_keys(cls, values: object) -> object:
        result = section(values)
        for key in result:
            if key in cls.misplaced:
                raise RuleBroken(cls.misplaced[key], at=f".{key}")
        known = [each.alias or name for name, each in cls.model_fields.items()]
        known_keys(result, known)
        return result
