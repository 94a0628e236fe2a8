"""The job of a release: Beam's options, its progress on the terminal, its end in one sentence.

Progress shows only fractions of work known before the data is read. An engine wraps what its
workers raise, and has failures of its own, which may pass; an exception of ours without a
sentence is a fault of the program, and is shown whole.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NoReturn

import apache_beam as beam
import grpc
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
from tqdm import tqdm

from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.specification import ANOTHER_MATRIX
from dptrees.pipelines.monitoring import LOG, NO_MEMORY, remark
from dptrees.pipelines.process import UserError, postponed
from dptrees.pipelines.run.dataflow import (
    cancel_job,
    check_dataflow_options,
    is_dataflow,
    refused_job,
    set_dataflow_options,
    submits_only,
)
from dptrees.transforms.conservation import listen
from dptrees.transforms.errors import (
    InputError,
    ReleaseError,
    error_in,
    errors_within,
    is_no_memory,
)
from dptrees.transforms.release import ReleaseTrees
from dptrees.transforms.steps.count import UnitOptions, unit_shard_count

# Seconds between two looks at the output.
LOOK_EVERY = 2.0
# After so many seconds without a new part of the output this is remarked, and again after as many.
QUIET_SECONDS = 300.0


@contextmanager
def progress_bar(
    input_bytes: int, parts: int, parts_present: Callable[[], int] | None = None
) -> Iterator[None]:
    """Shows progress until the block ends.

    Args:
        input_bytes: of all input files.
        parts: of the release.
        parts_present: how many parts the output holds, where workers are other processes.
    """
    shared = {"file": sys.stderr, "disable": LOG.is_json or not sys.stderr.isatty(), "leave": False}
    with (
        tqdm(
            total=max(1, input_bytes), desc="reading", unit="B", unit_scale=True, **shared
        ) as read,
        tqdm(total=parts, desc="writing", unit="part", **shared) as written,
    ):
        bars = {"read": read, "write": written}
        stop = listen(lambda stage, amount: bars[stage].update(amount))
        looking = _Look(written, parts, parts_present)
        if parts_present:
            looking.start()
        try:
            yield
        finally:
            stop()
            looking.over.set()
            if looking.ident is not None:
                looking.join()


class _Look(threading.Thread):
    """Look from time to time how many parts there are, and remark that none came for long."""

    def __init__(
        self, bar: tqdm[object], parts: int, parts_present: Callable[[], int] | None
    ) -> None:
        super().__init__(daemon=True)
        self._bar, self._parts, self._present = bar, parts, parts_present
        self.over = threading.Event()

    def run(self) -> None:
        """Until the job is over. What cannot be seen is not shown: the job says its own errors."""
        assert self._present is not None
        # Without a bar nobody waits for the number.
        every = min(QUIET_SECONDS / 5, LOOK_EVERY * (15 if self._bar.disable else 1))
        seen, since = 0, time.monotonic()
        while not self.over.wait(every):
            with suppress(Exception):
                present = min(self._parts, self._present())
                if present > seen:
                    seen, since = present, time.monotonic()
                self._bar.n = seen
                self._bar.refresh()
            if time.monotonic() - since >= QUIET_SECONDS:
                remark(
                    f"the job has not written a part of the release for {QUIET_SECONDS:.0f} s "
                    f"({seen} of {self._parts} are there): it is reading, or waiting for workers; "
                    "see the engine's own page. --timeout stops such a run"
                )
                since = time.monotonic()


_MISSING = re.compile(r"No module named 'dptrees\b")
_NO_SPACE = re.compile("No space left on device|Disk quota exceeded")
# Java's traces, which Python's own failures follow.
_PYTHON = "Traceback (most recent call last)"
_NOT_THERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def engine_fault(error: Exception, *, remote: bool) -> ReleaseError | None:
    """Return how the failure of a job is reported; None for a fault of the program.

    Args:
        error: as Beam raised it.
        remote: the workers are other processes.
    """
    text = " ".join(str(each) for each in errors_within(error))
    result = error_in(text)
    if result is not None:
        return result
    if ANOTHER_MATRIX in text:
        return InputError(ANOTHER_MATRIX)
    if is_no_memory(error) or "OutOfMemoryError" in text:
        return InputError(NO_MEMORY, again=True)
    if _NO_SPACE.search(text):
        return InputError("a disk is full where the job ran", again=True)
    if not remote:
        return None
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


# In this process, on all its processors.
LOOP_RUNNER = "dptrees.pipelines.run.loop.LoopRunner"
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
