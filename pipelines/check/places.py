"""Places that a release needs: its input, its output, the keys, the engine and the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeVar

from dptrees.pipelines.ledger.accounts import Account
from dptrees.pipelines.monitoring import Outcome, failure_outcome
from dptrees.pipelines.process import Later, stopped_by
from dptrees.pipelines.proof.signature import load_signing_key
from dptrees.pipelines.run.first_stage import FirstStage
from dptrees.pipelines.run.output import check_folder, described_job
from dptrees.pipelines.run.stage import Stage
from dptrees.pipelines.terminal_text import escaped
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import begun
from dptrees.transforms.folder.names import SIGNATURE
from dptrees.transforms.folder.stores import FileInfo
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import check_readable, file_types, spread
from dptrees.transforms.steps.carry import check_turn

Found = TypeVar("Found")
NOT_FOR_PUBLICATION = (
    "No row is read, nothing is written, and no budget is spent. For operators: the guarantee does "
    "not cover names, sizes and times of files. Do not publish this report."
)


# Objects have names, too, but these are in the rows.
_WITHOUT_HEADS = ("json",)


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


def found(name: str, look: Callable[[], Found]) -> Found | Finding:
    """Return what a look finds, or the finding of the fault that a run would end with.

    Args:
        name: the name of the place.
        look: looks at it.

    Raises:
        Exception: a fault of the program; or the command was stopped.
    """
    try:
        return look()
    except Exception as error:
        if stopped_by() is not None or failure_outcome(error) is None:
            raise
        return Finding(name=name, fault=error)


def input_finding(stages: Sequence[Stage]) -> Finding:
    """The input of stages, which read the same rows.

    Args:
        stages: at least one; each reads columns of its own.

    Raises:
        ReleaseError, UserError: the run would end here.
    """
    sizes, *_ = [stage.check_input() for stage in stages]
    columns = tuple(dict.fromkeys(name for stage in stages for name in stage.plan.columns))
    first = stages[0]
    if first.source is not None:
        (name, size), types = sizes[0], first.source.types()
        # A driver of a database does not report the size of what it reads.
        entry: dict[str, Any] = {"table": name, "bytes": size or None}
        heads = [f"{escaped(name)}: {f'{size:,} bytes' if size else 'size unknown'}"]
    else:
        files = first.files()
        entry = _files_entry(files) | {"format": first.configuration.input_format}
        heads = list(_files_lines(files, first.configuration.input_format))
        types, looked = _types(stages, files)
        entry["heads_read"] = looked
        if looked:
            heads.append(f"columns that are read, in the heads of {several(looked, 'file')}:")
    entry["columns"] = {name: types.get(name) for name in columns} if types else None
    lines = [*heads, *(f"  {escaped(name)}: {types[name]}" for name in columns if name in types)]
    if not types:
        lines.append("columns are not looked for: the names are in the rows")
    contract = first.configuration.input_schema
    if contract is not None:
        entry["schema"] = dict(contract.types)
        lines.append(f"input.schema: {several(len(contract.types), 'column')} as stated")
    return Finding(name="input", lines=lines, entry=entry)


def _types(stages: Sequence[Stage], files: Sequence[FileInfo]) -> tuple[dict[str, str], int]:
    """The types of the columns of the first file, and the number of heads that were read.

    Raises:
        InputError: a head lacks a column, or cannot be read; the job would find that.
    """
    configuration = stages[0].configuration
    format, options = configuration.input_format, configuration.input_options
    if format in _WITHOUT_HEADS:
        return {}, 0
    paths = spread([file.path for file in files])
    if options.get("missing_column") != "null":
        for stage in stages:
            for path in paths:
                check_readable([path], format, stage.plan, options)
    return file_types(paths[0], format, options), len(paths)


def _files_entry(files: Sequence[FileInfo]) -> dict[str, Any]:
    times = _times(files)
    return {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "oldest": times[0] if times else None,
        "newest": times[-1] if times else None,
    }


def _files_lines(files: Sequence[FileInfo], format: str) -> Iterator[str]:
    size = sum(file.size for file in files)
    yield f"{several(len(files), 'file')} of {format}, {size:,} bytes"
    times = _times(files)
    if times:
        yield f"oldest change {times[0]}, newest {times[-1]}"


def several(number: int, noun: str) -> str:
    """A number of things.

    >>> several(1, "file"), several(1000, "file")
    ('1 file', '1,000 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _times(files: Sequence[FileInfo]) -> list[str]:
    """The times of the first and the last change, in UTC; none if no file states one."""
    known = [file.changed for file in files if file.changed]
    return [_moment(each) for each in (min(known), max(known))] if known else []


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


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
        load_signing_key(signing)
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
    load_signing_key(place)
    line = f"{escaped(place)} can be read"
    return Finding(name="signing", lines=[line], entry={"place": place})


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
