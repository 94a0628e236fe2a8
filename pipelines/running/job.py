"""The job of a release: Beam's options, and its end in one sentence."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    AzureOptions,
    DebugOptions,
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    S3Options,
    SetupOptions,
    StandardOptions,
    TypeOptions,
    _BeamArgumentParser,
)
from apache_beam.runners.runner import PipelineResult, create_runner
from apache_beam.transforms import environments
from apache_beam.utils import interactive_utils

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.faults.stopping import postponed
from dptrees.pipelines.running.cancelling import cancel_job
from dptrees.pipelines.running.dataflow import (
    check_dataflow_options,
    is_dataflow,
    refused_job,
    set_dataflow_options,
    submits_only,
)
from dptrees.pipelines.running.engine_fault import engine_fault
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.release import ReleaseTrees
from dptrees.transforms.steps.count import UnitOptions, unit_shard_count

# In this process, on all its processors.
LOOP_RUNNER = "dptrees.pipelines.running.loop.LoopRunner"
# Beam's own, one bundle at a time: its modes with several local workers were measured to lose
# elements of large inputs, and its default runner reruns a failed job on another one.
BEAMS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
# Cells of all trees that every thread may have an array of: 32 MB.
_MOST_SHARED_CELLS = 2**22
_LOCAL_RUNNERS = {"direct", "switchingdirect"}
_REFUSED_RUNNERS = {
    "dask": "in tests it lost parts of a job without an error",
    "interactive": "it keeps copies of the exact counts",
}
SECRETS: dict[str, type[PipelineOptions]] = {
    "s3_secret_access_key": S3Options,
    "s3_session_token": S3Options,
    "azure_connection_string": AzureOptions,
}
# Of rows of privacy units, where all parts are bounded in this process: the rows of a part are in
# memory at once, on every thread.
_UNIT_SHARDS = 128
_one_submission = threading.Lock()
_labels_plainly: ContextVar[bool] = ContextVar("_labels_plainly", default=False)
_REFUSED_EXPERIMENTS = ("enable_data_sampling", "enable_always_on_exception_sampling")


class JobOptions(PipelineOptions):
    """Beam's options, read from the arguments once for each kind: Beam reads some kinds anew for
    every step of a graph."""

    def view_as(self, cls: type[PipelineOptions]) -> Any:
        """Return the options of a kind; all kinds share their values."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def limit_threads(plan: ReleasePlan, options: PipelineOptions) -> None:
    """Let one thread count where each of several would hold large arrays of counts.

    Args:
        plan: of the release.
        options: Beam's; a number of threads that is given in them stays.
    """
    chosen = options.view_as(DirectOptions)
    cells = sum(question.dense_cells for question in plan.questions)
    if chosen.direct_num_workers == 0 and cells > _MOST_SHARED_CELLS:
        chosen.direct_num_workers = 1


def beam_options(arguments: list[str]) -> PipelineOptions:
    """Beam's options, with the runner named and what would break the guarantee refused.

    Raises:
        UserError: a runner or an option that cannot be used.
    """
    if arguments:
        _check_arguments(arguments)
    options = JobOptions(arguments)
    runner = check_options(options)
    options.view_as(StandardOptions).runner = runner
    if runner == LOOP_RUNNER:
        # Beam's own check of the graph is the same each time, and takes a quarter of a short job.
        options.view_as(TypeOptions).pipeline_type_check = False
        if not any(each.startswith("--direct_num_workers") for each in arguments):
            options.view_as(DirectOptions).direct_num_workers = 0
        options.view_as(UnitOptions).least_unit_shards = _UNIT_SHARDS
    options.view_as(SetupOptions).save_main_session = False
    if is_dataflow(options):
        set_dataflow_options(options)
    return options


def check_options(options: PipelineOptions) -> str:
    """Refuses what would break the guarantee, or show a secret.

    Args:
        options: Beam's, of a command or of anybody's pipeline.

    Returns:
        the runner to use.

    Raises:
        UserError: a runner or an option that cannot be used.
        InputError: a number out of range.
    """
    standard = options.view_as(StandardOptions)
    _check_secrets(options)
    runner = _named_runner(standard.runner or "")
    _check_experiments(options)
    if standard.streaming:
        raise UserError("--streaming: refused, since a release is a batch job, of rows that end")
    unit_shard_count(options)  # refuses what is out of range
    if is_dataflow(options):
        check_dataflow_options(options)
    return runner


def _check_secrets(options: PipelineOptions) -> None:
    """Refuses secrets among the options, which engines show and write down with the job."""
    for name, kind in SECRETS.items():
        if getattr(options.view_as(kind), name):
            raise UserError(
                f"--{name}: holds a secret, which would be in logs and in the job; set it in the "
                "environment where workers run"
            )


def _check_experiments(options: PipelineOptions) -> None:
    """Refuse experiments that show rows, in either of the two options that request them."""
    debug, cloud = options.view_as(DebugOptions), options.view_as(GoogleCloudOptions)
    for option, chosen in (
        ("experiments", debug.experiments),
        ("dataflow_service_options", cloud.dataflow_service_options),
    ):
        for each in chosen or []:
            if each.startswith(_REFUSED_EXPERIMENTS):
                raise UserError(f"--{option}={each}: refused, since it shows rows")


