"""The model of a whole configuration file: its sections and trees, and its JSON Schema."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from itertools import combinations
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    create_model,
)
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.series.runs import Lateness, Series, check_late_rows, check_whole_units
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.config.registry import DEFAULT_KIND, KINDS
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.document import RuleBroken, shown, unknown_key
from dptrees.pipelines.sections.input import AnyInput
from dptrees.pipelines.sections.privacy import PrivacySection
from dptrees.pipelines.sections.rules import Name, Section, Text
from dptrees.pipelines.sections.tree import (
    DEFINITIONS,
    Schema,
    TreeSection,
    rule_schema,
    section,
    several,
    words,
)
from dptrees.pipelines.sections.values import LedgerUrl
from dptrees.pipelines.terminal_text import print_line

_LONGEST = 200


def _line(value: object) -> str:
    """A line of text."""
    line = rules.text(value)
    if len(line) > _LONGEST or not line.isprintable():
        raise RuleBroken(f"{shown(line)} must be one line of at most {_LONGEST} characters")
    return line


def _date(value: object) -> str:
    """A day, or how else a time is said."""
    return value.isoformat() if isinstance(value, (date, datetime)) else _line(value)


Line = Annotated[str, PlainValidator(_line)]


class ColumnSection(Section):
    """What a column is called on the page and in drawings, in place of its name."""

    label: Line | None = None
    unit: Line | None = None

    @section_rule(mode="after")
    def _not_empty(self) -> Self:
        if self.label is None and self.unit is None:
            raise RuleBroken("must hold label or unit")
        return self


class ReportSection(Section):
    """What the page of a release says of its data. It is public, and in the manifest as it is
    here; what it says of columns as one string of JSON."""

    title: Line | None = None
    source: Line | None = None
    contact: Line | None = None
    date: Annotated[str | None, PlainValidator(_date)] = None
    columns: Annotated[dict[str, ColumnSection], BeforeValidator(rules.section)] = Field(
        default_factory=dict
    )

    @section_rule(mode="after")
    def _not_empty(self) -> Self:
        if not self.texts:
            raise RuleBroken("must hold title, source, contact, date or columns")
        return self

    @property
    def texts(self) -> Mapping[str, str]:
        """The strings of the section by name, without the absent ones."""
        texts: dict[str, str] = self.model_dump(exclude_none=True, exclude={"columns"})
        if self.columns:
            named = {
                name: each.model_dump(exclude_none=True) for name, each in self.columns.items()
            }
            texts["columns"] = json.dumps(named, ensure_ascii=False, sort_keys=True)
        return texts


def _day(value: object) -> date | None:
    """A day, written as one or as a text; None where it is none."""
    if isinstance(value, datetime):
        return None
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _start(value: object) -> date:
    day = _day(value)
    if day is None:
        raise RuleBroken(f"{shown(value)} must be a date such as 2013-01-01")
    return day


def _period(value: object) -> int | date:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        return int(value)
    day = _day(value)
    if day is None:
        raise RuleBroken(
            f"{shown(value)} must be a whole number, or a date such as 2013-01-05 beside start"
        )
    return day


PER_PERIOD, PER_SERIES = "per_period", "per_series"
_WANTED = ("totals", "windows", "periods")


class LatenessSection(Section):
    """Which rows of earlier days are counted in a period."""

    column: Text
    periods: Annotated[int, PlainValidator(rules.whole_number)]

    @section_rule(mode="after")
    def _check_periods(self) -> Self:
        if self.periods < 0:
            raise RuleBroken(f"{self.periods} is below 0", at=".periods")
        return self


class SeriesSection(Section):
    """The runs that one budget is for, and which of them is made."""

    periods: Annotated[int, PlainValidator(rules.whole_number)]
    period: Annotated[int | date, PlainValidator(_period)]
    start: Annotated[date | None, PlainValidator(_start)] = None
    fanout: Annotated[int | None, PlainValidator(rules.whole_number)] = None
    unit: Annotated[str, PlainValidator(rules.choice(PER_PERIOD, PER_SERIES))] = PER_PERIOD
    max_periods: Annotated[int | None, PlainValidator(rules.whole_number)] = None
    lateness: LatenessSection | None = None
    optimize_for: Annotated[str, PlainValidator(rules.choice(*_WANTED))] = _WANTED[0]
    window: Annotated[int | None, PlainValidator(rules.whole_number)] = None

    @section_rule(mode="after")
    def _check_series(self) -> Self:
        if isinstance(self.period, date) and self.start is None:
            raise RuleBroken(
                "is required if the period is a date: the date of period 1", at=".start"
            )
        if self.lateness is not None and self.start is None:
            raise RuleBroken("is required with lateness: the day of period 1", at=".start")
        if self.max_periods is not None and self.unit == PER_PERIOD:
            raise RuleBroken(
                "goes with unit: per_series; a unit of one period is counted in every period",
                at=".max_periods",
            )
        if (self.window is not None) != (self.optimize_for == "windows"):
            raise RuleBroken("goes with optimize_for: windows, and is their length", at=".window")
        try:
            _ = self.series
        except Refusal as refusal:
            is_day = refusal.field == "period" and isinstance(self.period, date)
            day = f"{self.period} is period {self.number}, and " if is_day else ""
            raise RuleBroken(f"{day}{refusal.rule}", at=f".{refusal.field}") from None
        return self

    @property
    def number(self) -> int:
        """The period, from 1 on; a date is the day that it is, counted from the start."""
        if isinstance(self.period, int):
            return self.period
        assert self.start is not None
        return (self.period - self.start).days + 1

    @property
    def series(self) -> Series:
        """The runs.

        Raises:
            Refusal: a number out of range.
        """
        return Series(
            periods=self.periods,
            period=self.number,
            fanout=self.fanout,
            max_periods=self._max_periods,
            lateness=self._lateness,
            window=1 if self.optimize_for == "periods" else self.window,
        )

    @property
    def _lateness(self) -> Lateness | None:
        if self.lateness is None or self.start is None:
            return None
        return Lateness(
            column=self.lateness.column,
            start=self.start.isoformat(),
            periods=self.lateness.periods,
        )

    @property
    def _max_periods(self) -> int | None:
        """In how many periods a unit is counted, where all its rows are protected together."""
        if self.unit == PER_PERIOD:
            return None
        return self.periods if self.max_periods is None else self.max_periods


DEFAULT_CONFIDENCE = 0.95


class ReleaseSection(Section):
    """The whole file."""

    release: Name
    input: AnyInput
    output: Text
    key_file: Annotated[str | None, PlainValidator(rules.key_file)] = None
    key: Annotated[str | None, PlainValidator(rules.key_reference)] = None
    signing_key: Annotated[str | None, PlainValidator(rules.signing_key)] = None
    confidence: Annotated[float, PlainValidator(rules.confidence)] = DEFAULT_CONFIDENCE
    privacy: PrivacySection
    ledger: Annotated[LedgerUrl | None, PlainValidator(rules.ledger_url)] = None
    dataset: Name | None = None
    series: SeriesSection | None = None
    report: ReportSection | None = None
    trees: tuple[TreeSection, ...]
    # Checked by `pipelines.sections.parameters`, before what they are put into.
    parameters: Any = None

    @section_rule(mode="after")
    def _one_key(self) -> Self:
        rules.exactly_one(key_file=self.key_file, key=self.key)
        return self

    @section_rule(mode="after")
    def _dataset_of_ledger(self) -> Self:
        if self.dataset is not None and self.ledger is None:
            raise RuleBroken("goes with ledger, which has the data set", at=".dataset")
        return self

    @section_rule(mode="after")
    def _columns_of_trees(self) -> Self:
        """A column with a label is one of a tree."""
        named = {} if self.report is None else self.report.columns
        if not named:
            return self
        known = {column for tree in self.trees for column in _columns_of(tree)}
        for column in named:
            if column not in known:
                raise RuleBroken(unknown_key(column, known), at=f".report.columns.{column}")
        return self

    @section_rule(mode="after")
    def _units_of_series(self) -> Self:
        if self.series is None:
            return self
        runs, unit = self.series.series, self.privacy.privacy_unit
        try:
            if runs.max_periods is not None:
                check_whole_units(unit)
            if runs.lateness is not None:
                check_late_rows(unit)
        except Refusal as refusal:
            raise RuleBroken(refusal.rule, at=f".series.{refusal.field}") from None
        return self

    @section_rule(mode="after")
    def _units_to_date(self) -> Self:
        """Units to date are counted in a series that knows them."""
        of_all_periods = self.series is not None and self.series.unit == PER_SERIES
        for number, tree in enumerate(self.trees):
            if not getattr(tree, "to_date", False):
                continue
            at, column = f".trees[{number}].to_date", tree.domain.column
            if not of_all_periods:
                raise RuleBroken("needs a series with unit: per_series, which knows its units", at)
            if self.privacy.privacy_unit.columns != (column,):
                raise RuleBroken(
                    f"counts privacy units, and {column} is not the unit; leave it out, and the "
                    "values of each period are counted",
                    at,
                )
        if self._only_new_units and self.series is not None and self.series.max_periods is not None:
            raise RuleBroken(
                "has no effect: to_date counts each unit in one period", at=".series.max_periods"
            )
        return self

    @property
    def _only_new_units(self) -> bool:
        return all(getattr(tree, "to_date", False) for tree in self.trees)

    @property
    def runs(self) -> Series | None:
        """The runs of the series; a unit counts in one of them if all trees count it to date."""
        if self.series is None or not self._only_new_units:
            return None if self.series is None else self.series.series
        return replace(self.series.series, max_periods=1)

    @section_rule(mode="after")
    def _bounds_of_keys(self) -> Self:
        """Kinds without a group-by have no section of one."""
        has_keys = any(getattr(tree, "group_by", None) is not None for tree in self.trees)
        for bound in ("max_keys", "max_rows_per_key"):
            if getattr(self.privacy, bound) is not None and not has_keys:
                raise RuleBroken("has no effect: no tree has group_by", at=f".privacy.{bound}")
        return self


def _columns_of(tree: TreeSection) -> set[str]:
    """The columns that a tree is about."""
    by, measure = getattr(tree, "group_by", None), getattr(tree, "measure", None)
    found = {*tree.domain.columns, *(() if by is None else by.names)}
    return found | (set() if measure is None else {measure.column})


def release_section(kinds: Collection[str]) -> type[ReleaseSection]:
    """The section of the file whose trees are of these kinds.

    Args:
        kinds: at least one; the sections of no others are imported.
    """
    sections = {name: load() for name, load in _tree_sections().items() if name in kinds}
    tree: Any = next(iter(sections.values()))
    if len(sections) > 1:
        tagged = tuple(Annotated[each, Tag(_tag(name))] for name, each in sections.items())
        tree = Annotated[
            Union[tagged],  # noqa: UP007 - of as many as there are
            Discriminator(lambda given: _tag(str(_domain_kind(given)))),
        ]
    tree = Annotated[tree, BeforeValidator(_known_kind)]
    trees: Any = Annotated[
        tuple[tree, ...], BeforeValidator(rules.several), AfterValidator(_distinct_names)
    ]
    return create_model("ReleaseSection", __base__=ReleaseSection, trees=(trees, ...))


def all_kinds() -> Collection[str]:
    """The kinds of trees that a configuration can request."""
    return _tree_sections().keys()


def kinds_in(values: object) -> Collection[str]:
    """The kinds of the trees of a file that is not checked yet; the default where none is known."""
    trees = values.get("trees") if isinstance(values, Mapping) else None
    named = [_domain_kind(tree) for tree in trees] if isinstance(trees, list) else []
    return {name for name in _tree_sections() if name in named} or {DEFAULT_KIND}


def _tree_sections() -> dict[str, Callable[[], type[TreeSection]]]:
    """What imports the sections of trees, by the names of their kinds."""
    return {name: kind.section for name, kind in KINDS.items() if kind.section is not None}


def _tag(kind: str) -> str:
    """What pydantic calls the section of a kind; `key_path` leaves it out."""
    return f"<{kind}>"


def _domain_kind(tree: object) -> object:
    """Return the kind of a tree's domain, known or not."""
    domain = tree.get("domain") if isinstance(tree, Mapping) else None
    return domain.get("kind", DEFAULT_KIND) if isinstance(domain, Mapping) else DEFAULT_KIND


