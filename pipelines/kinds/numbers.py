"""Trees that release single numbers of each key: distinct values, a mean, quantiles alone.

Means and quantiles are trees over ordered domains, whose sections request them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PlainValidator, WithJsonSchema
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.exponential.question import (
    INTERVAL_WORDS,
    WORDS,
    ExponentialQuestion,
    ReleasedQuantiles,
)
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, MAX_COUNT
from dptrees.dpcore.numbers import (
    DistinctDomain,
    DistinctQuestion,
    DistinctWorkload,
    MeanQuestion,
    NumberQuestion,
    ReleasedDistinct,
    ReleasedMean,
)
from dptrees.dpcore.ordered.domain_kinds import NewUnitsDomain
from dptrees.dpcore.privacy.unit import MOST_ROWS
from dptrees.dpcore.questions.planning import Noise, Workload
from dptrees.dpcore.questions.released import StatisticKind
from dptrees.pipelines.kinds.ordered import cells_in_words, ordered_description
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, from_dpcore
from dptrees.pipelines.sections.tree import TEXT, KnownLeavesSection, rules_schema, words
from dptrees.pipelines.show.answers import counted_values
from dptrees.pipelines.show.charts import capitalized
from dptrees.pipelines.show.description import (
    KEYS_SHOWN,
    Column,
    Description,
    Errors,
    Table,
    Unit,
    described_page,
    heading,
    level_noise,
    totals,
)
from dptrees.pipelines.show.figures import (
    counted_noun,
    quantile_texts,
    rank_margin,
    significant,
    with_margin,
)
from dptrees.pipelines.show.mechanisms import ErrorTarget, KindLines
from dptrees.pipelines.show.page_nodes import (
    MAX_KEYS,
    MAX_QUANTILES,
    ReleasedTables,
    clip,
    count_bars,
    largest_rows,
    left_out,
    quantile_table,
    rows_text,
)
from dptrees.pipelines.show.tree_page import (
    CELL_POLICIES,
    DROPPED,
    Headline,
    PageRoom,
    TreePage,
    policies,
)
from dptrees.pipelines.terminal_text import escaped

_TYPES = ("text", "integer", "number")


_RULES: dict[str, Callable[[object], Any]] = {
    "kind": rules.choice("distinct"),
    "column": rules.text,
    "type": rules.choice(*_TYPES),
}
_SCHEMA = rules_schema(_RULES, "distinct", column=TEXT, type=words(*_TYPES))


def read_distinct(value: object) -> DistinctDomain:
    """Make the column whose values are counted of the plain values of a section.

    Raises:
        RuleBroken: at the key whose rule is broken.

    >>> read_distinct({"kind": "distinct", "column": "city"}).column
    'city'
    """
    given = rules.fields(value, _RULES)
    if "column" not in given:
        raise RuleBroken("is required", at=".column")
    try:
        return DistinctDomain(**given)
    except ValueError as error:
        raise from_dpcore(error, given) from None


class DistinctTree(KnownLeavesSection):
    """How many different values a column has, once for each of the keys."""

    refused: ClassVar[Mapping[str, str]] = {
        "domain": "domain",
        "noise": "noise",
        "max_values": "max_values",
    }
    misplaced: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("quantiles", "guess", "widths", "fanouts", "objective", "optimize_for", "mechanism"),
            "belongs to an ordered domain; the different values of a column are one number",
        ),
        **dict.fromkeys(("measure", "invariants", "node_weights"), "belongs to a hierarchy"),
    }
    domain: Annotated[DistinctDomain, PlainValidator(read_distinct), WithJsonSchema(_SCHEMA)]

    max_values: Annotated[int | None, PlainValidator(rules.Whole(1, MOST_ROWS))] = None
    to_date: Annotated[bool, PlainValidator(rules.truth)] = False

    @section_rule(mode="after")
    def _check_to_date(self) -> Self:
        for key in ("group_by", "max_values"):
            if self.to_date and getattr(self, key) is not None:
                raise RuleBroken("has no effect: to_date counts each unit once", at=f".{key}")
        if self.to_date and self.domain.type != "text":
            raise RuleBroken(
                "has no effect beside to_date; say privacy.unit_type", at=".domain.type"
            )
        return self

    def counts_units(self, unit: tuple[str, ...]) -> bool:
        return (self.domain.column,) == unit

    def workload(self) -> Workload[Any]:
        if self.to_date:
            return OrderedWorkload(
                name=self.name,
                domain=NewUnitsDomain(column=self.domain.column),
                weight=self.weight,
                noise=Noise(self.noise),
            )
        return DistinctWorkload(
            name=self.name,
            domain=self.domain,
            keys=self.keys,
            max_values=self.max_values,
            weight=self.weight,
            noise=Noise(self.noise),
        )


BOUNDED = (
    "a value counts if it is among the counted values of at least one unit; the number of "
    "dropped values is not known"
)


def plan_of_number(question: NumberQuestion, error: str) -> dict[str, Any]:
    """Return the plan as plain values.

    Args:
        question: the tree.
        error: the name of the standard error of its number.
    """
    bounds = question.facts({"noise": exact_scale(question.law)})
    return {"mechanism": question.mechanism, **bounds, error: question.std_error}


def number_target(target: ErrorTarget) -> dict[str, Any]:
    """Return the budget of the tree alone for an error, in the unit of its workload."""
    unit = target.section.workload().resolved(target.question).error_unit
    assert unit is not None
    return target.to_entry(unit)


def noise_table(question: NumberQuestion, row: str, *, title: str, of: str = "") -> Table:
    """The table of a plan whose numbers have noise of one law."""
    noise = [level_noise(question.law, public=False)]
    columns = (
        Column(f"Noise{of}", noise, Unit.LAW),
        Column("Noise, standard deviation", noise, Unit.DEVIATION, "std error {}"),
    )
    return Table(columns=columns, rows=[row], title=title, caption="Noise")


def distinct_description(question: DistinctQuestion) -> Description:
    """Describe the plan of a number of different values: the bound and the noise."""
    is_row = question.unit.is_row
    return Description(
        entry=lambda: plan_of_number(question, "std_error"),
        errors=lambda entry: Errors(notes=() if is_row else (BOUNDED,)),
        size=f"the number of different values of {clip(question.domain.column)}",
        budget=question.budget,
        table=noise_table(question, "different values", title="Number"),
        facts={} if is_row else {"Values that count": values_in_words(question)},
    )


def values_in_words(question: DistinctQuestion) -> str:
    """How many values of a unit count."""
    most = question.max_values
    values = f"{most:,} value{'s' * (most > 1)}"
    if question.keys is not None:
        values += ", over all keys,"
    return f"at most {values} of each {question.unit.name}"


def distinct_summary(tree: ReleasedDistinct) -> Iterator[str]:
    """The number of different values under the first keys."""
    yield from heading(tree.question, tree.question.columns)
    yield from totals(tree, counted_noun(tree.question), lambda label, blanks: ())
    if not tree.question.unit.is_row:
        yield f"  {values_in_words(tree.question)} count"


DISTINCT_LINES = KindLines(
    describe=distinct_description, target=number_target, summary=distinct_summary
)


def distinct_tree(release: ReleasedTables, question: DistinctQuestion, room: PageRoom) -> TreePage:
    """The number of different values, of the first keys where there are keys."""
    rows = ReleasedDistinct(question, release.part).rows
    noun, bars = clip(counted_noun(question)), None
    if question.keys is not None:
        shown = largest_rows(rows, max(1, MAX_KEYS // room.trees))
        bars = count_bars(
            question,
            "key",
            shown,
            shown["key"].to_pylist(),
            name=clip(", ".join(question.keys.columns)),
            counted=capitalized(noun),
            note=left_out(len(shown), len(rows), "keys", "largest"),
        )
    said = {
        "number": rows_text(rows),
        "noun": noun,
        "key_bars": bars,
        "bounded": "" if question.unit.is_row else f"{values_in_words(question)}: {BOUNDED}.",
        "policies": [
            {**row, "missing": row["missing"] or DROPPED} for row in policies(question, {})
        ],
    }
    return described_page(
        release,
        question,
        distinct_description(question),
        said,
        template="distinct/page.html.j2",
        headline=_headline(question, rows, noun),
    )


def _headline(question: DistinctQuestion, rows: pa.Table, noun: str) -> Headline:
    """The number; that of the key with most where there are keys."""
    if question.keys is None:
        return Headline(figure=rows_text(rows), label=noun)
    most = largest_rows(rows, 1)
    label = f"{noun} of {clip(most['key'][0].as_py())}, the largest of {len(rows):,} keys"
    return Headline(figure=rows_text(most), label=label)


_ALONE = "no tree of counts is measured, so there are no quantiles and no other statistics"


def mean_description(question: MeanQuestion) -> Description:
    """Describe the plan of a mean: its error times the number of rows."""
    middle, at_bound = significant(question.error), significant(math.sqrt(2) * question.error)
    notes = (
        f"standard error of a mean: {middle} / rows in the middle of the bounds, {at_bound} / "
        "rows at a bound",
        *_rows_held(question.row_parts),
        _ALONE,
    )
    noise = [level_noise(question.law, public=False)]
    return Description(
        entry=lambda: plan_of_number(question, "std_error_rows"),
        errors=lambda entry: Errors(notes=notes),
        size=f"the mean of {clip(question.domain.column)}, measured alone",
        budget=question.budget,
        table=Table(
            columns=(
                Column("Noise of a part", noise, Unit.LAW),
                Column("Standard error", [question.std_error], Unit.ERROR, "std error {}"),
            ),
            rows=["number of rows"],
            title="Number",
            caption="Noise",
        ),
    )


def _rows_held(parts: int) -> Iterator[str]:
    """How many rows the sums hold, if a table may have more."""
    if (held := LARGEST_DIVIDED // parts) < MAX_COUNT:
        yield f"its sums hold {held:,} rows at a bound; a release of more stops without a result"


def mean_summary(tree: ReleasedMean) -> Iterator[str]:
    """The number of rows and the mean of the first keys."""

    def mean(label: str | None, blanks: str) -> Iterator[str]:
        yield f"  {blanks}mean {mean_text(tree, label)}"

    (column,), counted = tree.question.domain.columns, counted_values(tree)
    yield from heading(tree.question, [column if counted is None else f"{column}: {counted}"])
    yield from totals(tree, counted_noun(tree.question), mean)


def mean_text(tree: ReleasedMean, label: str | None) -> str:
    """The mean under a key with its margin; why there is none where rows are too few."""
    try:
        found = tree.statistic(StatisticKind.MEAN, key=label)
    except ValueError:
        return "not known: too few rows"
    return with_margin(found.value, found.ci_low, found.ci_high)


MEAN_LINES = KindLines(describe=mean_description, target=number_target, summary=mean_summary)


# Keys whose means are together at the top of the page.
_FEW_KEYS = 3


def mean_tree(release: ReleasedTables, question: MeanQuestion, room: PageRoom) -> TreePage:
    """The mean, the total and the number of rows, of the keys with most rows."""
    tree = ReleasedMean(question, release.part)
    shown = largest_rows(tree.rows, max(1, MAX_KEYS // room.trees))
    labels: list[str | None] = shown["key"].to_pylist()
    titles = [capitalized(clip(counted_noun(question))), "Mean", "Total"]
    rows = [_values(tree, label) for label in labels]
    if question.keys is not None:
        titles = [clip(", ".join(question.keys.columns)), *titles]
        rows = [[clip(str(label)), *row] for label, row in zip(labels, rows, strict=True)]
    said = {
        "values": {"titles": titles, "rows": rows},
        "counted": counted_values(tree),
        "left_out": left_out(len(shown), question.key_count, "keys", "largest"),
        "policies": list(policies(question, CELL_POLICIES)),
    }
    return described_page(
        release,
        question,
        mean_description(question),
        said,
        template="mean/page.html.j2",
        headline=_mean_headline(tree),
    )


def _values(tree: ReleasedMean, label: str | None) -> list[str]:
    """The number of rows, the mean and the total under a key, each with its margin."""
    rows = tree.at_path("", label)
    total = tree.statistic(StatisticKind.TOTAL, key=label)
    return [
        with_margin(rows.estimate or 0.0, rows.ci_low, rows.ci_high, rows.std_error),
        mean_text(tree, label),
        with_margin(total.value, total.ci_low, total.ci_high),
    ]


def _mean_headline(tree: ReleasedMean) -> Headline:
    """The means of all keys; where these are many that of the key with most rows."""
    question = tree.question
    label, counted = f"mean of {clip(question.domain.column)}", counted_values(tree)
    if question.keys is None:
        label += f": {counted}" if counted else ""
        return Headline(figure=mean_text(tree, None), label=label)
    if question.key_count <= _FEW_KEYS:
        named = largest_rows(tree.rows, _FEW_KEYS)["key"].to_pylist()
        figure = " \u00b7 ".join(_short(mean_text(tree, each)) for each in named)
        label = f"means of {clip(question.domain.column)}: {', '.join(map(clip, named))}"
        return Headline(figure=figure, label=label)
    most = largest_rows(tree.rows, 1)["key"][0].as_py()
    label += f" of {clip(most)}, the largest of {question.key_count:,} keys"
    return Headline(figure=mean_text(tree, most), label=label)


def _short(text: str) -> str:
    """A mean without its margin; a dash for one that is not known."""
    return text.partition(" ")[0] if text[:1].isdigit() or text[:1] == "-" else "\u2013"


def exponential_summary(tree: ReleasedQuantiles) -> Iterator[str]:
    """The quantiles of the first keys."""
    question = tree.question
    yield ""
    what = "ranks are within so many rows" if question.interval_reach is None else "intervals hold"
    yield (
        f"{question.name} ({', '.join(question.columns)}; {what} with "
        f"{100 * question.confidence:g} %)"
    )
    shown = min(KEYS_SHOWN, question.key_count)
    for label in question.labels_between(0, shown):
        name = "" if label is None else f"{escaped(label):<8}"
        for row, margin in zip(tree.quantiles(label), question.rank_margins, strict=True):
            value, span = quantile_texts(row)
            off = f"its rank within {rank_margin(*margin)}"
            if question.interval_reach is not None:
                off = f"[{span}]"
            yield f"  {name}{100 * row['q']:>6g} %  {escaped(value):>10}  {off}"
            name = " " * len(name)
    if question.key_count > shown:
        yield f"  ... and {question.key_count - shown} more keys"


EXPONENTIAL_LINES = KindLines(describe=ordered_description, summary=exponential_summary)


def exponential_tree(
    release: ReleasedTables, question: ExponentialQuestion, room: PageRoom
) -> TreePage:
    """The quantiles of the first keys, and the choices that they came from."""
    table = release.quantiles()
    assert table is not None
    wanted = question.quantiles[: MAX_QUANTILES // room.trees]
    keys = min(question.key_count, max(1, MAX_QUANTILES // room.trees // len(wanted)))
    mine = table.filter(pc.equal(table["tree"].cast(pa.string()), question.name))
    rows = question.domain.quantiles_in_words(mine.to_pylist())
    texts = [_text(row) for row in rows]
    every = len(question.quantiles)
    of_key = [texts[key * every : (key + 1) * every][: len(wanted)] for key in range(keys)]
    said = {
        "about": cells_in_words(question),
        "values": quantile_table(
            question,
            wanted,
            question.labels_between(0, keys),
            of_key,
            "Value" if question.interval_reach is None else "Value, and its interval",
        ),
        "left_out": left_out(keys, question.key_count, "keys"),
        "words": WORDS if question.interval_reach is None else f"{WORDS} {INTERVAL_WORDS}",
        "policies": list(policies(question, CELL_POLICIES)),
    }
    return described_page(
        release,
        question,
        ordered_description(question),
        said,
        rows=len(wanted),
        template="exponential/page.html.j2",
        headline=_exponential_headline(question, rows[: len(wanted)]),
    )


def _exponential_headline(
    question: ExponentialQuestion, shown: list[dict[str, Any]]
) -> Headline | None:
    """The median, or else the first quantile; of keys none, nor of a median that is cut off."""
    place = question.quantiles.index(0.5) if 0.5 in question.quantiles else 0
    if question.keys is not None or place >= len(shown):
        return None
    column = clip(question.domain.column)
    name = "median" if 0.5 in question.quantiles else f"{question.quantiles[0]:.6g}-quantile"
    figure, _ = quantile_texts(shown[place])
    return Headline(figure=clip(figure), label=f"{name} of {column}")


def _text(row: Mapping[str, Any]) -> str:
    """A value, with its interval where it has one."""
    value, span = quantile_texts(row)
    return clip(value if row["ci_low_text"] is None else f"{value} [{span}]")
