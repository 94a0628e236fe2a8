"""A tree on the page of a release whose kind draws nothing of its own: the first of its nodes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import NODES
from dptrees.pipelines.page.extent import clip
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.tree_page import PageRoom, TreePage

MAX_ROWS = 1_000


def plain_tree(release: ReleasedTables, question: Question, room: PageRoom) -> TreePage:
    """The first rows of the table of nodes, column by column as they were released."""
    most = MAX_ROWS // room.trees
    parts: list[pa.Table] = []
    for batch in release.batches(NODES, question.name):
        if sum(map(len, parts)) < most:
            parts.append(pa.Table.from_batches([batch]))
    rows = pa.concat_tables(parts).slice(0, most)
    said = {
        "name": clip(question.name),
        "columns": ", ".join(map(clip, question.columns)),
        "confidence": f"{100 * question.confidence:.6g} %",
        "titles": rows.column_names,
        "rows": [[_text(value) for value in row.values()] for row in rows.to_pylist()],
        "policies": [],
    }
    return TreePage(said=said, data={"kind": question.kind}, template="plain/page.html.j2")


def _text(value: Any) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - as the page writes what is not there
    return f"{value:,.6g}" if isinstance(value, float) else clip(str(value))
