"""The plan of a release: the one that its folder or its series keeps, or else a new one.

A plan is made once (docs/decisions/0028). Every later run (a retry, a repair, the next period,
or one that finds the release finished) compares the request of its configuration and uses the
kept plan. Where the request differs, the configuration is planned anew and its plan is compared,
as for releases of versions that kept no request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from dptrees.dpcore import __version__
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.question import SeriesRun
from dptrees.dpcore.release.composition import Guarantee
from dptrees.dpcore.release.manifest import FORMAT_VERSION
from dptrees.dpcore.release.plan import ReleasePlan, UnitBounds, plan_from_spec
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.config.request import first_change
from dptrees.pipelines.proof.check import UNREADABLE, CheckFailed
from dptrees.pipelines.proof.manifest import check_sensitivities, first_difference, plain
from dptrees.pipelines.proof.verified import chosen_bounds
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run.job import check_filesystems
from dptrees.pipelines.sections.first_stages import BOUNDS_FOLDER as BOUNDS
from dptrees.pipelines.sections.first_stages import (
    KEYS_FOLDER,
    left_after_bounds,
    left_for_trees,
    range_budget,
)
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import (
    ExistingReleaseError,
    drawn,
    missing_files,
    read_manifest,
)
from dptrees.transforms.folder.names import MANIFEST, PLAN, run_folder
from dptrees.transforms.steps.carry import SeriesError, for_period, run_before
from dptrees.transforms.steps.kept_plan import (
    KeptPlan,
    KeptPlanError,
    check_seal,
    find_drawn,
    find_kept,
    request_of_series,
)

# Of floats in the specifications of releases that keep no request, which another processor made.
_TOLERANCE = 1e-9


def planned_once(configuration: Configuration, *, discard: bool = False) -> ReleasePlan:
    """The plan of a configuration: kept by its output or its series, or made now.

    Args:
        configuration: with its bounds and keys, where these are chosen first; before that its plan
            is made, of stand-ins.
        discard: the beginning of a release in the output is given up, with its plan.

    Raises:
        ConfigurationError: it cannot be planned.
        ExistingReleaseError, KeptPlanError: the output holds the release of another configuration,
            or a plan that cannot be read or that no run under the key wrote.
        KeyReferenceError: the key of a plan that was begun, or of the run before, is not there.
        SeriesError: the series is of another configuration.
    """
    if configuration.awaits_bounds or (configuration.selections and not configuration.selected):
        return configuration.plan()
    make, folder = configuration.plan, configuration.output
    return _planned_in(folder, configuration, make, _check_trees, discard=discard)


def with_kept_stages(configuration: Configuration, *, discard: bool = False) -> Configuration:
    """The configuration with the plans of its first stages, and with what they released, where the
    output keeps them.

    Args:
        configuration: of a release.
        discard: as of `planned_once`.

    Raises:
        As `planned_once`.
    """
    bounded = with_kept_bounds(configuration, discard=discard)
    return with_kept_selection(bounded, discard=discard)


def with_kept_bounds(configuration: Configuration, *, discard: bool = False) -> Configuration:
    """The configuration with the bounds of its unit that the output has chosen, or with the plan of
    their choice, where the output keeps one.

    Args:
        configuration: of a release, with or without bounds that are chosen.
        discard: as of `planned_once`.

    Raises:
        As `planned_once`.
    """
    if not configuration.chooses_bounds:
        return configuration
    folder = files.join(configuration.output, BOUNDS)
    plan = bounds_planned_once(configuration, folder, discard=discard)
    is_chosen = files.exists(files.join(folder, MANIFEST)) and not missing_files(
        folder, ReleaseFolder(folder).files
    )
    values = chosen_bounds(folder) if is_chosen else None
    return configuration.with_chosen(UnitBounds(plan=plan, values=values))


def bounds_planned_once(
    configuration: Configuration, folder: str, *, discard: bool = False
) -> ReleasePlan:
    """The plan of the choice of the bounds of a unit.

    Args:
        configuration: of the release.
        folder: of the stage.
        discard: as of `planned_once`.

    Raises:
        As `planned_once`.
    """

    def make() -> ReleasePlan:
        result = replace(configuration, kept_bounds=None).bounds
        assert result is not None
        return result.plan

    return _planned_in(folder, configuration, make, _check_bounds, discard=discard)


def with_kept_selection(configuration: Configuration, *, discard: bool = False) -> Configuration:
    """The configuration with the plan of its first stage, where the output keeps one.

    Args:
        configuration: of a release, with or without private keys.
        discard: as of `planned_once`.

    Raises:
        As `planned_once`.
    """
    if not configuration.selections or configuration.awaits_bounds:
        return configuration
    folder = files.join(configuration.output, KEYS_FOLDER)
    selection = selection_planned_once(configuration, folder, discard=discard)
    return replace(configuration, kept_selection=selection)


def selection_planned_once(
    configuration: Configuration, folder: str, *, discard: bool = False
) -> ReleasePlan:
    """The plan of the first stage of a release with private keys.

    Args:
        configuration: of the release.
        folder: of the stage.
        discard: as of `planned_once`.

    Raises:
        As `planned_once`.
    """

    def make() -> ReleasePlan:
        result = replace(configuration, kept_selection=None).selection
        assert result is not None
        return result

    return _planned_in(folder, configuration, make, _check_selection, discard=discard)


def _planned_in(
    folder: str,
    configuration: Configuration,
    make: Callable[[], ReleasePlan],
    check: Callable[[Configuration, ReleasePlan], None],
    *,
    discard: bool,
) -> ReleasePlan:
    """The plan that a folder keeps, or a new one: `_PlannedOnce`."""
    planned = _PlannedOnce(
        configuration=configuration,
        folder=folder,
        discard=discard,
        make=make,
        check=lambda plan: check(configuration, plan),
    )
    return planned.plan()


@dataclass(frozen=True, kw_only=True)
class _PlannedOnce:
    """Where a plan may be kept, and how it is made where it is not.

    Args:
        configuration: whose request is compared.
        folder: of the release.
        discard: the beginning of a release there is given up.
        make: plans the configuration.
        check: refuses (CheckFailed) a plan that does not keep the guarantee of the configuration.
    """

    configuration: Configuration
    folder: str
    discard: bool
    make: Callable[[], ReleasePlan]
    check: Callable[[ReleasePlan], None]

    def plan(self) -> ReleasePlan:
        """The plan, without the data set that a ledger names."""
        check_filesystems((self.folder,))
        manifest = files.join(self.folder, MANIFEST)
        if files.exists(manifest):
            return replace(self._finished(manifest), dataset=None)
        kept = None if self.discard else find_kept(self.folder)
        if kept is not None:
            return replace(self._begun(kept), dataset=None)
        return replace(self._next_of_series() or self._made, dataset=None)

    @cached_property
    def _made(self) -> ReleasePlan:
        """The plan that the configuration gets today."""
        return self.make()

    def _finished(self, path: str) -> ReleasePlan:
        """The plan of a finished release, which is this configuration's, or is compared later."""
        manifest, kept = read_manifest(path), find_drawn(self.folder)
        if kept is None:
            return self._nearly(manifest) or self._made
        change = changed_key(self.configuration, kept.request)
        if not change:
            return self._read(path, manifest, manifest["trees"])
        if not self._is_made(manifest["spec"]):
            raise ExistingReleaseError(
                f"output: {self.folder} contains a release of another configuration: {change}; "
                "choose another output"
            )
        return self._made

    def _nearly(self, manifest: Mapping[str, Any]) -> ReleasePlan | None:
        """The plan of a finished release that keeps no request, where it differs from the plan made
        now in the last digits of floats alone; None where it is the same, or another one."""
        if not self._is_nearly_made(manifest["spec"]):
            return None
        return self._read(files.join(self.folder, MANIFEST), manifest, manifest["trees"])

    def _begun(self, kept: KeptPlan) -> ReleasePlan:
        """The plan of a release that was begun: the one that is kept, or a new one where nothing
        was drawn yet, or the configuration differs only in what shapes no noise."""
        place = files.join(self.folder, PLAN)
        # Before it is read: the file may be gone when this run seals the plan as its own.
        check_seal(place, kept, self.configuration.key)
        change = changed_key(self.configuration, kept.request)
        if not change:
            spec = {"spec": kept.spec, "dptrees": kept.dptrees}
            plan = self._read(place, spec, kept.sealed_trees)
            for question, entry in zip(plan.questions, kept.trees, strict=False):
                with suppress(*UNREADABLE):
                    question.follow(entry)
            return plan
        made = replace(self._made, dataset=kept.request.get("dataset"))
        if drawn(self.folder) and made.digest.hex() != kept.digest:
            raise KeptPlanError(
                f"output: {self.folder} was begun with another configuration: {change}; choose "
                "another output, or start again with --discard"
            )
        return self._made

    def _next_of_series(self) -> ReleasePlan | None:
        """The plan of the run before, at the period of this one; None where there is no such run,
        or it keeps no plan and its own does not differ from the plan made now in the last digits of
        floats alone."""
        series = self.configuration.series
        if series is None or series.period == 1:
            return None
        before = _run_before(self.configuration)
        path = files.join(before, MANIFEST)
        if not files.exists(path):
            return None  # refused where it is this run's turn
        manifest, kept = read_manifest(path), find_drawn(before)
        if kept is None:
            if not self._is_nearly_made(manifest["spec"], before=True):
                return None
            return self._read(path, manifest, (), period=series.period)
        check_seal(files.join(before, PLAN), kept, self.configuration.key.checked())
        change = changed_key(self.configuration, kept.request, other_run=True)
        if not change:
            return self._read(path, manifest, (), period=series.period)
        if not self._is_made(manifest["spec"], before=True):
            raise SeriesError(
                f"series: {before} is a run of another series: only the period may differ from "
                f"run to run, and {change}"
            )
        return None

    def _is_made(self, spec: Mapping[str, Any], *, before: bool = False) -> bool:
        """Whether the configuration gets the plan of a specification today.

        Args:
            spec: of a release.
            before: it is of the run before.
        """
        return bool(self._made_spec(spec, before=before) == spec)

    def _is_nearly_made(self, spec: Mapping[str, Any], *, before: bool = False) -> bool:
        """Whether the configuration gets the plan of a specification up to the last digits of
        floats, and another one in these.

        Args:
            spec: of a release that keeps no request.
            before: it is of the run before.
        """
        made = self._made_spec(spec, before=before)
        return made != spec and not first_difference(
            made, spec, "spec", tolerance=_TOLERANCE, rationals=True
        )

    def _made_spec(self, spec: Mapping[str, Any], *, before: bool) -> Any:
        """What the specification of a release, or of the run before, would be today."""
        made = replace(self._made, dataset=spec.get("dataset"))
        return plain((run_before(made) if before else made).spec())

    def _read(
        self,
        place: str,
        kept: Mapping[str, Any],
        trees: Sequence[Mapping[str, Any]],
        *,
        period: int | None = None,
    ) -> ReleasePlan:
        """The plan of a specification.

        Args:
            place: the file that holds it, for messages.
            kept: the specification, and the version of dptrees that wrote it.
            trees: what is known of each tree already; none where that is of another run.
            period: of the series at which the plan is used; None: its own.

        Raises:
            ExistingReleaseError: it is of another version, or does not keep the guarantee.
        """
        spec, version = kept["spec"], kept.get("dptrees")
        if spec.get("format") != FORMAT_VERSION:
            raise ExistingReleaseError(
                f"output: {place} is of another version of dptrees; choose another output"
            )
        tables = dict(_tables(self.configuration))
        try:
            plan = plan_from_spec(spec, _reader(tables, Universe), _reader(tables, KeyTable))
            again = plain(plan.spec())
            if change := first_difference(again, spec, "spec", tolerance=0.0):
                raise ValueError(f"{change} is read otherwise")
            plan = plan if period is None else for_period(plan, period)
            self.check(plan)
        except (*UNREADABLE, CheckFailed) as error:
            is_same = version == __version__
            of, use = ("", "") if is_same else (f", of dptrees {version},", "use that version, or ")
            raise ExistingReleaseError(
                f"output: the plan in {place}{of} cannot be used by this program: {error}; "
                f"{use}choose another output"
            ) from None
        for question, entry in zip(plan.questions, trees, strict=False):
            with suppress(*UNREADABLE):  # of another form: it is computed again
                question.recall(entry)
        self.configuration.check_columns(plan)
        return plan


