"""A job that is described and not run: for a cluster, or a launcher of templates, that runs it."""

from __future__ import annotations

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.running.dataflow import submits_only
from pipelines.running.job_jar import job_jar_of

_THEN = (
    "once it has run, the same command signs the release, settles the ledger and writes the page"
)


def described(options: PipelineOptions) -> str:
    """What there is of a job that nothing has run yet, in words; "" where the job is run.

    Args:
        options: Beam's.
    """
    if jar := job_jar_of(options):
        return f"{jar}: holds the job, and nothing has run; {_THEN}"
    return f"the job is described, and not run yet; {_THEN}" if submits_only(options) else ""
