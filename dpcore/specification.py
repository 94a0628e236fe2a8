"""Specifications: frozen dataclasses as plain JSON values and back, and errors of fields.

The type of a field decides how its value is written: a fraction, a decimal or a date as a string,
an enumeration by its value, a tuple as a list, a class that derives from `Coded` as an object of
its fields, in the order of their definition. `coded` declares where a field differs. A `Refusal`
names the field that it refuses, so that a program can report it at the key that a person wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, fields
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum
from fractions import Fraction
from functools import cache
from inspect import isabstract
from types import NoneType, UnionType
from typing import Any, ClassVar, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints


class Refusal(ValueError):
    """A value breaks a rule. The message is one sentence, ``field: rule`` unless another is given.

    Args:
        field: the name of what is refused.
        rule: what is wrong with it, without a full stop.
        sentence: the whole message.

    >>> refused = Refusal("delta", "needs one beside epsilon")
    >>> refused.field, str(refused)
    ('delta', 'delta: needs one beside epsilon')
    """

    def __init__(self, field: str, rule: str, sentence: str = "") -> None:
        super().__init__(field, rule, sentence)
        self.field, self.rule = field, rule
        self._sentence = sentence or f"{field}: {rule}"

    def __str__(self) -> str:
        return self._sentence

    @classmethod
    def from_value(cls, field: str, said: str, *, column: str | None = None) -> Refusal:
        """A refusal whose rule goes on after the field, mostly with the value.

        Args:
            field: the name of what is refused.
            said: the rest of the sentence.
            column: the column of the rows that the field belongs to.

        >>> refused = Refusal.from_value("cells", "0 must be positive.", column="age")
        >>> refused.rule, str(refused)
        ('0 must be positive', "column 'age': cells 0 must be positive.")
        """
        where = "" if column is None else f"column {column!r}: "
        return cls(field, said.removesuffix("."), f"{where}{field} {said}")


ANOTHER_MATRIX = (
    "strategy: this machine makes another matrix of the weights than the plan has: use one with "
    "the NumPy and the linear algebra of the machine that made the plan"
)


class MatrixError(ValueError):
    """This machine makes another matrix than the plan has."""


# For each type of plain values, which values it has; a whole number is a number, and stays whole.
_PLAIN: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a string"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    NoneType: ((NoneType,), "null"),
}
_STRINGS: dict[Any, tuple[Callable[[str], object], str]] = {
    Fraction: (Fraction, "a fraction as a string"),
    Decimal: (Decimal, "a decimal as a string"),
    datetime: (datetime.fromisoformat, "an ISO 8601 date and time"),
    date: (date.fromisoformat, "an ISO 8601 date"),
}

# In place of a value that is not written.
_ALWAYS = object()

C = TypeVar("C", bound="Coded")


@dataclass(frozen=True, kw_only=True)
class _Code:
    """The rule that writes a field, where it differs from the plain rule.

    Args:
        name: in the specification, in place of the field's.
        omit: the value that is not written, and that an absent entry has.
        inline: whether the entries of the value are among its owner's entries.
        context: whether the field is not written, because its value is in the reader's context.
        write: gives the plain value, from the owner; without `read` the entry is only compared.
        read: gives the value of the field, from the plain one.
    """

    name: str = ""
    omit: object = _ALWAYS
    inline: bool = False
    context: bool = False
    write: Callable[[Any], object] | None = None
    read: Callable[[Any], object] | None = None


def coded(**code: Any) -> dict[str, _Code]:
    """Return the metadata of a field that is written in another way, see `_Code`."""
    return {"coded": _Code(**code)}


CONTEXT, INLINE = coded(context=True), coded(inline=True)


class Coded:
    """A frozen dataclass that is written as plain JSON values and read from them."""

    # Attributes that are written, in order, where they are not all fields. Those that are no fields
    # follow from the fields, and are compared when they are read.
    written: ClassVar[tuple[str, ...]] = ()
    # Names in the specification that come first, where parts that are inline would part them.
    leading: ClassVar[tuple[str, ...]] = ()
    # The attribute by which an abstract class finds the subclass of a specification.
    tag: ClassVar[str] = ""

    def spec(self) -> dict[str, Any]:
        """Return the specification as plain JSON values; `from_spec` reads it back."""
        result: dict[str, Any] = {}
        for entry in _entries(type(self)):
            value = getattr(self, entry.attribute)
            if entry.code.inline:
                result |= value.spec()
            elif entry.code.omit is _ALWAYS or value != entry.code.omit:
                result[entry.key] = entry.plain(self)
        return {name: result[name] for name in self.leading if name in result} | result

    @classmethod
    def from_spec(cls: type[C], spec: Mapping[str, Any], **context: Any) -> C:
        """Return the value of a specification, as `spec` writes it.

        Args:
            spec: plain JSON values.
            **context: values of fields, here or of values inside, that are not read.

        Raises:
            ValueError: an unknown or absent entry, one of another type, or one that does not follow
                from the others; or what the class refuses.
        """
        left = dict(spec)
        value = cls.from_entries(left, **context)
        for name in left:
            known = ", ".join(value.spec())
            raise ValueError(f"{name!r} is not a field of {type(value).__name__}: use {known}.")
        return value

    @classmethod
    def from_entries(cls: type[C], left: dict[str, Any], **context: Any) -> C:
        """Read as `from_spec` does, from entries among others, and remove them.

        Args:
            left: plain JSON values by name.
            **context: values of fields that are not read; the entries of what is inline are gone.
        """
        if cls.tag and isabstract(cls):
            return _member(cls, left).from_entries(left, **context)
        values = {each.name: context[each.name] for each in _fields(cls) if each.name in context}
        compared: list[tuple[_Entry, object]] = []
        for entry in _entries(cls):
            name, is_known = entry.attribute, entry.attribute in values
            if entry.code.inline:
                if not is_known:
                    values[name] = _hints(cls)[name].from_entries(left, **context)
            elif entry.is_read and is_known:
                left.pop(entry.key, None)
            elif entry.key not in left:
                if entry.code.omit is _ALWAYS:
                    raise ValueError(f"{cls.__name__} needs the field {entry.key!r}.")
                values[name] = entry.code.omit
            else:
                plain = left.pop(entry.key)
                if entry.is_read:
                    values[name] = entry.read(cls, plain, context)
                if entry.is_compared:
                    compared.append((entry, plain))
        value = cls(**values)
        for entry, plain in compared:
            entry.compare(plain, value)
        return value


class _Entry(NamedTuple):
    """An entry of a specification, by the attribute that it has the value of."""

    attribute: str
    code: _Code
    is_field: bool

    @property
    def key(self) -> str:
        """The name in the specification."""
        return self.code.name or self.attribute

    @property
    def is_read(self) -> bool:
        """Whether the entry gives the value of a field."""
        return self.is_field and (self.code.write is None or self.code.read is not None)

    @property
    def is_compared(self) -> bool:
        """Whether the entry may be another one than its owner writes."""
        return not self.is_field or self.code.write is not None

    def plain(self, owner: Coded) -> Any:
        """Return the value of an owner as plain JSON values."""
        write = self.code.write
        return _plain(write(owner) if write else getattr(owner, self.attribute))

    def read(self, cls: type[Any], plain: Any, context: Mapping[str, Any]) -> Any:
        """Return the value of a plain one."""
        try:
            if self.code.read is not None:
                return self.code.read(plain)
            return _read(_hints(cls)[self.attribute], plain, context)
        except _WrongType as wrong:
            raise Refusal.from_value(self.key, f"{wrong}.") from None

    def compare(self, plain: Any, owner: Coded) -> None:
        """Refuse a plain value that does not follow from the fields of an owner."""
        needed = self.plain(owner)
        if plain == needed:
            return
        if isinstance(needed, (list, dict)):
            raise Refusal(self.key, "it does not follow from the other fields")
        raise Refusal.from_value(self.key, f"{plain!r} must be {needed!r}.")


class _WrongType(Exception):
    """A plain value is not of the type of its field."""

    def __init__(self, plain: object, needed: str) -> None:
        super().__init__(f"{plain!r} must be {needed}")


def _fields(cls: type[Any]) -> list[Field[Any]]:
    return [each for each in fields(cls) if each.init]


def _find_entries(cls: type[Any]) -> tuple[_Entry, ...]:
    codes = {each.name: each.metadata.get("coded", _Code()) for each in _fields(cls)}
    names = cls.written or (*([cls.tag] if cls.tag else []), *codes)
    entries = (_Entry(name, codes.get(name, _Code()), name in codes) for name in names)
    return tuple(each for each in entries if not each.code.context)


# mypy finds no hash of a class.
_entries: Callable[[type[Any]], tuple[_Entry, ...]] = cache(_find_entries)  # type: ignore[assignment]
_hints: Callable[[type[Any]], dict[str, Any]] = cache(get_type_hints)  # type: ignore[assignment]


def _member(cls: type[C], spec: Mapping[str, Any]) -> type[C]:
    """Return the subclass that the tag of a specification names."""
    members = {getattr(each, cls.tag): each for each in _subclasses(cls) if not isabstract(each)}
    tag = spec.get(cls.tag)
    if not isinstance(tag, str) or tag not in members:
        known = ", ".join(sorted(members))
        raise Refusal.from_value(cls.tag, f"is {tag!r}; it must be one of {known}")
    return members[tag]


def _subclasses(cls: type[C]) -> Iterator[type[C]]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


def _plain(value: Any) -> Any:
    if isinstance(value, Coded):
        return value.spec()
    if isinstance(value, (tuple, list)):
        return [each if type(each) in _PLAIN else _plain(each) for each in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, (Fraction, Decimal)) else value


def _read(hint: Any, plain: Any, context: Mapping[str, Any]) -> Any:
    """Return the value of a type from the plain one."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _read_first(parts, plain, context)
    if origin is tuple:
        return _read_items(parts, plain, context)
    if hint in _PLAIN:
        types, needed = _PLAIN[hint]
        if not isinstance(plain, types) or (isinstance(plain, bool) and hint is not bool):
            raise _WrongType(plain, needed)
        return plain
    if issubclass(hint, Coded):
        if not isinstance(plain, Mapping):
            raise _WrongType(plain, "an object")
        return hint.from_spec(plain, **context)
    make, needed = _STRINGS.get(hint, (hint, "a string"))
    if issubclass(hint, Enum):
        needed = f"one of {', '.join(str(each.value) for each in hint)}"
    elif not isinstance(plain, str):
        raise _WrongType(plain, needed)
    try:
        return make(plain)
    except (ValueError, ZeroDivisionError, InvalidOperation):
        raise _WrongType(plain, needed) from None


def _read_first(parts: tuple[Any, ...], plain: Any, context: Mapping[str, Any]) -> Any:
    """Return the value of the first of some types that the plain one has."""
    if plain is None and NoneType in parts:
        return None
    *others, last = (part for part in parts if part is not NoneType)
    for part in others:
        try:
            return _read(part, plain, context)
        except _WrongType:
            pass
    return _read(last, plain, context)


def _read_items(parts: tuple[Any, ...], plain: Any, context: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the items of a list, all of one type or each of its own."""
    if not isinstance(plain, (list, tuple)):
        raise _WrongType(plain, "a list")
    if parts[-1] is Ellipsis:
        return tuple(_read(parts[0], each, context) for each in plain)
    if len(plain) != len(parts):
        raise _WrongType(plain, f"a list of {len(parts)}")
    return tuple(_read(part, each, context) for part, each in zip(parts, plain, strict=True))
