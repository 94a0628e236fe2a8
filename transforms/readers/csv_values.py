"""What the texts of a CSV column stand for: values of one type, or none.

What becomes of a text depends on that text alone, whatever stands in the rows around it. A text
that is no value is null, and follows the column's policy.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Texts that are surely values; the others, few in most files, are tried one by one.
_NUMBER = r"^[-+]?[0-9]+(\.[0-9]*)?$"
_INTEGER = r"^-?[0-9]{1,18}$"
_UNSIGNED = r"^[0-9]{1,18}$"
_DATE = r"^[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])$"
_TIME = _DATE[:-1] + r"[ T]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?$"
_CLOCK = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_ZONED_TIME = _TIME[:-1] + r"(Z|[-+](0[0-9]|1[0-4]):?[0-5][0-9])$"


def typed(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values that texts stand for; null where a text stands for none.

    Args:
        texts: of a column, (rows,), null where a field is empty.
        wanted: the type of the values.
    """
    if pa.types.is_string(wanted):
        return texts
    try:
        return pc.cast(texts, wanted)
    except pa.ArrowException:
        # What becomes of a row must not depend on others: each text is a value or none by itself.
        distinct = pc.utf8_trim_whitespace(texts).dictionary_encode()
        return _values(distinct.dictionary, wanted).take(distinct.indices)


def _values(texts: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The values of different texts, null for those that stand for none."""
    if pa.types.is_integer(wanted):  # a column with gaps is often written as 3.0
        texts = pc.replace_substring_regex(texts, r"^([-+]?\d+)\.0*$", r"\1")
    sure = pc.match_substring_regex(texts, _pattern(wanted))
    nothing = pa.scalar(None, pa.string())
    values = pc.cast(pc.if_else(sure, texts, nothing), wanted)
    doubtful = np.flatnonzero(~sure.to_numpy(zero_copy_only=False))
    if not len(doubtful):
        return values
    tried = pa.concat_arrays([_value(texts.slice(int(place), 1), wanted) for place in doubtful])
    return pc.replace_with_mask(values, pc.invert(sure), tried)


def _value(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The value of one text, (1,); null if it is none."""
    try:
        return pc.cast(text, wanted)
    except pa.ArrowException:
        return _floor(text, wanted) if pa.types.is_integer(wanted) else pa.nulls(1, wanted)


def _floor(text: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A number with a fraction as the integer below it, as in a file of floats; else null."""
    try:
        return pc.cast(pc.floor(pc.cast(text, pa.float64())), wanted)
    except pa.ArrowException:
        return pa.nulls(1, wanted)


def _pattern(wanted: pa.DataType) -> str:
    if pa.types.is_integer(wanted):
        return _UNSIGNED if pa.types.is_unsigned_integer(wanted) else _INTEGER
    if pa.types.is_date(wanted):
        return _DATE
    if pa.types.is_time(wanted):
        return _CLOCK
    if pa.types.is_timestamp(wanted):
        return _TIME if wanted.tz is None else _ZONED_TIME
    return _NUMBER
