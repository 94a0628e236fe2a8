"""The kinds of trees: what the commands need of each, by its name in a configuration.

No other module of the commands knows a kind by its name, and none asks what kind a tree is: a new
kind is a room beside the others and an entry here (and in dpcore, the question it asks). What it
does not say of its own is said by `pipelines.plain`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pipelines.adaptive.lines import adaptive_entry, adaptive_lines, adaptive_target
from pipelines.adaptive.page import adaptive_tree
from pipelines.adaptive_hierarchy.lines import (
    adaptive_hierarchy_entry,
    adaptive_hierarchy_lines,
    adaptive_hierarchy_target,
)
from pipelines.adaptive_hierarchy.page import adaptive_hierarchy_tree
from pipelines.exponential.lines import (
    exponential_entry,
    exponential_lines,
    exponential_summary,
)
from pipelines.exponential.page import exponential_tree
from pipelines.factorised.lines import factorised_entry, factorised_lines, factorised_target
from pipelines.factorised.page import factorised_tree
from pipelines.hierarchy.chosen_nodes import check_paths
from pipelines.hierarchy.lines import (
    hierarchy_entry,
    hierarchy_lines,
    hierarchy_summary,
    hierarchy_target,
)
from pipelines.hierarchy.page import hierarchy_tree
from pipelines.hierarchy.section import HierarchyTree
from pipelines.hypercube.lines import (
    hypercube_entry,
    hypercube_lines,
    hypercube_summary,
    hypercube_target,
)
from pipelines.hypercube.page import hypercube_tree
from pipelines.hypercube.section import HypercubeTree
from pipelines.ordered.lines import (
    ordered_entry,
    ordered_lines,
    ordered_summary,
    ordered_target,
)
from pipelines.ordered.page import ordered_tree
from pipelines.ordered.section import OrderedTree
from pipelines.page.nodes import ReleasedTables
from pipelines.page.tree_page import PageRoom, TreePage
from pipelines.plain.lines import plan_entry, plan_lines, summary_lines
from pipelines.plain.page import plain_tree
from pipelines.sections.tree import TreeSection
from pipelines.series.lines import series_entry, series_lines, series_target
from pipelines.series.page import period_tree
from pipelines.sparse.lines import sparse_entry, sparse_lines, sparse_summary, sparse_target
from pipelines.sparse.nodes import check_sparse_paths
from pipelines.sparse.page import sparse_tree
from pipelines.sparse.section import SparseTree
from pipelines.target import Target

# Of a tree whose section names no kind.
DEFAULT_KIND = "ordered"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the commands need of a kind of tree; only the section has no default.

    Attributes:
        section: of a tree in a configuration, which makes its workload; None where no tree is asked
            for as one of the kind.
        plan_entry: the plan of a question as plain values.
        plan_lines: the plan of a question for a person, from these values.
        target: the budget of one tree alone for an error, as plain values.
        summary_lines: what is told of a released tree.
        page: a tree on the page of a release.
        check_paths: refuses (ValueError) paths that the page cannot show; None where nodes have
            no paths.
    """

    section: type[TreeSection] | None
    plan_entry: Callable[[Any], dict[str, Any]] = plan_entry
    plan_lines: Callable[[Any, Mapping[str, Any]], Iterator[str]] = plan_lines
    target: Callable[[Target], dict[str, Any]] = Target.found
    summary_lines: Callable[[Any], Iterator[str]] = summary_lines
    page: Callable[[ReleasedTables, Any, PageRoom], TreePage] = plain_tree
    check_paths: Callable[[ReleasedTables, Any, PageRoom], None] | None = None


KINDS: dict[str, Kind] = {
    "ordered": Kind(
        section=OrderedTree,
        plan_entry=ordered_entry,
        plan_lines=ordered_lines,
        target=ordered_target,
        summary_lines=ordered_summary,
        page=ordered_tree,
    ),
    # An ordered tree that is divided where rows are, requested by its mechanism.
    "adaptive": Kind(
        section=None,
        plan_entry=adaptive_entry,
        plan_lines=adaptive_lines,
        target=adaptive_target,
        summary_lines=ordered_summary,
        page=adaptive_tree,
    ),
    # One that is measured by weighted sums, requested likewise.
    "factorised": Kind(
        section=None,
        plan_entry=factorised_entry,
        plan_lines=factorised_lines,
        target=factorised_target,
        summary_lines=ordered_summary,
        page=factorised_tree,
    ),
    "hierarchy": Kind(
        section=HierarchyTree,
        plan_entry=hierarchy_entry,
        plan_lines=hierarchy_lines,
        target=hierarchy_target,
        summary_lines=hierarchy_summary,
        page=hierarchy_tree,
        check_paths=check_paths,
    ),
    "adaptive_hierarchy": Kind(
        section=None,
        plan_entry=adaptive_hierarchy_entry,
        plan_lines=adaptive_hierarchy_lines,
        target=adaptive_hierarchy_target,
        summary_lines=hierarchy_summary,
        page=adaptive_hierarchy_tree,
        check_paths=check_paths,
    ),
    "sparse": Kind(
        section=SparseTree,
        plan_entry=sparse_entry,
        plan_lines=sparse_lines,
        target=sparse_target,
        summary_lines=sparse_summary,
        page=sparse_tree,
        check_paths=check_sparse_paths,
    ),
    "hypercube": Kind(
        section=HypercubeTree,
        plan_entry=hypercube_entry,
        plan_lines=hypercube_lines,
        target=hypercube_target,
        summary_lines=hypercube_summary,
        page=hypercube_tree,
    ),
    # Quantiles alone, of a tree over an ordered domain.
    "exponential": Kind(
        section=None,
        plan_entry=exponential_entry,
        plan_lines=exponential_lines,
        summary_lines=exponential_summary,
        page=exponential_tree,
    ),
    # The tree of a period, of another kind, over the periods of a series.
    "series": Kind(
        section=None,
        plan_entry=lambda asked: series_entry(asked, _of_period(asked).plan_entry),
        plan_lines=lambda asked, entry: series_lines(asked, entry, _of_period(asked).plan_lines),
        target=series_target,
        summary_lines=lambda tree: KINDS[tree.question.kind].summary_lines(tree),
        page=lambda release, asked, room: period_tree(release, asked, room, _of_period(asked).page),
    ),
}


def _of_period(asked: Any) -> Kind:
    """The kind of the tree of one period."""
    return KINDS[asked.shown(0).kind]
