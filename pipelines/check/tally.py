"""How many rows each policy of each tree concerns, counted batch by batch.

A text format is read twice at once, as its domains read it and as strings alone: both have the
same rows in the same batches, so the strings that are no values are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.arrays import Flags
from dptrees.dpcore.bounding.unit_ids import declared_values
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import Neighbors, NullUnits, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.columns import is_text, large_texts, plain_values, readable_texts
from dptrees.dpcore.rows.policies import MISSING_VALUE, RowOutcome, missing_flags
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.formats import Reader
from dptrees.transforms.readers.read import FileSplit, open_file


@dataclass(frozen=True, kw_only=True)
class SeenBatch:
    """Some rows as a release would read them.

    Attributes:
        rows: the columns of the plan.
        texts: of formats of text, the same columns as they are written.
    """

    rows: pa.RecordBatch
    texts: pa.RecordBatch | None

    def first(self, rows: int) -> SeenBatch:
        """So many rows of it."""
        texts = None if self.texts is None else self.texts.slice(0, rows)
        return SeenBatch(rows=self.rows.slice(0, rows), texts=texts)

    def unread(self, column: str) -> Flags:
        """Which rows have a text that is no value of what the column is read as, (rows,)."""
        if self.texts is None:
            return np.zeros(self.rows.num_rows, np.bool_)
        none = missing_flags(self.rows.column(column))
        return none & ~missing_flags(self.texts.column(column))

    def written(self, column: str) -> pa.Array:
        """Return a column as the file spells it, or its values as strings."""
        batch = self.rows if self.texts is None else self.texts
        return batch.column(column)


@dataclass(frozen=True, kw_only=True)
class _TextColumns:
    """A substitute for a plan whose columns are all read as strings, as unit ids are."""

    columns: tuple[str, ...]
    questions: tuple[Question, ...] = ()

    @property
    def unit(self) -> PrivacyUnit:
        return PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=self.columns)


def seen_batches(
    reader: Reader,
    split: FileSplit,
    plan: ReleasePlan,
    options: Mapping[str, Any],
    *,
    of_text: bool,
) -> Iterator[SeenBatch]:
    """Yield the batches of a split, as they are read and as they are written.

    Args:
        reader: of the format.
        split: of a file.
        plan: names the columns that are read, and their types.
        options: of the reader.
        of_text: whether the format writes all values as strings.

    Raises:
        InputError: the file cannot be read.
    """
    rows = reader.batches(open_file(split.path), split, plan, **options)
    if not of_text:
        for batch in rows:
            yield SeenBatch(rows=batch, texts=None)
        return
    columns = cast(ReleasePlan, _TextColumns(columns=plan.columns))
    once = {name: each for name, each in options.items() if name != "malformed"}
    plain = _plain_options(reader, split.path, columns, once)
    texts = reader.batches(open_file(split.path), split, columns, **plain)
    for batch, written in zip(rows, texts, strict=True):
        yield SeenBatch(rows=batch, texts=written)


def _plain_options(
    reader: Reader, path: str, columns: ReleasePlan, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the options without what they state of columns that are not strings."""
    try:
        reader.splits(open_file(path), path, columns, **options)
    except InputError:
        return {
            name: replace(each, texts=type(each)().texts) if hasattr(each, "texts") else each
            for name, each in options.items()
        }
    return options


SHORTEST, OTHER = "shortest", "other"
_PATTERNS = {
    SHORTEST: r"^-?(0|[1-9][0-9]*)$",
    OTHER: r"^\s*([+-]?0+[0-9]+|\+[0-9]+|[+-]?[0-9]+\.0*|\s[+-]?[0-9]+|[+-]?[0-9]+\s)\s*$",
}


