"""A tree over an ordered domain on the terminal, whatever its mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dptrees.dpcore.ordered.released import ReleasedCdf
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.pipelines.answers.figures import quantile_texts
from dptrees.pipelines.description.description import Description
from dptrees.pipelines.mechanisms.mechanisms import mechanism_description, mechanism_target
from dptrees.pipelines.page.extent import clip
from dptrees.pipelines.plain.counted import counted_noun
from dptrees.pipelines.plain.kind_lines import KindLines
from dptrees.pipelines.plain.lines import NODES_SHOWN, heading, largest, totals
from dptrees.pipelines.terminal_text import escaped


def ordered_description(question: TreeQuestion[Any]) -> Description:
    """Describe the plan of a tree over an ordered domain."""
    domain: Any = question.domain
    size = f"{domain.cells:,} {'cells' if domain.is_ordered else 'categories without an order'}"
    description = mechanism_description(question)
    facts = {"Tree": f"{size}{description.method}"}
    return replace(description, size=size, domain_facts=facts)


def cells_in_words(question: TreeQuestion[Any]) -> str:
    """Return the column of a tree and its cells, and how many keys there are, in a sentence."""
    domain: Any = question.domain
    text = f"Column {clip(domain.column)} ({domain.kind}) in {domain.cells:,} cells"
    if question.keys is not None:
        by = clip(", ".join(question.keys.columns))
        text += f", once for each of {question.key_count:,} keys of {by}"
    return f"{text}."


def ordered_summary(tree: ReleasedCdf) -> Iterator[str]:
    """The counts of the roots with their quantiles, or with the largest categories."""

    def quantiles(label: str | None, blanks: str) -> Iterator[str]:
        for row in tree.quantiles(label):
            value, span = quantile_texts(row)
            value = str(row.get("in_words", value))
            yield f"  {blanks}{100 * row['q']:>6g} %  {escaped(value):>10}  [{escaped(span)}]"

    def categories(label: str | None, _: str) -> Iterator[str]:
        return map(largest, tree.top(NODES_SHOWN, tree.height, label))

    yield from heading(tree.question, tree.question.domain.columns)
    below = quantiles if tree.question.is_ordered else categories
    yield from totals(tree, counted_noun(tree.question), below)


ORDERED_LINES = KindLines(
    describe=ordered_description, target=mechanism_target, summary=ordered_summary
)
