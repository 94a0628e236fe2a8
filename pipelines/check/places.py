"""Places that a release needs beside its input: the output, the keys, the engine and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dptrees.pipelines.ledger.accounts import Account
from dptrees.pipelines.monitoring import Outcome, failure_outcome
from dptrees.pipelines.process import ExitCode, Later, stopped_by
from dptrees.pipelines.proof.signature import SigningKey
from dptrees.pipelines.report.planning import totals_lines
from dptrees.pipelines.run.first_stage import FirstStage
from dptrees.pipelines.run.output import check_folder, described_job
from dptrees.pipelines.run.stage import Stage
from dptrees.pipelines.terminal_text import escaped
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import begun
from dptrees.transforms.folder.layout import SIGNATURE
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.steps.carry import check_turn

NOT_FOR_PUBLICATION = (
    "No row is read, nothing is written, and no budget is spent. For operators: the guarantee does "
    "not cover names, sizes and times of files. Do not publish this report."
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found in one place.

    Args:
        name: of the place: ``signing``, ``series``, ``key``, ``input``, ``output``, ``engine``
            or ``ledger``.
        lines: for a person.
        entry: plain JSON values, for a program.
        fault: with which the run would end here; None: it would go on.
    """

    name: str
    lines: Sequence[str] = ()
    entry: dict[str, Any] = field(default_factory=dict)
    fault: Exception | None = None

    @property
    def outcome(self) -> Outcome | None:
        """How the run would end here; None: it would go on."""
        return None if self.fault is None else failure_outcome(self.fault)

    @property
    def refusal(self) -> list[str]:
        """The line that shows the fault; none if the run would go on."""
        outcome = self.outcome
        if outcome is None:
            return []
        return [f"REFUSED, exit code {int(outcome.code)}: {outcome.sentence}"]


def found(name: str, look: Callable[[], Finding]) -> Finding:
    """What a look finds, or the fault that a run would end with.

    Args:
        name: of the place.
        look: at it.

    Raises:
        Exception: a fault of the program; or the command was stopped.
    """
    try:
        return look()
    except Exception as error:
        if stopped_by() is not None or failure_outcome(error) is None:
            raise
        return Finding(name=name, fault=error)


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a run of one release would meet.

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


def output_finding(stage: Stage, first: FirstStage | None) -> Finding:
    """The output of a release that is not finished.

    Args:
        stage: that is to be made.
        first: the first stage that it is; None: it has the trees.

    Raises:
        UserError: the run would end here.
    """
    if first is not None:
        first.check_not_begun()
    check_folder(stage.output, stage.plan, stage.request)
    folder, place = stage.output, escaped(stage.output)
    has_begun = begun(folder)
    state = f"{place} holds the beginning of this release" if has_begun else f"{place} is new"
    local = files.is_local(folder)
    lines = [state + (", and may be written" if local else "")]
    if not local:
        lines.append("whether it may be written is not tried: a store shows that only by a write")
    if first is not None:
        lines.append(f"a first job makes the {first.noun}, and the job of the trees follows")
    entry: dict[str, Any] = {"begun": has_begun, "writable": True if local else None}
    return Finding(name="output", lines=lines, entry=entry)


def finished_finding(stage: Stage) -> Finding:
    """The output of a finished release.

    Raises:
        ReleaseError, UserError: the run would end here.
    """
    signing, signature = stage.configuration.signing_key, files.join(stage.output, SIGNATURE)
    if signing is not None and not files.exists(signature):
        SigningKey(reference=signing).load()
    line = f"{escaped(stage.output)} holds the finished release"
    return Finding(name="output", lines=[line], entry={"finished": True})


def key_finding(stage: Stage) -> tuple[Finding, KeyReference]:
    """The release key, and its reference with the check value.

    Raises:
        ReleaseError, UserError: the run would end here.
    """
    begun_under = stage.begun_under()
    stage.check_reach()
    key = stage.configuration.key.checked(begun_under)
    place = stage.configuration.key.reference
    lines = [f"{escaped(place)} can be read; the key has id {key.key_id}"]
    return Finding(name="key", lines=lines, entry={"place": place, "id": key.key_id}), key


def signing_finding(stage: Stage) -> Finding:
    """The key that will sign the manifest.

    Raises:
        ReleaseError, UserError: it cannot be read.
    """
    place = stage.configuration.signing_key
    assert place is not None
    SigningKey(reference=place).load()
    line = f"{escaped(place)} can be read"
    return Finding(name="signing", lines=[line], entry={"place": place})


