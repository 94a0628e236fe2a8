"""What the report says of a sparse tree: its levels, their noise and thresholds, the nodes that
were published, and what it means that a node was not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dptrees.dpcore.sparse.domain import CodeDomain
from dptrees.dpcore.sparse.labels import PathDomain
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.pipelines.answers.figures import percent
from dptrees.pipelines.charts.bars import Bars
from dptrees.pipelines.description.description import Column, Description, Unit
from dptrees.pipelines.description.writers import page_values
from dptrees.pipelines.page.extent import MAX_NODES, clip, left_out
from dptrees.pipelines.page.headline import headline_total, largest_rows, rows_text, table_bars
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.policies import DROPPED
from dptrees.pipelines.page.reading import STANDARD_ERROR, consistent_count, interval
from dptrees.pipelines.page.tree_page import Headline, PageRoom, TreePage
from dptrees.pipelines.plain.counted import counted_noun
from dptrees.pipelines.sparse.lines import sparse_description
from dptrees.pipelines.sparse.nodes import ShownNodes, node_columns, shown_nodes
from dptrees.pipelines.sparse.paths import root_path

_BARS = 20
_NOTES = (
    (
        "estimate",
        "The node's own noisy count, which is unbiased before it is compared with a threshold.",
    ),
    *consistent_count("The counts of a node's children add up to at most its own."),
    *interval("It accounts for the threshold, and may not be centered on the estimate."),
    STANDARD_ERROR,
)


def sparse_tree(release: ReleasedTables, question: SparseQuestion, room: PageRoom) -> TreePage:
    """A sparse tree on the page; `pipelines.sparse.nodes.check_sparse_paths` has seen its paths."""
    paths = room.paths
    shown = shown_nodes(release, question, MAX_NODES // room.trees, paths)
    levels = node_columns(question.domain, shown)
    data = _data(question) | {
        "asked": list(dict.fromkeys(paths)),
        "keys": [{"name": None, "levels": levels}],
    }
    description = replace(sparse_description(question), domain_facts=_facts(question))
    description = _with_published(description, shown)
    return TreePage(
        said=_context(question, shown, paths)
        | page_values(question, description, release.plan.budget)
        | {"node_bars": _node_bars(question, shown)},
        data=data,
        template="sparse/page.html.j2",
        headline=_headline(question, shown),
        scripts=("page/paths.js", "sparse/page.js"),
        notes=_NOTES,
    )


# What the template says


def _headline(question: SparseQuestion, shown: ShownNodes) -> Headline:
    """The largest node of the finest level that has any: the heaviest that was found."""
    noun = clip(counted_noun(question))
    total = headline_total(shown.levels[0], noun)
    published = sum(shown.published) - 1
    found = f"{published:,} heavy nodes were published"
    if len(shown.levels) == 1:
        return Headline(figure=total["rows"], label=f"{noun}; no node was published", **total)
    below = shown.levels[-1]
    place = int(np.argmax(below["count"].to_numpy()))
    name = clip(below["label"][place].as_py())
    level = clip(question.plan.levels[len(shown.levels) - 1].name)
    label = f"{noun} of {name}, the largest {level}"
    figure = rows_text(below, place)
    return Headline(figure=figure, label=f"{label}; {found}", **total)


def _node_bars(question: SparseQuestion, shown: ShownNodes) -> Bars | None:
    """A bar for each of the largest nodes of the first level that has several."""
    results = [level for level, number in enumerate(shown.published) if number > 1]
    if not results or results[0] >= len(shown.levels):
        return None
    level = results[0]
    rows = largest_rows(shown.levels[level], _BARS)
    name = clip(question.plan.levels[level].name)
    return Bars(
        name=name,
        bars=list(table_bars(rows, rows["label"].to_pylist())),
        title=f"Counts of each {name} of {clip(question.name)}",
        confidence=percent(question.confidence),
        note=left_out(len(rows), shown.published[level], f"published {name} nodes", "largest"),
        given="as in the tables",
    )


def _context(
    question: SparseQuestion, shown: ShownNodes, paths: Sequence[str]
) -> dict[str, object]:
    return {
        "name": clip(question.name),
        "confidence": percent(question.confidence),
        "pruning": question.pruning.sentence(question.confidence),
        "nodes_shown": _nodes_shown(shown, paths),
        "keyed": False,
        "noun": "count",
        "in_order": False,
        "given_order": "as in the tables",
        "policies": [_policies(question)],
    }


def _policies(question: SparseQuestion) -> dict[str, str]:
    """The row of the table of policies."""
    outside, missing = "", DROPPED
    if isinstance(question.domain, CodeDomain):
        outside = f"no code of {question.domain.bits} bits: {DROPPED}"
    else:
        missing += "; likewise strings that are empty or not UTF-8"
    return {
        "column": clip(", ".join(question.columns)),
        "tree": clip(question.name),
        "outside": outside,
        "missing": missing,
        "unknown": "no values are listed; rows of unpublished nodes are counted in the nodes above",
    }


def _facts(question: SparseQuestion) -> dict[str, str]:
    """What the tree is, name by name."""
    domain, plan = question.domain, question.plan
    columns = ", ".join(clip(name) for name in question.columns)
    leaves = "not listed"
    if domain.leaves is not None:
        leaves = f"2^{domain.leaves.bit_length() - 1}, too many to release each"
    return {
        "Counted": "rows" if plan.unit.is_row else f"rows, at most {plan.unit.rows:,} of a unit",
        "Column" if len(question.columns) == 1 else "Columns": f"{columns}: {_form(question)}",
        "Leaves": leaves,
        "Labels": _labels(question),
        "Budget": f"epsilon = {float(plan.epsilon):.6g}, delta = {float(plan.delta):.6g}",
    }


def _with_published(description: Description, shown: ShownNodes) -> Description:
    """Return a description that counts the published nodes, those on the page too."""
    table, here = description.table, [len(level) for level in shown.levels]
    here += [0] * (len(table) - len(here))
    columns = (
        Column("Published nodes", shown.published, Unit.COUNT),
        Column("of them here", here, Unit.COUNT),
        *table.columns,
    )
    return replace(description, table=replace(table, columns=columns))


def _form(question: SparseQuestion) -> str:
    domain = question.domain
    if isinstance(domain, CodeDomain):
        return f"one code of {domain.bits} bits, whose leading bits are the levels"
    if isinstance(domain, PathDomain):
        first = "first label is" if domain.depth == 1 else f"first {domain.depth} labels are"
        return f"one path, whose {first} the levels; the separator is {domain.separator!r}"
    return "one column for each level"


def _labels(question: SparseQuestion) -> str:
    if isinstance(question.domain, CodeDomain):
        return (
            "all codes are public from the start, but not which of them have rows; only nodes "
            "that pass a threshold are released"
        )
    return (
        "from the rows, not public from the start: a label is released only with a node that "
        "passes a threshold; for a label of a single row the probability is at most delta"
    )


def _nodes_shown(shown: ShownNodes, paths: Sequence[str]) -> str:
    """Which nodes the page holds, and what it leaves out."""
    published = sum(shown.published)
    if published == 1:
        return "No node but the root was published."
    if shown.total == published:
        return f"All {published:,} nodes that were published are here."
    text = f"Here are {shown.total:,} of {published:,} nodes that were published: "
    text += "the largest counts"
    if paths:
        text += f", and requested: {len(paths):,} "
        text += f"{'path' if len(paths) == 1 else 'paths'} with the nodes above and right below"
    return f"{text}; all are in the tables of the release."


# What the script reads


def _data(question: SparseQuestion) -> dict[str, object]:
    """The tree, and how its paths are written."""
    domain, height = question.domain, question.plan.height
    data: dict[str, object] = {
        "kind": "sparse",
        "name": question.name,
        "levels": [clip(level.name) for level in question.plan.levels],
        "root": root_path(domain),
        "most": [question.unpublished_most(level) for level in range(height + 1)],
        "inOrder": False,
        "whole": [],
    }
    if isinstance(domain, CodeDomain):
        # A prefix says its length, and so its level.
        example = str(domain.paths(1, domain.root_keys)[0])
        code = {"bits": list(domain.prefix_bits), "notation": domain.notation}
        return data | code | {"example": example, "selfNamed": True}
    separator = domain.separator if isinstance(domain, PathDomain) else "/"
    return data | {"separator": separator, "escaped": not isinstance(domain, PathDomain)}
