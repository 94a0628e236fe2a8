"""The kinds of trees: what the commands need of each, by its name in a configuration.

No other module knows a kind by its name, and none tests what kind a tree is: a new kind is a
module of `pipelines.kinds` with its page, an entry here, and its question in dpcore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.kinds import kind_named

if TYPE_CHECKING:
    from dptrees.pipelines.sections.tree import TreeSection
    from dptrees.pipelines.show.description import Description
    from dptrees.pipelines.show.page_nodes import ReleasedTables
    from dptrees.pipelines.show.targets import KindLines
    from dptrees.pipelines.show.tree_page import PageRoom, TreePage


# Of a tree whose section names no kind.
DEFAULT_KIND = "ordered"

# Each part of a kind is imported when a configuration or a release first needs it: the parts of
# all kinds take longer than most plans.


def _section_distinct() -> type[TreeSection]:
    from dptrees.pipelines.kinds.numbers import DistinctTree

    return DistinctTree


def _section_hierarchy() -> type[TreeSection]:
    from dptrees.pipelines.kinds.hierarchies import HierarchyTree

    return HierarchyTree


def _section_hypercube() -> type[TreeSection]:
    from dptrees.pipelines.kinds.boxes import HypercubeTree

    return HypercubeTree


def _section_ordered() -> type[TreeSection]:
    from dptrees.pipelines.kinds.ordered import OrderedTree

    return OrderedTree


def _section_sparse() -> type[TreeSection]:
    from dptrees.pipelines.kinds.hierarchies import SparseTree

    return SparseTree


def _section_table() -> type[TreeSection]:
    from dptrees.pipelines.kinds.boxes import TableTree

    return TableTree


def _lines_distinct() -> KindLines:
    from dptrees.pipelines.kinds.numbers import DISTINCT_LINES

    return DISTINCT_LINES


def _lines_exponential() -> KindLines:
    from dptrees.pipelines.kinds.numbers import EXPONENTIAL_LINES

    return EXPONENTIAL_LINES


def _lines_hierarchy() -> KindLines:
    from dptrees.pipelines.kind_pages.hierarchy_page import HIERARCHY_LINES

    return HIERARCHY_LINES


def _lines_hypercube() -> KindLines:
    from dptrees.pipelines.kinds.boxes import HYPERCUBE_LINES

    return HYPERCUBE_LINES


def _lines_mean() -> KindLines:
    from dptrees.pipelines.kinds.numbers import MEAN_LINES

    return MEAN_LINES


def _lines_ordered() -> KindLines:
    from dptrees.pipelines.kinds.ordered import ORDERED_LINES

    return ORDERED_LINES


def _lines_sparse() -> KindLines:
    from dptrees.pipelines.kinds.hierarchies import SPARSE_LINES

    return SPARSE_LINES


def _lines_table() -> KindLines:
    from dptrees.pipelines.kinds.boxes import TABLE_LINES

    return TABLE_LINES


def _lines_series() -> KindLines:
    from dptrees.pipelines.kinds.periods import series_description, series_target
    from dptrees.pipelines.show.targets import KindLines

    def describe(question: Any) -> Description:
        period = question.shown(0)
        return series_description(question, find_kind(period).lines().describe(period))

    return KindLines(
        describe=describe,
        target=series_target,
        summary=lambda tree: find_kind(tree.question).lines().summary(tree),
    )


def _lines_plain() -> KindLines:
    from dptrees.pipelines.show.targets import KindLines

    return KindLines()


def _page_distinct(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kinds.numbers import distinct_tree

    return distinct_tree(release, question, room)


def _page_exponential(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kinds.numbers import exponential_tree

    return exponential_tree(release, question, room)


def _page_hierarchy(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kind_pages.hierarchy_page import hierarchy_tree

    return hierarchy_tree(release, question, room)


def _page_hypercube(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kind_pages.box_pages import hypercube_tree

    return hypercube_tree(release, question, room)


def _page_mean(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kinds.numbers import mean_tree

    return mean_tree(release, question, room)


def _page_ordered(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kind_pages.ordered_page import ordered_tree

    return ordered_tree(release, question, room)


def _page_sparse(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kind_pages.sparse_page import sparse_tree

    return sparse_tree(release, question, room)


def _page_table(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kind_pages.box_pages import table_tree

    return table_tree(release, question, room)


def _page_plain(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.show.tree_page import plain_tree

    return plain_tree(release, question, room)


def _page_series(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    from dptrees.pipelines.kinds.periods import period_tree

    return period_tree(release, question, room, find_kind(question.shown(0)).page)


def _check_hierarchy(release: ReleasedTables, question: Any, room: PageRoom) -> None:
    from dptrees.pipelines.kind_pages.hierarchy_charts import check_paths

    check_paths(release, question, room)


def _check_sparse(release: ReleasedTables, question: Any, room: PageRoom) -> None:
    from dptrees.pipelines.kind_pages.sparse_page import check_sparse_paths

    check_sparse_paths(release, question, room)


@dataclass(frozen=True, kw_only=True)
class KindHandlers:
    """What the commands need of a kind of tree; only the section has no default.

    Attributes:
        section: imports the section of a tree in a configuration, which makes its workload; None
            where no configuration can request this kind of tree.
        lines: imports what the terminal shows.
        page: a tree on the page of a release.
        check_paths: refuses (ValueError) paths that the page cannot show; None where nodes have
            no paths.
    """

    section: Callable[[], type[TreeSection]] | None
    lines: Callable[[], KindLines] = _lines_plain
    page: Callable[[ReleasedTables, Any, PageRoom], TreePage] = _page_plain
    check_paths: Callable[[ReleasedTables, Any, PageRoom], None] | None = None


KINDS: dict[str, KindHandlers] = {
    "ordered": KindHandlers(
        section=_section_ordered,
        lines=_lines_ordered,
        page=_page_ordered,
    ),
    "hierarchy": KindHandlers(
        section=_section_hierarchy,
        lines=_lines_hierarchy,
        page=_page_hierarchy,
        check_paths=_check_hierarchy,
    ),
    "sparse": KindHandlers(
        section=_section_sparse,
        lines=_lines_sparse,
        page=_page_sparse,
        check_paths=_check_sparse,
    ),
    "hypercube": KindHandlers(
        section=_section_hypercube,
        lines=_lines_hypercube,
        page=_page_hypercube,
    ),
    "table": KindHandlers(
        section=_section_table,
        lines=_lines_table,
        page=_page_table,
    ),
    "distinct": KindHandlers(
        section=_section_distinct,
        lines=_lines_distinct,
        page=_page_distinct,
    ),
    # Quantiles alone, of a tree over an ordered domain.
    "exponential": KindHandlers(
        section=None,
        lines=_lines_exponential,
        page=_page_exponential,
    ),
    # A mean alone, of a tree over an ordered domain.
    "mean": KindHandlers(
        section=None,
        lines=_lines_mean,
        page=_page_mean,
    ),
    # The tree of a period, of another kind, over the periods of a series.
    "series": KindHandlers(
        section=None,
        lines=_lines_series,
        page=_page_series,
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