def integer_spellings(column: pa.Array) -> set[str]:
    """Return in which ways strings spell integers: the shortest (7), others (7.0, 007, " 7").

    >>> sorted(integer_spellings(pa.array(["7", "7.0", "x"])))
    ['other', 'shortest']
    >>> integer_spellings(pa.array(["0012", "0013"])), integer_spellings(pa.array([7, 8]))
    ({'other'}, set())
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return set()
    data = column.cast(pa.large_binary())
    return {
        name
        for name, pattern in _PATTERNS.items()
        if pc.any(pc.match_substring_regex(data, pattern)).as_py()
    }


def spelling_advice(unit: PrivacyUnit, spellings: set[str]) -> str | None:
    """Return what to change where both ways occur; None where they do not."""
    if len(spellings) < 2:
        return None
    return (
        f"some values of {unit.name} are integers written as 7 and some as 7.0, 007 or with spaces:"
        " each spelling is a unit, so one person may be several; if they are integers, set "
        "privacy.unit_type: integer"
    )


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
    values = plain_values(values)
    if is_text(values.type):
        return readable_texts(large_texts(values))  # others are no letters
    return values.cast(pa.string())


def most_common(found: Counter[str], most: int = 3) -> list[str]:
    """What most values look like, the most common first.

    >>> most_common(Counter(["99", "99", "a"]))
    ['99', 'a']
    """
    ordered: Iterable[tuple[str, int]] = sorted(found.items(), key=lambda each: (-each[1], each[0]))
    return [shape for shape, _ in ordered][:most]


UNREAD = "unreadable"
# Of the rows of one cause, so many of a batch are looked at.
_LOOKED_AT = 2_000
_MOST_SHAPES = 1_000


@dataclass(kw_only=True)
class Cause:
    """The rows of one column and one cause.

    Attributes:
        column, cause, policy: as of `dpcore.rows.policies.RowOutcome`; ``unreadable`` is a text
            that is no value of what its column is read as.
        rows: how many.
        looks: what values of them look like.
    """

    column: str
    cause: str
    policy: str
    rows: int = 0
    looks: Counter[str] = field(default_factory=Counter)


@dataclass(kw_only=True)
class TreeTally:
    """What becomes of the rows in one tree.

    Attributes:
        question: the tree.
        counted: the rows that it would count, before bounds of a unit.
        causes: of those that it does not simply count.
    """

    question: Question
    counted: int = 0
    causes: dict[tuple[str, str, str], Cause] = field(default_factory=dict)

    def add(self, seen: SeenBatch, has_unit: Flags) -> None:
        """Counts a batch.

        Args:
            seen: its rows.
            has_unit: (rows,) which have a privacy unit, or need none.
        """
        columns = {name: seen.rows.column(name) for name in self.question.columns}
        kept = self.question.row_increments(columns).rows
        self.counted += int(np.count_nonzero(has_unit if kept is None else has_unit[kept]))
        for outcome in self.question.row_outcomes(columns):
            for column, cause, rows in _parted(outcome, seen):
                self._count(Cause(column=column, cause=cause, policy=outcome.policy), rows, seen)

    def _count(self, cause: Cause, rows: Flags, seen: SeenBatch) -> None:
        places = np.flatnonzero(rows)
        if not places.size:
            return
        own = self.causes.setdefault((cause.column, cause.cause, cause.policy), cause)
        own.rows += places.size
        is_odd = cause.cause in (UNREAD, "unknown") and cause.column in seen.rows.schema.names
        if is_odd and len(own.looks) < _MOST_SHAPES:
            own.looks += shapes(seen.written(cause.column).take(pa.array(places[:_LOOKED_AT])))

    @property
    def in_order(self) -> list[Cause]:
        """Return the causes, the most frequent first."""
        return sorted(self.causes.values(), key=lambda each: -each.rows)


def _parted(outcome: RowOutcome, seen: SeenBatch) -> Iterator[tuple[str, str, Flags]]:
    """Yield the rows of an outcome: rows without a value apart from rows with an invalid one."""
    if outcome.cause != MISSING_VALUE or outcome.column not in seen.rows.schema.names:
        yield outcome.column, outcome.cause, outcome.rows
        return
    unread = seen.unread(outcome.column)
    yield outcome.column, MISSING_VALUE, outcome.rows & ~unread
    yield outcome.column, UNREAD, outcome.rows & unread


@dataclass(kw_only=True)
class Tally:
    """The outcomes of rows in all trees.

    Attributes:
        plan: of the release.
        trees: one a question.
        rows: how many were read.
        without_unit: how many of them are left out because they have no privacy unit.
        missing: by column, the rows without a value.
        spellings: the ways in which ids of units are written as numbers, from `integer_spellings`.
    """

    plan: ReleasePlan
    trees: list[TreeTally] = field(init=False)
    rows: int = 0
    without_unit: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    spellings: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        # Only which rows count is read, which is the same under every key.
        choices = KeyedChoices(key=ReleaseKey.generate(), release=self.plan.name)
        questions = [each.with_choices(choices) for each in self.plan.questions]
        self.trees = [TreeTally(question=each) for each in questions]

    def add(self, seen: SeenBatch) -> None:
        """Counts a batch in every tree."""
        has_unit = self._has_unit(seen.rows)
        self.rows += seen.rows.num_rows
        if self.plan.unit.type is None:
            for name in self.plan.unit.columns:
                self.spellings |= integer_spellings(seen.rows.column(name))
        self.without_unit += seen.rows.num_rows - int(np.count_nonzero(has_unit))
        for name in seen.rows.schema.names:
            unwritten = missing_flags(seen.written(name))
            self.missing[name] += int(np.count_nonzero(unwritten))
        for tree in self.trees:
            tree.add(seen, has_unit)

    def _has_unit(self, rows: pa.RecordBatch) -> Flags:
        unit, result = self.plan.unit, np.ones(rows.num_rows, np.bool_)
        if unit.nulls is not NullUnits.OWN:
            for name in unit.columns:
                column = rows.column(name)
                if unit.type is not None:
                    column = declared_values(column, unit.type)
                result &= ~missing_flags(column)
        return result