def changed_key(
    configuration: Configuration, request: Mapping[str, Any], *, other_run: bool = False
) -> str:
    """The first key in which a configuration differs from a request, and both values; "" where they
    are the same, whatever data set a ledger names.

    Args:
        configuration: whose request is compared.
        request: as a folder keeps it.
        other_run: it is the request of another run of the series, whose period differs.
    """
    kept = {name: value for name, value in request.items() if name != "dataset"}
    own = plain(configuration.request)
    if other_run:
        return first_change(request_of_series(kept), request_of_series(own))
    return first_change(kept, own)


def _run_before(configuration: Configuration) -> str:
    """The folder of the run before a run of a series."""
    assert configuration.series is not None
    period = configuration.series.period
    parent = configuration.output.removesuffix(run_folder("", period))
    return run_folder(parent, period - 1)


def _tables(configuration: Configuration) -> Iterator[tuple[str, Universe | KeyTable]]:
    """The public tables of a configuration, by their digests."""
    for tree, workload in zip(configuration.trees, configuration.workloads, strict=True):
        universe = getattr(tree.domain, "universe", None)
        if isinstance(universe, Universe):
            yield universe.digest, universe
        if isinstance(workload.keys, TableKeys):
            yield workload.keys.table.digest, workload.keys.table


def _reader(tables: Mapping[str, Any], kind: type[Any]) -> Callable[[str], Any]:
    def read(digest: str) -> Any:
        result = tables.get(digest)
        if not isinstance(result, kind):
            raise ValueError(f"the public table {digest[:16]} is not that of the configuration")
        return result

    return read


