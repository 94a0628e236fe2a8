"""What a release would meet, without its rows: input files, key, ledger, output and engine.

Only lists of files and their heads are read. The order is that in which `pipelines.run` checks
things, so the first fault is the one with which the run itself would end; later places are
checked too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.check.places import (
    DryRun,
    Finding,
    engine_finding,
    finished_finding,
    finished_ledger_finding,
    found,
    key_finding,
    ledger_finding,
    output_finding,
    room_finding,
    series_finding,
    signing_finding,
)
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.process import UserError
from dptrees.pipelines.report.planning import totals_entry
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
from dptrees.transforms.folder.stores import FileInfo
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import check_readable, file_types, spread

# Objects have names, too, but these are in the rows.
_WITHOUT_HEADS = ("json",)


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
            heads.append(f"columns that are read, in the heads of {_number(looked, 'file')}:")
    entry["columns"] = {name: types.get(name) for name in columns} if types else None
    lines = [*heads, *(f"  {escaped(name)}: {types[name]}" for name in columns if name in types)]
    if not types:
        lines.append("columns are not looked for: the names are in the rows")
    contract = first.configuration.input_schema
    if contract is not None:
        entry["schema"] = dict(contract.types)
        lines.append(f"input.schema: {_number(len(contract.types), 'column')} as stated")
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
    yield f"{_number(len(files), 'file')} of {format}, {size:,} bytes"
    times = _times(files)
    if times:
        yield f"oldest change {times[0]}, newest {times[-1]}"


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _times(files: Sequence[FileInfo]) -> list[str]:
    """The times of the first and the last change, in UTC; none if no file states one."""
    known = [file.changed for file in files if file.changed]
    return [_moment(each) for each in (min(known), max(known))] if known else []


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def dry_run(configuration: Configuration, arguments: Sequence[str]) -> DryRun:
    """What a run would meet.

    Args:
        configuration: of the release.
        arguments: Beam options.

    Raises:
        UserError: the options cannot be used.
        ReleaseError: the table of the input cannot be read.
    """
    options, request = job_options(list(arguments)), FolderRequest()
    check_job_jar(options, configuration, request)
    check_described(options, configuration)
    planned: list[tuple[Configuration, ReleasePlan]] = []

    def plan() -> Finding:
        kept = with_kept_stages(configuration)
        planned.append((kept, planned_once(kept)))
        return Finding(name="output")

    output = found("output", plan)
    if output.fault is not None:  # the output or the series has another plan, or none yet
        return DryRun(
            release=configuration.release,
            folder=configuration.output,
            findings=[output],
            state="unknown",
        )
    ((configuration, made),) = planned
    with table_rows(configuration.table, heads=True) as source:
        stage = Stage(
            configuration=configuration,
            planned=made,
            options=options,
            request=request,
            source=source,
            record=RunRecord(runner=options.runner),
        )
        return _Look(stage=stage).report()


@dataclass(frozen=True, kw_only=True)
class _Look:
    """A look at all places of one release.

    Args:
        stage: of its trees, as they were planned.
    """

    stage: Stage

    def report(self) -> DryRun:
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
            planned = planned_once(configuration)
            stage = replace(stage, configuration=configuration, planned=planned)
        return stage, None, stage.is_finished()

    def _check_not_described(self) -> None:
        """Refuse a template of two jobs.

        Raises:
            UserError: the job is only described.
        """
        if described_job(self.stage.options):
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
        return DryRun(
            release=plan.name,
            folder=self.stage.output,
            findings=findings,
            state=state,
            totals=totals,
        )


def _with_selected(configuration: Configuration, first: FirstStage) -> Configuration:
    """The configuration with the keys that a finished first stage selected."""
    selected = selected_keys(first.output, configuration)
    return replace(configuration, selected=selected, kept_selection=first.plan)