def room_finding(first: FirstStage) -> Finding:
    """The budget for all stages that are to come.

    Raises:
        LedgerError: it does not suffice.
    """
    first.check_room()
    return Finding(name="ledger")


def series_finding(stage: Stage) -> Finding:
    """The turn of a run of a series.

    Raises:
        SeriesError: it is not its turn.
    """
    run = stage.plan.run
    assert run is not None
    check_turn(stage.plan, stage.output)
    line = f"period {run.period} of {run.periods} is next"
    return Finding(
        name="series", lines=[line], entry={"period": run.period, "periods": run.periods}
    )


_check_endpoint = Later("run.engine:check_endpoint")


def engine_finding(stage: Stage, key: KeyReference | None) -> Finding:
    """The engine of a job.

    Args:
        stage: that it would run.
        key: with its check value; None: it could not be read, so no worker is looked at.

    Raises:
        ReleaseError, UserError: the run would end here.
    """
    options = stage.options
    runner = options.runner.split(".")[-1]
    seen = False
    endpoint = "" if options.beam is None else str(_check_endpoint(options.beam))
    if key is not None:
        seen = stage.check_workers(key)
    entry = {
        "runner": runner,
        "memory": stage.process_memory,
        "job_endpoint": endpoint or None,
        "worker_checked": seen,
        "runs_here": options.is_here,
    }
    if options.is_here:
        memory = f"about {stage.process_memory / 2**30:.1f} GiB of memory"
        line = f"this process runs the job, with {memory}"
        questions = stage.plan.questions
        if not all(each.dense_cells or each.is_matched for each in questions):
            line += "; boxes, sparse trees and distinct values need more, which grows with the rows"
        return Finding(name="engine", lines=[line], entry=entry)
    lines = [f"{escaped(runner)}" + (f", a job server answers at {endpoint}" if endpoint else "")]
    if seen:
        lines.append("a worker has the Python, the dptrees and the key of this machine")
    else:
        lines.append("no worker was looked at")
    if sentence := described_job(options):
        lines.append(escaped(sentence))
    return Finding(name="engine", lines=lines, entry=entry)


def ledger_finding(stage: Stage, first: FirstStage | None, key: KeyReference | None) -> Finding:
    """The ledger, and the budget that would remain.

    Args:
        stage: that is to be made.
        first: the first stage that it is; None: it has the trees.
        key: with its check value; None: it could not be read, so the reservation is not tried.

    Raises:
        LedgerError: the run would end here.
    """
    booking = stage.booking
    if booking is None:
        line = "there is none: budgets of several releases are not added up"
        return Finding(name="ledger", lines=[line], entry={"url": None})
    account, entry = booking.account, booking.active_entry
    state = None if entry is None else entry.state.value
    lines = [f"{escaped(str(booking.ledger.url))}, data set {account.dataset}"]
    lines.append(f"{account.balance} is spent or reserved")
    result: dict[str, Any] = {"url": str(booking.ledger.url), "dataset": account.dataset}
    result |= {"left": _left(account), "release": state}
    if state is not None:
        lines.append(f"this release is {state} already, and costs nothing more")
    if key is not None:
        room = None if first is None else first.check_room()
        after = booking.check(key, nonce=None)
        after = room or after
        result["left_after"] = _left(after)
        amounts = ", ".join(f"{name} {amount:g}" for name, amount in _left(after).items())
        lines.append(f"after this release {amounts} would be left")
    return Finding(name="ledger", lines=lines, entry=result)


def finished_ledger_finding(stage: Stage) -> Finding:
    """The ledger of a finished release.

    Raises:
        LedgerError: it does not know the release.
    """
    booking = stage.booking
    if booking is None:
        return ledger_finding(stage, None, None)
    state = booking.existing_entry().state.value
    account = booking.account
    lines = [
        f"{escaped(str(booking.ledger.url))}, data set {account.dataset}",
        f"this release is {state}; {account.balance} is spent or reserved",
    ]
    entry = {"url": str(booking.ledger.url), "dataset": account.dataset}
    return Finding(
        name="ledger", lines=lines, entry=entry | {"left": _left(account), "release": state}
    )


def _left(account: Account) -> dict[str, float]:
    """The remaining budget, by the names of its amounts."""
    left = account.total - account.spent
    names = account.total.counted(account.measure)
    return {name: float(getattr(left, name)) for name in names}
