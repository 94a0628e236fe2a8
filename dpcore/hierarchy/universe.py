"""The public universe of a hierarchy: a tree of labels.

Level 0 is the root, level h holds the leaves, and the children of a node are contiguous, so the
nodes of a level are in the order of the leaves below them. Leaves are sorted by their labels
(numbers as numbers, strings byte by byte). A leaf above level h is continued by single children
without a label. A node's label is one integer, its code; a level states what its codes represent:
a sorted list of values, or a picture of a number ("000": three digits). A universe is public by
declaration, so messages may show its labels.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.rows.columns import AnyArray, fixed_width_values
from dptrees.dpcore.rows.numbers import ABSENT, read_numbers, text_buffers, write_numbers
from dptrees.dpcore.rows.value_lists import PartedIntegers
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.trees.shapes import IrregularTree


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
            if not re.fullmatch(r"0|-?[1-9][0-9]{0,19}", text):
                return None
            try:
                number = pa.scalar(int(text), self.values.type)
            except (OverflowError, pa.ArrowInvalid):
                return None
            code = pc.index(self.values, number).as_py()
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


MAX_DEPTH = 32
ROOT = "root"
OTHER = "other"
FORMS = ("columns", "digits", "path", "calendar", "parents")
# Those whose labels a separator joins.
_SEPARATED = ("columns", "path", "parents")

# Changes whenever the same leaves would get another digest or another order.
UNIVERSE_VERSION = 1
TABLE_METADATA = b"dptrees.universe"
TABLE_SCHEMA = {"level": pa.int8(), "children": pa.int64(), "label": pa.large_string()}
# Nodes whose labels are made at once.
_NODES_AT_ONCE = 2**20
# Of a universe in parts: some megabytes in memory, and not much more than a chunk has leaves.
LEAVES_AT_ONCE = 2**17
# Above so many leaves, of codes, their labels are read in parts where they are needed: at some 90
# bytes a leaf a process that holds them all needs 1.5 GB. Below, looking rows up at once is faster.
MOST_WHOLE_LEAVES = 2**24


@dataclass(frozen=True, kw_only=True, eq=False)
class Universe:
    """A public tree of labels; two are equal when their digests are.

    Attributes:
        form: how a leaf is written: one of `FORMS`.
        levels: the names of levels 1..h.
        separators: what comes before the label of levels 1..h in a path.
        level_labels: the labels of levels 1..h.
        child_starts: for each level l < h where the children of its nodes start on level l + 1,
            (n_l + 1,) int64.
        utc: of a calendar: whether its hours and days are instants, in UTC.

    >>> from dptrees.dpcore.hierarchy.leaves import universe_from_columns
    >>> carrier, tail = pa.array(["UA", "AA", "UA"]), pa.array([7, 3, 5])
    >>> fleet = universe_from_columns({"carrier": carrier, "tail": tail})
    >>> fleet.level_sizes, fleet.child_starts[1].tolist()
    ((1, 2, 3), [0, 1, 3])
    >>> fleet.paths(2, np.array([0, 2])).to_pylist(), fleet.find("UA")
    (['AA/3', 'UA/7'], (1, 1))
    """

    form: str
    levels: tuple[str, ...]
    separators: tuple[str, ...]
    level_labels: tuple[LevelLabels, ...]
    child_starts: tuple[Integers, ...]
    utc: bool = False

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"form {self.form!r} must be one of {', '.join(FORMS)}.")
        check_level_names(self.levels)
        for starts in self.child_starts:
            starts.flags.writeable = False

    def __getstate__(self) -> dict[str, object]:
        return {each.name: self.__dict__[each.name] for each in fields(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Universe) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def height(self) -> int:
        """h, the level of the leaves."""
        return len(self.levels)

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return self.level_sizes[-1]

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of levels 0..h."""
        return (ROOT, *self.levels)

    @cached_property
    def level_sizes(self) -> tuple[int, ...]:
        """(n_0, ..., n_h), the number of nodes of each level."""
        return (1, *(len(labels.codes) for labels in self.level_labels))

    @property
    def is_parted(self) -> bool:
        """Whether the labels of its leaves lie elsewhere, in parts."""
        return isinstance(self.level_labels[-1].codes, PartedIntegers)

    @property
    def has_other(self) -> bool:
        """Whether the last leaf represents all rows that are nowhere else."""
        return int(self.level_labels[0].codes[-1]) == ABSENT

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hexadecimal: names, child offsets, codes and values."""
        digest = hashlib.sha256(json.dumps(self._head(), sort_keys=True).encode())
        for level in range(self.height):
            self._hash_level(digest, level)
        return digest.hexdigest()

    @cached_property
    def upper_digest(self) -> str:
        """SHA-256 of all but the labels of the leaves, in hexadecimal."""
        digest = hashlib.sha256(json.dumps(self._head(), sort_keys=True).encode())
        for level in range(self.height - 1):
            self._hash_level(digest, level)
        digest.update(_canonical(self.child_starts[-1]))
        return digest.hexdigest()

    def remember_digest(self, digest: str) -> None:
        """Store a digest that was computed before."""
        self.__dict__["digest"] = digest

    def _hash_level(self, digest: hashlib._Hash, level: int) -> None:
        """Hash the starts of the children of a level, and their labels."""
        labels = self.level_labels[level]
        digest.update(_canonical(self.child_starts[level]))
        for start in range(0, len(labels.codes), _NODES_AT_ONCE):
            digest.update(_canonical(labels.codes[start : start + _NODES_AT_ONCE]))
        if labels.values is not None:
            _hash_values(digest, labels.values)

    def _head(self) -> dict[str, object]:
        """The fields that are not arrays, as plain JSON values."""
        integers = [
            labels.values is not None and pa.types.is_integer(labels.values.type)
            for labels in self.level_labels
        ]
        return {
            "version": UNIVERSE_VERSION,
            "form": self.form,
            "levels": list(self.levels),
            "separators": list(self.separators),
            "pictures": [labels.picture for labels in self.level_labels],
            "integers": integers,
            "sizes": list(self.level_sizes),
            "utc": self.utc,
            "other": self.has_other,
        }

    @cached_property
    def extended(self) -> Universe:
        """The universe with one more leaf, the last, directly below the root: the path "other".

        Raises:
            ValueError: a node of level 1 has this label.
        """
        if self.has_other or self.level_labels[0].find_code(OTHER) is not None:
            raise ValueError(
                f"the universe must not have the label {OTHER!r} on its first level when a policy "
                f"is {OTHER!r}."
            )
        root, *below = self.child_starts
        return Universe(
            form=self.form,
            levels=self.levels,
            separators=self.separators,
            level_labels=tuple(labels.with_unlabelled() for labels in self.level_labels),
            child_starts=(root + np.array([0, 1]), *(np.append(s, s[-1] + 1) for s in below)),
            utc=self.utc,
        )

    @cached_property
    def shape(self) -> IrregularTree:
        """The tree without its labels."""
        return IrregularTree(child_starts=self.child_starts)

    def is_named(self, level: int, nodes: Integers) -> npt.NDArray[np.bool_]:
        """Flags of the nodes that have a label, (n,): not those that only continue a leaf of an
        upper level."""
        if level <= 1:
            return np.ones(len(nodes), np.bool_)
        named: npt.NDArray[np.bool_] = self.level_labels[level - 1].codes.take(nodes) != ABSENT
        return named

    def parents(self, level: int, nodes: Integers) -> Integers:
        """The ids, on the level above, of the parents of nodes of a level >= 1, (n,)."""
        return np.searchsorted(self.child_starts[level - 1], nodes, side="right") - 1

    def labels(self, level: int, nodes: Integers) -> pa.StringArray:
        """The labels of nodes: what distinguishes a node from its siblings.

        Args:
            level: 0..h.
            nodes: ids, (n,) int64.

        Returns:
            The labels, (n,): "" for the root, null for a node that only continues a leaf.

        Raises:
            ValueError: there is no such level or node.
        """
        self._check_nodes(level, nodes)
        if level == 0:
            return pa.array([""] * len(nodes), pa.string())
        return self._texts(level, nodes, escaped=False).cast(pa.string())

    def paths(self, level: int, nodes: Integers) -> pa.StringArray:
        """The paths of nodes, which `find` reads back.

        Labels are joined as the leaves are written: digits and calendars as in the code
        ("44001", "2013-01-05T07"), else with the separator. Where labels are in columns of their
        own, a "/" inside a label is written with a backslash before it. A node that only continues
        a leaf has the leaf's path.

        Args:
            level: 0..h.
            nodes: ids, (n,) int64.

        Returns:
            The paths, (n,); "" for the root.

        Raises:
            ValueError: there is no such level or node.
        """
        self._check_nodes(level, nodes)
        return self._paths(level, nodes).cast(pa.string())

    def _paths(self, level: int, nodes: Integers) -> pa.Array:
        if level == 0:
            return pa.array([""] * len(nodes), pa.large_string())
        labels = self._texts(level, nodes, escaped=self.form in ("columns", "parents"))
        if level == 1:
            return labels
        # Siblings are mostly neighbors, and their parent's path is made once for a run of them.
        parents = self.parents(level, nodes)
        firsts = np.flatnonzero(np.diff(parents, prepend=ABSENT))
        runs = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(nodes)))
        above = self._paths(level - 1, parents[firsts]).take(pa.array(runs))
        separator = pa.scalar(self.separators[level - 1], labels.type)
        paths = pc.binary_join_element_wise(above, labels, separator)
        return pc.coalesce(paths, above) if labels.null_count else paths

    def _texts(self, level: int, nodes: Integers, *, escaped: bool) -> pa.Array:
        texts = self.level_labels[level - 1].texts(nodes, escaped=escaped)
        return texts.fill_null(OTHER) if level == 1 and texts.null_count else texts

    def depths(self, leaves: Integers) -> Integers:
        """The level on which each leaf really is, (n,): h, or less where it is continued."""
        depths = np.full(len(leaves), self.height, np.int64)
        nodes, open_ = leaves, np.ones(len(leaves), np.bool_)
        for level in range(self.height, 1, -1):
            open_ &= self.level_labels[level - 1].codes.take(nodes) == ABSENT
            if not open_.any():
                break
            depths -= open_
            nodes = self.parents(level, nodes)
        return depths

    def find(self, path: str) -> tuple[int, int]:
        """The level and id of the node that a path names.

        Args:
            path: labels as `paths` joins them; "" is the root. Where a separator joins them, one
                at the beginning is passed over, unless the first label is empty.

        Raises:
            ValueError: there is no such node.

        >>> from datetime import date
        >>> from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
        >>> days = universe_from_calendar(("month", "day"), date(2013, 1, 1), date(2014, 1, 1))
        >>> days.find("2013-02"), days.find("2013-02-05")
        ((1, 1), (2, 35))
        """
        result = self._find(path)
        if result is None and self.form in _SEPARATED:
            separator = self.separators[-1] or "/"
            result = self._find(path.removeprefix(separator))
        if result is None:
            raise ValueError(f"path {path!r}: the universe has no node of this path.")
        return result

    def _find(self, path: str) -> tuple[int, int] | None:
        """The level and id of the node of a path as it is, or None."""
        if path == "":
            return 0, 0
        if path == OTHER and self.has_other:
            return 1, self.level_sizes[1] - 1
        node = 0
        for level, label in enumerate(self._labels_in(path), 1):
            child = self._child(level, node, label) if level <= self.height else None
            if child is None:
                return None
            node = child
        return level, node

    def _child(self, level: int, parent: int, label: str | None) -> int | None:
        labels, starts = self.level_labels[level - 1], self.child_starts[level - 1]
        code = None if label is None else labels.find_code(label)
        if code is None:
            return None
        first, end = int(starts[parent]), int(starts[parent + 1])
        if level == 1 and self.has_other:
            end -= 1
        place = first + int(np.searchsorted(labels.codes[first:end], code))
        return place if place < end and labels.codes[place] == code else None

    def _labels_in(self, path: str) -> Iterator[str | None]:
        """The labels that a path joins; None where it is not one."""
        if self.form == "path":
            separator = self.separators[-1]
            yield from path.split(separator) if separator else [path]
        elif self.form in ("columns", "parents"):
            yield from _unescaped(path)
        else:
            for separator, labels in zip(self.separators, self.level_labels, strict=True):
                if path:
                    label, width = path.removeprefix(separator), labels.width
                    yield label[:width] if path.startswith(separator) else None
                    path = label[width:]
            if path:
                yield None

    def _check_nodes(self, level: int, nodes: Integers) -> None:
        if not 0 <= level <= self.height:
            raise ValueError(f"level {level} must be from 0 to {self.height}.")
        if len(nodes) and not (nodes.min() >= 0 and nodes.max() < self.level_sizes[level]):
            raise ValueError(f"nodes must be from 0 to {self.level_sizes[level] - 1}.")

    @property
    def table_schema(self) -> pa.Schema:
        """Schema of the table that `to_table` makes."""
        return pa.schema(TABLE_SCHEMA, {TABLE_METADATA: json.dumps(self._head())})

    def to_table(self) -> pa.Table:
        """The universe as one table, a row a node: `level`, number of `children`, `label`.

        Rows are level by level, in the order of node ids; the schema's metadata holds the rest.
        `universe_from_table` restores it.
        """
        return pa.concat_tables(self.tables()).combine_chunks()

    def tables(self) -> Iterator[pa.Table]:
        """The rows of `to_table`: those above the leaves, then some leaves at a time."""
        upper = zip(self.level_sizes, self.child_starts, strict=False)
        yield pa.concat_tables(
            self._rows(level, np.arange(nodes), np.diff(starts))
            for level, (nodes, starts) in enumerate(upper)
        ).combine_chunks()
        for start in range(0, self.leaves, LEAVES_AT_ONCE):
            leaves = np.arange(start, min(start + LEAVES_AT_ONCE, self.leaves))
            yield self._rows(self.height, leaves, np.zeros(len(leaves), np.int64))

    def _rows(self, level: int, nodes: Integers, children: Integers) -> pa.Table:
        levels = np.full(len(nodes), level, np.int8)
        labels = self.labels(level, nodes).cast(pa.large_string())
        return pa.table([pa.array(levels), pa.array(children), labels], schema=self.table_schema)


def is_parted(form: str, leaves: int) -> bool:
    """Whether a universe of so many leaves holds the labels of its leaves in parts."""
    return form == "digits" and leaves > MOST_WHOLE_LEAVES


def _hash_values(digest: hashlib._Hash, values: pa.Array) -> None:
    if pa.types.is_integer(values.type):
        digest.update(_canonical(fixed_width_values(values)))
        return
    offsets, data = text_buffers(values)
    digest.update(_canonical(offsets - offsets[0]))
    digest.update(data[offsets[0] : offsets[-1]].data)


def _canonical(integers: AnyArray) -> memoryview:
    """Integers as bytes that are the same on every machine."""
    return np.ascontiguousarray(integers, "<i8").data


def _unescaped(path: str) -> Iterator[str]:
    label, letters = "", iter(path)
    for letter in letters:
        if letter == "/":
            yield label
            label = ""
        else:
            label += next(letters, "") if letter == "\\" else letter
    yield label


def check_level_names(levels: Sequence[str]) -> None:
    """Refuse names of levels 1..h that a universe cannot have.

    Raises:
        ValueError: there is none or there are too many, or one is no text, empty, the root's or
            there twice.

    >>> check_level_names(("year", "year"))
    Traceback (most recent call last):
    dptrees.dpcore.specification.Refusal: levels hold 'year' more than once.
    """
    if not levels:
        raise Refusal.from_value("levels", "must be at least one.")
    if len(levels) > MAX_DEPTH:
        raise Refusal.from_value("levels", f"must be at most {MAX_DEPTH}, not {len(levels)}.")
    for name in levels:
        if not isinstance(name, str) or not name or name == ROOT:
            rule = f"{name!r} must be a text of at least one character other than {ROOT!r}"
            raise Refusal("levels", rule, f"levels: {rule}.")
    twice = [name for name in levels if list(levels).count(name) > 1]
    if twice:
        raise Refusal.from_value("levels", f"hold {twice[0]!r} more than once.")
