"""Quantiles by the exponential mechanism on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from dptrees.dpcore.exponential.question import ReleasedQuantiles
from dptrees.pipelines.answers.figures import quantile_texts, rank_margin
from dptrees.pipelines.ordered.lines import ordered_description
from dptrees.pipelines.plain.kind_lines import KindLines
from dptrees.pipelines.plain.lines import KEYS_SHOWN
from dptrees.pipelines.terminal_text import escaped


def exponential_summary(tree: ReleasedQuantiles) -> Iterator[str]:
    """The quantiles of the first keys."""
    question = tree.question
    yield ""
    what = "ranks are within so many rows" if question.interval_reach is None else "intervals hold"
    yield (
        f"{question.name} ({', '.join(question.columns)}; {what} with "
        f"{100 * question.confidence:g} %)"
    )
    shown = min(KEYS_SHOWN, question.key_count)
    for label in question.labels_between(0, shown):
        name = "" if label is None else f"{escaped(label):<8}"
        for row, margin in zip(tree.quantiles(label), question.rank_margins, strict=True):
            value, span = quantile_texts(row)
            off = f"its rank within {rank_margin(*margin)}"
            if question.interval_reach is not None:
                off = f"[{span}]"
            yield f"  {name}{100 * row['q']:>6g} %  {escaped(value):>10}  {off}"
            name = " " * len(name)
    if question.key_count > shown:
        yield f"  ... and {question.key_count - shown} more keys"


EXPONENTIAL_LINES = KindLines(describe=ordered_description, summary=exponential_summary)
