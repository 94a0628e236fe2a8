"""The description of a tree's plan, made once; written as JSON, on the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa

from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.released import NODES, Answer, Released
from dptrees.pipelines.show.figures import (
    budget_share,
    counted_note,
    counted_noun,
    percent,
    share_text,
    significant,
    with_margin,
)
from dptrees.pipelines.show.page_nodes import ReleasedTables, clip, error_digits
from dptrees.pipelines.show.tree_page import (
    ADDS_UP,
    Note,
    PageRoom,
    TreePage,
    consistent_count,
    laws_text,
    span_text,
)
from dptrees.pipelines.terminal_text import escaped

KEYS_SHOWN = 5
NODES_SHOWN = 5


def key_number(question: Question) -> int | None:
    """How many trees there are; None where keys are yet to be selected."""
    return question.key_count if question.keys is None or question.keys.is_listed else None


def times_keys(question: Question) -> str:
    """Say how often a tree exists, where it has keys."""
    if question.keys is None:
        return ""
    if not question.keys.is_listed:
        return f", once for each key of {', '.join(question.keys.columns)} that is selected"
    return f", once for each of {question.key_count} keys"


def summary_lines(tree: Released) -> Iterator[str]:
    """The counts of the roots, and the largest nodes below."""
    yield from heading(tree.question, tree.question.columns)
    below = min(1, tree.height)
    yield from totals(
        tree,
        counted_noun(tree.question),
        lambda label, _: (largest_line(each) for each in tree.top(NODES_SHOWN, below, label)),
    )


def heading(question: Question, columns: Iterable[str]) -> Iterator[str]:
    """What a tree is, before what was released of it."""
    yield ""
    note = counted_note(question)
    yield (
        f"{question.name} ({', '.join(columns)}; ± is half of a "
        f"{100 * question.confidence:g} % confidence interval{'' if note is None else f'; {note}'})"
    )


def totals(
    tree: Released, counted: str, below: Callable[[str | None, str], Iterable[str]]
) -> Iterator[str]:
    """The count of the root under the first keys, and what is said below each.

    Args:
        tree: that was released.
        counted: what it counts.
        below: the lines of a key, from its name and the blanks that represent it.
    """
    shown = min(KEYS_SHOWN, tree.question.key_count)
    for label in tree.question.labels_between(0, shown):
        name = "" if label is None else f"{escaped(label):<8}"
        (total,) = tree.top(1, 0, label)
        yield f"  {name}{counted} {_margin(total)}"
        yield from below(label, " " * len(name))
    if tree.question.key_count > shown:
        yield f"  ... and {tree.question.key_count - shown} more keys"


def largest_line(node: Answer) -> str:
    """The line of one of the largest nodes."""
    return f"    {escaped(node.shown):<20} {_margin(node):>20}"


def _margin(answer: Answer) -> str:
    shown = answer.count if answer.estimate is None else answer.estimate
    return with_margin(shown, answer.ci_low, answer.ci_high, answer.std_error)


# Reason that the estimates of a level have no measurement of their own.
UNMEASURED = "not measured; estimated from the measured levels"
PUBLIC_TOTAL = "public: neighbors have the same number of rows"
CDF_ERRORS = "predicted errors of a CDF point, in rows (root mean square over all cells)"
LEVEL_ERRORS = "predicted errors, root mean square over the nodes of each level, root first"


class Unit(Enum):
    """Unit of a column's values, which decides how they are written."""

    COUNT = "count"  # of nodes or of rows
    ERROR = "error"  # in rows
    AMOUNT = "amount"  # of the budget
    FRACTION = "fraction"  # of the budget
    LAW = "law"  # of `Noise`
    DEVIATION = "deviation"  # of `Noise`, in rows
    TEXT = "text"


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of the nodes of a level.

    Attributes:
        laws: from the least noise to the most; none where nothing is measured.
        exact: whether some of its nodes are public, all of them where there is no law.
        reason: why nothing is measured.
    """

    laws: tuple[NoiseLaw, ...] = ()
    exact: bool = False
    reason: str = UNMEASURED

    @property
    def deviations(self) -> list[float]:
        """Standard deviations, from the least to the most."""
        return sorted({math.sqrt(law.variance) for law in self.laws})


def level_noise(law: NoiseLaw | None, *, public: bool) -> Noise:
    """Return the noise of a level whose nodes are alike.

    Args:
        law: of its nodes.
        public: whether it is the root of a tree whose total is public.
    """
    if law is None:
        return Noise(exact=public, reason=PUBLIC_TOTAL if public else UNMEASURED)
    return Noise(laws=(law,))


class Column(NamedTuple):
    """Column of a table.

    Attributes:
        title: on the page; without one, it is not there.
        values: of each row; None: the row has none.
        unit: of the values.
        phrase: on the terminal, where "{}" is the value; likewise.
        key: of the row's JSON object; likewise.
    """

    title: str
    values: Sequence[Any]
    unit: Unit
    phrase: str = ""
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Table of levels, or of what a mechanism has in their place.

    Attributes:
        columns: all of one length.
        rows: names of the rows; None: they are the levels.
        title: of these names, on the page.
        caption: of the table on the page, before the name of the tree.
        note: what holds of several rows.
        is_open: whether the page shows it beside the numbers, and not folded.
    """

    columns: Sequence[Column] = ()
    rows: Sequence[str] | None = None
    title: str = "Level"
    caption: str = "Noise per level"
    note: str = ""
    is_open: bool = False

    def __len__(self) -> int:
        return len(self.columns[0].values) if self.columns else 0


