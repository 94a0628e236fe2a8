"""A hierarchy in the report: its levels and their noise, its nodes by their labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.pipelines.description.description import Description
from dptrees.pipelines.description.writers import page_values
from dptrees.pipelines.hierarchy.lines import hierarchy_description
from dptrees.pipelines.hierarchy.nodes import SCRIPTS, named_sizes, universe_nodes
from dptrees.pipelines.page.nodes import ReleasedTables
from dptrees.pipelines.page.tree_page import PageRoom, TreePage


def hierarchy_tree(
    release: ReleasedTables, question: HierarchyQuestion[Any], room: PageRoom
) -> TreePage:
    """A hierarchy on the page; its paths have passed
    `pipelines.hierarchy.chosen_nodes.check_paths`."""
    description = _with_named_nodes(hierarchy_description(question), question)
    shown = universe_nodes(release, question, room, description.digits)
    return TreePage(
        said=shown.said | page_values(question, description, release.plan.budget),
        data=shown.data,
        headline=shown.headline,
        charts=shown.charts,
        template="hierarchy/page.html.j2",
        scripts=SCRIPTS,
        notes=description.notes,
    )


def _with_named_nodes(description: Description, question: HierarchyQuestion[Any]) -> Description:
    """Return a description that counts the nodes with rows, as the page lists them."""
    if description.table.rows is not None:
        return description
    sizes, *others = description.table.columns
    columns = (sizes._replace(values=named_sizes(question)), *others)
    return replace(description, table=replace(description.table, columns=columns))
