"""What values look like, without the values: digits as 9, letters as a."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

_LONGEST = 24
_MOST = 200
_RUN = 8


def shapes(values: pa.Array) -> Counter[str]:
    """Count values by their shape, such as `99/99/9999` for dates.

    A run of letters is one `a`, a run of more than 8 digits `9...`. A shape longer than 24
    characters is cut.

    Args:
        values: (n,) strings, or values of a type that Arrow writes as strings.

    >>> shapes(pa.array(["07/04/2024", "12/24/2024", "Oslo, N", None, "1234567890"]))
    Counter({'99/99/9999': 2, 'a, a': 1, '9...': 1})
    """
    texts = _texts(values).drop_null()
    texts = pc.replace_substring_regex(texts, r"\p{L}+", "a")
    texts = pc.replace_substring_regex(texts, r"\p{Nd}", "9")
    texts = pc.replace_substring_regex(texts, f"9{{{_RUN + 1},}}", "9...")
    texts = pc.utf8_slice_codeunits(texts, 0, _LONGEST)
    result: Counter[str] = Counter()
    for each in pc.value_counts(texts).to_pylist()[:_MOST]:
        result[each["values"]] += each["counts"]
    return result


def _texts(values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        return pa.nulls(len(values), pa.string())  # that is no letters
    return values.cast(pa.string())


def most_common(found: Counter[str], most: int = 3) -> list[str]:
    """What most values look like, the most common first.

    >>> most_common(Counter(["99", "99", "a"]))
    ['99', 'a']
    """
    ordered: Iterable[tuple[str, int]] = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return [shape for shape, _ in ordered][:most]
