"""Tables of a released tree, straight from its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.release.released import ReleaseReader
from dptrees.dpcore.trees.chunks import SPINE


def all_rows(release: ReleaseReader, kind: str, name: str) -> pa.Table:
    """Return every row of a tree; of whole keys in a chunk in the order of the keys."""
    question: Any = release.plan.question(name)
    chunking = question.forest.chunking
    places = {(chunk.key, chunk.index) for chunk in chunking}
    if kind == "nodes" and chunking.split_level:
        places |= {(key, SPINE) for key in range(question.key_count)}
    return pa.concat_tables(release._read(kind, name, *place) for place in sorted(places))


def columns_of(
    release: ReleaseReader, kind: str, *names: str, name: str | None = None
) -> list[np.ndarray[Any, Any]]:
    """Return columns of all rows of a tree, or of the only one."""
    table = all_rows(release, kind, name or release.plan.questions[0].name)
    return [table[each].to_numpy() for each in names]
