"""Quantiles by the exponential mechanism on the page of a release: a table, and how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dptrees.dpcore.exponential.question import INTERVAL_WORDS, WORDS, ExponentialQuestion
from dptrees.pipelines.answers.figures import percent, quantile_texts
from dptrees.pipelines.description.writers import page_values
from dptrees.pipelines.ordered.lines import cells_in_words, ordered_description
from dptrees.pipelines.page.extent import MAX_QUANTILES, clip, left_out
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.policies import CELL_POLICIES, policies
from dptrees.pipelines.page.tree_page import Headline, PageRoom, TreePage


def exponential_tree(
    release: ReleasedTables, question: ExponentialQuestion, room: PageRoom
) -> TreePage:
    """The quantiles of the first keys, and the choices that they came from."""
    table = release.quantiles()
    assert table is not None
    wanted = question.quantiles[: MAX_QUANTILES // room.trees]
    keys = min(question.key_count, max(1, MAX_QUANTILES // room.trees // len(wanted)))
    mine = table.filter(pc.equal(table["tree"].cast(pa.string()), question.name))
    rows = list(map(question.domain.quantile_in_words, mine.to_pylist()))
    texts = [_text(row) for row in rows]
    every = len(question.quantiles)
    of_key = [texts[key * every : (key + 1) * every][: len(wanted)] for key in range(keys)]
    said: dict[str, object] = {
        "name": clip(question.name),
        "about": cells_in_words(question),
        "confidence": percent(question.confidence),
        "values": _values(question, wanted, of_key),
        "left_out": left_out(keys, question.key_count, "keys"),
        "words": WORDS if question.interval_reach is None else f"{WORDS} {INTERVAL_WORDS}",
        "policies": list(policies(question, CELL_POLICIES)),
    }
    description = ordered_description(question)
    said |= page_values(question, description, release.plan.budget, rows=len(wanted))
    return TreePage(
        said=said,
        data={"kind": question.kind},
        template="exponential/page.html.j2",
        headline=_headline(question, rows[: len(wanted)]),
        notes=description.notes,
    )


def _values(
    question: ExponentialQuestion, wanted: tuple[float, ...], of_key: list[list[str]]
) -> dict[str, Any]:
    """A row for each key, or for each quantile where there are no keys."""
    named = [f"{quantile:.6g}" for quantile in wanted]
    if question.keys is None:
        rows = [list(row) for row in zip(named, of_key[0], strict=True)]
        value = "Value" if question.interval_reach is None else "Value, and its interval"
        return {"titles": ["Quantile", value], "rows": rows}
    labels = question.labels_between(0, len(of_key))
    rows = [[clip(label), *row] for label, row in zip(labels, of_key, strict=True)]
    return {"titles": [clip(", ".join(question.keys.columns)), *named], "rows": rows}


def _headline(question: ExponentialQuestion, shown: list[dict[str, Any]]) -> Headline | None:
    """The median, or else the first quantile; of keys none, nor of a median that is cut off."""
    place = question.quantiles.index(0.5) if 0.5 in question.quantiles else 0
    if question.keys is not None or place >= len(shown):
        return None
    column = clip(question.domain.column)
    name = "median" if 0.5 in question.quantiles else f"{question.quantiles[0]:.6g}-quantile"
    figure, _ = quantile_texts(shown[place])
    return Headline(figure=clip(figure), label=f"{name} of {column}")


def _text(row: Mapping[str, Any]) -> str:
    """A value, with its interval where it has one."""
    value, span = quantile_texts(row)
    return clip(value if row["ci_low_text"] is None else f"{value} [{span}]")
