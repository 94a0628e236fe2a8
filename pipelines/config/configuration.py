"""The configuration of a release: a YAML file, checked, and the plan that it leads to.

Every key is described in docs/configuration. Budgets and weights become exact fractions. Nothing
here reads data or loads the release key, and neither Beam nor SciPy is imported, so that
`dptrees plan` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dptrees.dpcore.choices.key_selection import KeyColumns
from dptrees.dpcore.privacy.unit import Neighbors, PrivacyUnit
from dptrees.dpcore.questions.planning import Workload
from dptrees.dpcore.release.composition import Guarantee, TreeRefused, plan_release
from dptrees.dpcore.release.plan import ReleasePlan, UnitBounds
from dptrees.dpcore.release.split import BudgetSplit
from dptrees.dpcore.rows.key_tables import INTEGER, KeyTable
from dptrees.dpcore.series.runs import Series
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.config.release_section import check_shared_columns, kinds_in, release_section
from dptrees.pipelines.config.request import privacy_request, requested
from dptrees.pipelines.sections.document import (
    ConfigurationError,
    RuleBroken,
    check_filled,
    configuration_error,
    parse_document,
    read_document,
    to_refusal,
)
from dptrees.pipelines.sections.first_stages import (
    DELTA_SHARE,
    RangeChoice,
    UnitKeys,
    bounds_plan,
    counts_units,
    distinct,
    left_after_bounds,
    left_for_trees,
    mean_error,
    range_choices,
    selected_keys,
    selection_plan,
    with_bounds,
)
from dptrees.pipelines.sections.parameters import Substitution
from dptrees.pipelines.sections.privacy import WHOLE_TYPES, AutoBound
from dptrees.pipelines.sections.tree import MAX_LEAVES, PrivateKeys, TreeSection
from dptrees.pipelines.sections.values import LedgerUrl
from dptrees.transforms.contract import AT_ONCE, Arrival, SchemaContract
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.names import run_folder
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.csv_format import CsvFormat
from dptrees.transforms.readers.csv_rows import check_dialect
from dptrees.transforms.readers.file_columns import column_types
from dptrees.transforms.readers.formats import OF_TEXT
from dptrees.transforms.readers.json_rows import JsonFormat

if TYPE_CHECKING:
    from dptrees.transforms.tables.table import InputTable


__all__ = [
    "Configuration",
    "ConfigurationError",
    "checked_configuration",
    "load_configuration",
    "parse_configuration",
]


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A checked configuration. Relative paths start at the working directory.

    Args:
        source: the path of the file.
        release: the release's id.
        input_format: one of `transforms.readers.formats.FORMATS`, or of `TABLES`.
        input_paths: files, folders or globs, at least one, but of a table none.
        input_options: of the reader of the format, as `transforms.readers.read.ReadFiles` takes
            them.
        input_arrival: what must be there before the files are read.
        input_schema: the columns and types that the rows must have; None: those that are read.
        table: that the rows lie in, not looked for yet; None: they lie in files.
        output: the folder of the release.
        key: where the release key lies; not loaded yet.
        guarantee: what all trees may spend together.
        selected: the keys that were selected of the data, by what selected them.
        trees: at least one, with names that differ.
        ledger: where the budget is counted with other releases' budgets; None: nowhere.
        dataset: the id of the data set there; None: of the only one that it holds.
        signing_key: where the key lies that signs the manifest, as ``file:PATH`` or ``env:NAME``;
            None: nothing is signed.
        parameters: the values of the parameters that the configuration holds, by name.
        id_of_all: whether the release's id is the same whatever the parameters are.
        report: what the page says of the data: public strings by name.
        series: that the release is a run of; the output is then the folder of the run.
        kept_selection: the plan of the first stage, where a folder keeps it; None: it is planned.
        auto_bounds: the bounds of the unit that are chosen privately, by their keys.
        kept_bounds: the choice of these, where a folder keeps its plan; None: it is planned.
    """

    source: str
    release: str
    input_format: str
    input_paths: tuple[str, ...]
    input_options: Mapping[str, CsvFormat | JsonFormat | str]
    output: str
    key: KeyReference
    guarantee: Guarantee
    trees: tuple[TreeSection, ...]
    selected: Mapping[PrivateKeys, KeyTable] = field(default_factory=dict)
    input_arrival: Arrival = AT_ONCE
    input_schema: SchemaContract | None = None
    table: InputTable | None = None
    ledger: LedgerUrl | None = None
    dataset: str | None = None
    signing_key: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    id_of_all: bool = False
    report: Mapping[str, str] = field(default_factory=dict)

    @property
    def id_remark(self) -> str:
        """What is said where `id_of_all`."""
        names = ", ".join(sorted(self.parameters))
        return (
            f"remark: the id {self.release} contains no parameter, so all releases, whatever the "
            f"{names}, have one id; add a parameter, as in release: "
            f"{self.release}-${{{min(self.parameters)}}}"
        )

    series: Series | None = None
    kept_selection: ReleasePlan | None = None
    auto_bounds: Mapping[str, AutoBound] = field(default_factory=dict)
    kept_bounds: UnitBounds | None = None

    @cached_property
    def request(self) -> dict[str, Any]:
        """What shapes the plan, in plain JSON values (`pipelines.config.request`)."""
        # Only under substitute may the number of rows be public, unless rows are left out.
        may_be_public = self.guarantee.unit.neighbors is Neighbors.SUBSTITUTE
        drops = self.guarantee.drops_rows and may_be_public
        rows = dict(self.dialect) | ({"malformed": "drop"} if drops else {})
        series: dict[str, Any] = {}
        if self.series is not None:
            series = {"periods": self.series.periods, "period": self.series.period}
            for name in ("fanout", "max_periods", "window"):
                value = getattr(self.series, name)
                series |= {} if value is None else {name: value}
        parts = {"input": requested(rows), "series": series}
        return {
            "release": self.release,
            "privacy": privacy_request(self.guarantee, self.auto_bounds),
            "confidence": self.guarantee.confidence,
            **{name: part for name, part in parts.items() if part},
            "trees": [_tree_request(tree) for tree in self.trees],
        }

    @cached_property
    def workloads(self) -> tuple[Workload[Any], ...]:
        """The workload of each tree, with the mechanisms that the guarantee leaves open."""
        measure, has_delta = self.guarantee.budget.measure, self.guarantee.delta is not None
        workloads = tuple(
            self._workload(index).under(measure, delta=has_delta)
            for index in range(len(self.trees))
        )
        if self.series is None:
            return workloads
        # Imported here: few releases are of a series.
        from dptrees.dpcore.series.workload import SeriesWorkload

        return tuple(SeriesWorkload.from_workload(each, self.series) for each in workloads)

    @property
    def awaits_bounds(self) -> bool:
        """Whether bounds are yet to be chosen: all else is planned for 1 row of a unit, and for the
        widest range of values."""
        chosen = self.kept_bounds is not None and self.kept_bounds.values is not None
        return self.chooses_bounds and not chosen

    @cached_property
    def ranges(self) -> tuple[RangeChoice, ...]:
        """The bounds of values that are chosen privately."""
        return range_choices([(tree.name, getattr(tree, "auto", None)) for tree in self.trees])

    @property
    def bound_shares(self) -> Mapping[str, Fraction]:
        """The parts of the budget that choices of bounds spend, by their keys."""
        of_unit = {f"privacy.{name}": each.share for name, each in self.auto_bounds.items()}
        return of_unit | {choice.key: choice.auto.share for choice in self.ranges}

    @property
    def chooses_bounds(self) -> bool:
        """Whether bounds of the unit, or of values, are chosen privately."""
        return bool(self.bound_shares)

    def with_chosen(self, bounds: UnitBounds) -> Configuration:
        """The configuration with bounds that were chosen, or whose choice is planned.

        Args:
            bounds: as a folder has them.
        """
        unit, values = with_bounds(self.guarantee.unit, bounds.unit_values), bounds.tree_values
        trees = tuple(
            tree.with_bounds(values[tree.name])  # type: ignore[attr-defined]
            if tree.name in values and getattr(tree, "auto", None) is not None
            else tree
            for tree in self.trees
        )
        guarantee = replace(self.guarantee, unit=unit)
        return replace(self, guarantee=guarantee, trees=trees, kept_bounds=bounds)

    @cached_property
    def bounds(self) -> UnitBounds | None:
        """The choice of bounds; None where all are given.

        Raises:
            ConfigurationError: a share is too small or too large, or the trees do not go with it.
        """
        if not self.chooses_bounds or self.kept_bounds is not None:
            return self.kept_bounds
        if any(choice.auto.kind in WHOLE_TYPES for choice in self.ranges):
            self._narrowest.plan()  # refused before anything is paid for
        try:
            plan = bounds_plan(
                self.release,
                self.guarantee,
                self.auto_bounds,
                self._unit_keys,
                self.error_of_one_row,
                self.ranges,
            )
        except Refusal as refusal:
            raise self.refused(f"{refusal.field}: {refusal.rule}") from None
        return UnitBounds(plan=replace(plan, dialect=self.dialect) if self.dialect else plan)

    @property
    def _narrowest(self) -> Configuration:
        """The configuration with the narrowest ranges of values that may be chosen, as if given."""
        trees = tuple(
            tree
            if (auto := getattr(tree, "auto", None)) is None
            else tree.with_bounds(auto.narrowest).without_auto  # type: ignore[attr-defined]
            for tree in self.trees
        )
        return replace(
            self,
            trees=trees,
            guarantee=self._left_after_bounds,
            auto_bounds={},
            kept_bounds=None,
            kept_selection=None,
            selected={},
        )

    def refused(self, sentence: str) -> ConfigurationError:
        """Return an error of this configuration.

        Args:
            sentence: the key and the rule.
        """
        return ConfigurationError(f"{self.source}: {sentence}")

    @property
    def error_of_one_row(self) -> float:
        """The typical error of the trees that count rows, in rows, where a unit has one row: the
        mean of their errors by their weights.

        Raises:
            ConfigurationError: none does; or they cannot be planned.
        """
        own = self.guarantee.unit
        one: PrivacyUnit = replace(own, rows=1, keys=None if own.keys is None else 1)
        each_row = replace(
            self,
            guarantee=replace(self._left_after_bounds, unit=one),
            trees=tuple(getattr(tree, "without_auto", tree) for tree in self.trees),
            auto_bounds={},
            kept_bounds=None,
            kept_selection=None,
            selected={},
        )
        pairs = zip(each_row.workloads, each_row.plan().questions, strict=True)
        errors = {
            workload.name: (workload.weight, workload.error_in_rows(question))
            for workload, question in pairs
            if not counts_units(question)
        }
        if not errors:
            first = next(iter(self.bound_shares), "privacy.max_rows")
            raise self.refused(f"{first}: has no effect: no tree counts rows of a unit")
        return mean_error(errors)

    @property
    def _left_after_bounds(self) -> Guarantee:
        """The guarantee that is left by the choice of bounds."""
        try:
            return left_after_bounds(self.guarantee, self.bound_shares.values())
        except Refusal as refusal:
            first = next(iter(self.bound_shares))
            raise self.refused(f"{first}.{refusal.field}: {refusal.rule}") from None

    @property
    def _unit_keys(self) -> UnitKeys | None:
        """The keys of units, where their number is chosen.

        Raises:
            ConfigurationError: trees have keys of other columns.
        """
        if "max_keys" not in self.auto_bounds:
            return None
        groups = [by for tree in self.trees if (by := getattr(tree, "group_by", None)) is not None]
        if len({by.names for by in groups}) != 1:
            raise self.refused(
                "privacy.max_keys: auto needs all trees with group_by to have the keys of the same "
                "columns"
            )
        first, most = groups[0], max(0 if by.is_private else by.listed.size for by in groups)
        types = first.listed.value_types
        columns = KeyColumns(
            columns=first.names,
            types=tuple("integer" if types[name] == INTEGER else "text" for name in first.names),
        )
        if most == 1:
            raise self.refused("privacy.max_keys: auto has no choice: one key is listed")
        return UnitKeys(columns, None if any(by.is_private for by in groups) else most)

    @cached_property
    def selections(self) -> Mapping[PrivateKeys, int]:
        """What selects the keys of trees, and the first tree of each."""
        try:
            return distinct([tree.private_keys for tree in self.trees])
        except Refusal as refusal:
            raise self.refused(f"trees[{refusal.field}].group_by: {refusal.rule}") from None

    @cached_property
    def selection(self) -> ReleasePlan | None:
        """The plan of the first stage, which selects keys; None where all are listed.

        It spends a part of the delta, and all of it where the trees, planned with what it leaves
        them, are better off without one.

        Raises:
            ConfigurationError: the guarantee does not go with private keys, or a tree with what is
                left of it.
        """
        shared = self.sharing_selection
        if shared is None or self.kept_selection is not None:
            return self.kept_selection
        trees = self._planned([tree.workload() for tree in self.trees], shared)
        return shared if trees.stated is not None else self._selection(Fraction(1))

    @cached_property
    def sharing_selection(self) -> ReleasePlan | None:
        """The plan of the first stage that leaves the trees a part of the delta."""
        return self._selection(DELTA_SHARE) if self.selections else None

    @property
    def dialect(self) -> Mapping[str, Any]:
        """How the rows are written, where it is not as usual: a part of what is released."""
        csv = self.input_options.get("csv")
        return csv.spec() if isinstance(csv, CsvFormat) else {}

    def _spoken(self, plan: ReleasePlan) -> ReleasePlan:
        """The plan of all trees with the dialect of their rows."""
        csv = self.input_options.get("csv")
        if not self.dialect or not isinstance(csv, CsvFormat):
            return plan
        try:
            check_dialect(plan, csv)
        except InputError as error:
            raise self.refused(f"{error.sentence}") from None
        return replace(plan, dialect=self.dialect)

    def _selection(self, delta_share: Fraction) -> ReleasePlan:
        found = tuple(self.selections)
        try:
            plan = selection_plan(self.release, self.guarantee, found, delta_share)
            return replace(plan, dialect=self.dialect) if self.dialect else plan
        except Refusal as refusal:
            first = self.selections[found[0]]
            key = (
                "privacy.delta" if refusal.field == "delta" else f"trees[{first}].group_by.fraction"
            )
            raise self.refused(f"{key}: {refusal.rule}") from None

    def _workload(self, index: int) -> Workload[Any]:
        """The workload of a tree, under its keys that were selected.

        Raises:
            ConfigurationError: it is too large with so many.
        """
        tree = self.trees[index]
        workload, private = tree.workload(), tree.private_keys
        if private is None or private not in self.selected:
            return workload
        assert workload.keys is not None
        keys = selected_keys(self.selected[private], workload.keys.unknown)
        if tree.domain.cells * keys.size > MAX_LEAVES:
            raise self.refused(
                f"trees[{index}].domain: {tree.domain.cells} cells times {keys.size} keys, which "
                "were selected, must be at most 2^32 in total, because each is a row of the "
                "output"
            )
        return replace(workload, keys=keys)

    def plan(self) -> ReleasePlan:
        """The plan of every tree, each with its share of the budget; of one whose keys are not
        selected yet as for one key.

        Raises:
            ConfigurationError: a share of the budget is too small or too large for a tree, or
                    choices do not go with the guarantee; or no type of a column serves two trees.
            InputError: trees read one column of CSV as different types.
        """
        plan = replace(self._planned(self.workloads, self.selection), bounds=self.bounds)
        self.check_columns(plan)
        return plan

    def check_columns(self, plan: ReleasePlan) -> None:
        """Refuse a plan whose trees cannot read the columns of the input together.

        Raises:
            ConfigurationError: no type of a column serves two trees.
            InputError: trees read one column of CSV as different types.
        """
        try:
            check_shared_columns(plan.questions)
        except RuleBroken as broken:
            raise self.refused(f"trees{broken.at}: {broken}") from None
        if self.input_format in OF_TEXT:
            # Refuses what one text of a file cannot be.
            column_types(plan, of=self.input_format.upper())

    def _planned(
        self, workloads: Sequence[Workload[Any]], selection: ReleasePlan | None
    ) -> ReleasePlan:
        guarantee = self._left_after_bounds if self.chooses_bounds else self.guarantee
        if selection is not None:
            guarantee = left_for_trees(guarantee, selection)
        try:
            plan = plan_release(self.release, guarantee, workloads)
            return self._spoken(plan if selection is None else replace(plan, selection=selection))
        except TreeRefused as refused:
            raise self._refusal(refused.index, refused.refusal) from None
        except Refusal as refusal:
            raise self.refused(f"privacy.{refusal}") from None
        except ValueError as error:
            raise self.refused(f"{error}") from None

    def _refusal(self, index: int, error: ValueError) -> ConfigurationError:
        """A refusal of dpcore at the key that it names, else at the budget."""
        refusal, tree = to_refusal(error), self.trees[index]
        if refusal.field == "delta":
            return self.refused(f"privacy.delta: trees[{index}]: {refusal.rule}")
        key = tree.refused.get(refusal.field)
        if key is not None:
            rule = tree.describe_rule(key, refusal.rule, self.guarantee)
            return self.refused(f"trees[{index}].{key}: {rule}")
        measure = self.guarantee.budget.measure.value
        return self.refused(
            f"privacy.{measure}: trees[{index}] cannot be planned with its fraction of the "
            f"budget: {error}"
        )


