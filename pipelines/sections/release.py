"""The section that is the whole file of a configuration, with trees of the registered kinds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Union

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    PlainValidator,
    Tag,
    create_model,
)
from pydantic import model_validator as section_rule
from typing_extensions import Self

from dptrees.dpcore.series.runs import check_late_rows, check_whole_units
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.kinds import DEFAULT_KIND, KINDS
from dptrees.pipelines.ledger.url import LedgerUrl
from dptrees.pipelines.sections import rules
from dptrees.pipelines.sections.error import RuleBroken, unknown_key
from dptrees.pipelines.sections.privacy import PrivacySection
from dptrees.pipelines.sections.report import ReportSection
from dptrees.pipelines.sections.section import Name, Section, Text
from dptrees.pipelines.sections.series import SeriesSection
from dptrees.pipelines.sections.tree import TreeSection
from dptrees.pipelines.tables.any_input import AnyInput

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
