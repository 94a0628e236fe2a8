"""Whole numbers and times in columns: of any numeric type, or written as strings.

Writers turn a column of integers into floats because of one null, or into decimals because of one
decimal. So a whole number is that integer, whatever the type and the other rows. A float
represents an integer only where no other integer has the same float (below 2^53 for float64).
Strings have a picture: "0000-00" is six digits with a hyphen between the fourth and the fifth.
Many strings are read and written at once, a digit place at a time.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, timezone

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.rows.columns import AnyArray, fixed_width_values, null_rows

# Between bounds with more whole numbers, a number of cells is required: a tree with a cell
# for each takes minutes and gigabytes.
MOST_WHOLE = 10**6
# A remainder and a limb together stay inside int64.
_DIGITS_AT_ONCE = 9
_LIMB = 2**32 - 1


def is_number(type: pa.DataType) -> bool:
    """Whether columns of this plain type hold integers, floats or decimals, or truth values, which
    are 0 and 1 where numbers are read.

    >>> is_number(pa.float64()), is_number(pa.decimal128(20, 0)), is_number(pa.date32())
    (True, True, False)
    """
    return _is_whole(type) or bool(pa.types.is_floating(type)) or is_exact_decimal(type)


def _is_whole(type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type) or pa.types.is_boolean(type))


def is_exact_decimal(type: pa.DataType) -> bool:
    """Whether a type is one of decimals with digits behind the point, or none.

    >>> is_exact_decimal(pa.decimal128(38, 10)), is_exact_decimal(pa.int8())
    (True, False)
    """
    return bool(pa.types.is_decimal(type)) and bool(type.scale >= 0)


def has_fractions(type: pa.DataType) -> bool:
    """Whether columns of this plain type can have numbers that are not whole.

    >>> has_fractions(pa.float32()), has_fractions(pa.decimal128(9, 0)), has_fractions(pa.int8())
    (True, False, False)
    """
    return bool(pa.types.is_floating(type)) or (is_exact_decimal(type) and bool(type.scale > 0))


def fractions(column: pa.Array) -> Flags | None:
    """Flags of the numbers that are not whole, or None where all are.

    Args:
        column: of a type that `is_number` accepts, (rows,).

    Returns:
        True for a fraction and for NaN, (rows,), arbitrary where null; or None.

    >>> fractions(pa.array([3.0, 2.5, float("inf")])).tolist()
    [False, True, False]
    """
    if not has_fractions(column.type):
        return None
    if pa.types.is_decimal(column.type):
        broken = ~_floored(column)[1]
    else:
        values = fixed_width_values(column)
        with np.errstate(invalid="ignore"):  # of a signaling NaN
            broken = np.floor(values) != values
    return broken if broken.any() else None


def whole_numbers(column: pa.Array, *, unsigned: bool = False) -> tuple[AnyArray, Flags | None]:
    """The integers that the numbers of a column are.

    Args:
        column: of a type that `is_number` accepts, (rows,).
        unsigned: whether floats and decimals are looked for among the integers of uint64, instead
            of int64.

    Returns:
        Integers of some width, (rows,), arbitrary where there is none; and True where there is none
        (null, NaN, fractions, infinities, floats beyond 2^53), (rows,), or None where each row has
        one.

    >>> values, is_none = whole_numbers(pa.array([3.0, 2.5, -7.0]))
    >>> values.tolist(), is_none.tolist()
    ([3, 2, -7], [False, True, False])
    """
    nulls = null_rows(column)
    if _is_whole(column.type):
        return fixed_width_values(column), nulls
    read = _whole_decimals if pa.types.is_decimal(column.type) else _whole_floats
    values, is_none = read(column, unsigned=unsigned)
    return values, is_none if nulls is None else is_none | nulls


def _whole_floats(column: pa.Array, *, unsigned: bool) -> tuple[AnyArray, Flags]:
    values = fixed_width_values(column)
    dtype = np.dtype(np.uint64 if unsigned else np.int64)
    # A signaling NaN would make a warning of a comparison.
    with np.errstate(invalid="ignore"):
        known = np.abs(values) < math.ldexp(1.0, np.finfo(values.dtype).nmant + 1)
        if unsigned:
            known &= values >= 0
        kept = np.where(known, values, 0)
    whole = kept.astype(dtype)
    return whole, ~known | (whole != kept)


def _whole_decimals(column: pa.Array, *, unsigned: bool) -> tuple[AnyArray, Flags]:
    limbs, is_whole = _floored(column)
    values, sign = _low_word(limbs), _sign(limbs)
    fits = is_whole & _is_extension(limbs, np.zeros_like(sign) if unsigned else values >> 63)
    if unsigned:
        fits &= sign == 0
    values[~fits] = 0
    return values.view(np.uint64) if unsigned else values, ~fits


def floored_decimals(column: pa.Array) -> Integers:
    """The largest integer at or below each decimal, saturated at the ends of int64.

    Args:
        column: of decimals, (rows,).

    Returns:
        int64, (rows,), arbitrary where null.

    >>> from decimal import Decimal
    >>> floored_decimals(pa.array([Decimal("-0.5"), Decimal("7.9"), Decimal(10**30)])).tolist()
    [-1, 7, 9223372036854775807]
    """
    limbs, _ = _floored(column)
    values = _low_word(limbs)
    beyond = ~_is_extension(limbs, values >> 63)
    values[beyond] = (2**63 - 1) ^ _sign(limbs)[beyond]
    return values


def _floored(column: pa.Array) -> tuple[list[Integers], Flags]:
    """Each decimal rounded down, as limbs of 32 bits, the lowest first; the last one has the
    sign; and whether nothing was cut off, (rows,).

    Long division by powers of ten. Arrow's own overflows, raises, or is off by one at large values.
    """
    width = column.type.byte_width
    stored = np.frombuffer(column.buffers()[1], "<i4", offset=width * column.offset)
    rows = stored[: len(column) * width // 4].reshape(len(column), width // 4).astype(np.int64)
    limbs = [*(rows[:, :-1] & _LIMB).T, rows[:, -1]]
    is_whole = np.ones(len(column), np.bool_)
    for start in range(0, column.type.scale, _DIGITS_AT_ONCE):
        divisor = 10 ** min(_DIGITS_AT_ONCE, column.type.scale - start)
        rest: Integers = np.zeros(len(column), np.int64)
        for place in reversed(range(len(limbs))):
            limbs[place], rest = np.divmod((rest << 32) + limbs[place], divisor)
        is_whole &= rest == 0
    return limbs, is_whole


def _low_word(limbs: list[Integers]) -> Integers:
    return limbs[0] + (limbs[1] << 32) if len(limbs) > 1 else limbs[0].copy()


def _sign(limbs: list[Integers]) -> Integers:
    """0, or -1 where negative."""
    return limbs[-1] >> 63


def _is_extension(limbs: list[Integers], sign: Integers) -> Flags:
    """Whether the limbs above the low word say nothing but its sign."""
    same = np.ones(len(sign), np.bool_)
    for limb in limbs[2:-1]:
        same &= limb == sign & _LIMB
    return same & (limbs[-1] == sign) if len(limbs) > 2 else same


# The value where there is no number, code or position.
ABSENT = -1
# A block and its scratch arrays stay in a core's second-level cache.
_BLOCK = 2**14


def write_numbers(numbers: AnyArray, picture: str) -> pa.Array:
    """Nonnegative integers as strings of one width.

    Args:
        numbers: (n,), less than 10 to the number of digits.
        picture: "0" for each digit; other characters represent themselves.

    Returns:
        large_string, (n,).

    >>> write_numbers(np.array([201301]), "0000-00").to_pylist()
    ['2013-01']
    """
    texts = np.empty((len(numbers), len(picture)), np.uint8)
    for start in range(0, len(numbers), _BLOCK):
        _write(numbers[start : start + _BLOCK], picture, texts[start : start + _BLOCK])
    ends = np.arange(len(numbers) + 1, dtype=np.int64) * len(picture)
    return pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(texts))


def _write(numbers: AnyArray, picture: str, texts: npt.NDArray[np.uint8]) -> None:
    rest = numbers.astype(np.int64)
    for place in reversed(range(len(picture))):
        if picture[place] == "0":
            tens = rest // 10
            texts[:, place] = rest - 10 * tens + ord("0")
            rest = tens
        else:
            texts[:, place] = ord(picture[place])


def read_numbers(texts: pa.Array, picture: str) -> Integers:
    """The integers that `write_numbers` would write as these strings.

    Args:
        texts: large_string, (n,).
        picture: "0" for each digit; other characters represent themselves.

    Returns:
        int64, (n,); -1 where a text is null or does not have this form.

    >>> read_numbers(pa.array(["007", "7", "00x", None], pa.large_string()), "000").tolist()
    [7, -1, -1, -1]
    """
    offsets, data = text_buffers(texts)
    fits = np.diff(offsets) == len(picture)
    nulls = null_rows(texts)
    if nulls is not None:
        fits &= ~nulls
    out = np.full(len(texts), ABSENT, np.int64)
    every = bool(fits.all())
    for start in range(0, len(texts), _BLOCK):
        rows = slice(start, min(start + _BLOCK, len(texts)))
        if every:
            letters = data[offsets[rows.start] : offsets[rows.stop]].reshape(-1, len(picture))
            out[rows] = _numbers(letters, picture)
        else:
            firsts = offsets[rows][fits[rows]]
            letters = data[firsts[:, None] + np.arange(len(picture))]
            out[rows][fits[rows]] = _numbers(letters, picture)
    return out


def _numbers(letters: npt.NDArray[np.uint8], picture: str) -> Integers:
    numbers = np.zeros(len(letters), np.int64)
    wrong = np.zeros(len(letters), np.bool_)
    for place, sign in enumerate(picture):
        if sign == "0":
            # Below "0" the difference wraps around, so one comparison finds every other letter.
            digit = letters[:, place] - np.uint8(ord("0"))
            wrong |= digit > 9
            numbers *= 10
            numbers += digit
        else:
            wrong |= letters[:, place] != ord(sign)
    numbers[wrong] = ABSENT
    return numbers


def text_buffers(texts: pa.Array) -> tuple[Integers, npt.NDArray[np.uint8]]:
    """Start of each string, (n + 1,), in the bytes of a large_string array.

    >>> offsets, data = text_buffers(pa.array(["ab", "c"], pa.large_string())[1:])
    >>> bytes(data[offsets[0] : offsets[1]])
    b'c'
    """
    _, places, letters = texts.buffers()
    if places is None or len(texts) == 0:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(places, np.int64, len(texts) + 1, 8 * texts.offset)
    data = np.empty(0, np.uint8) if letters is None else np.frombuffer(letters, np.uint8)
    return offsets, data


# The unit of NumPy of each unit, and how many of them.
_UNITS = {
    "year": ("Y", 1),
    "quarter": ("M", 3),
    "month": ("M", 1),
    "week": ("D", 7),
    "day": ("D", 1),
    "weekday": ("D", 1),
    "hour": ("h", 1),
}
_TEXT = re.compile(
    r"(\d{4})(?:-Q([1-4]))?(?:-W(\d\d))?(?:-([A-Z][a-z]{2}))?((?:-\d\d)*)(?:T(\d\d))?"
)
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def read_moment(value: object) -> datetime | None:
    """A literal date, datetime or ISO 8601 text as a datetime; None when it is none of these.

    >>> read_moment("2013-01-01T00:00Z")
    datetime.datetime(2013, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        # Python 3.10 does not read the letter Z.
        return datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        return None


@dataclass(frozen=True, kw_only=True)
class TimeLine:
    """Equal units of time, one after the other.

    Attributes:
        first: the number of the first unit of NumPy since 1970-01-01.
        unit: NumPy's name of it.
        step: how many of them a leaf has.
        leaves: how many leaves.
        utc: they are instants, in UTC.
    """

    first: int
    unit: str
    step: int
    leaves: int
    utc: bool

    def find_boundary(self, value: object) -> int:
        """The number of leaves, 0 to all, that lie wholly before a moment.

        Raises:
            ValueError: it is no moment, or has a zone where the calendar has none.
        """
        return min(max(self._units_before(self._moment(value)), 0), self.leaves)

    def is_exact(self, value: object) -> bool:
        """Whether a moment is the beginning of a leaf, or the end of the last."""
        moment = self._moment(value)
        boundary = self._units_before(moment)
        return 0 <= boundary <= self.leaves and bool(self._begin(boundary) == moment)

    def text(self, boundary: int) -> str:
        """The moment at which a leaf begins."""
        return str(np.datetime_as_string(self._begin(boundary), unit=self.unit))  # type: ignore[call-overload]

    def _begin(self, boundary: int) -> np.datetime64:
        return np.datetime64(self.first + boundary * self.step, self.unit)  # type: ignore[call-overload,no-any-return]

    def _units_before(self, moment: np.datetime64) -> int:
        number = int(moment.astype(f"M8[{self.unit}]").view(np.int64))
        return (number - self.first) // self.step

    def _moment(self, value: object) -> np.datetime64:
        moment = _read(value)
        if moment is None:
            raise ValueError(f"{str(value)!r} must be a date, or a date and time (ISO 8601)")
        if isinstance(moment, np.datetime64):
            return moment
        if moment.tzinfo is not None:
            if not self.utc:
                raise ValueError(f"{str(value)!r} has a time zone, and the calendar has none")
            moment = moment.astimezone(timezone.utc).replace(tzinfo=None)
        return np.datetime64(moment, "us")


def _read(value: object) -> datetime | np.datetime64 | None:
    """A date, a datetime or a text of ISO 8601, which may end at its year or month."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    text = str(value).strip()
    try:
        # Python 3.10 does not read the letter Z.
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        pass
    shorter = re.fullmatch(r"\d{4}(-\d\d)?|\d{4}-\d\d-\d\dT\d\d", text)
    try:
        return np.datetime64(text, "us") if shorter else None
    except ValueError:
        return None


def time_line(
    name: str, texts: tuple[str, str], leaves: int, *, utc: bool = False
) -> TimeLine | None:
    """The units of a calendar; None where they are no line of time.

    Args:
        name: of the unit: year, quarter, month, week, day, weekday or hour.
        texts: of the first unit and of the last, as ISO 8601 writes them, or with quarters and days
            of the week: 2024-Q3, 2024-W27-Thu.
        leaves: how many there are.
        utc: they are instants, in UTC.

    >>> time = time_line("day", ("2013-01-01", "2013-12-31"), 365)
    >>> time.find_boundary("2013-02"), time.text(365), time.is_exact("2013-02-01T12:00")
    (31, '2014-01-01', False)
    >>> time_line("day", ("Mon", "Sun"), 7) is None
    True
    """
    if name not in _UNITS:
        return None
    unit, step = _UNITS[name]
    first, last = (_parse_unit(text, unit) for text in texts)
    if first is None or last is None or last - first != (leaves - 1) * step:
        return None
    return TimeLine(first=first, unit=unit, step=step, leaves=leaves, utc=utc)


def _parse_unit(text: str, unit: str) -> int | None:
    """The unit of NumPy in which a unit begins; None where its text gives none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    year, quarter, week, weekday, rest, hour = match.groups()
    begin = f"{year}{rest}"
    try:
        if week:
            day = _WEEKDAYS.index(weekday) + 1 if weekday else 1
            begin = date.fromisocalendar(int(year), int(week), day).isoformat() + rest
        elif weekday:  # of a week that is not given
            return None
        elif quarter and not rest:
            begin = f"{year}-{3 * int(quarter) - 2:02d}"
        moment = np.datetime64(f"{begin}T{hour}" if hour else begin, unit)  # type: ignore[call-overload]
    except ValueError:
        return None
    return int(moment.view(np.int64))
