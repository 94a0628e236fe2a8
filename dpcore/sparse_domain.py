"""Domains of large sparse trees: from the columns of a batch of rows to the keys of their nodes.

A leaf is a code of up to 64 bits whose leading bits name its ancestors (`CodeDomain`: addresses,
hashes, places interleaved with times), or labels that need no public list (`dpcore.sparse_labels`).

What becomes of a row depends on that row alone: rows with a null, a negative or too large code, or
a text that is no address are dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dpcore.address_texts import prefix_texts, read_addresses
from dpcore.column import AnyArray, Int64Array, fixed_width_values, null_rows
from dpcore.sparse_counts import NodeCounts

__all__ = ["CodeDomain", "SparseDomain", "is_text"]

NOTATIONS = ("ipv4", "hex")


class SparseDomain(ABC):
    """The levels of a large tree, and how rows fall into its nodes.

    Attributes:
        columns: that a row's leaf is read from.
        names: (h,) of the levels below the root, top down.
        key_type: uint64 or large_string.
        leaves: how many leaves there are; None: no list of them is public.
        needed: the types that a column may have, for messages.
    """

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
        """How many leaves there are; None: no list of them is public."""
        return None

    @property
    def value_type(self) -> pa.DataType:
        """The type of its columns where a file does not tell one, as CSV does not."""
        return pa.string()

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
    def level_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The keys of the ancestors on a level of leaves, (n,); null where a leaf ends above it."""

    @abstractmethod
    def parent_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The keys of the parents, on level - 1, of nodes of a level from 1 to h, (n,)."""

    @abstractmethod
    def paths(self, level: int, keys: pa.Array) -> pa.Array:
        """What nodes of a level are called, (n,) large_string."""

    @abstractmethod
    def lies_below(self, paths: pa.Array, path: str) -> pa.Array:
        """Which of some paths lie below another one, (n,) bool; both as `paths` writes them."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """The domain as plain JSON."""

    @property
    def root_keys(self) -> pa.Array:
        """The key of the root, (1,)."""
        return pa.array([0 if pa.types.is_integer(self.key_type) else ""], self.key_type)

    def _checked(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> list[pa.Array]:
        """The columns in order, whole and without dictionaries."""
        plain = []
        for name in self.columns:
            column = columns[name]
            if not self.accepts(column.type):
                raise ValueError(
                    f"column {name} is of type {column.type}; it must be {self.needed}"
                )
            if isinstance(column, pa.ChunkedArray):
                column = column.unify_dictionaries().combine_chunks()
            plain.append(
                column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            )
        return plain


@dataclass(frozen=True, kw_only=True)
class CodeDomain(SparseDomain):
    """Codes of up to 64 bits; level l has their leading w_1 + ... + w_l bits.

    Args:
        column: of integers, or of addresses as texts ("10.1.0.7") in the notation of "ipv4".
        widths: (h,) in bits, top down, each at least 1, at most 64 together.
        notation: "ipv4" ("10.1.0.0/16", 32 bits) or "hex" ("0a01000000000000/16").

    Raises:
        ValueError: widths or a notation out of range.

    >>> domain = CodeDomain(column="address", widths=(8, 8, 16))
    >>> counts = domain.leaf_counts({"address": pa.array(["10.1.0.7", None, "10.1.0.9", "10.1"])})
    >>> domain.paths(2, domain.level_keys(2, counts.keys)).to_pylist(), domain.names
    (['10.1.0.0/16', '10.1.0.0/16'], ('/8', '/16', '/32'))
    """

    column: str
    widths: tuple[int, ...]
    notation: str = "ipv4"

    key_type = pa.uint64()

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1 or sum(self.widths) > 64:
            raise ValueError(
                f"widths: {self.widths} must be numbers of bits from 1, at most 64 together"
            )
        if self.notation not in NOTATIONS:
            raise ValueError(f"notation is {self.notation!r}; it must be one of {NOTATIONS}")
        if self.notation == "ipv4" and self.bits != 32:
            raise ValueError(f"widths: they sum to {self.bits}; an ipv4 address has 32 bits")

    @property
    def bits(self) -> int:
        """Of a leaf's code."""
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
        """Texts of addresses, else integers."""
        return pa.string() if self.notation == "ipv4" else pa.uint64()

    @property
    def needed(self) -> str:  # type: ignore[override]
        """The types that the column may have."""
        return "integers or texts of addresses" if self.notation == "ipv4" else "integers"

    def accepts(self, type: pa.DataType) -> bool:
        """Integers; texts as well in the notation of addresses."""
        plain = type.value_type if pa.types.is_dictionary(type) else type
        texts = self.notation == "ipv4" and is_text(plain)
        return bool(pa.types.is_integer(plain) or pa.types.is_null(plain) or texts)

    def leaf_counts(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> NodeCounts:
        """The exact counts of the codes of a batch; see `SparseDomain`."""
        (column,) = self._checked(columns)
        return NodeCounts.grouped(pa.array(self._codes(column)))

    def _codes(self, column: pa.Array) -> AnyArray:
        if pa.types.is_null(column.type):
            return np.empty(0, np.uint64)
        if is_text(column.type):
            codes = read_addresses(column.drop_null().cast(pa.large_string()))
            return codes[codes >= 0].astype(np.uint64)
        codes, nulls = fixed_width_values(column), null_rows(column)
        if nulls is not None:
            codes = codes[~nulls]
        if np.iinfo(codes.dtype).min < 0:
            codes = codes[codes >= 0]
        codes = codes.astype(np.uint64, copy=False)
        return codes if self.bits == 64 else codes[codes < np.uint64(2**self.bits)]

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
        digits = None if self.notation == "ipv4" else -(-self.bits // 4)
        return prefix_texts(codes, self.prefix_bits[level], hex_digits=digits)

    def lies_below(self, paths: pa.Array, path: str) -> pa.Array:
        """Codes of the same leading bits, and more of them.

        >>> domain = CodeDomain(column="address", widths=(8, 8, 16))
        >>> domain.lies_below(pa.array(["10.1.0.0/16", "11.1.0.0/16"]), "10.0.0.0/8").to_pylist()
        [True, False]
        """
        bits = int(path.rpartition("/")[2])
        hidden = self.bits - bits

        def prefix(text: str) -> tuple[int, bool]:
            code, _, length = text.rpartition("/")
            if self.notation == "hex":
                return int(code, 16) >> hidden, int(length) > bits
            return int.from_bytes(map(int, code.split(".")), "big") >> hidden, int(length) > bits

        wanted = prefix(path)[0], True
        return pa.array([prefix(text) == wanted for text in paths.to_pylist()], pa.bool_())

    def spec(self) -> dict[str, Any]:
        """The domain as plain JSON."""
        return {
            "form": "code",
            "column": self.column,
            "widths": list(self.widths),
            "notation": self.notation,
        }


def is_text(type: pa.DataType) -> bool:
    """Whether a type is one of the types of texts.

    >>> is_text(pa.string()), is_text(pa.binary())
    (True, False)
    """
    types = pa.types
    return bool(types.is_string(type) or types.is_large_string(type) or types.is_string_view(type))


def _shifted(keys: pa.Array, bits: int) -> pa.Array:
    codes: Int64Array = fixed_width_values(keys)
    # A shift by the whole width is not defined.
    return pa.array(codes >> np.uint64(bits) if bits < 64 else np.zeros_like(codes))
