"""A description of a tree's plan as JSON, on the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.question import Question
from dptrees.pipelines.answers.figures import budget_share, percent, share_text, significant
from dptrees.pipelines.description.description import Column, Description, Noise, Table, Unit
from dptrees.pipelines.page.extent import clip
from dptrees.pipelines.page.noise import laws_text, span_text
from dptrees.pipelines.plain.lines import key_number, times_keys
from dptrees.pipelines.terminal_text import escaped

# Width of the names of plans whose errors are compared.
_NAMES = 26


def plan_entry(question: Question, description: Description) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {"name": question.name, "keys": key_number(question)} | description.entry()


def table_entries(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table of levels as plain values."""
    columns = [column for column in table.columns if column.key]
    return [
        {"level": place}
        | {
            column.key: _plain(column.values[place])
            for column in columns
            if column.values[place] is not None
        }
        for place in range(len(table))
    ]


def _plain(value: Any) -> object:
    if isinstance(value, Noise):
        return exact_scale(value.laws[0]) if value.laws else None
    return value if isinstance(value, int) else float(value)


def plan_lines(
    question: Question, description: Description, entry: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the lines of a plan on the terminal.

    Args:
        question: the tree.
        description: of its plan.
        entry: from `plan_entry`.
    """
    yield from description.above
    yield ""
    yield f"{escaped(question.name)}: {description.size}{description.method}{times_keys(question)}"
    table, errors = description.table, description.errors(entry)
    is_shown = any(column.phrase for column in table.columns)
    for place, name in enumerate(_row_names(description)) if is_shown else ():
        texts = (_phrase(column, place) for column in table.columns if column.phrase)
        yield f"  {name} {', '.join(text for text in texts if text)}"
    if table.note:
        yield f"  {table.note}"
    for name, fact in description.facts.items():
        yield f"  {name[0].lower()}{name[1:]}: {fact}"
    if errors.rows:
        yield from (f"  {line}" for line in f"{errors.heading}:".splitlines())
    width = max([_NAMES, *(len(name) for name, _, _ in errors.rows)])
    for name, values, shape in errors.rows:
        figures = ["-" if value is None else significant(value) for value in values]
        line = "".join(f" {figure:>10}" for figure in figures)
        yield f"    {escaped(name):<{width}}{line}   {shape}".rstrip()
    yield from (f"  {note}" for note in errors.notes)


def _row_names(description: Description) -> Iterator[str]:
    """Yield the names of a table's rows on the terminal, of one width."""
    table, names = description.table, description.level_names
    if table.rows is None and names is None:
        yield from (f"level {level}:" for level in range(len(table)))
        return
    texts = [escaped(name) for name in (names if table.rows is None else table.rows) or ()]
    width = max(map(len, texts))
    for level, text in enumerate(texts):
        number = f"level {level} " if table.rows is None else ""
        yield f"{number}{text:<{width}} "


def _short_names(description: Description) -> Sequence[str]:
    """Return the names of a table's rows on the page."""
    table, names = description.table, description.level_names
    if table.rows is not None:
        return table.rows
    if names is None:
        return [f"{level}" for level in range(len(table))]
    return [f"{level} {clip(name)}" for level, name in enumerate(names)]


def _phrase(column: Column, place: int) -> str:
    """Return a cell on the terminal; nothing where there is no value."""
    value = column.values[place]
    if isinstance(value, Noise):
        figures = [significant(each) for each in value.deviations]
        if not figures:
            return value.reason
        return column.phrase.format(" to ".join(dict.fromkeys((figures[0], figures[-1]))))
    return "" if value is None else column.phrase.format(_TERMINAL[column.unit](value))


_TERMINAL: Mapping[Unit, Callable[[Any], str]] = {
    Unit.COUNT: lambda value: _count(value),
    Unit.ERROR: significant,
    Unit.AMOUNT: lambda value: f"{float(value):.4f}",
    Unit.TEXT: str,
}
_PAGE: Mapping[Unit, Callable[[Any], str]] = {
    Unit.COUNT: lambda value: _count(value),
    Unit.ERROR: lambda value: f"{value:,.4g}",
    Unit.AMOUNT: lambda value: f"{float(value):.4g}",
    Unit.FRACTION: share_text,
    Unit.LAW: lambda noise: laws_text(noise.laws, exact=noise.exact),
    Unit.DEVIATION: lambda noise: _span(noise.deviations),
    Unit.TEXT: clip,
}


def _count(value: float) -> str:
    if math.isinf(value):
        return "any number"
    return f"{value:,.0f}" if value >= 10 or value == round(value) else f"{value:.2f}"


def _span(deviations: list[float]) -> str:
    return span_text(deviations[0], deviations[-1]) if deviations else ""


def page_values(
    question: Question, description: Description, total: Budget, rows: int | None = None
) -> dict[str, Any]:
    """Return what the template ``description/page.html.j2`` says of a plan.

    Args:
        question: the tree.
        description: of its plan.
        total: the budget of the release.
        rows: how many rows of the table are shown, None: all.
    """
    table = description.table
    columns = [column for column in table.columns if column.title]
    budget = description.budget
    facts = {**description.domain_facts, **description.facts}
    if budget is not None:
        facts["Budget"] = budget_share(budget, total)
    if description.predicted:
        facts["Predicted error"] = description.predicted
    if description.intervals is not None:
        facts["Intervals"] = f"{percent(question.confidence)}{description.intervals}"
    return {
        "facts": facts,
        "levels": {
            "caption": table.caption,
            "titles": [table.title, *(column.title for column in columns)],
            "rows": [
                [name, *(_cell(column, place) for column in columns)]
                for place, name in enumerate(_short_names(description)[:rows])
            ],
            "note": table.note,
            "is_open": table.is_open,
        },
        "of_mechanism": description.template,
    }


def _cell(column: Column, place: int) -> str:
    value = column.values[place]
    return "" if value is None else _PAGE[column.unit](value)
