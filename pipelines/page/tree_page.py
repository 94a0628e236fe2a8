"""A tree on the page of a report, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass

from bokeh.plotting import figure


@dataclass(frozen=True, kw_only=True)
class TreePage:
    """A tree on the page.

    Args:
        said: what the template says of it; ``kind`` names its template and its script, and
            ``policies`` are the rows of the table of unusual values.
        data: what the script reads; plain JSON values.
        figure: of its CDF, None where it has none.
    """

    said: dict[str, object]
    data: dict[str, object]
    figure: figure | None = None
