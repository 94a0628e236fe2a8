"""A job that is written as one jar, for a cluster that runs nothing else, in place of being run."""

from __future__ import annotations

import os

from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions, StandardOptions

from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.running.output import FolderRequest
from dptrees.pipelines.user_error import UserError

OPTION = "--output_executable_path"
# Whose job servers write jars.
_RUNNERS = ("portable", "flink", "spark")


def job_jar_path(options: PipelineOptions) -> str:
    """Where the jar of the job is wanted; "" where the job is to be run.

    Args:
        options: Beam's.
    """
    return str(options.view_as(PortableOptions).output_executable_path or "")


def check_job_jar(
    options: PipelineOptions, configuration: Configuration, request: FolderRequest
) -> None:
    """Refuses a jar of what is no single job, or that nobody would write.

    Args:
        options: Beam's.
        configuration: of the release.
        request: of its folder.

    Raises:
        UserError: a jar is wanted where there can be none.
    """
    jar = job_jar_path(options)
    if not jar:
        return
    runner = str(options.view_as(StandardOptions).runner).split(".")[-1].lower()
    if runner.removesuffix("runner") not in _RUNNERS:
        raise UserError(
            f"{OPTION}={jar}: needs --runner=FlinkRunner or SparkRunner, whose job servers write it"
        )
    if configuration.selection is not None:
        raise UserError(f"{OPTION}={jar}: private keys need two jobs, but a jar contains one")
    if configuration.chooses_bounds:
        raise UserError(f"{OPTION}={jar}: chosen bounds need two jobs, but a jar contains one")
    if request.repair:
        raise UserError(
            f"{OPTION}={jar}: cannot be used with --repair, which checks the files when the job "
            "has ended"
        )
    if not os.path.isdir(os.path.dirname(os.path.abspath(jar))):
        raise UserError(f"{OPTION}={jar}: there is no such folder")
