"""The columns of released tables that do not depend on the data, recomputed from the specification.

In trees whose leaves are public (ordered domains and hierarchies) the labels, keys and places of
all rows follow from the specification. So do the standard errors, from the noise scales that the
manifest states; in adaptive trees they depend on the released tree too. A guarantee that was edited
throughout, specification and checksums included, still contradicts the standard errors of the
tables. The columns come from a release of no rows at all, the errors of adaptive trees from
`pipelines.proof.drawn`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.questions.released import QUANTILES
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import ReleaseReader, release_rows
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.runs import with_span
from dptrees.pipelines.proof.check import CheckFailed
from dptrees.pipelines.proof.drawn import check_drawn
from dptrees.pipelines.release_folder import parquet_file
from dptrees.transforms.folder.layout import concluded_file

# Leaves of all keys: beyond, a release of no rows takes minutes.
_MOST_LEAVES = 2**22
_TOLERANCE = 1e-6
_PUBLIC = ("tree", "first", "last", "key", "level", "node", "label", "upper", "q")
_FOLLOW = "labels, keys and standard errors follow from the specification"

Names = dict[tuple[str, str, int, int], str]


def check_tables(folder: str, names: Names, plan: ReleasePlan) -> str:
    """Check that the public columns of the tables follow from the specification.

    Args:
        folder: of the release.
        names: of the files of parts by kind, tree, key and chunk.
        plan: of the specification.
    """
    known = [each for each in plan.questions if isinstance(each, TreeQuestion)]
    runs = [each for each in plan.questions if isinstance(each, SeriesQuestion) and each.adds_up]
    if not known and not runs:
        return "no tree whose rows follow from the specification"
    leaves = sum(each.key_count * each.domain.cells for each in known)
    leaves += sum(each.dense_cells * len(each.closing) for each in runs)
    if leaves > _MOST_LEAVES:
        return f"not checked: {leaves} leaves are more than {_MOST_LEAVES}"
    quantiles = [table for run in runs for table in _compare_run(folder, names, plan, run)]
    if quantiles:
        name = concluded_file(QUANTILES)
        _compare(name, pa.concat_tables(quantiles), _read(folder, name))
    if not known:
        return _FOLLOW
    empty = _empty(plan, known)
    for question in known:
        for part in question.parts():
            name = names[part.kind, part.tree, part.key, part.index]
            expected = empty.part(part.kind, part.tree, part.key, part.index)
            _compare(
                name, expected, _read(folder, name), errors=question.mechanism.errors_are_known
            )
    _compare_quantiles(folder, empty)
    drawn = [each for each in known if not each.mechanism.errors_are_known]
    for question in drawn:
        check_drawn(
            question,
            lambda part: _read(folder, names[part.kind, part.tree, part.key, part.index]),
        )
    together = f", of {', '.join(each.name for each in drawn)} with the resulting trees"
    return _FOLLOW + (together if drawn else "")


def _empty(plan: ReleasePlan, questions: Sequence[TreeQuestion[Any]]) -> ReleaseReader:
    """A release of no rows."""
    return release_rows(replace(plan, questions=tuple(questions)), [], ReleaseKey(bytes(32)))


def _compare_run(
    folder: str, names: Names, plan: ReleasePlan, run: SeriesQuestion
) -> list[pa.Table]:
    """Compare the parts of a tree of a run of a series, with all spans of periods that the run
    released, and return its quantiles for comparison."""
    spans = [(span, run.released_tree(span)) for span in run.closing]
    empty = [(span, _empty(plan, [question])) for span, question in spans]
    for part in spans[0][1].parts():
        place = (part.kind, run.name, part.key, part.index)
        tables = [with_span(each.part(*place), run.name, span) for span, each in empty]
        _compare(names[place], pa.concat_tables(tables), _read(folder, names[place]))
    actual = [(span, each.quantiles) for span, each in empty]
    return [with_span(table, run.name, span) for span, table in actual if table is not None]


def _compare_quantiles(folder: str, empty: ReleaseReader) -> None:
    if empty.quantiles is not None:
        name = concluded_file(QUANTILES)
        _compare(name, empty.quantiles, _read(folder, name))


def _read(folder: str, name: str) -> pa.Table:
    try:
        return parquet_file(os.path.join(folder, *name.split("/"))).read()
    except (OSError, pa.ArrowException):
        raise CheckFailed(f"{name} is not a Parquet file") from None


def _compare(name: str, expected: pa.Table, actual: pa.Table, *, errors: bool = True) -> None:
    if expected.schema.names != actual.schema.names or len(expected) != len(actual):
        raise CheckFailed(f"{name} has not the columns and rows of the specification")
    for column in expected.schema.names:
        one, other = (_plain(table[column]) for table in (expected, actual))
        if column in _PUBLIC:
            if not one.equals(other):
                raise CheckFailed(f"{name}: {column} is not that of the specification")
        elif column == "std_error" and errors and not _close(one, other):
            raise CheckFailed(f"{name}: {column} is not that of the noise of the specification")


def _plain(column: pa.ChunkedArray) -> pa.Array:
    dictionary = pa.types.is_dictionary(column.type)
    plain = column.cast(column.type.value_type) if dictionary else column
    return plain.combine_chunks()


def _close(one: pa.Array, other: pa.Array) -> bool:
    expected, found = (
        pc.fill_null(each, -1.0).to_numpy(zero_copy_only=False) for each in (one, other)
    )
    return bool(np.allclose(expected, found, rtol=_TOLERANCE, atol=0.0, equal_nan=True))