def _check_trees(configuration: Configuration, plan: ReleasePlan) -> None:
    """Refuse a plan that does not keep the guarantee of a configuration. That its trees spend no
    more than it states was seen when it was made of its specification.

    Raises:
        CheckFailed: naming what differs.
    """
    guarantee = configuration.guarantee
    if (plan.bounds is None) != (not configuration.chooses_bounds):
        raise CheckFailed("bounds are not those of the configuration")
    if plan.bounds is not None:
        _check_bounds(configuration, plan.bounds.plan)
        chosen = configuration.kept_bounds
        if chosen is None or plain(plan.bounds.spec()) != plain(chosen.spec()):
            raise CheckFailed("bounds are not those that the first stage chose")
        guarantee = left_after_bounds(guarantee, configuration.bound_shares.values())
    if (plan.selection is None) != (not configuration.selections):
        raise CheckFailed("selection is not that of the configuration")
    if plan.selection is not None:
        _check_selection(configuration, plan.selection)
        selected = configuration.kept_selection
        if selected is None or plain(plan.selection.spec()) != plain(selected.spec()):
            raise CheckFailed("selection is not the first stage that selected the keys")
        guarantee = left_for_trees(guarantee, plan.selection)
    names, series = [tree.name for tree in configuration.trees], configuration.series
    for what, own, wanted in (
        ("name", plan.name, configuration.release),
        ("unit", plan.unit, configuration.guarantee.unit),
        ("trees", [each.name for each in plan.questions], names),
        (
            "series",
            plan.run,
            series and SeriesRun(series.period, series.periods, series.max_periods),
        ),
        ("dialect", plain(plan.dialect), plain(configuration.dialect)),
    ):
        if own != wanted:
            raise CheckFailed(f"{what} is not that of the configuration")
    _check_budget(plan, guarantee)
    check_sensitivities(plan)


