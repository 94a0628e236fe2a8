"""What of the released tables does not depend on the data, computed anew from the specification.

Of trees whose leaves are known (ordered ones and hierarchies) the labels, keys and places of all
rows follow from the specification, and so do the standard errors: those of the noise whose scales
the manifest states. A guarantee that was edited throughout, specification and checksums included,
still contradicts the standard errors of the tables. They are made by a release of no rows at all.
"""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dpcore.noise.randomness import ReleaseKey
from dpcore.questions.question import Question
from dpcore.questions.tables import QUANTILES
from dpcore.questions.tree_question import TreeQuestion
from dpcore.release.in_memory import release_rows
from dpcore.release.plan import ReleasePlan
from dpcore.release.release import Release
from pipelines.proof.check import CheckFailed
from pipelines.release_folder import parquet_file
from transforms.layout import concluded_file

# Leaves of all keys: beyond, a release of no rows takes minutes.
_MOST_LEAVES = 2**22
_TOLERANCE = 1e-6
_PUBLIC = ("tree", "key", "level", "node", "label", "upper", "q")


Names = dict[tuple[str, str, int, int], str]


def check_tables(folder: str, names: Names, plan: ReleasePlan) -> str:
    """The public columns of the tables are those of the specification.

    Args:
        folder: of the release.
        names: of the files of parts by kind, tree, key and chunk.
        plan: of the specification.
    """
    known = [each for each in plan.questions if isinstance(each, TreeQuestion) and _is_known(each)]
    if not known:
        return "no tree whose rows follow from the specification"
    leaves = sum(each.key_count * each.domain.cells for each in known)
    if leaves > _MOST_LEAVES:
        return f"not looked into: {leaves} leaves are more than {_MOST_LEAVES}"
    empty = release_rows(replace(plan, questions=tuple(known)), [], ReleaseKey(bytes(32)))
    for question in known:
        for part in question.parts():
            name = names[part.kind, part.tree, part.key, part.index]
            wanted = empty.part(part.kind, part.tree, part.key, part.index)
            _compare(name, wanted, _read(folder, name))
    _compare_quantiles(folder, empty)
    return "labels, keys and standard errors follow from the specification"


def _is_known(question: Question) -> bool:
    """Whether a question's rows and standard errors do not depend on the data."""
    return "thresholds" not in question.spec()


def _compare_quantiles(folder: str, empty: Release) -> None:
    if empty.quantiles is not None:
        name = concluded_file(QUANTILES)
        _compare(name, empty.quantiles, _read(folder, name))


def _read(folder: str, name: str) -> pa.Table:
    try:
        return parquet_file(os.path.join(folder, *name.split("/"))).read()
    except (OSError, pa.ArrowException):
        raise CheckFailed(f"{name} is no Parquet file") from None


def _compare(name: str, wanted: pa.Table, found: pa.Table) -> None:
    if wanted.schema.names != found.schema.names or len(wanted) != len(found):
        raise CheckFailed(f"{name} has not the columns and rows of the specification")
    for column in wanted.schema.names:
        one, other = (_plain(table[column]) for table in (wanted, found))
        if column in _PUBLIC:
            if not one.equals(other):
                raise CheckFailed(f"{name}: {column} is not that of the specification")
        elif column == "std_error" and not _close(one, other):
            raise CheckFailed(f"{name}: {column} is not that of the noise of the specification")


def _plain(column: pa.ChunkedArray) -> pa.Array:
    dictionary = pa.types.is_dictionary(column.type)
    plain = column.cast(column.type.value_type) if dictionary else column
    return plain.combine_chunks()


def _close(one: pa.Array, other: pa.Array) -> bool:
    wanted, found = (
        pc.fill_null(each, -1.0).to_numpy(zero_copy_only=False) for each in (one, other)
    )
    return bool(np.allclose(wanted, found, rtol=_TOLERANCE, atol=0.0, equal_nan=True))
