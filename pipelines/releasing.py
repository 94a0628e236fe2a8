"""``dptrees release``: the job from configuration to committed release."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

from pipelines.configuration import load_configuration
from pipelines.proof.check import findings_of
from pipelines.proof.signature import SigningKey, sign_release
from pipelines.proof.verified import Verified, raise_first
from pipelines.release_folder import ReleaseFolder
from pipelines.reporting import REPORT, write_report
from pipelines.running.job import beam_options
from pipelines.running.output import Wanted
from pipelines.running.selecting import with_keys
from pipelines.running.stage import Stage
from pipelines.series.to_date import add_to_date
from pipelines.summary import print_summary
from pipelines.terminal_text import print_line
from transforms import files
from transforms.layout import SIGNATURE
from transforms.sweep import sweep_temporary, sweep_unnamed


def run_release(
    path: str,
    arguments: list[str],
    wanted: Wanted | None = None,
    given: Mapping[str, str] | None = None,
) -> int:
    """Makes the release that a configuration describes, or sees that it is already there.

    Where its folder holds the finished release of the same specification, no row is read: whether
    the rows are still the same is nobody's to learn from a second run.

    Args:
        path: of the YAML file.
        arguments: Beam options.
        wanted: of the folder.
        given: parameters of the configuration, by name.

    Raises:
        UserError, ConfigurationError, ReleaseError: one sentence that says what to mend.
    """
    configuration = load_configuration(path, given)
    stage = Stage(
        configuration=configuration,
        asked=configuration.plan(),
        options=beam_options(arguments),
        wanted=wanted or Wanted(),
    )
    if configuration.id_of_all:
        print_line(configuration.id_remark, file=sys.stderr)
    stage, standing = made(stage)
    if standing:
        print_line(
            f"{stage.output}: a release of this specification is already there; no row was read, "
            "and nothing was drawn or spent again"
        )
    report = finished(stage, standing=standing)
    line = stage.booking.account.line if stage.booking else None
    print_summary(ReleaseFolder(stage.output), report, line)
    add_to_date(stage.plan, stage.output)
    return 0


def made(stage: Stage) -> tuple[Stage, bool]:
    """Makes what a configuration describes, its keys first where they are private.

    Returns:
        the stage of the trees, and whether the release was there already and no row was read.
    """
    files.use_options(stage.options)
    if stage.configuration.selection is not None:
        configuration, left = with_keys(stage)
        stage = replace(stage, configuration=configuration, asked=configuration.plan(), wanted=left)
    if stage.stands():
        return stage, True
    stage.make()
    return stage, False


def finished(stage: Stage, *, standing: bool) -> str:
    """Clears what is no part of the release, signs it and writes the report.

    Returns:
        the path of the report.
    """
    output = stage.output
    sign(stage, standing=standing)
    sweep_unnamed(output, stage.plan)
    sweep_temporary(output)
    report = files.join(output, REPORT)
    if not standing or not files.exists(report):
        write_report(output)
    return report


def sign(stage: Stage, *, standing: bool) -> None:
    """Signs the manifest, where the configuration says with which key."""
    output, signing_key = stage.output, stage.configuration.signing_key
    if signing_key is None:
        return
    if standing and not files.exists(files.join(output, SIGNATURE)):
        # It may have been edited since it was made.
        raise_first(f"{output}: not signed", findings_of(Verified(output).of_manifest()))
    sign_release(output, SigningKey(reference=signing_key), made=not standing)
