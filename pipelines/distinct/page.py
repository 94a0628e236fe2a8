"""Numbers of different values on the page of a release: bars of the keys, and the noise."""

from __future__ import annotations

import pyarrow as pa

from dptrees.dpcore.distinct import DistinctQuestion, ReleasedDistinct
from dptrees.pipelines.answers.figures import percent
from dptrees.pipelines.charts.bars import Bars, capitalized
from dptrees.pipelines.description.writers import page_values
from dptrees.pipelines.distinct.lines import BOUNDED, distinct_description, values_in_words
from dptrees.pipelines.page.extent import MAX_KEYS, clip, left_out
from dptrees.pipelines.page.headline import largest_rows, rows_text, table_bars
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.policies import DROPPED, policies
from dptrees.pipelines.page.tree_page import Headline, PageRoom, TreePage
from dptrees.pipelines.plain.counted import counted_noun


def distinct_tree(release: ReleasedTables, question: DistinctQuestion, room: PageRoom) -> TreePage:
    """The number of different values, of the first keys where there are keys."""
    tree = ReleasedDistinct(question, release.part)
    rows = tree.rows
    description = distinct_description(question)
    noun = clip(counted_noun(question))
    shown = largest_rows(rows, max(1, MAX_KEYS // room.trees))
    bars = None
    if question.keys is not None:
        by = clip(", ".join(question.keys.columns))
        bars = Bars(
            name=by,
            bars=list(table_bars(shown, shown["key"].to_pylist())),
            title=f"{capitalized(noun)} of each key of {clip(question.name)}",
            confidence=percent(question.confidence),
            noun=noun,
            note=left_out(len(shown), len(rows), "keys", "largest"),
        )
    said: dict[str, object] = {
        "name": clip(question.name),
        "number": rows_text(rows),
        "noun": noun,
        "confidence": percent(question.confidence),
        "key_bars": bars,
        "bounded": "" if question.plan.unit.is_row else f"{values_in_words(question)}: {BOUNDED}.",
        "policies": [
            {**row, "missing": row["missing"] or DROPPED} for row in policies(question, {})
        ],
    }
    return TreePage(
        said=said | page_values(question, description, release.plan.budget),
        data={"kind": question.kind},
        template="distinct/page.html.j2",
        headline=_headline(question, rows, noun),
    )


def _headline(question: DistinctQuestion, rows: pa.Table, noun: str) -> Headline:
    """The number; that of the key with most where there are keys."""
    if question.keys is None:
        return Headline(figure=rows_text(rows), label=noun)
    most = largest_rows(rows, 1)
    label = f"{noun} of {clip(most['key'][0].as_py())}, the largest of {len(rows):,} keys"
    return Headline(figure=rows_text(most), label=label)
