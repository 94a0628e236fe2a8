"""``dptrees release``: the job from configuration to committed release."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
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

from dpcore import __version__
from dpcore.answers import CDF, NODES
from dpcore.release_plan import ReleasePlan
from pipelines.configuration import Configuration, load_configuration
from pipelines.guarantee import manifest_of
from pipelines.progress_bar import progress_bar
from pipelines.release_folder import MANIFEST, FolderError, ReleaseFolder
from pipelines.reporting import REPORT, write_report
from pipelines.summary import print_summary
from pipelines.terminal_text import print_line
from pipelines.user_error import UserError
from transforms import csv_rows, files, parquet_rows
from transforms.errors import InputError, sentence_in
from transforms.key_reference import KeyReference
from transforms.parts import planned_parts
from transforms.read import ReadBatches, match_files, open_file
from transforms.release import ReleaseTrees
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


def run_release(path: str, arguments: list[str]) -> int:
    """Makes the release that a configuration describes, or sees that it is already there.

    Args:
        path: of the YAML file.
        arguments: Beam options.

    Raises:
        UserError, ConfigurationError, ReleaseError: one sentence that says what to mend.
    """
    configuration = load_configuration(path)
    plan = configuration.plan()
    options = beam_options(arguments)
    key = configuration.key.checked()
    files.use_options(options)
    _check_filesystems((*configuration.input_paths, configuration.output))
    matched = match_files(configuration.input_paths)
    _check_first_file(configuration, plan, matched[0][0])
    existed = _check_output(configuration.output, plan)
    parts = sum(1 for _ in planned_parts(plan))
    # Elsewhere the workers are other processes: what they wrote is looked for.
    elsewhere = options.view_as(StandardOptions).runner != LOCAL_RUNNER
    present = partial(_parts_present, configuration.output) if elsewhere else None
    with progress_bar(sum(size for _, size in matched), parts, present):
        _run(configuration, plan, key, options)
    _finish(configuration.output, existed=existed)
    return 0


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
    reader.splits(open_file(path), path, plan)


def _check_output(output: str, plan: ReleasePlan) -> bool:
    """Whether the output already holds a release of this very specification.

    Raises:
        UserError: it holds another release, or is a file.
    """
    if files.is_local(output) and os.path.exists(output) and not os.path.isdir(output):
        raise UserError(f"output: {output} is not a folder")
    if files.is_local(output) and not _writable(output):
        raise UserError(f"output: {output} cannot be written: permission denied")
    if not files.exists(files.join(output, MANIFEST)):
        return False
    try:
        same = ReleaseFolder(output).plan.spec() == plan.spec()
    except FolderError as error:
        raise UserError(f"output: {error}") from None
    if not same:
        raise UserError(
            f"output: {output} holds a release of another specification; choose another output"
        )
    return True


def _writable(folder: str) -> bool:
    """Whether a folder, or the nearest one above it that is there, can be written into."""
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    return os.access(nearest, os.W_OK | os.X_OK)


def _run(
    configuration: Configuration, plan: ReleasePlan, key: KeyReference, options: PipelineOptions
) -> None:
    """Builds and runs the job, and tells its failure in one sentence where it has one."""
    output = files.absolute(configuration.output)
    for question in plan.chunked:
        _ = question.widths  # before the plan is copied
    plan = share_universes(plan, output)
    try:
        with beam.Pipeline(options=options) as pipeline:
            rows = pipeline | "Read" >> ReadBatches(
                patterns=tuple(map(files.absolute, configuration.input_paths)),
                format=configuration.input_format,
                plan=plan,
            )
            rows | "Release" >> ReleaseTrees(
                plan,
                key=key,
                output=output,
                manifest=manifest_of(plan, __version__),
            )
    except Exception as error:
        sentence = sentence_in(f"{error} {error.__cause__ or ''}")
        if sentence is None:
            raise
        raise InputError(sentence) from None


def _finish(output: str, *, existed: bool) -> None:
    """Clears what is no part of the release, writes the report and tells what there is."""
    folder = ReleaseFolder(output)
    files.delete(sorted(set(_strays(output, folder))))  # a glob may give a file twice
    if existed:
        print_line(
            f"{output}: this very release is already there; nothing was drawn or spent again"
        )
    report = files.join(output, REPORT)
    if not existed or not files.exists(report):
        write_report(output)
    print_summary(folder, report)


def _parts_present(output: str) -> int:
    """How many parts lie in the output."""
    return sum(1 for kind in (NODES, CDF) for _ in files.names_below(files.join(output, kind)))


def _strays(output: str, folder: ReleaseFolder) -> Iterator[str]:
    """Files of earlier, interrupted runs that the manifest does not name; none but our own."""
    trees = "|".join(re.escape(question.name) for question in folder.plan.questions)
    part = re.compile(rf"({trees})-\d{{6,}}-(spine|\d{{6,}})-[0-9a-f]{{16}}\.parquet")
    temporary = re.compile(r"\.[0-9a-f]{32}" + re.escape(files.TEMPORARY_SUFFIX))
    named = {files.join(output, *name.split("/")) for name in folder.files}
    for place in (output, files.join(output, NODES), files.join(output, CDF)):
        for path in files.names_below(place):
            name = path.rsplit("/", 1)[-1]
            stray = place != output and path not in named and part.fullmatch(name)
            if stray or temporary.fullmatch(name):
                yield path
