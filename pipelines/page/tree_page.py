"""A tree on the page of a report, whatever its kind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dptrees.pipelines.charts.chart import Chart
from dptrees.pipelines.page.reading import Note


@dataclass(frozen=True, kw_only=True)
class PageRoom:
    """The part of a page that a tree may take.

    Args:
        trees: how many trees share the page.
        paths: of the nodes requested for the page beyond those that fit.
    """

    trees: int = 1
    paths: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Headline:
    """What the top of the page says of a tree.

    Args:
        figure: one number.
        label: what it is.
        rows: the total of the tree, with its error; none where it is not known.
        noun: what the total counts.
        error: of the total, as the width of its interval; infinite where it is not known.
    """

    figure: str
    label: str
    rows: str = ""
    noun: str = "rows"
    error: float = math.inf


@dataclass(frozen=True, kw_only=True)
class TreePage:
    """A tree on the page.

    Args:
        said: what the template says of it; ``policies`` are the rows of the table of unusual
            values.
        data: what the scripts read; plain JSON values.
        template: of its part of the page, from the folder of this package.
        headline: what the top of the page says of it; None: its name alone.
        scripts: likewise, in their order, after those that all share.
        styles: likewise, after those that all share.
        notes: how to read its numbers.
        charts: by name, which is in the id of their element: ``figure-PLACE-NAME``.
    """

    said: dict[str, object]
    data: dict[str, object]
    template: str
    headline: Headline | None = None
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    charts: Mapping[str, Chart] = field(default_factory=dict)
