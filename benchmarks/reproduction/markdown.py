"""Tables and numbers in Markdown."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Sequence

from benchmarks.reproduction.simulation import Mean


def section(title: str, *blocks: str) -> str:
    """A heading and blocks below it; all but tables are wrapped."""
    wrapped = [block if block.startswith("|") else paragraph(block) for block in blocks]
    return "\n\n".join([f"## {title}", *wrapped]) + "\n"


def paragraph(text: str) -> str:
    """Text in lines of at most 100 characters."""
    return textwrap.fill(
        " ".join(text.split()), width=100, break_long_words=False, break_on_hyphens=False
    )


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose other columns are numbers."""
    rule = ["---", *["---:"] * (len(headers) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rule, *rows))


def number(value: float) -> str:
    """Four significant digits, and all of those before the point."""
    if abs(value) >= 1e9:
        return f"{value:.4g}"
    digits = max(0, 3 - len(f"{abs(value):.0f}") + 1) if abs(value) >= 1 else 4
    return f"{value:,.{digits}f}"


def measured(mean: Mean) -> str:
    """A mean and its standard error, to two digits of that."""
    digits = 1 - math.floor(math.log10(mean.standard_error))
    shown = [round(each, digits) for each in (mean.value, mean.standard_error)]
    if mean.value >= 1e9:
        return " ± ".join(f"{each:.4g}" for each in shown)
    return " ± ".join(f"{each:,.{max(0, digits)}f}" for each in shown)


def deviation(value: float) -> str:
    """A difference in standard errors."""
    return f"{value:+.1f}"


def shape(fanouts: Sequence[int]) -> str:
    """The fan-outs, with repetitions as powers."""
    runs = ((fanout, len(list(run))) for fanout, run in itertools.groupby(fanouts))
    return " · ".join(f"{fanout}^{count}" if count > 1 else str(fanout) for fanout, count in runs)


def holds(fact: bool) -> str:
    """Whether a claim was found true."""
    return "yes" if fact else "**no**"
