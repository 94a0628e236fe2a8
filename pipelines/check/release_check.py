"""What a release would meet, without its rows: all places that it needs, in the order of a run.

Only lists of files and their heads are read. The order is that in which `pipelines.run` checks
things, so the first fault is the one with which the run itself would end; later places are
checked too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.check.places import (
    Finding,
    engine_finding,
    finished_finding,
    finished_ledger_finding,
    found,
    input_finding,
    key_finding,
    ledger_finding,
    output_finding,
    series_finding,
    signing_finding,
)
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.monitoring import Outcome, failure_outcome
from dptrees.pipelines.process import ExitCode, UserError
from dptrees.pipelines.report.planning import totals_entry, totals_lines
from dptrees.pipelines.run.first_stage import FirstStage, bounds_stage, keys_stage, selected_keys
from dptrees.pipelines.run.job import job_options
from dptrees.pipelines.run.output import (
    FolderRequest,
    RunRecord,
    check_described,
    check_job_jar,
    described_job,
)
from dptrees.pipelines.run.planned_once import planned_once, with_kept_stages
from dptrees.pipelines.run.stage import Stage, table_rows
from dptrees.pipelines.terminal_text import escaped
from dptrees.transforms.keys import KeyReference


@dataclass(frozen=True, kw_only=True)
class ReleaseCheck:
    """What a run of one release would meet, without its rows.

    Args:
        release: the id of the release.
        folder: its output.
        findings: in the order in which a run would come to them.
        state: ``finished`` (nothing is to be done), ``begun``, ``new``; or ``unknown``, if the
            output could not be looked at.
        totals: the predicted errors (`pipelines.report.planning`); None if there is no plan.
    """

    release: str
    folder: str
    findings: Sequence[Finding]
    state: str
    totals: dict[str, Any] | None = None

    @property
    def fault(self) -> Exception | None:
        """The fault that the run would end with; None: it would start."""
        return next((each.fault for each in self.findings if each.fault is not None), None)

    @property
    def outcome(self) -> Outcome:
        """How the run would end before its job."""
        fault = self.fault
        outcome = None if fault is None else failure_outcome(fault)
        return outcome or Outcome(code=ExitCode.DONE, sentence="")

    def to_entry(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        places = {}
        for each in self.findings:
            outcome = each.outcome
            ended = {} if outcome is None else _ended(outcome)
            places[each.name] = {"ok": outcome is None} | each.entry | ended
        return {
            "release": self.release,
            "folder": self.folder,
            "state": self.state,
            "would_start": self.fault is None,
            **_ended(self.outcome),
            **places,
            **({} if self.totals is None else {"total": self.totals}),
        }

    def to_lines(self) -> Iterator[str]:
        """The report for a person."""
        yield ""
        yield f"{escaped(self.release)} in {escaped(self.folder)}"
        for each in self.findings:
            yield from _titled(each.name, [*each.lines, *each.refusal])
        if self.state != "finished" and self.totals is not None:
            yield from totals_lines(self.totals)
        yield ""
        yield self.conclusion

    def to_faults(self) -> Iterator[str]:
        """The faults alone, with the conclusion, for a person."""
        yield ""
        for each in self.findings:
            yield from _titled(each.name, each.refusal)
        yield self.conclusion

    @property
    def conclusion(self) -> str:
        """Whether the release would start, as a sentence."""
        if self.fault is not None:
            return f"the release would not start: exit code {int(self.outcome.code)}"
        if self.state == "finished":
            return "the release exists: a run would read no row and spend nothing; exit code 0"
        return "the release would start"


def _ended(outcome: Outcome) -> dict[str, Any]:
    return {"exit_code": int(outcome.code), "message": outcome.sentence}


def _titled(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Lines behind the name of a place."""
    for number, line in enumerate(lines):
        yield f"  {name if number == 0 else '':<8}{line}"


