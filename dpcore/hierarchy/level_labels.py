"""The labels of the nodes of one level of a universe.

A node's label is one integer, its code; what the codes represent is said once a level, either by a
sorted list of values or by a picture of a number ("000": three digits). So a node takes only a
few bytes, and strings are made only for the requested nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.column import AnyArray
from dptrees.dpcore.rows.number_texts import ABSENT, read_numbers, write_numbers
from dptrees.dpcore.rows.parted import PartedIntegers


@dataclass(frozen=True, kw_only=True, eq=False)
class LevelLabels:
    """The labels of the nodes of one level.

    Attributes:
        codes: (nodes,) integers, rising among the children of a node; -1 for a node without a label
            of its own. Of the leaves of a large universe they lie elsewhere, in parts.
        values: the label of each code, sorted: large_string or int64; None where codes are written
            as numbers.
        picture: how a code is written as a number, "0" for each digit; other characters represent
            themselves. Or the names of the codes from 0 on, of one length, with "|" between them.

    >>> LevelLabels(codes=np.array([1, 12]), picture="000").texts(np.array([0, 1])).to_pylist()
    ['001', '012']
    >>> LevelLabels(codes=np.array([1]), picture="Mon|Tue").texts(np.array([0])).to_pylist()
    ['Tue']
    """

    codes: AnyArray | PartedIntegers
    values: pa.Array | None = None
    picture: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.codes, PartedIntegers):
            return
        codes = _smallest(self.codes)
        codes.flags.writeable = False
        object.__setattr__(self, "codes", codes)

    def texts(self, nodes: Integers, *, escaped: bool = False) -> pa.Array:
        """The labels of nodes as strings, (n,) large_string; null for a node without a label.

        Args:
            nodes: ids, (n,).
            escaped: whether "/" and the backslash inside a label get a backslash before them.
        """
        codes = self.codes.take(nodes)
        named = codes >= 0
        if self.values is None:
            texts = _written(np.where(named, codes, 0), self.picture)
            return texts if named.all() else pc.if_else(named, texts, pa.scalar(None, texts.type))
        values = self._escaped_values if escaped else self.values
        index = pa.array(codes.astype(np.int64), mask=None if named.all() else ~named)
        return values.take(index).cast(pa.large_string())

    @cached_property
    def _escaped_values(self) -> pa.Array:
        texts = self.values.cast(pa.large_string())  # type: ignore[union-attr]
        return pc.replace_substring_regex(texts, r"([\\/])", r"\\\1")

    def find_code(self, text: str) -> int | None:
        """The code of a label, or None."""
        if self.values is None:
            code = int(read_labels(pa.array([text], pa.large_string()), self.picture)[0])
        elif pa.types.is_integer(self.values.type):
            if not re.fullmatch(r"0|-?[1-9][0-9]{0,17}", text):
                return None
            code = pc.index(self.values, int(text)).as_py()
        else:
            code = pc.index(self.values, pa.scalar(text, self.values.type)).as_py()
        return None if code < 0 else code

    @property
    def radix(self) -> int:
        """One more than the largest code that the level can have."""
        if self.values is None:
            return len(_names(self.picture)) or int(10 ** self.picture.count("0"))
        return len(self.values)

    @property
    def named(self) -> int:
        """Number of nodes with a label of their own."""
        if isinstance(self.codes, PartedIntegers):
            return len(self.codes) - len(self.codes.tail)
        return int(np.count_nonzero(self.codes != ABSENT))

    @property
    def width(self) -> int:
        """Number of characters of a label that is written as its picture shows."""
        return len(self.picture.partition("|")[0])

    def with_unlabelled(self) -> LevelLabels:
        """The same with one more node without a label at the end."""
        codes = self.codes
        if isinstance(codes, PartedIntegers):
            more: AnyArray | PartedIntegers = codes.followed_by(ABSENT)
        else:
            more = np.append(codes, codes.dtype.type(ABSENT))
        return LevelLabels(codes=more, values=self.values, picture=self.picture)


def read_labels(texts: pa.Array, picture: str) -> Integers:
    """The codes of labels that are written as a picture shows, (n,) int64; -1 for others and null.

    Args:
        texts: (n,) large_string.
        picture: as `LevelLabels` has it.

    >>> read_labels(pa.array(["Tue", "Sun", None], pa.large_string()), "Mon|Tue").tolist()
    [1, -1, -1]
    """
    if not (names := _names(picture)):
        return read_numbers(texts, picture)
    places = pc.index_in(texts, pa.array(names, texts.type))
    return np.array(places.fill_null(ABSENT).cast(pa.int64()))


def _names(picture: str) -> list[str]:
    """The names that a picture lists; none of a number."""
    return picture.split("|") if "|" in picture else []


def _written(codes: AnyArray, picture: str) -> pa.Array:
    if names := _names(picture):
        return pa.array(names, pa.large_string()).take(pa.array(codes.astype(np.int64)))
    return write_numbers(codes, picture)


def _smallest(codes: AnyArray) -> AnyArray:
    """Codes of -1 and above in the fewest bytes: most levels need one or two of the eight."""
    largest = int(codes.max(initial=0))
    for dtype in (np.int8, np.int16, np.int32):
        if largest <= np.iinfo(dtype).max:
            return codes.astype(dtype)
    return codes.astype(np.int64)
