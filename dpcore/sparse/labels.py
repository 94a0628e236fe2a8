"""Domains of labels that need no public list: countries and cities, URLs, tail numbers.

Labels are in one column for each level (`LabelDomain`) or in one string with a separator
(`PathDomain`). The key of a node is its labels from the top, joined. A label is published only
with a node that passes its threshold, so the labels of the data need not be public. A row with a
label that is not UTF-8 is dropped like one with a null.
"""

from __future__ import annotations

import functools
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.questions.sparse_counts import NodeCounts, text_prefixes
from dptrees.dpcore.rows.columns import fixed_width_values, is_text, large_texts, value_type
from dptrees.dpcore.rows.numbers import is_number, whole_numbers
from dptrees.dpcore.sparse.domain import SparseDomain, paths_above, refused_path
from dptrees.dpcore.sparse.plan import ROOT_NAME
from dptrees.dpcore.specification import Refusal, coded

# Between the labels of a key. A label that holds it, or the sign that escapes it, is escaped.
_JOINT, _ESCAPE = "\x00", "\x01"


class _TextDomain(SparseDomain):
    """Keys are labels joined by a sign of one byte."""

    key_type = pa.large_string()
    joint: str

    @property
    def has_texts(self) -> bool:
        return True

    @property
    @abstractmethod
    def path_separator(self) -> str | None:
        """Between the labels of a path; None: a slash, with a backslash before one in a label."""

    def level_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The first labels of keys; null where a key has fewer."""
        return text_prefixes(keys, level, ord(self.joint))

    def parent_keys(self, level: int, keys: pa.Array) -> pa.Array:
        """The keys without their last labels."""
        return text_prefixes(keys, level - 1, ord(self.joint))

    def _paths_above(self, level: int, paths: pa.Array) -> pa.Array:
        return paths_above(paths, self.path_separator)


@dataclass(frozen=True, kw_only=True)
class LabelDomain(_TextDomain):
    """Labels in columns of their own, the top level's first; a row with a null, or with an empty
    label, is dropped.

    Args:
        label_columns: (h,) strings or integers (floats and decimals that are integers, too), all
            different; none is called root.

    Raises:
        ValueError: no column, one twice, or one called root.

    >>> domain = LabelDomain(label_columns=("origin", "dest"))
    >>> counts = domain.leaf_counts(
    ...     {"origin": pa.array(["JFK", "JFK", None]), "dest": pa.array(["LAX", "A/B", "LAX"])})
    >>> domain.paths(2, counts.keys).to_pylist(), counts.counts.tolist()
    (['JFK/A\\\\/B', 'JFK/LAX'], [1, 1])
    """

    form: ClassVar[str] = "labels"
    label_columns: tuple[str, ...] = field(metadata=coded(name="columns"))

    needed = "texts or integers"
    joint = _JOINT
    path_separator = None

    def __post_init__(self) -> None:
        if not self.label_columns or len(set(self.label_columns)) < len(self.label_columns):
            raise Refusal("label_columns", "there must be one a level, all different")
        if ROOT_NAME in self.label_columns:
            raise Refusal(
                "label_columns",
                f"a column is called {ROOT_NAME}, which is the name of the level "
                "above all columns; give the column another name",
            )

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The columns of the labels."""
        return self.label_columns

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The levels are named as the columns."""
        return self.label_columns

    @property
    def policies(self) -> dict[str, str]:
        """Each row by itself."""
        return {
            "missing": "drop",
            "an empty label": "drop",
            "not UTF-8": "drop",
            "a number that is no integer": "drop",
        }

    def accepts(self, type: pa.DataType) -> bool:
        """Accept strings and numbers."""
        plain = value_type(type)
        return is_text(plain) or is_number(plain) or bool(pa.types.is_null(plain))

    def leaf_counts(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> NodeCounts:
        """The exact counts of the paths of a batch; see `SparseDomain`."""
        plain, names = self._checked(columns), [str(n) for n in range(self.height)]
        if any(pa.types.is_null(column.type) for column in plain):
            return NodeCounts.empty(self.key_type)
        labels = list(map(_labels, plain))
        keyed = [each.indices if pa.types.is_dictionary(each.type) else each for each in labels]
        groups = pa.table(keyed, names=names).group_by(names, use_threads=False)
        table = groups.aggregate([([], "count_all")]).drop_null()
        keys = _joined([table.column(name).combine_chunks() for name in names], labels)
        counts = table.column("count_all").combine_chunks().filter(keys.is_valid())
        # No two keys are alike: this only sorts them.
        return NodeCounts.grouped(keys.drop_null(), fixed_width_values(counts))

    def leaf_keys(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Array:
        """The path of every row; see `SparseDomain`."""
        plain = self._checked(columns)
        if any(pa.types.is_null(column.type) for column in plain):
            return pa.nulls(len(plain[0]), self.key_type)
        labels = list(map(_labels, plain))
        own = [each.indices if pa.types.is_dictionary(each.type) else each for each in labels]
        return _joined(own, labels)

    def paths(self, level: int, keys: pa.Array) -> pa.Array:
        """Labels joined by "/"; a backslash comes before one, or before a backslash, inside a
        label; "" is the root."""
        quoted = (("\\", "\\\\"), ("/", "\\/"))
        plain = ((_JOINT, "/"), (_ESCAPE + "B", _JOINT), (_ESCAPE + "A", _ESCAPE))
        return _replaced(keys, *quoted, *plain)

    def as_written(self, path: str) -> str:
        """A slash at the beginning is passed over: no label is empty."""
        return path.removeprefix("/")

    def _level(self, path: str) -> int:
        if re.fullmatch(r"(?s)(?:[^\\]|\\[\\/])*", path) is None:
            why = "a backslash must stand before a slash or a backslash inside a label"
            raise refused_path(path, why)
        labels = re.sub(r"(?s)\\.", "x", path).split("/")
        if "" in labels:
            raise refused_path(path, "it has an empty label, and rows with one are not counted")
        return _within(path, len(labels), self.height)


@dataclass(frozen=True, kw_only=True)
class PathDomain(_TextDomain):
    """Strings of labels with a separator, such as URLs; a row counts down to where its string ends.

    Labels below level h are cut off. Separators at the beginning are passed over, as if they were
    not there, and a text without any label is dropped; further on two separators in a row have an
    empty label between them.

    Args:
        column: of strings.
        depth: h, at least 1.
        separator: one ASCII character.

    Raises:
        ValueError: a depth or a separator out of range.

    >>> domain = PathDomain(column="url", depth=2)
    >>> counts = domain.leaf_counts({"url": pa.array(["a/b/c", "/a/b", "a", "/"])})
    >>> counts.keys.to_pylist(), domain.level_keys(2, counts.keys).to_pylist()
    (['a', 'a/b'], [None, 'a/b'])
    """

    form: ClassVar[str] = "path"
    column: str
    depth: int
    separator: str = "/"

    needed = "texts"

    def __post_init__(self) -> None:
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 1:
            raise Refusal.from_value("depth", f"is {self.depth!r}; it must be a positive integer")
        if len(self.separator) != 1 or not self.separator.isascii():
            raise Refusal.from_value(
                "separator", f"is {self.separator!r}; it must be one ASCII character"
            )

    @property
    def joint(self) -> str:  # type: ignore[override]
        """The separator."""
        return self.separator

    @property
    def path_separator(self) -> str:
        """The separator."""
        return self.separator

    @property
    def columns(self) -> tuple[str, ...]:  # type: ignore[override]
        """The one column."""
        return (self.column,)

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The levels are named by their numbers."""
        return tuple(f"level {level}" for level in range(1, self.depth + 1))

    @property
    def policies(self) -> dict[str, str]:
        """Each row by itself."""
        return {
            "missing": "drop",
            "separators at the beginning": "passed over",
            "no label": "drop",
            "not UTF-8": "drop",
        }

    def accepts(self, type: pa.DataType) -> bool:
        """Accept strings."""
        plain = value_type(type)
        return is_text(plain) or bool(pa.types.is_null(plain))

    def leaf_counts(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> NodeCounts:
        """The exact counts of the paths of a batch; see `SparseDomain`."""
        (column,) = self._checked(columns)
        if pa.types.is_null(column.type):
            return NodeCounts.empty(self.key_type)
        counts = NodeCounts.grouped(large_texts(column.drop_null()))
        keys = self._cut(counts.keys)
        return NodeCounts.grouped(keys.drop_null(), counts.counts[np.asarray(keys.is_valid())])

    def leaf_keys(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Array:
        """The path of every row, as deep as the tree; see `SparseDomain`."""
        (column,) = self._checked(columns)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), self.key_type)
        encoded = large_texts(column).dictionary_encode()
        return self._cut(encoded.dictionary).take(encoded.indices)

    def _cut(self, texts: pa.Array) -> pa.Array:
        """Paths as deep as the tree; null where there is no label."""
        # A first label that is empty would have the path of the root.
        keys = pc.ascii_ltrim(texts, characters=self.separator)
        keys = pc.coalesce(self.level_keys(self.height, keys), keys)
        return pc.if_else(pc.not_equal(keys, ""), keys, pa.scalar(None, keys.type))

    def paths(self, level: int, keys: pa.Array) -> pa.Array:
        """The strings as they are; "" is the root."""
        return keys

    def as_written(self, path: str) -> str:
        """Separators at the beginning are passed over, as they are in rows."""
        return path.lstrip(self.separator)

    def _level(self, path: str) -> int:
        if path.startswith(self.separator):
            why = f"it begins with the separator {self.separator!r}, which is passed over in rows"
            raise refused_path(path, why)
        return _within(path, path.count(self.separator) + 1, self.height)