def load_configuration(path: str, parameters: Mapping[str, str] | None = None) -> Configuration:
    """Read and check a configuration file.

    Args:
        path: of a YAML file in UTF-8.
        parameters: parameters of the command line, by name.

    Returns:
        The configuration; files of keys that it names have been read.

    Raises:
        ConfigurationError: one sentence with the file, the key, the value and the rule.
    """
    return checked_configuration(read_document(path), path, parameters or {})


def parse_configuration(text: str, source: str = "configuration") -> Configuration:
    """Check the text of a configuration.

    Args:
        text: YAML.
        source: where it comes from, for messages.

    Returns:
        The configuration.

    Raises:
        ConfigurationError: as `load_configuration`.

    >>> configuration = parse_configuration('''
    ... release: ages-2024
    ... input: {format: csv, path: ages/*.csv}
    ... output: out/ages
    ... key_file: release.key
    ... privacy: {epsilon: 0.1, neighbors: add_remove}
    ... trees:
    ...   - name: age
    ...     domain: {column: age, type: integer, lower: 0, upper: 120}
    ... ''')
    >>> configuration.guarantee.budget.amount, configuration.plan().questions[0].domain.cells
    (Fraction(1, 10), 120)
    """
    return checked_configuration(parse_document(text, source), source, {})


