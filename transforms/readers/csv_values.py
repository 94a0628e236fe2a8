"""The values of the strings of a CSV column: of one type, or none.

The value of a string depends on that string alone, whatever the rows around it contain. A string
that is no value is null, and follows the column's policy.
"""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.rows.columns import UTC_NAMES
from dptrees.transforms.readers.csv_dates import moments
from dptrees.transforms.readers.csv_texts import PLAIN_COLUMN, THOUSANDS, ColumnTexts

# Strings that are surely values; of the others those that may be, few in most files, are tried one
# by one.
_NUMBER = r"^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?$"
_INTEGER = r"^-?[0-9]{1,18}$"
_UNSIGNED = r"^[0-9]{1,18}$"
_DATE = (
    r"^[12][0-9]{3}-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
    r"|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)$"
)
_TIME = _DATE[:-1] + r"[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
_CLOCK = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?$"
_ZONED_TIME = _TIME[:-1] + r"(Z|[-+](0[0-9]|1[0-4]):?[0-5][0-9])$"
_MAYBE_NUMBER = r"^[^,$%/:;' ]+$"
_MAYBE_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_MAYBE_TIME = _MAYBE_DATE[:-1] + r"([ T][0-9:.]*)?$"
_MAYBE_ZONED = _MAYBE_DATE[:-1] + r"[ T][0-9:.]*[Zz+-][0-9:]*$"
# A time and its zone are no part of the day that is written before them.
_DAY_OF_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T]([01][0-9]|2[0-3])(:[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?)?"
    rf" ?({UTC_NAMES}|[-+](0[0-9]|1[0-4])(:?[0-5][0-9])?)?$"
)
_NAMED_ZONE = rf"([0-9]) ?{UTC_NAMES}$"
_DAY_LETTERS, _TIME_LETTERS, _CLOCK_LETTERS = 10, 26, 15
_NANOSECONDS = r"^([0-9-]{10}[ T][0-9:]{8}\.[0-9]{6})[0-9]+"


def typed(texts: pa.Array, target_type: pa.DataType, how: ColumnTexts = PLAIN_COLUMN) -> pa.Array:
    """The values that strings represent; null where a string represents none.

    Args:
        texts: the strings of a column, (rows,), null where a field is empty.
        target_type: the type of the values.
        how: they are written.
    """
    if how is not PLAIN_COLUMN:
        texts = _present(texts, how, trim=how.trim or not pa.types.is_string(target_type))
    if pa.types.is_string(target_type):
        return texts
    if how.date_format is not None and _is_moment(target_type):
        return moments(texts, how.date_format, target_type)
    if pa.types.is_time(target_type):
        return _times_of_day(texts, target_type)
    if pa.types.is_floating(target_type) or pa.types.is_integer(target_type):
        texts = _plain_numbers(texts, how)
    if _is_moment(target_type) and _is_long(texts, target_type):
        texts = _iso(texts, target_type)  # before a cast that would fail at each
    try:
        return pc.cast(texts, target_type)
    except pa.ArrowException:
        # What becomes of a row must not depend on others: each text is a value or none by itself.
        distinct = _iso(pc.utf8_trim_whitespace(texts), target_type).dictionary_encode()
        return _values(distinct.dictionary, target_type).take(distinct.indices)


def _present(texts: pa.Array, how: ColumnTexts, *, trim: bool) -> pa.Array:
    """The strings, trimmed if `trim`, without missing values."""
    nothing = pa.scalar(None, pa.string())
    if trim:
        whole, texts = texts, pc.utf8_trim_whitespace(texts)
        # A text of no character at all was in quotes, and is one.
        blank = pc.and_(pc.equal(texts, ""), pc.not_equal(whole, ""))
        texts = pc.if_else(blank, nothing, texts)
    if how.nulls:
        texts = pc.if_else(pc.is_in(texts, pa.array(how.nulls, pa.string())), nothing, texts)
    return texts


def _is_long(texts: pa.Array, target_type: pa.DataType) -> bool:
    """Whether a text holds more than a date, or than a time in microseconds."""
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    return bool(longest > (_DAY_LETTERS if pa.types.is_date(target_type) else _TIME_LETTERS))


def _is_moment(target_type: pa.DataType) -> bool:
    return bool(pa.types.is_date(target_type) or pa.types.is_timestamp(target_type))


