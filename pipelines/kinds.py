"""The kinds of trees: what the commands need of each, by its name in a configuration.

No other module of the commands knows a kind by its name, and none tests what kind a tree is: a new
kind is a package beside the others and an entry here (and in dpcore, its question). What it
leaves out, `pipelines.plain` has. The mechanisms that measure trees of known leaves are in
`pipelines.mechanisms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpcore.questions.question import Question
from dpcore.release.kinds import kind_named
from pipelines.cluster.costs import KindCosts
from pipelines.description.description import Description, plain_description
from pipelines.distinct.lines import distinct_description, distinct_summary, distinct_target
from pipelines.distinct.section import DistinctTree
from pipelines.exponential.lines import exponential_summary
from pipelines.hierarchy.lines import hierarchy_description, hierarchy_summary
from pipelines.hierarchy.section import HierarchyTree
from pipelines.hypercube.costs import hypercube_costs
from pipelines.hypercube.lines import hypercube_description, hypercube_summary, hypercube_target
from pipelines.hypercube.section import HypercubeTree
from pipelines.mean.lines import mean_description, mean_summary, mean_target
from pipelines.mechanisms.mechanisms import mechanism_target
from pipelines.ordered.lines import ordered_description, ordered_summary
from pipelines.ordered.section import OrderedTree
from pipelines.plain.lines import summary_lines
from pipelines.sections.tree import TreeSection
from pipelines.series.lines import series_description, series_target
from pipelines.sparse.lines import sparse_description, sparse_summary, sparse_target
from pipelines.sparse.section import SparseTree
from pipelines.table.lines import table_description, table_summary, table_target
from pipelines.table.section import TableTree
from pipelines.target import ErrorTarget

if TYPE_CHECKING:
    from pipelines.page.nodes import ReleasedTables
    from pipelines.page.tree_page import PageRoom, TreePage

# Of a tree whose section names no kind.
DEFAULT_KIND = "ordered"

# The page of a release is imported when there is one to make: no plan or answer needs it.


def _page_distinct(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.distinct.page import distinct_tree

    return distinct_tree(release, question, room)


def _page_exponential(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.exponential.page import exponential_tree

    return exponential_tree(release, question, room)


def _page_hierarchy(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.hierarchy.page import hierarchy_tree

    return hierarchy_tree(release, question, room)


def _page_hypercube(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.hypercube.page import hypercube_tree

    return hypercube_tree(release, question, room)


def _page_mean(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.mean.page import mean_tree

    return mean_tree(release, question, room)


def _page_ordered(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.ordered.page import ordered_tree

    return ordered_tree(release, question, room)


def _page_sparse(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.sparse.page import sparse_tree

    return sparse_tree(release, question, room)


def _page_table(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.table.page import table_tree

    return table_tree(release, question, room)


def _page_plain(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.plain.page import plain_tree

    return plain_tree(release, question, room)


def _page_series(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from pipelines.series.page import period_tree

    return period_tree(release, question, room, _period_kind(question).page)


def _check_hierarchy(release: ReleasedTables, question: Any, room: PageRoom) -> None:
    from pipelines.hierarchy.chosen_nodes import check_paths

    check_paths(release, question, room)


def _check_sparse(release: ReleasedTables, question: Any, room: PageRoom) -> None:
    from pipelines.sparse.nodes import check_sparse_paths

    check_sparse_paths(release, question, room)


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
        costs: what a question takes of a processor.
    """

    section: type[TreeSection] | None
    describe: Callable[[Any], Description] = plain_description
    target: Callable[[ErrorTarget], dict[str, Any]] = ErrorTarget.to_entry
    summary_lines: Callable[[Any], Iterator[str]] = summary_lines
    page: Callable[[ReleasedTables, Any, PageRoom], TreePage] = _page_plain
    check_paths: Callable[[ReleasedTables, Any, PageRoom], None] | None = None
    costs: Callable[[Any], KindCosts] = lambda question: KindCosts()


KINDS: dict[str, KindHandlers] = {
    "ordered": KindHandlers(
        section=OrderedTree,
        describe=ordered_description,
        target=mechanism_target,
        summary_lines=ordered_summary,
        page=_page_ordered,
    ),
    "hierarchy": KindHandlers(
        section=HierarchyTree,
        describe=hierarchy_description,
        target=mechanism_target,
        summary_lines=hierarchy_summary,
        page=_page_hierarchy,
        costs=lambda _: KindCosts(
            row=8.0, row_doubling=1.6, leaf=400.0, page=900.0, page_beyond=600.0, noisy=1.25
        ),
        check_paths=_check_hierarchy,
    ),
    "sparse": KindHandlers(
        section=SparseTree,
        describe=sparse_description,
        target=sparse_target,
        summary_lines=sparse_summary,
        page=_page_sparse,
        costs=lambda _: KindCosts(row=800.0, buffered_bytes=60.0),
        check_paths=_check_sparse,
    ),
    "hypercube": KindHandlers(
        section=HypercubeTree,
        describe=hypercube_description,
        target=hypercube_target,
        summary_lines=hypercube_summary,
        page=_page_hypercube,
        costs=hypercube_costs,
    ),
    "table": KindHandlers(
        section=TableTree,
        describe=table_description,
        target=table_target,
        summary_lines=table_summary,
        page=_page_table,
        costs=lambda question: KindCosts(row=2.0 * len(question.columns) ** 2),
    ),
    "distinct": KindHandlers(
        section=DistinctTree,
        describe=distinct_description,
        target=distinct_target,
        summary_lines=distinct_summary,
        page=_page_distinct,
        costs=lambda _: KindCosts(row=20.0, row_doubling=0.0, sent_bytes=0.33),
    ),
    # Quantiles alone, of a tree over an ordered domain.
    "exponential": KindHandlers(
        section=None,
        describe=ordered_description,
        summary_lines=exponential_summary,
        page=_page_exponential,
    ),
    # A mean alone, of a tree over an ordered domain.
    "mean": KindHandlers(
        section=None,
        describe=mean_description,
        target=mean_target,
        summary_lines=mean_summary,
        page=_page_mean,
        costs=lambda _: KindCosts(row=10.0),
    ),
    # The tree of a period, of another kind, over the periods of a series.
    "series": KindHandlers(
        section=None,
        describe=lambda question: series_description(
            question, _period_kind(question).describe(question.shown(0))
        ),
        target=series_target,
        summary_lines=lambda tree: find_kind(tree.question).summary_lines(tree),
        page=_page_series,
        costs=lambda question: _period_kind(question).costs(question.shown(0)),
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
