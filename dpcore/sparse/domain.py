"""Domains of large sparse trees: from the columns of a batch of rows to the keys of their nodes.

A leaf is a code of up to 64 bits whose leading bits name its ancestors (`CodeDomain`: addresses,
hashes, places interleaved with times), or labels that need no public list (`dpcore.sparse.labels`).

What becomes of a row depends on that row alone: rows with a null or NaN, a negative, too large or
fractional code, a text that is no address or not UTF-8 (which readers of files do not check) are
dropped.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.codec import Coded
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.refusal import Refusal
from dptrees.dpcore.rows.column import (
    AnyArray,
    fixed_width_values,
    is_text,
    large_texts,
    plain_values,
    readable_texts,
    value_type,
)
from dptrees.dpcore.rows.row_outcomes import MISSING, RowOutcome, missing_flags
from dptrees.dpcore.rows.whole_numbers import is_number, whole_numbers
from dptrees.dpcore.sparse.addresses import prefix_texts, read_addresses
from dptrees.dpcore.sparse.paths import prefix_codes, refused_path

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
        outcomes = [RowOutcome(name, MISSING, "drop", rows) for name, rows in missing.items()]
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
