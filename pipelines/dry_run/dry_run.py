"""The dry run of a release, or of the runs of a series that are due.

It follows the order in which `pipelines.releasing` and `pipelines.running.stage` check things, so
it ends with the exit code with which the run itself would end. It looks at all places, also after
the first fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from apache_beam.options.pipeline_options import StandardOptions

from dptrees.pipelines.accounting.totals import totals_entry, totals_lines
from dptrees.pipelines.configuration import Configuration, load_configuration
from dptrees.pipelines.dry_run.finding import NOT_FOR_PUBLICATION, DryRun, Finding, found
from dptrees.pipelines.dry_run.input import input_finding
from dptrees.pipelines.dry_run.places import (
    engine_finding,
    finished_finding,
    finished_ledger_finding,
    key_finding,
    ledger_finding,
    output_finding,
    room_finding,
    series_finding,
    signing_finding,
)
from dptrees.pipelines.faults.log import LOG, remark
from dptrees.pipelines.operations.exposition import check_place
from dptrees.pipelines.operations.watch import check_outside
from dptrees.pipelines.planning import MOST_ROWS
from dptrees.pipelines.running.bounding import bounds_stage
from dptrees.pipelines.running.described import check_described, described
from dptrees.pipelines.running.due import Due
from dptrees.pipelines.running.first_stage import FirstStage
from dptrees.pipelines.running.job import beam_options
from dptrees.pipelines.running.job_jar import check_job_jar
from dptrees.pipelines.running.output import FolderRequest
from dptrees.pipelines.running.planned_once import planned_once, with_kept_stages
from dptrees.pipelines.running.run_record import RunRecord
from dptrees.pipelines.running.selecting import keys_stage, selected_keys
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.tables.rows import table_rows
from dptrees.pipelines.terminal_text import print_json, print_line
from dptrees.pipelines.user_error import UserError
from dptrees.transforms import files
from dptrees.transforms.key_reference import KeyReference


@dataclass(frozen=True, kw_only=True)
class DryRunRequest:
    """The options of a dry run.

    Args:
        arguments: Beam options.
        folder: of the output folder.
        metrics_file: the file that the run would write its metrics to; None: no file.
        rows_guess: a public guess of the rows, for predictions of time and memory on an engine;
            None: none are made.
        workers: of the engine, for these predictions.
        as_json: print one JSON object for each release.

    Raises:
        UserError: an option cannot be used.
    """

    arguments: Sequence[str] = ()
    folder: FolderRequest = field(default_factory=FolderRequest)
    metrics_file: str | None = None
    rows_guess: float | None = None
    workers: int | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.metrics_file is not None:
            check_place(self.metrics_file)
        if (self.workers is None) != (self.rows_guess is None):
            raise UserError(
                "--workers, --rows-guess: go together: the workers of an engine, and a public "
                "guess of the rows"
            )
        if self.rows_guess is not None and not 1 <= self.rows_guess <= MOST_ROWS:
            raise UserError(f"--rows-guess: {self.rows_guess:g} must be from 1 to 1e15")


def run_dry(
    path: str,
    request: DryRunRequest,
    parameters: Mapping[str, str],
    *,
    through: date | None = None,
) -> int:
    """Report what a run would meet.

    Args:
        path: of the configuration.
        request: the options.
        parameters: of the configuration, by name.
        through: the last day of a series that is due; None: one release is made.

    Returns:
        the exit code of a run that would start.

    Raises:
        UserError, ConfigurationError, ReleaseError: as of the run itself.
    """
    if not request.as_json:
        print_line(NOT_FOR_PUBLICATION)
        if LOG.run:
            print_line(f"run {LOG.run}")
    fault: Exception | None = None
    try:
        for each in _dry_runs(path, request, parameters, through):
            _print(each, as_json=request.as_json)
            fault = fault or each.fault
    except Exception:
        if fault is None:
            raise  # else a run would not come so far
    if fault is not None:
        raise fault
    return 0


def _print(each: DryRun, *, as_json: bool) -> None:
    """Print the report of one release."""
    if as_json:
        print_json(each.to_entry() | ({"run": LOG.run} if LOG.run else {}), indent=1)
        return
    for line in each.to_lines():
        print_line(line)


def _dry_runs(
    path: str, request: DryRunRequest, parameters: Mapping[str, str], through: date | None
) -> Iterator[DryRun]:
    """The dry run of each release."""
    if through is None:
        yield _looked_at(path, request, parameters, before=None)
        return
    if request.folder != FolderRequest():
        raise UserError(
            "--through: makes several runs, but --repair, --discard and --nonce belong to one run"
        )
    if described(beam_options(list(request.arguments))):
        raise UserError(
            "--through: makes several runs, but a job that is written to a file is one run"
        )
    before: DryRun | None = None
    for each in Due(path=path, given=parameters, through=through):
        before = _looked_at(path, request, each, before=before)
        yield before


def _looked_at(
    path: str, request: DryRunRequest, parameters: Mapping[str, str], *, before: DryRun | None
) -> DryRun:
    """The dry run of one release.

    Args:
        path: of the configuration.
        request: the options.
        parameters: of the configuration, by name.
        before: of the run before it, which the same command would make; None: there is none.
    """
    configuration = load_configuration(path, parameters)
    options = beam_options(list(request.arguments))
    check_job_jar(options, configuration, request.folder)
    check_described(options, configuration)
    files.use_options(options)
    configuration = with_kept_stages(configuration, discard=request.folder.discard)
    with table_rows(configuration.table, heads=True) as source:
        stage = Stage(
            configuration=configuration,
            planned=planned_once(configuration, discard=request.folder.discard),
            options=options,
            request=request.folder,
            source=source,
            record=RunRecord(runner=str(options.view_as(StandardOptions).runner)),
        )
        if request.metrics_file is not None:
            check_outside(request.metrics_file, stage.output)
        if configuration.id_of_all and not request.as_json:
            remark(configuration.id_remark)
        if before is not None and before.state != "finished":
            return _after(stage, before)
        return _Look(stage=stage, request=request).dry_run()


def _after(stage: Stage, before: DryRun) -> DryRun:
    """The dry run of a run of a series whose run before is not there yet: of its input alone."""
    state = Finding(
        name="series",
        lines=[f"follows {before.folder}, so only its input is looked at"],
        entry={"after": before.folder},
    )
    rows = found("input", lambda: input_finding([stage]))
    return DryRun(
        release=stage.planned.name, folder=stage.output, findings=[state, rows], state="new"
    )


@dataclass(frozen=True, kw_only=True)
class _Look:
    """A look at all places of one release.

    Args:
        stage: of its trees, as they were planned.
        request: the options.
    """

    stage: Stage
    request: DryRunRequest

    def dry_run(self) -> DryRun:
        """What the run would meet."""
        opened = found("ledger", self._open_ledger)
        if opened.fault is not None:
            # Nothing shows which release the output holds.
            return self._reported([opened, *self._without_ledger()], state="unknown")
        looked: list[tuple[Stage, FirstStage | None, bool]] = []

        def resolve() -> Finding:
            looked.append(self._resolved())
            return Finding(name="output")

        resolved = found("output", resolve)
        if resolved.fault is not None:
            return self._reported([resolved, *self._without_ledger()], state="unknown")
        stage, first, is_finished = looked[0]
        if is_finished:
            findings = [
                found("ledger", lambda: finished_ledger_finding(stage)),
                found("output", lambda: finished_finding(stage)),
            ]
            return self._reported(findings, state="finished")
        findings = list(self._findings(stage, first))
        begun = any(each.entry.get("begun") for each in findings)
        return self._reported(findings, state="begun" if begun else "new")

    def _open_ledger(self) -> Finding:
        _ = self.stage.plan  # the ledger names its data set
        return Finding(name="ledger")

    def _without_ledger(self) -> Iterator[Finding]:
        """What can be looked at whatever the ledger and the output hold."""
        stage = replace(self.stage, configuration=replace(self.stage.configuration, ledger=None))
        yield found("key", lambda: key_finding(stage)[0])
        yield found("input", lambda: input_finding([stage]))
        yield found("engine", lambda: engine_finding(stage, None))

    def _resolved(self) -> tuple[Stage, FirstStage | None, bool]:
        """The stage that is next, the first stage that it is, and whether all is finished."""
        stage = self.stage
        configuration = stage.configuration
        if configuration.chooses_bounds:
            self._check_not_described()
            first = bounds_stage(stage)
            if not first.exists():
                return first.pending()[1], first, False
        if configuration.selection is not None:
            self._check_not_described()
            first = keys_stage(stage)
            if not first.exists():
                return first.pending()[1], first, False
            configuration = _with_selected(configuration, first)
            planned = planned_once(configuration, discard=stage.request.discard)
            stage = replace(stage, configuration=configuration, planned=planned)
        return stage, None, stage.is_finished()

    def _check_not_described(self) -> None:
        """Refuse a template of two jobs.

        Raises:
            UserError: the job is only described.
        """
        if described(self.stage.options):
            what = (
                "chosen bounds need"
                if self.stage.configuration.chooses_bounds
                else ("private keys need")
            )
            raise UserError(f"--template_location: {what} two jobs, but a template starts one")

    def _findings(self, stage: Stage, first: FirstStage | None) -> Iterator[Finding]:
        """The findings of a stage that is to be made, in the order of a run."""
        stages = [stage] if first is None else [stage, first.trees]
        rows = found("input", lambda: input_finding(stages))
        room: Finding | None = None
        if first is not None:  # whose rows and budget are looked at before its keys
            yield rows
            room = found("ledger", lambda: room_finding(first))
            if room.fault is not None:
                yield room
        if stage.configuration.signing_key is not None:
            yield found("signing", lambda: signing_finding(stage))
        if stage.plan.run is not None:
            yield found("series", lambda: series_finding(stage))
        keys: list[KeyReference] = []

        def look_at_key() -> Finding:
            finding, key = key_finding(stage)
            keys.append(key)
            return finding

        yield found("key", look_at_key)
        if first is None:
            yield rows
        yield found("output", lambda: output_finding(stage, first))
        key = keys[0] if keys else None
        yield found("engine", lambda: engine_finding(stage, key))
        if room is None or room.fault is None:
            yield found("ledger", lambda: ledger_finding(stage, first, key))

    def _reported(self, findings: Sequence[Finding], *, state: str) -> DryRun:
        plan, configuration = self.stage.planned, self.stage.configuration
        totals = totals_entry(configuration, plan)
        lines, entry = list(totals_lines(totals)), {"total": totals}
        if self.request.rows_guess is not None and state != "finished":
            needs_lines, needs = _needs(self.stage, self.request)
            lines, entry = [*lines, *needs_lines], entry | {"cluster": needs}
        return DryRun(
            release=plan.name,
            folder=self.stage.output,
            findings=findings,
            state=state,
            error_lines=lines,
            error_entry=entry,
        )


def _with_selected(configuration: Configuration, first: FirstStage) -> Configuration:
    """The configuration with the keys that a finished first stage selected."""
    selected = selected_keys(first.output, configuration)
    return replace(configuration, selected=selected, kept_selection=first.plan)


def _needs(stage: Stage, request: DryRunRequest) -> tuple[Iterable[str], dict[str, object]]:
    """The predicted time and memory."""
    from dptrees.pipelines.cluster.lines import cluster_lines
    from dptrees.pipelines.cluster.needs import predicted_needs

    rows, workers = request.rows_guess, request.workers
    assert rows is not None and workers is not None
    needs = predicted_needs(stage.configuration, stage.planned, workers=workers, rows=rows)
    return cluster_lines(needs), needs.to_entry()
