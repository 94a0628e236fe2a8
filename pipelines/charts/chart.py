"""A chart on the page: its axes, what is drawn between them, and what is said of its points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dptrees.pipelines.charts.axis import Axis


@dataclass(frozen=True, kw_only=True)
class ChartShape:
    """A path in a square of 1,000 by 1,000.

    Args:
        look: its classes in the page's style, such as ``line s0``.
        path: of `pipelines.charts.paths`.
    """

    look: str
    path: str


@dataclass(frozen=True, kw_only=True)
class Layer:
    """Shapes that are shown and hidden together.

    Args:
        shapes: from below.
        shown: whether they are seen at first.
    """

    shapes: tuple[ChartShape, ...]
    shown: bool = True


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart.

    Args:
        title: what it shows, in one line; also for people who do not see it.
        text: what it shows in numbers, for people who do not see it.
        x, y: the axes.
        layers: what is drawn, from below.
        right: a second vertical axis; None where there is none.
        caption: the line above the chart.
        look: "", "small" or "square".
        legend: the colors and what they represent, as classes and labels.
        data: what the script reads to label a point: for lines and bars a list ``series`` of
            columns; see `charts/chart.js`.
    """

    title: str
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    text: str = ""
    right: Axis | None = None
    caption: str = ""
    look: str = ""
    legend: Sequence[tuple[str, str]] = ()
    data: dict[str, Any] = field(default_factory=dict)


def series(
    at: Sequence[int],
    texts: Sequence[str],
    numbers: dict[str, list[Any]],
    *,
    name: str | None = None,
    total: float | None = None,
) -> dict[str, Any]:
    """Return the data of a line or of bars, as the script reads them.

    Args:
        at: where the points lie, from 0 to 1,000.
        texts: the label of each point.
        numbers: the columns ``count`` and, where they are known, ``estimate``, ``low``, ``high``.
        name: of the key.
        total: the sum that the counts are fractions of; None where they are no fractions.
    """
    own: dict[str, Any] = {"at": list(at), "texts": list(texts), **numbers}
    if name is not None:
        own["name"] = name
    if total:
        own["total"] = total
    return own
