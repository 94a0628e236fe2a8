"""What the top of the page says of a tree's rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.pipelines.answers.figures import with_margin
from dptrees.pipelines.charts.bars import Bar
from dptrees.pipelines.page.extent import clip


def rows_text(rows: pa.Table, place: int = 0) -> str:
    """The estimate of a node with its error: of the first row of a table, or another."""
    low, high, estimate = (rows[name][place].as_py() for name in ("ci_low", "ci_high", "estimate"))
    if estimate is None:
        estimate = rows["count"][place].as_py()
    error = rows["std_error"][place].as_py() if "std_error" in rows.column_names else None
    return with_margin(estimate, low, high, error)


def table_bars(
    rows: pa.Table, names: Sequence[str | None], looks: Iterable[str] = repeat("")
) -> Iterator[Bar]:
    """The rows of a table of nodes as bars.

    Args:
        rows: of nodes.
        names: of the bars.
        looks: the classes of their colors; none: all have one color.
    """
    columns = [rows[name].to_pylist() for name in ("count", "ci_low", "ci_high", "estimate")]
    has_errors = "std_error" in rows.column_names
    columns.append(rows["std_error"].to_pylist() if has_errors else [None] * len(rows))
    named = zip(names, *columns, strict=True)
    for (name, count, low, high, estimate, error), look in zip(named, looks, strict=False):
        yield Bar(
            name=clip(name),
            count=count,
            low=low,
            high=high,
            estimate=estimate,
            error=error,
            look=look,
        )


def largest_rows(rows: pa.Table, most: int) -> pa.Table:
    """The rows of the largest counts, in their order."""
    order = np.argsort(-rows["count"].to_numpy(), kind="stable")[:most]
    return rows.take(pa.array(np.sort(order)))


def headline_total(roots: pa.Table, noun: str) -> dict[str, Any]:
    """Return the total of all roots as a `Headline` holds it; no text where its error is not known.

    Args:
        roots: of keys whose noise is independent.
        noun: what is counted.
    """
    if len(roots) == 1:
        width = roots["ci_high"][0].as_py() - roots["ci_low"][0].as_py()
        return {"rows": rows_text(roots), "noun": noun, "error": width}
    low, high = roots["ci_low"].to_numpy(), roots["ci_high"].to_numpy()
    errors, estimate = roots["std_error"].to_numpy(), roots["estimate"].to_numpy()
    centered = np.abs((low + high) / 2 - estimate) <= 0.02 * (high - low) + 1
    if not (np.all(np.isfinite(errors)) and np.any(centered & (errors > 0))):
        return {"rows": "", "noun": noun, "error": math.inf}
    times = float(np.median(((high - low) / 2 / errors)[centered & (errors > 0)]))
    half = times * float(np.sqrt(np.sum(np.square(errors))))
    mean = float(np.sum(estimate))
    return {"rows": with_margin(mean, mean - half, mean + half), "noun": noun, "error": 2 * half}