def levels_table(
    plan: Any, *more: Column, noises: Sequence[Noise] | None = None, note: str = ""
) -> Table:
    """Return the table of a plan that measures levels: what each level has and spends.

    Args:
        plan: with ``tree``, ``level_amounts``, ``budget`` and ``keyed``, and with ``laws`` and
            ``public_total`` unless the noises are given.
        more: what the mechanism adds.
        noises: of the levels; by default each level has one law.
        note: what holds of several rows.
    """
    if noises is None:
        noises = [
            level_noise(law, public=plan.public_total and level == 0)
            for level, law in enumerate(plan.laws)
        ]
    measure, nodes = plan.budget.measure.value, "Nodes of each key" if plan.keyed else "Nodes"
    fractions = [amount / plan.budget.amount for amount in plan.level_amounts]
    columns = (
        Column(nodes, plan.tree.level_sizes, Unit.COUNT, "{:>12} nodes"),
        Column("Part of the budget", fractions, Unit.FRACTION),
        Column(f"Budget ({measure})", plan.level_amounts, Unit.AMOUNT, f"{measure} {{}}", measure),
        Column("Noise", noises, Unit.LAW, key="scale"),
        Column("Noise, standard deviation", noises, Unit.DEVIATION, "std error {}"),
    )
    return Table(columns=(*columns, *more), note=note)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Predicted errors of a plan and of others beside it.

    Attributes:
        heading: what the errors are of.
        rows: the name of a plan, its errors, None where one is not known, and what it is.
        notes: what the errors depend on.
    """

    heading: str = ""
    rows: Sequence[tuple[str, Sequence[float | None], str]] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Description:
    """How a tree is measured, and what that means for its numbers.

    A mechanism gives one for any domain; the domain adds its size and facts.

    Attributes:
        entry: computes the values of ``plan --json`` beside the name and the number of keys, which
            may take a while.
        errors: of these values.
        size: leaves of a tree, in words.
        method: how they are measured, in words that continue the size.
        budget: of the tree, None where the facts state it.
        table: of its levels.
        facts: about the mechanism, by name.
        domain_facts: about the domain, by name, which the size sums up.
        level_names: names of the levels, None where they have none.
        predicted: the error of the tree, in words.
        intervals: what holds of the intervals, after their confidence; None: see the facts.
        notes: how to read the numbers of the tree.
        level_errors: about the largest standard error of each level's estimates, which decides how
            many decimals they have.
        above: lines before the description.
        template: of what the page says of the mechanism alone, from the folder of this package.
    """

    entry: Callable[[], dict[str, Any]]
    errors: Callable[[Mapping[str, Any]], Errors] = lambda entry: Errors()
    size: str = ""
    method: str = ""
    budget: Budget | None = None
    table: Table = field(default_factory=Table)
    facts: Mapping[str, str] = field(default_factory=dict)
    domain_facts: Mapping[str, str] = field(default_factory=dict)
    level_names: Sequence[str] | None = None
    predicted: str = ""
    intervals: str | None = ""
    notes: tuple[Note, ...] = ()
    level_errors: Sequence[float] = ()
    above: tuple[str, ...] = ()
    template: str = ""

    @property
    def digits(self) -> list[int]:
        """Decimals of each level's estimates."""
        return [error_digits(error) for error in self.level_errors]


