"""``dptrees release``: the job from configuration to committed release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import date

from apache_beam.options.pipeline_options import StandardOptions

from dptrees.dpcore.release.guarantee import CHECKSUM
from dptrees.pipelines.configuration import load_configuration
from dptrees.pipelines.faults.log import event, remark
from dptrees.pipelines.operations.watch import Watch
from dptrees.pipelines.proof.check import run_checks
from dptrees.pipelines.proof.signature import SigningKey, sign_release
from dptrees.pipelines.proof.verified import Verified, raise_first
from dptrees.pipelines.release_folder import ReleaseFolder
from dptrees.pipelines.reporting import REPORT, write_report
from dptrees.pipelines.running.bounding import with_unit_bounds
from dptrees.pipelines.running.described import check_described, described
from dptrees.pipelines.running.due import Due
from dptrees.pipelines.running.job import beam_options
from dptrees.pipelines.running.job_jar import check_job_jar
from dptrees.pipelines.running.made import print_made
from dptrees.pipelines.running.output import FolderRequest
from dptrees.pipelines.running.planned_once import (
    planned_once,
    with_kept_selection,
    with_kept_stages,
)
from dptrees.pipelines.running.run_record import RunRecord
from dptrees.pipelines.running.selecting import with_keys
from dptrees.pipelines.running.stage import Stage
from dptrees.pipelines.series.to_date import add_to_date
from dptrees.pipelines.summary import print_summary, total_warnings
from dptrees.pipelines.tables.rows import table_rows
from dptrees.pipelines.terminal_text import print_line
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.folder import files
from dptrees.transforms.folder.existing_release import sweep_temporary, sweep_unnamed
from dptrees.transforms.folder.files import OutputError
from dptrees.transforms.folder.layout import SIGNATURE
from dptrees.transforms.steps.kept_plan import sweep_undrawn


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
    options = beam_options(arguments)
    request = request or FolderRequest()
    check_job_jar(options, configuration, request)
    check_described(options, configuration)
    files.use_options(options)
    configuration = with_kept_stages(configuration, discard=request.discard)
    with table_rows(configuration.table) as source:
        stage = Stage(
            configuration=configuration,
            planned=planned_once(configuration, discard=request.discard),
            options=options,
            request=request,
            source=source,
            record=RunRecord(runner=str(options.view_as(StandardOptions).runner)),
        )
        watch.planned(stage)
        if configuration.id_of_all:
            remark(configuration.id_remark)
        stage, exists = made(stage)
    if not exists and (description := described(options)):
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
    options = beam_options(arguments)
    if described(options):
        raise UserError(
            "--through: makes several runs, but a job that is written to a file is one run"
        )
    files.use_options(options)
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
    files.use_options(stage.options)
    if stage.configuration.chooses_bounds:
        if described(stage.options):
            raise UserError(
                "--template_location: chosen bounds need two jobs, but a template starts one"
            )
        configuration, left = with_unit_bounds(stage)
        configuration = with_kept_selection(configuration, discard=left.discard)
        plan = planned_once(configuration, discard=left.discard)
        stage = replace(stage, configuration=configuration, planned=plan, request=left)
    if stage.configuration.selection is not None:
        if described(stage.options):
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
    sign_release(output, SigningKey(reference=signing_key), made=not exists)


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
