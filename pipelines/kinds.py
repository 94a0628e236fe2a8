"""The kinds of trees: what the commands need of each, by its name in a configuration.

No other module of the commands knows a kind by its name, and none tests what kind a tree is: a new
kind is a package beside the others and an entry here (and in dpcore, its question). What it
leaves out, `pipelines.plain` has. The mechanisms that measure trees of known leaves are in
`pipelines.mechanisms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dpcore.questions.question import Question
from dpcore.release.kinds import kind_named
from pipelines.description.description import Description, plain_description
from pipelines.distinct.lines import distinct_description, distinct_summary, distinct_target
from pipelines.distinct.page import distinct_tree
from pipelines.distinct.section import DistinctTree
from pipelines.exponential.lines import exponential_summary
from pipelines.exponential.page import exponential_tree
from pipelines.hierarchy.chosen_nodes import check_paths
from pipelines.hierarchy.lines import hierarchy_description, hierarchy_summary
from pipelines.hierarchy.page import hierarchy_tree
from pipelines.hierarchy.section import HierarchyTree
from pipelines.hypercube.lines import hypercube_description, hypercube_summary, hypercube_target
from pipelines.hypercube.page import hypercube_tree
from pipelines.hypercube.section import HypercubeTree
from pipelines.mean.lines import mean_description, mean_summary, mean_target
from pipelines.mean.page import mean_tree
from pipelines.mechanisms.mechanisms import mechanism_target
from pipelines.ordered.lines import ordered_description, ordered_summary
from pipelines.ordered.page import ordered_tree
from pipelines.ordered.section import OrderedTree
from pipelines.page.nodes import ReleasedTables
from pipelines.page.tree_page import PageRoom, TreePage
from pipelines.plain.lines import summary_lines
from pipelines.plain.page import plain_tree
from pipelines.sections.tree import TreeSection
from pipelines.series.lines import series_description, series_target
from pipelines.series.page import period_tree
from pipelines.sparse.lines import sparse_description, sparse_summary, sparse_target
from pipelines.sparse.nodes import check_sparse_paths
from pipelines.sparse.page import sparse_tree
from pipelines.sparse.section import SparseTree
from pipelines.table.lines import table_description, table_summary, table_target
from pipelines.table.page import table_tree
from pipelines.table.section import TableTree
from pipelines.target import ErrorTarget

# Of a tree whose section names no kind.
DEFAULT_KIND = "ordered"


@dataclass(frozen=True, kw_only=True)
class KindHandlers:
    """What the commands need of a kind of tree; only the section has no default.

    Attributes:
        section: of a tree in a configuration, which makes its workload; None where no
            configuration can request this kind of tree.
        describe: gives the description of a question's plan.
        target: the budget of one tree alone for an error, as plain values.
        summary_lines: the summary of a released tree.
        page: a tree on the page of a release.
        check_paths: refuses (ValueError) paths that the page cannot show; None where nodes have
            no paths.
    """

    section: type[TreeSection] | None
    describe: Callable[[Any], Description] = plain_description
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry
    summary_lines: Callable[[Any], Iterator[str]] = summary_lines
    page: Callable[[ReleasedTables, Any, PageRoom], TreePage] = plain_tree
    check_paths: Callable[[ReleasedTables, Any, PageRoom], None] | None = None


KINDS: dict[str, KindHandlers] = {
    "ordered": KindHandlers(
        section=OrderedTree,
        describe=ordered_description,
        target=mechanism_target,
        summary_lines=ordered_summary,
        page=ordered_tree,
    ),
    "hierarchy": KindHandlers(
        section=HierarchyTree,
        describe=hierarchy_description,
        target=mechanism_target,
        summary_lines=hierarchy_summary,
        page=hierarchy_tree,
        check_paths=check_paths,
    ),
    "sparse": KindHandlers(
        section=SparseTree,
        describe=sparse_description,
        target=sparse_target,
        summary_lines=sparse_summary,
        page=sparse_tree,
        check_paths=check_sparse_paths,
    ),
    "hypercube": KindHandlers(
        section=HypercubeTree,
        describe=hypercube_description,
        target=hypercube_target,
        summary_lines=hypercube_summary,
        page=hypercube_tree,
    ),
    "table": KindHandlers(
        section=TableTree,
        describe=table_description,
        target=table_target,
        summary_lines=table_summary,
        page=table_tree,
    ),
    "distinct": KindHandlers(
        section=DistinctTree,
        describe=distinct_description,
        target=distinct_target,
        summary_lines=distinct_summary,
        page=distinct_tree,
    ),
    # Quantiles alone, of a tree over an ordered domain.
    "exponential": KindHandlers(
        section=None,
        describe=ordered_description,
        summary_lines=exponential_summary,
        page=exponential_tree,
    ),
    # A mean alone, of a tree over an ordered domain.
    "mean": KindHandlers(
        section=None,
        describe=mean_description,
        target=mean_target,
        summary_lines=mean_summary,
        page=mean_tree,
    ),
    # The tree of a period, of another kind, over the periods of a series.
    "series": KindHandlers(
        section=None,
        describe=lambda question: series_description(
            question, _period_kind(question).describe(question.shown(0))
        ),
        target=series_target,
        summary_lines=lambda tree: find_kind(tree.question).summary_lines(tree),
        page=lambda release, question, room: period_tree(
            release, question, room, _period_kind(question).page
        ),
    ),
}


def find_kind(question: Question) -> KindHandlers:
    """Return the kind of a tree: its own, or that of the domain that its mechanism measures."""
    (name,) = _names(question)
    return KINDS[name]


def is_tree(question: Question) -> bool:
    """Whether a question is a tree, and no selection of keys."""
    return bool(_names(question))


def _names(question: Question) -> list[str]:
    return [name for name in KINDS if kind_named(name) is kind_named(question.kind)]


def _period_kind(question: Any) -> KindHandlers:
    """The kind of the tree of one period."""
    return find_kind(question.shown(0))