def plain_description(question: Question) -> Description:
    """Describe the plan of a tree whose kind has no description of its own."""
    return Description(
        entry=lambda: {"plan": question.law_spec()},
        size=f"a tree of kind {question.kind} of {', '.join(question.columns)}",
        budget=question.budget,
        table=Table(is_open=True),
    )


def entry_description(question: Any) -> Description:
    """Describe the plan of a mechanism without a description of its own, by its entry in the
    manifest.

    Args:
        question: a tree of known leaves.
    """
    mechanism = question.mechanism
    tree = getattr(question.domain, "tree", None)
    entry = mechanism.entry(getattr(tree, "level_names", None))
    levels = entry.get("levels", ())
    keys = dict.fromkeys(key for level in levels for key in level if key not in ("level", "name"))
    columns = []
    for key in keys:
        values = [level.get(key) for level in levels]
        unit = Unit.COUNT if all(isinstance(value, int) for value in values) else Unit.TEXT
        if unit is Unit.TEXT:
            values = [None if value is None else _in_words(value) for value in values]
        columns.append(Column(_words(key).capitalize(), values, unit, f"{_words(key)} {{}}"))
    facts = {key: _in_words(value) for key, value in entry.items() if key != "levels"}
    return Description(
        entry=lambda: dict(entry),
        budget=mechanism.plan.budget,
        table=Table(columns=columns),
        facts={_words(key).capitalize(): fact for key, fact in facts.items()},
        notes=consistent_count(ADDS_UP),
        # One decimal; errors are in the tables alone.
        level_errors=[1.0] * (mechanism.plan.tree.height + 1),
    )


def _words(key: str) -> str:
    return key.replace("_", " ")


def _in_words(value: object) -> str:
    """A value of an entry of the manifest."""
    if isinstance(value, Mapping):
        return ", ".join(f"{_words(key)} {_in_words(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return "; ".join(map(_in_words, value))
    return str(value)


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


def described_page(
    release: ReleasedTables,
    question: Question,
    description: Description,
    said: Mapping[str, Any],
    *,
    rows: int | None = None,
    **parts: Any,
) -> TreePage:
    """Return a tree on the page, with what the page says of every tree and its plan.

    Args:
        release: that it is a tree of.
        question: the tree.
        description: of its plan.
        said: what its template says beside that.
        rows: how many rows of the table of levels are shown, None: all.
        parts: other fields of the page; by default scripts read the kind alone, and the notes are
            the description's.
    """
    name, confidence = clip(question.name), percent(question.confidence)
    plan = page_values(question, description, release.plan.budget, rows)
    return TreePage(
        said={"name": name, "confidence": confidence, **said, **plan},
        **{"data": {"kind": question.kind}, "notes": description.notes} | parts,
    )


# Rows of a tree that is shown as its table.
_ROWS = 1_000


def plain_page(
    release: ReleasedTables, question: Question, description: Description, room: PageRoom
) -> TreePage:
    """The first rows of the table of nodes, column by column as they were released, of a kind
    without a page of its own."""
    most = _ROWS // room.trees
    parts: list[pa.Table] = []
    for batch in release.batches(NODES, question.name):
        if sum(map(len, parts)) < most:
            parts.append(pa.Table.from_batches([batch]))
    rows = pa.concat_tables(parts).slice(0, most)
    said = {
        "columns": ", ".join(map(clip, question.columns)),
        "titles": rows.column_names,
        "rows": [[_text(value) for value in row.values()] for row in rows.to_pylist()],
        "policies": [],
    }
    return described_page(release, question, description, said, template="plain/page.html.j2")


def _text(value: Any) -> str:
    if value is None:
        return "–"  # noqa: RUF001 - as the page writes what is not there
    return f"{value:,.6g}" if isinstance(value, float) else clip(str(value))


def _cell(column: Column, place: int) -> str:
    value = column.values[place]
    return "" if value is None else _PAGE[column.unit](value)