def check_release(configuration: Configuration, arguments: Sequence[str]) -> ReleaseCheck:
    """Check what a run would meet, without its rows.

    Args:
        configuration: the configuration of the release.
        arguments: Beam options.

    Raises:
        UserError: the options cannot be used.
        ReleaseError: the table of the input cannot be read.
    """
    options, request = job_options(list(arguments)), FolderRequest()
    check_job_jar(options, configuration, request)
    check_described(options, configuration)
    planned = found("output", lambda: _planned(configuration))
    if isinstance(planned, Finding):  # the output or the series has another plan, or none yet
        return ReleaseCheck(
            release=configuration.release,
            folder=configuration.output,
            findings=[planned],
            state="unknown",
        )
    configuration, plan = planned
    with table_rows(configuration.table, heads=True) as source:
        stage = Stage(
            configuration=configuration,
            planned=plan,
            options=options,
            request=request,
            source=source,
            record=RunRecord(runner=options.runner),
        )
        return _check_stage(stage)


def _planned(configuration: Configuration) -> tuple[Configuration, ReleasePlan]:
    kept = with_kept_stages(configuration)
    return kept, planned_once(kept)


def _check_stage(stage: Stage) -> ReleaseCheck:
    """Look at all places of a release.

    Args:
        stage: of its trees, as they were planned.
    """
    opened = found("ledger", lambda: stage.plan)  # the ledger names its data set
    found_next = (
        opened if isinstance(opened, Finding) else found("output", lambda: _next_stage(stage))
    )
    if isinstance(found_next, Finding):
        # Nothing shows which release the output holds.
        findings, state = [found_next, *_without_ledger(stage)], "unknown"
    else:
        next_stage, first, is_finished = found_next
        if is_finished:
            findings = [
                found("ledger", lambda: finished_ledger_finding(next_stage)),
                found("output", lambda: finished_finding(next_stage)),
            ]
            state = "finished"
        else:
            findings = list(_findings(next_stage, first))
            state = "begun" if any(each.entry.get("begun") for each in findings) else "new"
    return ReleaseCheck(
        release=stage.planned.name,
        folder=stage.output,
        findings=findings,
        state=state,
        totals=totals_entry(stage.configuration, stage.planned),
    )


def _without_ledger(stage: Stage) -> Iterator[Finding]:
    """What can be looked at whatever the ledger and the output hold."""
    stage = replace(stage, configuration=replace(stage.configuration, ledger=None))
    yield _key_found(stage)[0]
    yield found("input", lambda: input_finding([stage]))
    yield found("engine", lambda: engine_finding(stage, None))


def _key_found(stage: Stage) -> tuple[Finding, KeyReference | None]:
    looked = found("key", lambda: key_finding(stage))
    return (looked, None) if isinstance(looked, Finding) else looked


def _next_stage(stage: Stage) -> tuple[Stage, FirstStage | None, bool]:
    """The stage that is next, the first stage that it is, and whether all is finished."""
    configuration = stage.configuration
    if configuration.chooses_bounds:
        _check_not_described(stage)
        first = bounds_stage(stage)
        if not first.exists():
            return first.pending()[1], first, False
    if configuration.selection is not None:
        _check_not_described(stage)
        first = keys_stage(stage)
        if not first.exists():
            return first.pending()[1], first, False
        selected = selected_keys(first.output, configuration)
        configuration = replace(configuration, selected=selected, kept_selection=first.plan)
        planned = planned_once(configuration)
        stage = replace(stage, configuration=configuration, planned=planned)
    return stage, None, stage.is_finished()


def _check_not_described(stage: Stage) -> None:
    """Refuse a template of two jobs.

    Raises:
        UserError: the job is only described.
    """
    if described_job(stage.options):
        what = "chosen bounds need" if stage.configuration.chooses_bounds else "private keys need"
        raise UserError(f"--template_location: {what} two jobs, but a template starts one")


def _findings(stage: Stage, first: FirstStage | None) -> Iterator[Finding]:
    """The findings of a stage that is to be made, in the order of a run."""
    stages = [stage] if first is None else [stage, first.trees]
    rows = found("input", lambda: input_finding(stages))
    no_room = False
    if first is not None:  # whose rows and budget are looked at before its keys
        yield rows
        room = found("ledger", first.check_room)
        if no_room := isinstance(room, Finding):
            yield room
    if stage.configuration.signing_key is not None:
        yield found("signing", lambda: signing_finding(stage))
    if stage.plan.run is not None:
        yield found("series", lambda: series_finding(stage))
    finding, key = _key_found(stage)
    yield finding
    if first is None:
        yield rows
    yield found("output", lambda: output_finding(stage, first))
    yield found("engine", lambda: engine_finding(stage, key))
    if not no_room:
        yield found("ledger", lambda: ledger_finding(stage, first, key))
