"""A mean that is measured alone on the page of a release: a table of the keys, and the noise."""

from __future__ import annotations

from dptrees.dpcore.mean import MeanQuestion, ReleasedMean
from dptrees.dpcore.questions.answer_errors import StatisticKind
from dptrees.pipelines.answers.figures import percent, with_margin
from dptrees.pipelines.charts.bars import capitalized
from dptrees.pipelines.description.writers import page_values
from dptrees.pipelines.mean.lines import mean_description, mean_text
from dptrees.pipelines.page.extent import MAX_KEYS, clip, left_out
from dptrees.pipelines.page.headline import largest_rows
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.policies import CELL_POLICIES, policies
from dptrees.pipelines.page.tree_page import Headline, PageRoom, TreePage
from dptrees.pipelines.plain.counted import counted_noun

# Keys whose means are together at the top of the page.
_FEW_KEYS = 3


def mean_tree(release: ReleasedTables, question: MeanQuestion, room: PageRoom) -> TreePage:
    """The mean, the total and the number of rows, of the keys with most rows."""
    tree = ReleasedMean(question, release.part)
    description = mean_description(question)
    shown = largest_rows(tree.rows, max(1, MAX_KEYS // room.trees))
    labels: list[str | None] = shown["key"].to_pylist()
    titles = [capitalized(clip(counted_noun(question))), "Mean", "Total"]
    rows = [_values(tree, label) for label in labels]
    if question.keys is not None:
        titles = [clip(", ".join(question.keys.columns)), *titles]
        rows = [[clip(str(label)), *row] for label, row in zip(labels, rows, strict=True)]
    said: dict[str, object] = {
        "name": clip(question.name),
        "confidence": percent(question.confidence),
        "values": {"titles": titles, "rows": rows},
        "left_out": left_out(len(shown), question.key_count, "keys", "largest"),
        "policies": list(policies(question, CELL_POLICIES)),
    }
    return TreePage(
        said=said | page_values(question, description, release.plan.budget),
        data={"kind": question.kind},
        template="mean/page.html.j2",
        headline=_headline(tree),
        notes=description.notes,
    )


def _values(tree: ReleasedMean, label: str | None) -> list[str]:
    """The number of rows, the mean and the total under a key, each with its margin."""
    rows = tree.at_path("", label)
    total = tree.statistic(StatisticKind.TOTAL, key=label)
    return [
        with_margin(rows.estimate or 0.0, rows.ci_low, rows.ci_high, rows.std_error),
        mean_text(tree, label),
        with_margin(total.value, total.ci_low, total.ci_high),
    ]


def _headline(tree: ReleasedMean) -> Headline:
    """The means of all keys; where these are many that of the key with most rows."""
    question = tree.question
    label = f"mean of {clip(question.domain.column)}"
    if question.keys is None:
        return Headline(figure=mean_text(tree, None), label=label)
    if question.key_count <= _FEW_KEYS:
        named = largest_rows(tree.rows, _FEW_KEYS)["key"].to_pylist()
        figure = " \u00b7 ".join(_short(mean_text(tree, each)) for each in named)
        label = f"means of {clip(question.domain.column)}: {', '.join(map(clip, named))}"
        return Headline(figure=figure, label=label)
    most = largest_rows(tree.rows, 1)["key"][0].as_py()
    label += f" of {clip(most)}, the largest of {question.key_count:,} keys"
    return Headline(figure=mean_text(tree, most), label=label)


def _short(text: str) -> str:
    """A mean without its margin; a dash for one that is not known."""
    return text.partition(" ")[0] if text[:1].isdigit() or text[:1] == "-" else "\u2013"