def checked_configuration(values: object, source: str, given: Mapping[str, str]) -> Configuration:
    """Check the values of a configuration.

    Args:
        values: as `pipelines.sections.document` reads them.
        source: where they come from, for messages.
        given: parameters, by name.

    Raises:
        ConfigurationError: as `load_configuration`.
    """
    if values is None:
        raise ConfigurationError(f"{source}: is empty")
    parameters = Substitution(source=source, given=given)
    values = parameters.applied(values)
    check_filled(values, source)
    try:
        section = release_section(kinds_in(values)).model_validate(values)
    except ValidationError as error:
        raise parameters.named(configuration_error(source, error)) from None
    series = section.runs
    formats = section.input.options
    configuration = Configuration(
        source=source,
        release=section.release,
        input_format=section.input.format,
        input_paths=section.input.path,
        input_arrival=section.input.arrival,
        input_schema=section.input.schema_,
        input_options=formats,
        table=section.input.table_source,
        output=section.output if series is None else run_folder(section.output, series.period),
        key=KeyReference(reference=section.key or f"file:{section.key_file}"),
        guarantee=Guarantee(
            unit=section.privacy.privacy_unit,
            budget=section.privacy.budget,
            delta=section.privacy.delta,
            split=BudgetSplit(section.privacy.split),
            confidence=section.confidence,
            drops_rows=any(getattr(each, "malformed", "") == "drop" for each in formats.values()),
        ),
        trees=section.trees,
        ledger=section.ledger,
        dataset=section.dataset,
        signing_key=section.signing_key,
        parameters=parameters.used,
        # The runs of a series have one id.
        id_of_all=series is None and parameters.misses("release"),
        series=series,
        report={} if section.report is None else section.report.texts,
        auto_bounds=section.privacy.auto_bounds,
    )
    unit = section.privacy.unit
    for place, tree in enumerate(section.trees):
        if not unit and getattr(tree.domain, "per_unit", None) is not None:
            raise ConfigurationError(
                f"{source}: trees[{place}].domain.per_unit: needs a privacy unit that is not the "
                "row; name its column: privacy.unit"
            )
    if (
        unit
        and section.privacy.max_rows is None
        and not all(tree.counts_units(unit) for tree in section.trees)
    ):
        raise ConfigurationError(
            f"{source}: privacy.max_rows: is required if the unit is not the row "
            f"({', '.join(unit)}): the number of its rows that a tree counts"
        )
    _ = configuration.sharing_selection  # refused here where it cannot be
    if configuration.selections and series is not None:
        first = min(configuration.selections.values())
        raise ConfigurationError(
            f"{source}: trees[{first}].group_by.keys: private does not go with series: the keys of "
            "all runs must be the same, so list them"
        )
    _check_first_shares(configuration)
    if configuration.chooses_bounds and series is not None:
        key = next(iter(configuration.bound_shares))
        raise ConfigurationError(
            f"{source}: {key}: auto does not go with series: the bounds of all runs must be the "
            "same, so choose them in a separate release, or give them"
        )
    return configuration


def _tree_request(tree: TreeSection) -> Any:
    """The request of a tree, with its chosen bounds as the configuration says them."""
    result, auto = requested(tree), getattr(tree, "auto", None)
    if auto is None:
        return result
    derived = ("cells",) if auto.kind == "integer" else ()
    domain = {name: each for name, each in result["domain"].items() if name not in derived}
    return result | {"domain": domain | requested(auto.request())}


def _check_first_shares(configuration: Configuration) -> None:
    """Refuse shares of private keys and of bounds that leave nothing for the trees.

    Raises:
        ConfigurationError: they sum to 1 or more.
    """
    shares = sum(configuration.bound_shares.values(), Fraction(0))
    shares += sum((each.share for each in configuration.selections), Fraction(0))
    if configuration.chooses_bounds and shares >= 1:
        key = next(iter(configuration.bound_shares))
        raise ConfigurationError(
            f"{configuration.source}: {key}.fraction: all fractions for bounds and private "
            f"keys sum to {float(shares):g}, which is not below 1"
        )
