"""The kinds of trees: what the commands need of each, by its name in a configuration.

No other module knows a kind by its name, and none tests what kind a tree is: a new kind is a
module of `pipelines.kinds`, perhaps a page in `pipelines.kind_pages`, an entry here, and its
question in dpcore.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.kinds import kind_named

if TYPE_CHECKING:
    from dptrees.pipelines.sections.tree import TreeSection
    from dptrees.pipelines.show.description import Description
    from dptrees.pipelines.show.mechanisms import KindLines
    from dptrees.pipelines.show.page_nodes import ReleasedTables
    from dptrees.pipelines.show.tree_page import PageRoom, TreePage


# Of a tree whose section names no kind.
DEFAULT_KIND = "ordered"


def _later(place: str) -> Callable[[], Any]:
    """What imports a name when it is first needed: all kinds take longer than most plans.

    Args:
        place: the module in pipelines, a colon, and the name.
    """
    module, _, name = place.partition(":")
    return lambda: getattr(import_module(f"dptrees.pipelines.{module}"), name)


def _calls(place: str) -> Callable[..., Any]:
    """What imports a function when it is first called."""
    imported = _later(place)
    return lambda *given: imported()(*given)


def _lines_series() -> KindLines:
    kind_lines = _later("show.mechanisms:KindLines")()
    description = _later("kinds.periods:series_description")()

    def describe(question: Any) -> Description:
        period = question.shown(0)
        described: Description = description(question, find_kind(period).lines().describe(period))
        return described

    lines: KindLines = kind_lines(
        describe=describe,
        target=_later("kinds.periods:series_target")(),
        summary=lambda tree: find_kind(tree.question).lines().summary(tree),
    )
    return lines


def _lines_plain() -> KindLines:
    plain: KindLines = _later("show.mechanisms:KindLines")()()
    return plain


def _page_series(release: ReleasedTables, question: Any, room: PageRoom) -> TreePage:
    page: TreePage = _calls("kinds.periods:period_tree")(
        release, question, room, find_kind(question.shown(0)).page
    )
    return page


_page_plain = _calls("show.tree_page:plain_tree")


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
        section=_later("kinds.ordered:OrderedTree"),
        lines=_later("kinds.ordered:ORDERED_LINES"),
        page=_calls("kind_pages.ordered_page:ordered_tree"),
    ),
    "hierarchy": KindHandlers(
        section=_later("kinds.hierarchies:HierarchyTree"),
        lines=_later("kind_pages.hierarchy_page:HIERARCHY_LINES"),
        page=_calls("kind_pages.hierarchy_page:hierarchy_tree"),
        check_paths=_calls("kind_pages.hierarchy_charts:check_paths"),
    ),
    "sparse": KindHandlers(
        section=_later("kinds.hierarchies:SparseTree"),
        lines=_later("kinds.hierarchies:SPARSE_LINES"),
        page=_calls("kind_pages.sparse_page:sparse_tree"),
        check_paths=_calls("kind_pages.sparse_page:check_sparse_paths"),
    ),
    "hypercube": KindHandlers(
        section=_later("kinds.boxes:HypercubeTree"),
        lines=_later("kinds.boxes:HYPERCUBE_LINES"),
        page=_calls("kind_pages.box_pages:hypercube_tree"),
    ),
    "table": KindHandlers(
        section=_later("kinds.boxes:TableTree"),
        lines=_later("kinds.boxes:TABLE_LINES"),
        page=_calls("kind_pages.box_pages:table_tree"),
    ),
    "distinct": KindHandlers(
        section=_later("kinds.numbers:DistinctTree"),
        lines=_later("kinds.numbers:DISTINCT_LINES"),
        page=_calls("kinds.numbers:distinct_tree"),
    ),
    # Quantiles alone, of a tree over an ordered domain.
    "exponential": KindHandlers(
        section=None,
        lines=_later("kinds.numbers:EXPONENTIAL_LINES"),
        page=_calls("kinds.numbers:exponential_tree"),
    ),
    # A mean alone, of a tree over an ordered domain.
    "mean": KindHandlers(
        section=None,
        lines=_later("kinds.numbers:MEAN_LINES"),
        page=_calls("kinds.numbers:mean_tree"),
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
