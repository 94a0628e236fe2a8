"""A place that a release needs, with what was found there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dptrees.pipelines.accounting.totals import totals_lines
from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.faults.outcome import Outcome, failure_outcome
from dptrees.pipelines.faults.stopping import stopped_by
from dptrees.pipelines.terminal_text import escaped

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
        totals: the predicted errors (`pipelines.accounting.totals`); None if there is no plan.
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