def _check_budget(plan: ReleasePlan, guarantee: Guarantee) -> None:
    budget: Budget | None = plan.budget
    stated: tuple[Fraction, Fraction] | None = None
    if guarantee.delta is not None and plan.stated is not None:
        stated, budget = (guarantee.budget.amount, guarantee.delta), None
    if plan.stated != stated or (budget is not None and budget != guarantee.budget):
        raise CheckFailed("budget is not that of the configuration")


def _check_selection(configuration: Configuration, plan: ReleasePlan) -> None:
    """Refuse a first stage that is not of the guarantee of a configuration."""
    sharing = configuration.sharing_selection
    assert sharing is not None and configuration.guarantee.delta is not None
    spent, delta = plan.spending.own
    if (plan.name, plan.unit, spent) != (sharing.name, sharing.unit, sharing.spending.own[0]):
        raise CheckFailed("selection is not that of the configuration")
    if delta > configuration.guarantee.delta:
        raise CheckFailed("selection spends more delta than the configuration has")


def _check_bounds(configuration: Configuration, plan: ReleasePlan) -> None:
    """Refuse a choice of bounds that is not of the guarantee of a configuration."""
    guarantee = configuration.guarantee
    own = [(each.name, each.budget) for each in plan.questions]
    wanted = [
        (name, guarantee.budget.share(each.share))
        for name, each in configuration.auto_bounds.items()
    ]
    wanted += [(each.name, range_budget(guarantee, each.auto)) for each in configuration.ranges]
    name, once = f"{configuration.release}/{BOUNDS}", configuration.guarantee.unit.once
    if (plan.name, plan.unit, own) != (name, once, wanted):
        raise CheckFailed("bounds are not those of the configuration")
