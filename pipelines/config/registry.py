"""The kinds of trees: what the commands need of each, by its name in a configuration.

No other module knows a kind by its name, and none tests what kind a tree is: a new kind is a
module of `pipelines.kinds`, perhaps a page in `pipelines.kind_pages`, an entry here, and its
question in dpcore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.kinds import kind_named
from dptrees.pipelines.process import Later

if TYPE_CHECKING:
    from dptrees.pipelines.sections.tree import TreeSection
    from dptrees.pipelines.show.description import Description
    from dptrees.pipelines.show.mechanisms import KindLines
    from dptrees.pipelines.show.page_nodes import ReleasedTables
    from dptrees.pipelines.show.tree_page import PageRoom, TreePage


# Of a tree whose section names no kind.
DEFAULT_KIND = "ordered"


def _lines_series() -> KindLines:
    kind_lines = Later("show.mechanisms:KindLines").load()
    description = Later("kinds.periods:series_description").load()

    def describe(question: Any) -> Description:
        period = question.shown(0)
        described: Description = description(question, find_kind(period).lines().describe(period))
        return described

    lines: KindLines = kind_lines(
        describe=describe,
        target=Later("kinds.periods:series_target").load(),
        summary=lambda tree: find_kind(tree.question).lines().summary(tree),
    )
    return lines


def _lines_plain() -> KindLines:
    plain: KindLines = Later("show.mechanisms:KindLines").load()()
    return plain


def _page_series(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    page: TreePage = Later("kinds.periods:period_tree")(
        release, question, room, find_kind(question.shown(0)).page
    )
    return page


def _page_plain(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    described = find_kind(question).lines().describe(question)
    page: TreePage = Later("show.description:plain_page")(release, question, described, room)
    return page


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
        section=Later("kinds.ordered:OrderedTree").load,
        lines=Later("kinds.ordered:ORDERED_LINES").load,
        page=Later("kind_pages.ordered_page:ordered_tree"),
    ),
    "hierarchy": KindHandlers(
        section=Later("kinds.hierarchies:HierarchyTree").load,
        lines=Later("kind_pages.hierarchy_page:HIERARCHY_LINES").load,
        page=Later("kind_pages.hierarchy_page:hierarchy_tree"),
        check_paths=Later("kind_pages.hierarchy_page:check_paths"),
    ),
    "sparse": KindHandlers(
        section=Later("kinds.hierarchies:SparseTree").load,
        lines=Later("kinds.hierarchies:SPARSE_LINES").load,
        page=Later("kind_pages.sparse_page:sparse_tree"),
        check_paths=Later("kind_pages.sparse_page:check_sparse_paths"),
    ),
    "hypercube": KindHandlers(
        section=Later("kinds.boxes:HypercubeTree").load,
        lines=Later("kinds.boxes:HYPERCUBE_LINES").load,
        page=Later("kind_pages.box_pages:hypercube_tree"),
    ),
    "table": KindHandlers(
        section=Later("kinds.tables:TableTree").load,
        lines=Later("kinds.tables:TABLE_LINES").load,
        page=Later("kind_pages.box_pages:table_tree"),
    ),
    "distinct": KindHandlers(
        section=Later("kinds.numbers:DistinctTree").load,
        lines=Later("kinds.numbers:DISTINCT_LINES").load,
        page=Later("kinds.numbers:distinct_tree"),
    ),
    "sketch": KindHandlers(
        section=Later("kinds.sketches:SketchTree").load,
        lines=Later("kinds.sketches:SKETCH_LINES").load,
        page=Later("kinds.sketches:sketch_tree"),
    ),
    # Quantiles alone, of a tree over an ordered domain.
    "exponential": KindHandlers(
        section=None,
        lines=Later("kinds.numbers:EXPONENTIAL_LINES").load,
        page=Later("kinds.numbers:exponential_tree"),
    ),
    # A mean alone, of a tree over an ordered domain.
    "mean": KindHandlers(
        section=None,
        lines=Later("kinds.numbers:MEAN_LINES").load,
        page=Later("kinds.numbers:mean_tree"),
    ),
    # The tree of a period, of another kind, over the periods of a series.
    "series": KindHandlers(section=None, lines=_lines_series, page=_page_series),
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