def domain_from_spec(spec: Mapping[str, Any]) -> SparseDomain:
    """The domain that `SparseDomain.spec` wrote, of any form.

    Raises:
        ValueError: a form that there is not.

    >>> domain = PathDomain(column="url", depth=2)
    >>> domain_from_spec(domain.spec()) == domain
    True
    """
    return SparseDomain.from_spec({name: each for name, each in spec.items() if name != "kind"})


def _within(path: str, labels: int, height: int) -> int:
    """The level of a path of so many labels."""
    if labels > height:
        raise refused_path(path, f"it has {labels} labels, and the tree {height} below its root")
    return labels


def _labels(column: pa.Array) -> pa.Array:
    """Strings and integers to group by, with null for a number that is no integer."""
    if pa.types.is_large_string(column.type):
        # Arrow groups them some five times more slowly than their codes.
        return column.dictionary_encode()
    if is_text(column.type) or pa.types.is_integer(column.type):
        return column
    values, is_none = whole_numbers(column)
    return pa.array(values, mask=is_none)


def _escaped(found: pa.Array, labels: pa.Array) -> pa.Array:
    """The labels of groups, without the joint."""
    if pa.types.is_dictionary(labels.type):
        found = labels.dictionary.take(found)
    signs = ((_ESCAPE, _ESCAPE + "A"), (_JOINT, _ESCAPE + "B"))
    return _replaced(found.cast(pa.large_string()), *signs)


def _joined(found: list[pa.Array], labels: list[pa.Array]) -> pa.Array:
    """The keys of groups, or rows, by their labels; null where one is null or empty."""
    own = [_escaped(each, given) for each, given in zip(found, labels, strict=True)]
    filled = functools.reduce(pc.and_, [pc.not_equal(each, "") for each in own])
    keys = pc.binary_join_element_wise(*own, pa.scalar(_JOINT, pa.large_string()))
    return pc.if_else(filled, keys, pa.scalar(None, keys.type))


def _replaced(texts: pa.Array, *pairs: tuple[str, str]) -> pa.Array:
    for sign, other in pairs:
        texts = pc.replace_substring(texts, sign, other)
    return texts
