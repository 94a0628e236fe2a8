"""A tree on the page of a report, whatever its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.page.reading import Note

if TYPE_CHECKING:
    from bokeh.plotting import figure


@dataclass(frozen=True, kw_only=True)
class PageRoom:
    """What part of a page a tree may take.

    Args:
        trees: how many trees share the page.
        paths: of the nodes that the page was asked for beside what it has room for.
    """

    trees: int = 1
    paths: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class TreePage:
    """A tree on the page.

    Args:
        said: what the template says of it; ``policies`` are the rows of the table of unusual
            values.
        data: what the scripts read; plain JSON values.
        template: of its part of the page, from the folder of this package.
        scripts: likewise, in their order, after the one that all share.
        styles: likewise, after the one that all share.
        notes: how to read its numbers.
        figures: in the order of their elements, which have the ids ``figure-PLACE``,
            ``figure-PLACE-1`` and so on.
    """

    said: dict[str, object]
    data: dict[str, object]
    template: str
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    figures: tuple[figure, ...] = ()
