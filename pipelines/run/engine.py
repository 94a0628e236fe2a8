"""A job on an engine of Beam's: its options, what would break the guarantee, and its end.

An engine must answer, and its workers fit, before a job goes to it. It wraps what its workers
raise, and has failures of its own, which may pass; an exception of ours without a sentence is a
fault of the program, and is shown whole.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NoReturn

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    AzureOptions,
    DebugOptions,
    DirectOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
    S3Options,
    SetupOptions,
    StandardOptions,
    _BeamArgumentParser,
)
from apache_beam.runners.runner import PipelineResult, create_runner
from apache_beam.transforms import environments
from apache_beam.utils import interactive_utils

from dptrees.pipelines.monitoring import remark
from dptrees.pipelines.process import UserError, postponed, time_limit
from dptrees.pipelines.run.dataflow import (
    cancel_job,
    check_dataflow_options,
    is_dataflow,
    refused_job,
    set_dataflow_options,
    submits_only,
)
from dptrees.pipelines.run.job import LOOP_RUNNER, job_fault
from dptrees.transforms import flow
from dptrees.transforms.beam.adapter import OnBeam, unit_shards
from dptrees.transforms.errors import InputError, ReleaseError, errors_within
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.preflight import LookAtWorkers, PreflightOptions, check_found

# Beam's own, one bundle at a time: its modes with several local workers were measured to lose
# elements of large inputs, and its default runner reruns a failed job on another one.
BEAMS_RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
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


def engine_options(arguments: list[str]) -> PipelineOptions:
    """Beam's options, with the runner named and what would break the guarantee refused.

    Raises:
        UserError: a runner or an option that cannot be used.
    """
    if arguments:
        _check_arguments(arguments)
    options = JobOptions(arguments)
    runner = check_options(options)
    options.view_as(StandardOptions).runner = runner
    if runner == LOOP_RUNNER and not any(
        each.startswith("--direct_num_workers") for each in arguments
    ):
        options.view_as(DirectOptions).direct_num_workers = 0
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
    unit_shards(options)  # refuses what is out of range
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


def runner_of(options: PipelineOptions) -> str:
    """The name of the runner."""
    return str(options.view_as(StandardOptions).runner)


def runs_here(options: PipelineOptions) -> bool:
    """Whether this process does all the work."""
    return options.view_as(StandardOptions).runner in (BEAMS_RUNNER, LOOP_RUNNER)


def jar_of(options: PipelineOptions) -> str:
    """The path of the jar of the job; "" if it is to be run."""
    return str(options.view_as(PortableOptions).output_executable_path or "")


def loop_settings(options: PipelineOptions) -> tuple[int, int | None]:
    """The threads of the loop, and the shards of units, that options of Beam say."""
    return int(options.view_as(DirectOptions).direct_num_workers), unit_shards(options)[0]


_MISSING = re.compile(r"No module named 'dptrees\b")
# Java's traces, which Python's own failures follow.
_PYTHON = "Traceback (most recent call last)"
_NOT_THERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def engine_fault(error: Exception, *, remote: bool) -> ReleaseError | None:
    """Return how the failure of a job is reported; None for a fault of the program.

    Args:
        error: as Beam raised it.
        remote: the workers are other processes.
    """
    found = job_fault(error)
    if found is not None or not remote:
        return found
    text = " ".join(str(each) for each in errors_within(error))
    if _MISSING.search(text):
        return InputError(
            "workers: they have no dptrees, or another version of it: install that of the "
            "launcher there, or send it with --setup_file=./setup.py"
        )
    if any(_is_away(each) for each in errors_within(error)):
        return InputError("the job server does not answer, or no longer", again=True)
    if _PYTHON not in text:
        return InputError(
            "the engine ended the job: a worker was lost, or there is no room for a worker; see "
            "the engine's log",
            again=True,
        )
    return None


def _is_away(error: BaseException) -> bool:
    if isinstance(error, grpc.FutureTimeoutError):
        return True
    code = getattr(error, "code", None)
    return isinstance(error, grpc.RpcError) and callable(code) and code() in _NOT_THERE


def run_on_engine(read: flow.Transform, release: flow.Transform, options: PipelineOptions) -> None:
    """Run the job of a release on an engine.

    Args:
        read: gives its rows.
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
        pipeline | "Read" >> OnBeam(read) | "Release" >> OnBeam(release)
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


ANSWER_SECONDS = 20
_REMARK_SECONDS = 20
# Within a minute, with what it takes to cancel the job.
_WAIT_SECONDS = 45
_NO_STEP = (
    f"the engine has not run a step for {_WAIT_SECONDS} s: no worker is free, or its workers "
    "cannot start (another Python there, or no Beam or dptrees); see the log of the workers, or "
    "of their worker pool. --no_preflight waits for workers without end"
)
# Whose jobs begin within seconds; workers of others are rented for minutes.
_RUNNERS = ("portable", "flink", "spark", "prism")


def check_workers(options: PipelineOptions, key: KeyReference) -> bool:
    """Sees that the engine answers, and that its workers have the launcher's Python, dptrees and
    key. Workers that are threads of the launcher need no look.

    Args:
        options: Beam's.
        key: with its check value.

    Returns:
        whether a worker was looked at.

    Raises:
        PreflightError: they differ.
        InputError: the job server does not answer, or the job failed.
        TimeLimitError: no worker ran the step in time.
    """
    portable = options.view_as(PortableOptions)
    check_endpoint(options)
    runner = str(options.view_as(StandardOptions).runner)
    short = runner.split(".")[-1].lower().removesuffix("runner")
    here = runs_here(options) or portable.environment_type == "LOOPBACK"
    unseen = portable.output_executable_path or options.view_as(PreflightOptions).no_preflight
    if here or short not in _RUNNERS or unseen:
        return False
    pipeline = beam.Pipeline(options=_once(options))
    with plain_labels():
        pipeline | "Preflight" >> LookAtWorkers(key)
    with time_limit(_WAIT_SECONDS, _NO_STEP), _waiting():
        check_found(finish_job(pipeline).metrics())
    return True


def _once(options: PipelineOptions) -> PipelineOptions:
    """The options of a job that Flink does not try again."""
    given = options.get_all_options(drop_default=True, retain_unknown_options=True)
    return PipelineOptions.from_dictionary(given | {"number_of_execution_retries": 0})


def check_endpoint(options: PipelineOptions) -> str:
    """Sees that a job server answers; Beam would wait for minutes.

    Args:
        options: Beam's.

    Returns:
        where it answers; "" where no job server is named.

    Raises:
        UserError: its place is none.
        InputError: it does not answer.
    """
    endpoint = str(options.view_as(PortableOptions).job_endpoint or "")
    if not endpoint or endpoint == "embed":
        return ""
    if ":" not in endpoint:
        raise UserError(f"--job_endpoint={endpoint}: is not HOST:PORT")
    with grpc.insecure_channel(endpoint) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            raise InputError(
                f"--job_endpoint: no job server answers at {endpoint}", again=True
            ) from None
    return endpoint


@contextmanager
def _waiting() -> Iterator[None]:
    """Remarks that nothing was heard of the workers for long."""
    timer = threading.Timer(
        _REMARK_SECONDS,
        remark,
        (
            f"the engine has not run a step for {_REMARK_SECONDS} s: no worker is free, or its "
            f"workers cannot start; waiting up to {_WAIT_SECONDS} s",
        ),
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