def _known_kind(tree: object) -> object:
    rules.at(".domain.kind", rules.choice(*_tree_sections()), _domain_kind(tree))
    return tree


def _distinct_names(trees: tuple[TreeSection, ...]) -> tuple[TreeSection, ...]:
    names = [tree.name for tree in trees]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RuleBroken(f"{name} is the name of an earlier tree too", at=f"[{index}].name")
    return trees


# One of each family of types that a reader gives.
_TYPES = (
    pa.int64(),
    pa.float64(),
    pa.decimal128(18, 2),
    pa.string(),
    pa.binary(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", tz="UTC"),
    pa.time64("us"),
    pa.duration("us"),
)


def check_shared_columns(questions: Sequence[Question]) -> None:
    """Refuse trees that read one column as incompatible types.

    Args:
        questions: of the trees, in their order.

    Raises:
        RuleBroken: at the later one of two trees, below the list of trees.
    """
    readers: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        for column in question.columns:
            readers.setdefault(column, []).append(index)
    for column, trees in readers.items():
        if len(trees) > 1:  # the check of a tree of millions of labels takes a while
            _check_column(column, {index: _refused(questions[index], column) for index in trees})


def _check_column(column: str, refused: Mapping[int, Mapping[pa.DataType, str]]) -> None:
    """Refuses two trees that read a column as no type in common.

    Args:
        column: by its name.
        refused: the types that each tree does not read it as, with what it says of them.
    """
    for (first, others), (index, own) in combinations(refused.items(), 2):
        if all(type in own or type in others for type in _TYPES):
            raise RuleBroken(
                f"no type of the column {column!r} serves this tree and trees[{first}]: here "
                f"{_needed(own.values())}, there {_needed(others.values())}",
                at=f"[{index}]",
            )


def _refused(question: Question, column: str) -> dict[pa.DataType, str]:
    """The types that a tree does not read a column as, with what it says of them; none where it
    says so of all, since then another column is at fault."""
    refused = dict(_refusals(question, column))
    return {} if len(refused) == len(_TYPES) else refused


def _refusals(question: Question, column: str) -> Iterator[tuple[pa.DataType, str]]:
    for type in _TYPES:
        try:
            question.check_types(dict.fromkeys(question.columns, pa.null()) | {column: type})
        except ValueError as error:
            yield type, str(error)


def _needed(sentences: Iterable[str]) -> str:
    """What a tree needs, from one of its refusals."""
    return next(iter(sentences)).rpartition(", but ")[2].removesuffix(".")


def section_schema(model: type[BaseModel]) -> Schema:
    """The schema of a section.

    Args:
        model: its class.
    """
    fields = {each.alias or name: each for name, each in model.model_fields.items()}
    required = tuple(name for name, field in fields.items() if field.is_required())
    known = {name: _value(field.annotation, field.metadata) for name, field in fields.items()}
    return section(known, required, (inspect.getdoc(model) or "").partition("\n\n")[0])


def _value(type: Any, metadata: Sequence[Any]) -> Schema:
    """What a field takes, by what is annotated, else by its type."""
    for each in metadata:
        if isinstance(each, WithJsonSchema):
            return dict(each.json_schema or {})
    type = _given(type)
    for each in metadata:
        if isinstance(each, PlainValidator):
            return rule_schema(each.func, type)
    items = _type_schema(type)
    alone = any(
        isinstance(each, BeforeValidator) and each.func is rules.one_or_several for each in metadata
    )
    return {"anyOf": [items["items"], items]} if alone and "items" in items else items


def _given(type: Any) -> Any:
    """A type without None: a key that is there has a value."""
    if get_origin(type) in (Union, types.UnionType):
        left = [each for each in get_args(type) if each is not types.NoneType]
        return left[0] if len(left) == 1 else type
    return type


def _type_schema(type: Any) -> Schema:
    origin, arguments = get_origin(type), get_args(type)
    if origin is Annotated:
        return _value(arguments[0], arguments[1:])
    if origin is tuple:
        return several(_type_schema(arguments[0]))
    if origin is Literal:
        return words(*map(str, arguments))
    if origin in (Union, types.UnionType):
        return {"anyOf": [_type_schema(each) for each in arguments]}
    if inspect.isclass(type) and issubclass(type, BaseModel):
        return section_schema(type)
    return rule_schema(_anything, type)


def _anything(value: object) -> object:
    return value


def configuration_schema() -> str:
    """The schema as the text of a file, the same on every machine."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of a release of dptrees",
        "$defs": DEFINITIONS,
    }
    return json.dumps(head | section_schema(release_section(all_kinds())), indent=1) + "\n"


def run_schema() -> int:
    """Prints the schema."""
    for line in configuration_schema().splitlines():
        print_line(line)
    return 0
