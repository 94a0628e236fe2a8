"""``dptrees release``: the job from configuration to committed release, and due runs of a series.

Every period up to a day that is not released yet is due, in order, so a day on which a schedule
did not run is made up for by its next run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone

from dptrees.dpcore.release.manifest import CHECKSUM
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.monitoring import event, remark
from dptrees.pipelines.process import UserError
from dptrees.pipelines.proof.check import run_checks
from dptrees.pipelines.proof.signature import sign_release
from dptrees.pipelines.proof.verified import Verified, raise_first
from dptrees.pipelines.query.release_folder import ReleaseFolder, holds_release
from dptrees.pipelines.query.series_totals import add_to_date
from dptrees.pipelines.report.summary import (
    REPORT,
    closer_quantiles,
    print_summary,
    total_warnings,
    write_report,
)
from dptrees.pipelines.run.first_stage import with_keys, with_unit_bounds
from dptrees.pipelines.run.job import job_options
from dptrees.pipelines.run.metrics import Watch
from dptrees.pipelines.run.output import (
    FolderRequest,
    RunRecord,
    check_described,
    check_job_jar,
    described_job,
    print_made,
)
from dptrees.pipelines.run.planned_once import planned_once, with_kept_selection, with_kept_stages
from dptrees.pipelines.run.stage import Stage, table_rows
from dptrees.pipelines.sections.document import read_document
from dptrees.pipelines.terminal_text import print_line
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import sweep_temporary, sweep_unnamed
from dptrees.transforms.folder.files import OutputError
from dptrees.transforms.folder.names import SIGNATURE, period_folder, run_folder
from dptrees.transforms.steps.kept_plan import sweep_undrawn

YESTERDAY = "yesterday"
_PARAMETER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def parse_day(text: str) -> date:
    """The last day that is wanted.

    Args:
        text: a date, or ``yesterday``, in the time of UTC.

    Raises:
        ValueError: it is neither.

    >>> parse_day("2013-01-05")
    datetime.date(2013, 1, 5)
    """
    if text == YESTERDAY:
        return datetime.now(timezone.utc).date() - timedelta(days=1)
    return date.fromisoformat(text)


@dataclass(frozen=True, kw_only=True)
class Due:
    """What is due of a series whose periods are days.

    Args:
        path: of the configuration.
        given: its other parameters, by name.
        through: the last day that is wanted.
    """

    path: str
    given: Mapping[str, str]
    through: date

    def __iter__(self) -> Iterator[dict[str, str]]:
        """The parameters of each run. First comes the last existing one, which may have been
        killed before its end; a day beyond the series is left to be refused as ever.

        Raises:
            UserError: the configuration is no series by days, or begins later.
            ConfigurationError: it is wrong.
        """
        name = self._parameter()
        if name in self.given:
            raise UserError(f"--through: goes through every {name}, so --set {name} cannot be")
        start, folder, periods = self._series(name)
        if self.through < start:
            raise UserError(f"--through: {self.through} is before {start}, where the series begins")
        last = min((self.through - start).days + 1, periods + 1)
        # From the last one back: what is older may have been cleared away.
        finished_runs = (n for n in range(last, 0, -1) if holds_release(run_folder(folder, n)))
        first = next(finished_runs, 1)
        for period in range(first, last + 1):
            yield {**self.given, name: str(start + timedelta(days=period - 1))}

    def _parameter(self) -> str:
        """The parameter that is the date of a run.

        Raises:
            UserError: there is none.
        """
        document = read_document(self.path)
        section = document.get("series") if isinstance(document, dict) else None
        period = section.get("period") if isinstance(section, dict) else None
        match = _PARAMETER.fullmatch(period) if isinstance(period, str) else None
        if match is None or "start" not in (section or {}):
            raise UserError(
                f"--through: {self.path} needs a series with a start, whose period is a parameter, "
                "such as period: ${date}"
            )
        return match[1]

    def _series(self, name: str) -> tuple[date, str, int]:
        """Its first day, its folder and how many periods it has."""
        document = read_document(self.path)
        assert isinstance(document, dict)
        start = str(document["series"]["start"])
        configuration = load_configuration(self.path, {**self.given, name: start})
        assert configuration.series is not None
        folder = configuration.output.removesuffix(f"/{period_folder(1)}")
        return date.fromisoformat(start), folder, configuration.series.periods


def run_release(
    path: str,
    arguments: list[str],
    request: FolderRequest | None = None,
    parameters: Mapping[str, str] | None = None,
    *,
    as_json: bool = False,
    watch: Watch | None = None,
) -> int:
    """Makes the release that a configuration describes, or sees that it is already there.

    Where its folder holds the finished release of the same specification, no row is read: whether
    the rows are still the same is nobody's to learn from a second run.

    Args:
        path: of the YAML file.
        arguments: Beam options.
        request: of the folder.
        parameters: parameters of the configuration, by name.
        as_json: say what was written as one object, for a program.
        watch: receives what is made.

    Raises:
        UserError, ConfigurationError, ReleaseError: one sentence that says what to fix.
    """
    watch = watch or Watch()
    configuration = load_configuration(path, parameters)
    options = job_options(arguments)
    request = request or FolderRequest()
    check_job_jar(options, configuration, request)
    check_described(options, configuration)
    configuration = with_kept_stages(configuration, discard=request.discard)
    with table_rows(configuration.table) as source:
        stage = Stage(
            configuration=configuration,
            planned=planned_once(configuration, discard=request.discard),
            options=options,
            request=request,
            source=source,
            record=RunRecord(runner=options.runner),
        )
        watch.planned(stage)
        if configuration.id_of_all:
            remark(configuration.id_remark)
        if not holds_release(stage.output):
            for name, closer in closer_quantiles(configuration, stage.planned).items():
                remark(f"tree {name}: {closer['words']}")
        stage, exists = made(stage)
    if not exists and (description := described_job(options)):
        remark(description)
        return 0
    is_ours = not exists and (request.repair or _claimed(stage))
    watch.finished(stage, made=is_ours)
    if exists:
        _report_existing(stage, as_json=as_json)
    finished(stage, exists=exists)
    _report_made(stage, made=is_ours, as_json=as_json)
    return 0


def _claimed(stage: Stage) -> bool:
    """Whether this run made the release, and not another launcher at the same time."""
    checksum = ReleaseFolder(stage.output).manifest.get(CHECKSUM)
    return stage.record.claim(stage.output, checksum, in_series=stage.plan.run is not None)


def _report_existing(stage: Stage, *, as_json: bool) -> None:
    event("standing", folder=stage.output)
    if ReleaseFolder(stage.output).manifest.get("report", {}) != stage.configuration.report:
        remark("report: the page keeps the report section of the first run")
    if not as_json:
        print_line(
            f"{stage.output}: a release of this specification is already there; no rows were "
            "read, and no noise was added or budget spent again"
        )


def run_due(
    path: str,
    arguments: list[str],
    parameters: Mapping[str, str],
    *,
    request: FolderRequest,
    through: date,
    as_json: bool = False,
    watching: Callable[[], Watch] = Watch,
    limit: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> int:
    """Make the runs of a series that are due, one after the other.

    Args:
        path: of the YAML file.
        arguments: Beam options.
        parameters: parameters of the configuration, but for the date.
        request: of the folder of one run, which must be nothing.
        through: the last requested day.
        as_json: as of `run_release`, once for each run.
        watching: makes the watch of a run, once for each.
        limit: the remaining time for all runs, requested once for each run.

    Raises:
        UserError, ConfigurationError, ReleaseError: as of `run_release`; earlier runs are kept.
    """
    if request != FolderRequest():
        raise UserError(
            "--through: makes several runs, but --repair, --discard and --nonce belong to one run"
        )
    options = job_options(arguments)
    if described_job(options):
        raise UserError(
            "--through: makes several runs, but a job that is written to a file is one run"
        )
    for each in Due(path=path, given=parameters, through=through):
        with watching() as watch, limit():
            run_release(path, arguments, request, each, as_json=as_json, watch=watch)
    return 0


def made(stage: Stage) -> tuple[Stage, bool]:
    """Makes what a configuration describes; the bounds of its unit first where they are chosen, and
    its keys where they are private.

    Returns:
        the stage of the trees, and whether the release was there already and no row was read.
    """
    if stage.configuration.chooses_bounds:
        if described_job(stage.options):
            raise UserError(
                "--template_location: chosen bounds need two jobs, but a template starts one"
            )
        configuration, left = with_unit_bounds(stage)
        configuration = with_kept_selection(configuration, discard=left.discard)
        plan = planned_once(configuration, discard=left.discard)
        stage = replace(stage, configuration=configuration, planned=plan, request=left)
    if stage.configuration.selection is not None:
        if described_job(stage.options):
            raise UserError(
                "--template_location: private keys need two jobs, but a template starts one"
            )
        configuration, left = with_keys(stage)
        plan = planned_once(configuration, discard=left.discard)
        stage = replace(stage, configuration=configuration, planned=plan, request=left)
    if stage.is_released():
        return stage, True
    return stage.make(), False


def finished(stage: Stage, *, exists: bool) -> None:
    """Clears what is no part of the release, signs it and writes the report.

    Raises:
        OutputError: the report could not be written, and the release is complete all the same.
    """
    _complete(stage.output, lambda: _finish(stage, exists=exists))


def _complete(output: str, act: Callable[[], None]) -> None:
    """Do what belongs to an existing release.

    Raises:
        OutputError: it failed, and the release is complete all the same.
    """
    try:
        act()
    except OutputError as error:
        raise OutputError(
            f"{error.sentence}; the release in {output} is complete, and the same command, or "
            f"dptrees report {output}, continues from there",
            again=error.again,
        ) from None


def _finish(stage: Stage, *, exists: bool) -> None:
    output = stage.output
    sign(stage, exists=exists)
    sweep_unnamed(output, stage.plan)
    sweep_temporary(output)
    sweep_undrawn(output)
    if not exists or not files.exists(files.join(output, REPORT)):
        with stage.record.step("report", output):
            write_report(output)


def sign(stage: Stage, *, exists: bool) -> None:
    """Signs the manifest, where the configuration says with which key."""
    output, signing_key = stage.output, stage.configuration.signing_key
    if signing_key is None:
        return
    if exists and not files.exists(files.join(output, SIGNATURE)):
        # It may have been edited since it was made.
        raise_first(f"{output}: not signed", run_checks(Verified(output).manifest_checks()))
    sign_release(output, signing_key, made=not exists)


def _report_made(stage: Stage, *, made: bool, as_json: bool) -> None:
    """Says what there is; how long it took is written beside it."""
    output, account = stage.output, stage.booking.account.line if stage.booking else None
    folder = ReleaseFolder(output)
    if made:
        in_series = stage.plan.run is not None
        stage.record.write(output, folder.manifest.get(CHECKSUM), in_series=in_series)
    event("finished", folder=output, manifest=folder.manifest.get(CHECKSUM), made=made)
    for line in total_warnings(folder):
        remark(line)
    if as_json:
        _complete(output, lambda: add_to_date(stage.plan, output, show=False))
        print_made(folder, made=made, account=account)
        return
    print_summary(folder, files.join(output, REPORT), account)
    _complete(output, lambda: add_to_date(stage.plan, output))