def _named_runner(name: str) -> str:
    """The runner to use. Beam reads names in any case, with or without the word Runner."""
    short = name.split(".")[-1].lower().removesuffix("runner")
    if short in _REFUSED_RUNNERS:
        raise UserError(f"--runner={name}: refused, since {_REFUSED_RUNNERS[short]}")
    if not name:
        return LOOP_RUNNER
    if short in _LOCAL_RUNNERS:
        return BEAMS_RUNNER
    try:
        create_runner(name)
    except (ValueError, ImportError, AttributeError):
        if short == "dataflow":
            raise UserError(
                f"--runner={name}: needs the clients of Google Cloud: in a clone of dptrees, "
                "pip install '.[gcp]'"
            ) from None
        known = ", ".join(StandardOptions.KNOWN_RUNNER_NAMES)
        raise UserError(
            f"--runner={name}: Beam knows no such runner, or it is not installed; known are {known}"
        ) from None
    return name


class _ArgumentParser(_BeamArgumentParser):
    """Beam's options as Beam reads them, but reporting a mistake in one sentence."""

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
        raise UserError(f"{unknown[0]}: is not an option of this command or of Beam")


def runs_here(options: PipelineOptions) -> bool:
    """Whether this process does all the work."""
    return options.view_as(StandardOptions).runner in (BEAMS_RUNNER, LOOP_RUNNER)


def check_filesystems(paths: tuple[str, ...]) -> None:
    """Refuses paths of filesystems that Beam does not know here."""
    for path in paths:
        try:
            FileSystems.get_filesystem(path)
        except (ValueError, BeamIOError):
            raise UserError(
                f"{path}: Beam has no filesystem for it here, or it lacks an option "
                "(gs:// needs dptrees[gcp] installed, s3:// dptrees[aws])"
            ) from None


def run_job(read: beam.PTransform, release: ReleaseTrees, options: PipelineOptions) -> None:
    """Runs the job of a release, and reports its failure in one sentence where it has one.

    Args:
        read: gives its rows, as `transforms.readers.read.ReadBatches` does.
        release: what becomes of them.
        options: Beam's.

    Raises:
        ReleaseError: as of `finish_job`.
    """
    pipeline = beam.Pipeline(options=options)
    # Of transforms in other languages, and empty: a process that is killed would leave it.
    with suppress(OSError):
        os.rmdir(pipeline.local_tempdir)
    with plain_labels():
        pipeline | "Read" >> read | "Release" >> release
    finish_job(pipeline)


@contextmanager
def plain_labels() -> Iterator[None]:
    """Let Beam label the steps of a job in a notebook as elsewhere, until the block ends.

    In IPython Beam adds the number of a cell to labels. For that it imports its data frames, which
    need pandas, and not every version serves.
    """
    outside = _labels_plainly.set(True)
    try:
        yield
    finally:
        _labels_plainly.reset(outside)


def _numbers_cells() -> bool:
    return not _labels_plainly.get() and _is_in_ipython()


# Beam looks this name up for each step; a pipeline of a user is labeled as Beam does.
_is_in_ipython, interactive_utils.is_in_ipython = interactive_utils.is_in_ipython, _numbers_cells


@contextmanager
def _submission(folder: str) -> Iterator[None]:
    """Let Beam put what this thread sends to workers below a folder, until an engine has the job.

    By itself Beam makes a folder for every environment of a job, and leaves it.
    """
    thread = threading.get_ident()
    # Jobs of other threads wait. Between the engine's taking a job and its naming it, nobody could
    # cancel it.
    with _one_submission, postponed():
        made = environments.python_sdk_dependencies

        def below(options: PipelineOptions, tmp_dir: str | None = None) -> Any:
            if tmp_dir is None and threading.get_ident() == thread:
                tmp_dir = mkdtemp(dir=folder)
            return made(options, tmp_dir)

        environments.python_sdk_dependencies = below
        try:
            yield
        finally:
            environments.python_sdk_dependencies = made


def finish_job(pipeline: beam.Pipeline) -> PipelineResult:
    """Runs a job to its end. One that is stopped here is cancelled where it runs.

    Args:
        pipeline: the job.

    Returns:
        what Beam says of it.

    Raises:
        ReleaseError: it failed for a reason that its user can fix, or that may pass.
    """
    remote = not runs_here(pipeline.options)
    result: PipelineResult | None = None
    with ExitStack() as until_the_end:
        submission: AbstractContextManager[None] = nullcontext()
        if remote:
            sent = TemporaryDirectory(prefix="dptrees-sent-", ignore_cleanup_errors=True)
            submission = _submission(until_the_end.enter_context(sent))
        try:
            with submission:
                result = pipeline.run()
            if not submits_only(pipeline.options):
                result.wait_until_finish()
            return result
        except KeyboardInterrupt:
            if result is not None:
                cancel_job(result, pipeline.options)
            raise
        except Exception as error:
            fault = refused_job(error) or engine_fault(error, remote=remote)
            if fault is None:
                raise
            raise fault from None
