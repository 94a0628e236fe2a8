"""A job that is described and not run: for a cluster, or a launcher of templates, that runs it."""

from __future__ import annotations

from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.running.dataflow import submits_only
from dptrees.pipelines.running.job_jar import job_jar_path
from dptrees.pipelines.user_error import UserError

_THEN = (
    "after it has run, the same command signs the release, completes the ledger and writes the page"
)


def described(options: PipelineOptions) -> str:
    """What there is of a job that nothing has run yet, in words; "" where the job is run.

    Args:
        options: Beam's.
    """
    if jar := job_jar_path(options):
        return f"{jar}: contains the job, which has not run; {_THEN}"
    return f"the job is written, but has not run; {_THEN}" if submits_only(options) else ""


def check_described(options: PipelineOptions, configuration: Configuration) -> None:
    """Refuses to describe a job that could not run once this command has ended.

    Args:
        options: Beam's.
        configuration: of the release.

    Raises:
        UserError: it reads what this command holds.
    """
    if configuration.table is not None and configuration.table.held and described(options):
        raise UserError(
            f"input: the state of {configuration.table.name} lasts as long as this command, and "
            "the job runs without it; write it to files"
        )
