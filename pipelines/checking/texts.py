"""The strings of a file beside the values that they were read as, to find which are no values.

A text format is read twice at once, as its domains read it and as strings alone. Both readings
split the file into rows alike, so they have the same rows in the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags
from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit
from dptrees.dpcore.questions.question import TreeColumns
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.policies import missing_flags
from dptrees.transforms.errors import InputError
from dptrees.transforms.readers.formats import Reader
from dptrees.transforms.readers.read import FileSplit, open_file

OF_TEXT = ("csv", "json")


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
    questions: tuple[TreeColumns, ...] = ()

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
