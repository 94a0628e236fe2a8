"""``dptrees release``: the job from configuration to committed release."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DebugOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.runners.runner import create_runner

from dpcore.release.plan import ReleasePlan
from pipelines.configuration import Configuration, load_configuration
from pipelines.progress_bar import progress_bar
from pipelines.release_folder import ReleaseFolder
from pipelines.reporting import REPORT, write_report
from pipelines.series.to_date import add_to_date
from pipelines.summary import print_summary
from pipelines.terminal_text import print_line
from pipelines.user_error import UserError
from transforms import files
from transforms.carry import check_turn
from transforms.commit import check_committed
from transforms.errors import InputError, sentence_in
from transforms.key_reference import KeyReference
from transforms.layout import MANIFEST, PART_KINDS, planned_parts
from transforms.readers import csv_rows, parquet_rows
from transforms.readers.read import ReadBatches, match_files, open_file
from transforms.release import ReleaseTrees
from transforms.standing import read_manifest, stands
from transforms.sweep import (
    begun_without_record,
    discard,
    missing_files,
    sweep_temporary,
    sweep_unnamed,
)
from transforms.universe_file import share_universes

# In this process, one bundle at a time: Beam's modes with several local workers were measured to
# lose elements of large inputs, and its default runner reruns a failed job on another one.
LOCAL_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
_LOCAL_RUNNERS = {"direct", "switchingdirect"}
_REFUSED_RUNNERS = {
    "dask": "it was measured to leave out parts of a job without an error",
    "interactive": "it keeps copies of the exact counts",
}
_REFUSED_EXPERIMENTS = ("enable_data_sampling", "enable_always_on_exception_sampling")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is asked of a folder beside the release itself.

    Args:
        nonce: fixes the folder's nonce, only to compare engines or files.
        repair: make the parts of a finished release again from the same rows.
        discard: delete the beginning of a release, and spend its budget anew.
    """

    nonce: bytes | None = None
    repair: bool = False
    discard: bool = False


def run_release(path: str, arguments: list[str], wanted: Wanted | None = None) -> int:
    """Makes the release that a configuration describes, or sees that it is already there.

    Where its folder holds the finished release of the same specification, no row is read: whether
    the rows are still the same is nobody's to learn from a second run.

    Args:
        path: of the YAML file.
        arguments: Beam options.
        wanted: of the folder.

    Raises:
        UserError, ConfigurationError, ReleaseError: one sentence that says what to mend.
    """
    wanted = wanted or Wanted()
    configuration = load_configuration(path)
    plan, output = configuration.plan(), configuration.output
    options = beam_options(arguments)
    files.use_options(options)
    if _check_output(output, plan, wanted) and not wanted.repair:
        _check_standing(output, wanted)
        print_line(
            f"{output}: a release of this specification is already there; no row was read, and "
            "nothing was drawn or spent again"
        )
        return _finish(output, plan, standing=True)
    if not wanted.repair:
        check_turn(plan, output)
    key = configuration.key.checked()
    _check_filesystems(configuration.input_paths)
    matched = match_files(configuration.input_paths)
    _check_first_file(configuration, plan, matched[0][0])
    _prepare(output, plan, wanted)
    parts = sum(1 for _ in planned_parts(plan))
    # Elsewhere the workers are other processes: what they wrote is looked for.
    elsewhere = options.view_as(StandardOptions).runner != LOCAL_RUNNER
    present = partial(_parts_present, output) if elsewhere else None
    with progress_bar(sum(size for _, size in matched), parts, present):
        _run(configuration, plan, key, options, wanted)
    if wanted.repair:
        _check_repaired(output)
    return _finish(output, plan, standing=False)


def beam_options(arguments: list[str]) -> PipelineOptions:
    """Beam's options, with the runner named and what would break the guarantee refused.

    Raises:
        UserError: a runner or an option that cannot be used.
    """
    _check_arguments(arguments)
    options = PipelineOptions(arguments)
    standard = options.view_as(StandardOptions)
    standard.runner = _named_runner(standard.runner or "")
    for experiment in options.view_as(DebugOptions).experiments or []:
        if experiment.startswith(_REFUSED_EXPERIMENTS):
            raise UserError(f"--experiments={experiment}: refused, since it shows rows")
    options.view_as(SetupOptions).save_main_session = False
    return options


def _named_runner(name: str) -> str:
    """The runner to use. Beam reads names in any case, with or without the word Runner."""
    short = name.split(".")[-1].lower().removesuffix("runner")
    if short in _REFUSED_RUNNERS:
        raise UserError(f"--runner={name}: refused, since {_REFUSED_RUNNERS[short]}")
    if not name or short in _LOCAL_RUNNERS:
        return LOCAL_RUNNER
    try:
        create_runner(name)
    except (ValueError, ImportError, AttributeError):
        known = ", ".join(StandardOptions.KNOWN_RUNNER_NAMES)
        raise UserError(
            f"--runner={name}: Beam knows no such runner, or it is not installed; known are {known}"
        ) from None
    return name


