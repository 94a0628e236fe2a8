"""Domains of large sparse trees: the keys of nodes from rows, as codes, addresses and paths.

A leaf is a code of up to 64 bits whose leading bits name its ancestors, or labels without a
public list. Rows with a null or NaN, a negative, too large or fractional code, or a string that
is no address or not UTF-8 are dropped, each by its own values alone. Addresses and prefixes are
written as in RFC 6943, section 3.1.1, and RFC 4632, section 3.1.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.rows.columns import (
    AnyArray,
    fixed_width_values,
    is_text,
    large_texts,
    plain_values,
    readable_texts,
    value_type,
)
from dptrees.dpcore.rows.numbers import ABSENT, is_number, text_buffers, whole_numbers
from dptrees.dpcore.rows.policies import MISSING_VALUE, RowOutcome, missing_flags
from dptrees.dpcore.specification import Coded, Refusal

_SHORTEST, _LONGEST = len("0.0.0.0"), len("255.255.255.255")
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def read_addresses(texts: pa.Array) -> Integers:
    """The 32-bit numbers of IPv4 addresses in dotted notation.

    Args:
        texts: large_string, (n,), none null.

    Returns:
        int64, (n,); -1 where a text is no address.

    >>> read_addresses(pa.array(["0.0.1.2", "1.2.3", "1.2.3.256", "01.2.3.4"],
    ...                         pa.large_string())).tolist()
    [258, -1, -1, -1]
    """
    numbers = np.full(len(texts), ABSENT, np.int64)
    offsets, data = text_buffers(texts)
    lengths = np.diff(offsets)
    fits = (lengths >= _SHORTEST) & (lengths <= _LONGEST)
    if not fits.all():
        # One long text would take many times its memory.
        numbers[fits] = read_addresses(texts.filter(pa.array(fits)))
        return numbers
    dots = np.flatnonzero(data[: offsets[-1]] == ord("."))
    first, beyond = np.searchsorted(dots, offsets[:-1]), np.searchsorted(dots, offsets[1:])
    rows = np.flatnonzero(beyond - first == 3)
    if rows.size == 0:
        return numbers
    inner = dots[first[rows, None] + np.arange(3)]
    starts = np.column_stack([offsets[rows], inner + 1])
    ends = np.column_stack([inner, offsets[rows + 1]])
    octets = _octets(data, starts, ends - starts)
    total = (octets << np.array([24, 16, 8, 0])).sum(axis=1)
    numbers[rows] = np.where((octets >= 0).all(axis=1), total, ABSENT)
    return numbers


def _octets(data: AnyArray, starts: Integers, lengths: Integers) -> Integers:
    """The numbers from 0 to 255 in the fields of strings; -1 where a field is anything else."""
    values, wrong = np.zeros(starts.shape, np.int64), (lengths < 1) | (lengths > 3)
    for place in range(3):
        inside = place < lengths
        # A place beyond a field is read somewhere inside the data and not used.
        letters = data[np.minimum(starts + place, len(data) - 1)] - np.uint8(ord("0"))
        wrong |= inside & (letters > 9)
        if place == 0:
            wrong |= (letters == 0) & (lengths > 1)
        values = np.where(inside, 10 * values + letters, values)
    return np.where(wrong | (values > 255), ABSENT, values)


def prefix_texts(codes: AnyArray, bits: int, *, hex_digits: int | None = None) -> pa.Array:
    """Prefixes of codes as strings, with the number of their bits.

    Args:
        codes: uint64, (n,), zero behind the prefix.
        bits: of the prefix.
        hex_digits: how many hexadecimal digits a code has; None: it is an IPv4 address.

    Returns:
        large_string, (n,).

    >>> prefix_texts(np.array([10 << 24 | 1 << 16], np.uint64), 16).to_pylist()
    ['10.1.0.0/16']
    >>> prefix_texts(np.array([255], np.uint64), 12, hex_digits=3).to_pylist()
    ['0ff/12']
    """
    if hex_digits is None:
        names = pa.array([str(octet) for octet in range(256)], pa.large_string())
        octets = [
            names.take(pa.array((codes >> np.uint64(shift)) & np.uint64(255)))
            for shift in (24, 16, 8, 0)
        ]
        texts = pc.binary_join_element_wise(*octets, pa.scalar(".", pa.large_string()))
    else:
        texts = _hex_texts(codes, hex_digits)
    length = pa.scalar(f"/{bits}", pa.large_string())
    return pc.binary_join_element_wise(texts, length, pa.scalar("", pa.large_string()))


def _hex_texts(codes: AnyArray, digits: int) -> pa.Array:
    shifts = np.arange(4 * (digits - 1), -1, -4).astype(np.uint64)
    letters = _HEX[((codes[:, None] >> shifts) & np.uint64(15)).astype(np.intp)]
    places = np.arange(len(codes) + 1, dtype=np.int64) * digits
    return pa.LargeStringArray.from_buffers(
        len(codes), pa.py_buffer(places), pa.py_buffer(np.ascontiguousarray(letters))
    )


# A path is the labels above, a separator and the label of its own. Where labels are columns, a
# backslash comes before a separator inside a label.
_ESCAPED = r"(?s)^(?P<above>(?:[^\\]|\\.)*)/(?P<own>(?:[^\\/]|\\.)*)$"
_PLAIN = r"(?s)^(?P<above>.*)\x{{{0:x}}}(?P<own>[^\x{{{0:x}}}]*)$"


def paths_above(paths: pa.Array, separator: str | None) -> pa.Array:
    """Paths without their last labels.

    Args:
        paths: large_string, (n,), each of two labels or more.
        separator: between the labels; None: a slash, with a backslash before one inside a label.

    Returns:
        large_string, (n,).

    >>> paths_above(pa.array(["JFK/A\\\\/B", "LGA/LAX"], pa.large_string()), None).to_pylist()
    ['JFK', 'LGA']
    """
    return pc.struct_field(pc.extract_regex(paths, _pattern(separator)), "above")


def last_labels(paths: pa.Array, separator: str | None) -> pa.Array:
    """The last labels of paths, as they are written; see `paths_above`.

    >>> last_labels(pa.array(["a/b//", "a/b"], pa.large_string()), "/").to_pylist()
    ['', 'b']
    """
    return pc.struct_field(pc.extract_regex(paths, _pattern(separator)), "own")


def _pattern(separator: str | None) -> str:
    return _ESCAPED if separator is None else _PLAIN.format(ord(separator))


def prefix_codes(paths: pa.Array, hex_digits: int | None) -> npt.NDArray[np.uint64]:
    """The codes of prefixes, 0 behind them.

    Args:
        paths: large_string, (n,), as `prefix_texts` writes them.
        hex_digits: how many hexadecimal digits a code has; None: it is an IPv4 address.

    Returns:
        uint64, (n,).

    >>> prefix_codes(pa.array(["0.0.1.0/24"], pa.large_string()), None).tolist()
    [256]
    >>> prefix_codes(pa.array(["0ff/12"], pa.large_string()), 3).tolist()
    [255]
    """
    if hex_digits is None:
        return read_addresses(pc.replace_substring_regex(paths, "/.*$", "")).astype(np.uint64)
    offsets, data = text_buffers(paths)
    letters = data[offsets[:-1, None] + np.arange(hex_digits)].astype(np.uint64)
    values = letters - np.uint64(ord("0"))
    values -= np.where(letters >= ord("a"), ord("a") - ord("0") - 10, 0).astype(np.uint64)
    shifts = np.arange(4 * (hex_digits - 1), -1, -4).astype(np.uint64)
    codes: npt.NDArray[np.uint64] = np.bitwise_or.reduce(values << shifts, axis=1)
    return codes


def refused_path(path: str, why: str) -> ValueError:
    """The refusal of a text that is no path of a domain, as one sentence.

    >>> str(refused_path("a/b", "it has 2 labels, and the tree 1 level"))
    "path 'a/b': it has 2 labels, and the tree 1 level"
    """
    return ValueError(f"path {path!r}: {why}")


NOTATIONS = ("ipv4", "hex")


class SparseDomain(Coded, ABC):
    """The levels of a large tree, and how rows fall into its nodes.

    Attributes:
        columns: that a row's leaf is read from.
        names: (h,) of the levels below the root, top down.
        key_type: uint64 or large_string.
        leaves: how many leaves there are; None: no list of them is public.
        needed: the types that a column may have, for messages.
    """

    tag = "form"
    form: ClassVar[str]
    columns: tuple[str, ...]
    names: tuple[str, ...]
    key_type: pa.DataType
    needed: str

    @property
    def height(self) -> int:
        """h, the level of the leaves."""
        return len(self.names)

    @property
    def leaves(self) -> int | None:
        """Number of leaves; None: no list of them is public."""
        return None

    @property
    def value_type(self) -> pa.DataType:
        """The type of its columns where a file does not give one, as CSV does not."""
        return pa.string()

    @property
    @abstractmethod
    def policies(self) -> dict[str, str]:
        """Policies for rows without a leaf, by what they have instead; for the manifest."""

    @abstractmethod
    def accepts(self, type: pa.DataType) -> bool:
        """Whether columns of this type can be read; nulls and dictionaries are fine."""

    @abstractmethod
    def leaf_counts(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> NodeCounts:
        """The exact counts of the leaves of a batch of rows, those dropped left out.

        Args:
            columns: `columns` by name, each (rows,).

        Raises:
            ValueError: a column of a type that is not accepted.
        """

    @abstractmethod
    def leaf_keys(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Array:
        """The key of every row's leaf, (rows,); null where a row is dropped.

        Args:
            columns: as for `leaf_counts`, whose counts are of these keys.

        Raises:
            ValueError: a column of a type that is not accepted.
        """

    def row_outcomes(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> list[RowOutcome]:
        """Rows without a leaf, by cause."""
        missing = {name: missing_flags(columns[name]) for name in self.columns}
        outcomes = [RowOutcome(name, MISSING_VALUE, "drop", rows) for name, rows in missing.items()]
        none = self.leaf_keys(columns).is_null().to_numpy(zero_copy_only=False)
        odd = none & ~np.logical_or.reduce(list(missing.values()))
        return [*outcomes, RowOutcome(", ".join(self.columns), "unknown", "drop", odd)]

    @abstractmethod
    def level_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The keys of the ancestors on a level of leaves, (n,); null where a leaf ends above it."""

    @abstractmethod
    def parent_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The keys of the parents, on level - 1, of nodes of a level from 1 to h, (n,)."""

    @abstractmethod
    def paths(self, level: int, keys: pa.Array) -> pa.Array:
        """Names of nodes of a level, (n,) large_string."""

    @property
    def has_texts(self) -> bool:
        """Whether labels are strings, whose keys are in the order of their letters."""
        return False

    def as_written(self, path: str) -> str:
        """A path as `paths` writes it, from one as rows may have it."""
        return path

    def level_of_path(self, path: str) -> int:
        """The level of the node of a path as `paths` writes it, published or not; "" is the root.

        Raises:
            ValueError: the tree can have no node of this path; the sentence says why.
        """
        if path in ("", str(self.paths(0, self.root_keys)[0])):
            return 0
        try:
            path.encode()
        except UnicodeEncodeError:
            raise refused_path(path, "it holds letters that no text has") from None
        return self._level(path)

    @abstractmethod
    def _level(self, path: str) -> int:
        """The level of a path that is not the root's."""

    def parent_paths(self, level: int, paths: pa.Array) -> pa.Array:
        """The paths of the parents of nodes.

        Args:
            level: of the nodes, at least 1.
            paths: (n,) as `paths` writes them.

        Returns:
            (n,) large_string.
        """
        if level == 1:
            root = self.paths(0, self.root_keys)[0]
            return pa.repeat(root, len(paths))
        return self._paths_above(level, paths.cast(pa.large_string()))

    @abstractmethod
    def _paths_above(self, level: int, paths: pa.Array) -> pa.Array:
        """The paths of the parents of nodes of a level of 2 or more."""

    @property
    def root_keys(self) -> pa.Array:
        """The key of the root, (1,)."""
        return pa.array([0 if pa.types.is_integer(self.key_type) else ""], self.key_type)

    def _checked(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> list[pa.Array]:
        """The columns in order, whole, without dictionaries; strings as string or large_string,
        with null for what is not UTF-8."""
        plain = []
        for name in self.columns:
            column = columns[name]
            if not self.accepts(column.type):
                raise ValueError(
                    f"column {name} is of type {column.type}; it must be {self.needed}"
                )
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            parts = [_plain(chunk) for chunk in chunks] or [pa.nulls(0)]
            plain.append(parts[0] if len(parts) == 1 else pa.concat_arrays(map(_wide, parts)))
        return plain


@dataclass(frozen=True, kw_only=True)
class CodeDomain(SparseDomain):
    """Codes of up to 64 bits; level l has their leading w_1 + ... + w_l bits.

    Args:
        column: of numbers that are integers, or of addresses as strings ("10.1.0.7") in the
            notation of "ipv4".
        widths: (h,) in bits, top down, each at least 1, at most 64 together.
        notation: "ipv4" ("10.1.0.0/16", 32 bits) or "hex" ("0a01000000000000/16").

    Raises:
        ValueError: widths or a notation out of range.

    >>> domain = CodeDomain(column="address", widths=(8, 8, 16))
    >>> counts = domain.leaf_counts({"address": pa.array(["10.1.0.7", None, "10.1.0.9", "10.1"])})
    >>> domain.paths(2, domain.level_keys(2, counts.keys)).to_pylist(), domain.names
    (['10.1.0.0/16', '10.1.0.0/16'], ('/8', '/16', '/32'))
    """

    form: ClassVar[str] = "code"
    column: str
    widths: tuple[int, ...]
    notation: str = "ipv4"

    key_type = pa.uint64()

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or sum(self.widths) > 64:
            raise Refusal(
                "widths", f"{self.widths} must be numbers of bits from 1, at most 64 together"
            )
        if self.notation not in NOTATIONS:
            raise Refusal.from_value(
                "notation", f"is {self.notation!r}; it must be one of {NOTATIONS}"
            )
        if self.notation == "ipv4" and self.bits != 32:
            raise Refusal("widths", f"they sum to {self.bits}; an ipv4 address has 32 bits")

    @property
    def bits(self) -> int:
        """Length of a leaf's code in bits."""
        return sum(self.widths)

    @property
    def leaves(self) -> int:
        """2 to the number of bits."""
        return int(2**self.bits)

    @cached_property
    def prefix_bits(self) -> tuple[int, ...]:
        """(h + 1,) how many bits the keys of each level have."""
        return tuple(sum(self.widths[:level]) for level in range(len(self.widths) + 1))

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The one column."""
        return (self.column,)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The lengths of the prefixes: "/8", "/16", ..."""
        return tuple(f"/{bits}" for bits in self.prefix_bits[1:])

    @property
    def value_type(self) -> pa.DataType:
        """Addresses as strings, other keys as integers."""
        return pa.string() if self.notation == "ipv4" else pa.uint64()

    @property
    def needed(self) -> str:  # type: ignore[override]
        """The types that the column may have."""
        return "integers or texts of addresses" if self.notation == "ipv4" else "integers"

    @property
    def policies(self) -> dict[str, str]:
        """Each row by itself."""
        return {"missing": "drop", "outside": "drop"}

    def accepts(self, type: pa.DataType) -> bool:
        """Accept numbers, and strings in the notation of addresses."""
        plain = value_type(type)
        if pa.types.is_boolean(plain):
            return False  # which is no code
        texts = self.notation == "ipv4" and is_text(plain)
        return is_number(plain) or bool(pa.types.is_null(plain)) or texts

    def leaf_counts(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> NodeCounts:
        """The exact counts of the codes of a batch; see `SparseDomain`."""
        (column,) = self._checked(columns)
        codes, kept = self._codes(column)
        return NodeCounts.grouped(pa.array(codes if kept is None else codes[kept]))

    def leaf_keys(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Array:
        """The code of every row; see `SparseDomain`."""
        (column,) = self._checked(columns)
        codes, kept = self._codes(column)
        return pa.array(codes, mask=None if kept is None else ~kept)

    def _codes(self, column: pa.Array) -> tuple[AnyArray, Flags | None]:
        """The code of every row, (rows,), and whether it has one; None: each has."""
        if pa.types.is_null(column.type):
            return np.zeros(len(column), np.uint64), np.zeros(len(column), np.bool_)
        if is_text(column.type):
            codes, is_none = read_addresses(large_texts(column.fill_null(""))), None
        else:
            codes, is_none = whole_numbers(column, unsigned=True)
        kept = np.ones(len(codes), np.bool_) if is_none is None else ~is_none
        if np.iinfo(codes.dtype).min < 0:
            kept &= codes >= 0
        codes = codes.astype(np.uint64, copy=False)
        if self.bits < 64:
            kept &= codes < np.uint64(2**self.bits)
        return codes, None if kept.all() else kept

    def level_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The leading bits of codes."""
        return _shifted(keys, self.bits - self.prefix_bits[level])

    def parent_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The keys without the bits of their own level."""
        return _shifted(keys, self.widths[level - 1])

    def paths(self, level: int, keys: pa.Array) -> pa.Array:
        """Prefixes with their lengths: "10.1.0.0/16"."""
        codes = fixed_width_values(keys)
        below = self.bits - self.prefix_bits[level]
        codes = codes << np.uint64(below) if below < 64 else np.zeros_like(codes)
        return prefix_texts(codes, self.prefix_bits[level], hex_digits=self._hex_digits)

    @property
    def _hex_digits(self) -> int | None:
        return None if self.notation == "ipv4" else -(-self.bits // 4)

    def _level(self, path: str) -> int:
        code, _, length = path.rpartition("/")
        if not self._is_code(code):
            example = self.paths(1, pa.array([1], pa.uint64()))[0]
            raise refused_path(path, f"it is no prefix of a code, as {example} is")
        if length not in map(str, self.prefix_bits):
            lengths = ", ".join(f"/{bits}" for bits in self.prefix_bits)
            raise refused_path(path, f"its length /{length} is none of {lengths}")
        level = self.prefix_bits.index(int(length))
        whole = pa.array([path], pa.large_string())
        written = str(self.paths(level, self._prefix_keys(level, whole))[0])
        if written != path:
            raise refused_path(path, f"bits are set behind its prefix, which is {written}")
        return level

    def _is_code(self, text: str) -> bool:
        if self._hex_digits is None:
            return int(read_addresses(pa.array([text], pa.large_string()))[0]) >= 0
        digits = re.fullmatch(f"[0-9a-f]{{{self._hex_digits}}}", text)
        return digits is not None and int(text, 16) < 2**self.bits

    def _paths_above(self, level: int, paths: pa.Array) -> pa.Array:
        return self.paths(level - 1, self._prefix_keys(level - 1, paths))

    def _prefix_keys(self, level: int, paths: pa.Array) -> pa.Array:
        """The keys on a level from 0 of the nodes of prefixes that are as long or longer."""
        codes = prefix_codes(paths, self._hex_digits)
        return self.level_keys(level, pa.array(codes))


def _shifted(keys: pa.Array, bits: int) -> pa.Array:
    codes: Integers = fixed_width_values(keys)
    # A shift by the whole width is not defined.
    return pa.array(codes >> np.uint64(bits) if bits < 64 else np.zeros_like(codes))


def _plain(chunk: pa.Array) -> pa.Array:
    """A column without a dictionary; strings as string or large_string, with null for what is not
    UTF-8."""
    chunk = plain_values(chunk)
    if pa.types.is_null(value_type(chunk.type)):
        return pa.nulls(len(chunk))
    if pa.types.is_dictionary(chunk.type):
        values = _plain(chunk.dictionary)
        if pa.types.is_string(values.type):
            longest = pc.max(pc.binary_length(values)).as_py() or 0
            values = values if longest * len(chunk) < 2**31 else large_texts(values)
        return values.take(chunk.indices)
    if not is_text(chunk.type):
        return chunk
    # Arrow groups strings with small offsets much faster.
    return readable_texts(chunk if pa.types.is_string(chunk.type) else large_texts(chunk))


def _wide(column: pa.Array) -> pa.Array:
    return large_texts(column) if is_text(column.type) else column