def _plain_numbers(texts: pa.Array, how: ColumnTexts) -> pa.Array:
    """Numbers with a decimal point and nothing between their digits; null where a text has the
    marks of numbers at places where it would be another number."""
    mark = re.escape(how.decimal)
    if how.thousands is not None:
        between = f"[{THOUSANDS[how.thousands]}]"
        grouped = rf"^[-+]?[0-9]{{1,3}}({between}[0-9]{{3}})+({mark}[0-9]*)?$"
        is_grouped = pc.match_substring_regex(texts, grouped)
        ungrouped = texts
        for each in THOUSANDS[how.thousands]:
            ungrouped = pc.replace_substring(ungrouped, each, "")
        texts = pc.if_else(is_grouped, ungrouped, texts)
    if how.decimal != ".":
        pointed = pc.match_substring(texts, ".")
        texts = pc.if_else(pointed, pa.scalar(None, pa.string()), texts)
        texts = pc.replace_substring(texts, how.decimal, ".")
    return texts


def _iso(texts: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Dates without the time that follows them; times of no more than microseconds."""
    if pa.types.is_date(target_type):
        timed = pc.match_substring_regex(texts, _DAY_OF_TIME)
        return pc.if_else(timed, pc.utf8_slice_codeunits(texts, 0, _DAY_LETTERS), texts)
    if pa.types.is_timestamp(target_type):
        texts = pc.replace_substring_regex(texts, _NANOSECONDS, r"\1")
        # Arrow knows the shortest name of UTC alone.
        zoned = target_type.tz is not None
        return pc.replace_substring_regex(texts, _NAMED_ZONE, r"\1Z") if zoned else texts
    return texts


def _times_of_day(texts: pa.Array, target_type: pa.DataType) -> pa.Array:
    """Times of day, of no more than microseconds. Arrow reads them of whole dates alone."""
    distinct = pc.utf8_trim_whitespace(texts).dictionary_encode()
    clocks = pc.utf8_slice_codeunits(distinct.dictionary, 0, _CLOCK_LETTERS)
    is_clock = pc.match_substring_regex(distinct.dictionary, _CLOCK)
    clocks = pc.if_else(is_clock, clocks, pa.scalar(None, pa.string()))
    times = pc.binary_join_element_wise("1970-01-01", clocks, " ")
    return pc.cast(pc.cast(times, pa.timestamp("us")), target_type).take(distinct.indices)


def _values(texts: pa.Array, target_type: pa.DataType) -> pa.Array:
    """The values of distinct strings, null for strings that represent none."""
    if pa.types.is_integer(target_type):  # a column with gaps is often written as 3.0
        texts = pc.replace_substring_regex(texts, r"^([-+]?\d+)\.0*$", r"\1")
    sure = pc.match_substring_regex(texts, _pattern(target_type))
    nothing = pa.scalar(None, pa.string())
    values = pc.cast(pc.if_else(sure, texts, nothing), target_type)
    doubted = pc.and_(
        pc.match_substring_regex(texts, _doubtful_pattern(target_type)), pc.invert(sure)
    )
    places = np.flatnonzero(doubted.to_numpy(zero_copy_only=False))
    if not len(places):
        return values
    tried = pa.concat_arrays([_value(texts.slice(int(place), 1), target_type) for place in places])
    return pc.replace_with_mask(values, doubted, tried)


def _value(text: pa.Array, target_type: pa.DataType) -> pa.Array:
    """The value of one text, (1,); null if it is none, as a fraction is no integer."""
    for read_as in (target_type, pa.float64()):
        try:
            return pc.cast(pc.cast(text, read_as), target_type)
        except pa.ArrowException:
            if not pa.types.is_integer(target_type):
                break
    return pa.nulls(1, target_type)


def _pattern(target_type: pa.DataType) -> str:
    if pa.types.is_integer(target_type):
        return _UNSIGNED if pa.types.is_unsigned_integer(target_type) else _INTEGER
    if pa.types.is_date(target_type):
        return _DATE
    if pa.types.is_timestamp(target_type):
        return _TIME if target_type.tz is None else _ZONED_TIME
    return _NUMBER


def _doubtful_pattern(target_type: pa.DataType) -> str:
    """Return a pattern that matches all strings that may be values, and few others."""
    if pa.types.is_date(target_type):
        return _MAYBE_DATE
    if pa.types.is_timestamp(target_type):
        return _MAYBE_TIME if target_type.tz is None else _MAYBE_ZONED
    is_number = pa.types.is_floating(target_type) or pa.types.is_integer(target_type)
    return _MAYBE_NUMBER if is_number else ""
