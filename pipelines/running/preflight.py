"""What is seen before a job goes to an engine: that it answers, and what its workers are like."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions

from dptrees.pipelines.faults.log import remark
from dptrees.pipelines.faults.time_limit import time_limit
from dptrees.pipelines.running.job import finish_job, plain_labels, runs_here
from dptrees.pipelines.running.job_jar import job_jar_path
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.errors import InputError
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.preflight import LookAtWorkers, PreflightOptions, check_found

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
    unseen = job_jar_path(options) or options.view_as(PreflightOptions).no_preflight
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