class _ArgumentParser(_BeamArgumentParser):
    """Beam's options as Beam reads them, but telling a mistake in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


def _check_arguments(arguments: list[str]) -> None:
    """Refuses what Beam would drop without a word, and values that it cannot read."""
    parser = _ArgumentParser(allow_abbrev=False)
    for kind in PipelineOptions.__subclasses__():
        kind._add_argparse_args(parser)
    unknown = parser.parse_known_args(arguments)[1]
    # A job server has options of its own, which it describes when it gets the job.
    served = any(name.startswith(("--job_endpoint", "--job-endpoint")) for name in arguments)
    if unknown and not (served and unknown[0].startswith("--")):
        raise UserError(f"{unknown[0]}: is no option of dptrees release nor of Beam")


def _check_filesystems(paths: tuple[str, ...]) -> None:
    """Refuses paths of filesystems that Beam does not know here."""
    for path in paths:
        try:
            FileSystems.get_filesystem(path)
        except (ValueError, BeamIOError):
            raise UserError(
                f"{path}: Beam has no filesystem for it here, or it lacks an option "
                "(gs:// needs dptrees[gcp] installed, s3:// dptrees[aws])"
            ) from None


def _check_first_file(configuration: Configuration, plan: ReleasePlan, path: str) -> None:
    """Sees before the job starts that the columns are there and of the right types."""
    reader = {"parquet": parquet_rows, "csv": csv_rows}[configuration.input_format]
    reader.splits(open_file(path), path, plan, **configuration.input_options)


def _check_output(output: str, plan: ReleasePlan, wanted: Wanted) -> bool:
    """Whether the output already holds a release of this very specification.

    Raises:
        UserError: it holds another release, is a file, or cannot be written.
    """
    _check_filesystems((output,))
    if files.is_local(output) and os.path.exists(output) and not os.path.isdir(output):
        raise UserError(f"output: {output} is not a folder")
    if stands(output, plan):
        _check_nonce(output, wanted)
        return True
    if files.is_local(output) and not _writable(output):
        raise UserError(f"output: {output} cannot be written: permission denied")
    return False


def _check_standing(output: str, wanted: Wanted) -> None:
    """Sees that a finished release is whole, and that nothing was asked that it cannot take.

    Raises:
        UserError: files are missing.
        StandingError: the release is to be discarded.
    """
    if wanted.discard:
        discard(output)  # refused
    folder = ReleaseFolder(output)
    missing = missing_files(output, folder.files)
    if missing:
        raise UserError(
            f"{output}: {missing[0]} is missing, of {len(folder.files)} files of the release "
            f"{len(missing)} in all; --repair makes them again from the same rows"
        )


def _check_nonce(output: str, wanted: Wanted) -> None:
    """Sees that a finished release has the nonce that was asked for.

    Raises:
        UserError: it has another.
    """
    found = read_manifest(files.join(output, MANIFEST)).get("nonce")
    if wanted.nonce is not None and found != wanted.nonce.hex():
        raise UserError(f"nonce: {output} holds a release with another nonce")


def _check_repaired(output: str) -> None:
    """Sees that a repair brought back what was missing.

    Raises:
        UserError: it wrote other bytes, as another version of a library does.
    """
    folder = ReleaseFolder(output)
    if missing := missing_files(output, folder.files):
        raise UserError(
            f"{output}: {missing[0]} is still missing: this installation writes other bytes than "
            f"the one that made the release, dptrees {folder.manifest.get('dptrees')}; repair it "
            "with that one and its pyarrow"
        )


def _prepare(output: str, plan: ReleasePlan, wanted: Wanted) -> None:
    """What is asked of the folder before the job.

    Raises:
        UserError: there is no release to repair.
        StandingError: there is a finished one, which is not discarded.
    """
    if wanted.repair and not stands(output, plan):
        raise UserError(
            f"--repair: {output} holds no finished release; run without it to finish one"
        )
    if not (wanted.repair or wanted.discard) and begun_without_record(output):
        raise UserError(
            f"output: {output} holds parts of a release without record.json, so nothing tells "
            "whether this run would draw them again; choose another output, or start anew with "
            "--discard"
        )
    if wanted.discard:
        discard(output)
        print_line(f"{output}: what a run began is discarded; what it drew counts as spent")


def _writable(folder: str) -> bool:
    """Whether a folder, or the nearest one above it that is there, can be written into."""
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    return os.access(nearest, os.W_OK | os.X_OK)


def _run(
    configuration: Configuration,
    plan: ReleasePlan,
    key: KeyReference,
    options: PipelineOptions,
    wanted: Wanted,
) -> None:
    """Builds and runs the job, and tells its failure in one sentence where it has one."""
    output = files.absolute(configuration.output)
    for question in plan.questions:
        question.prepare()  # before the plan is copied
    plan = share_universes(plan, output)
    try:
        with beam.Pipeline(options=options) as pipeline:
            rows = pipeline | "Read" >> ReadBatches(
                patterns=tuple(map(files.absolute, configuration.input_paths)),
                format=configuration.input_format,
                options=configuration.input_options,
                plan=plan,
            )
            rows | "Release" >> ReleaseTrees(
                plan, key=key, output=output, nonce=wanted.nonce, repair=wanted.repair
            )
    except Exception as error:
        sentence = sentence_in(f"{error} {error.__cause__ or ''}")
        if sentence is None:
            raise
        raise InputError(sentence) from None
    check_committed(output)


def _finish(output: str, plan: ReleasePlan, *, standing: bool) -> int:
    """Clears what is no part of the release, writes the report and tells what there is."""
    folder = ReleaseFolder(output)
    sweep_unnamed(output, plan)
    sweep_temporary(output)
    report = files.join(output, REPORT)
    if not standing or not files.exists(report):
        write_report(output)
    print_summary(folder, report)
    add_to_date(plan, output)
    return 0


def _parts_present(output: str) -> int:
    """How many parts lie in the output."""
    return sum(1 for kind in PART_KINDS for _ in files.names_below(files.join(output, kind)))
