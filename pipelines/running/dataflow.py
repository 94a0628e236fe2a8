"""Google's Dataflow: the options of a job there, and what is refused.

What a user gives wins, but where it would break the guarantee. What workers need follows from the
plan alone (`pipelines.running.worker_memory`).
"""

from __future__ import annotations

import re

from apache_beam.options.pipeline_options import (
    DebugOptions,
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    WorkerOptions,
)

from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.faults.log import remark
from dptrees.pipelines.running.worker_memory import MACHINES, machine_for
from dptrees.pipelines.user_error import UserError
from dptrees.transforms.errors import InputError, may_pass
from dptrees.transforms.folder.files import is_local

# A job is short: 10^10 rows are 20 minutes of one core (docs/scale.md), and workers are paid for
# from their start. Dataflow's own limit is far higher.
MOST_WORKERS = 10
_IMAGE = "deploy/container"
_REFUSED = {
    "streaming": "a release is of rows that have an end",
    "update": "a release is no stream whose job could be replaced",
    "create_from_snapshot": "a release is no stream",
}


def is_dataflow(options: PipelineOptions) -> bool:
    """Whether a job is to run on Dataflow."""
    runner = str(options.view_as(StandardOptions).runner).split(".")[-1]
    return runner.lower().removesuffix("runner") == "dataflow"


def submits_only(options: PipelineOptions) -> bool:
    """Whether the job is only described, for the launcher of a Flex template to submit it: it then
    goes on without this process."""
    cloud = options.view_as(GoogleCloudOptions)
    return is_dataflow(options) and bool(cloud.template_location)


def check_dataflow_options(options: PipelineOptions) -> None:
    """Refuses what a job that is a release cannot be on Dataflow.

    Raises:
        UserError: such an option is given.
    """
    given = options.get_all_options(drop_default=True)
    for name, reason in _REFUSED.items():
        if given.get(name):
            raise UserError(f"--{name}: refused, since {reason}")


def set_dataflow_options(options: PipelineOptions) -> None:
    """Sees that what Dataflow needs is given, and puts the defaults of a release where nothing is.

    Raises:
        UserError: an option is missing.
    """
    _check_needed(options)
    cloud, worker = options.view_as(GoogleCloudOptions), options.view_as(WorkerOptions)
    debug = options.view_as(DebugOptions)
    cloud.staging_location = cloud.staging_location or cloud.temp_location
    if worker.autoscaling_algorithm is None:
        worker.autoscaling_algorithm = "THROUGHPUT_BASED"
    if worker.autoscaling_algorithm == "THROUGHPUT_BASED" and worker.max_num_workers is None:
        worker.max_num_workers = max(MOST_WORKERS, worker.num_workers or 0)
    # A process for each core, and one bundle at a time in it: memory is then that of one.
    if debug.number_of_worker_harness_threads is None:
        debug.number_of_worker_harness_threads = 1
    if not any(each.startswith("shuffle_mode") for each in debug.experiments or []):
        debug.add_experiment("shuffle_mode=service")


def _check_needed(options: PipelineOptions) -> None:
    cloud, setup = options.view_as(GoogleCloudOptions), options.view_as(SetupOptions)
    for name, example in (
        ("project", "my-project"),
        ("region", "europe-west1"),
        ("temp_location", "gs://my-bucket/temp"),
    ):
        if not getattr(cloud, name):
            raise UserError(f"--{name}: is missing; Dataflow needs it, as --{name}={example}")
    for name in ("temp_location", "staging_location"):
        place = getattr(cloud, name)
        if place and not re.fullmatch(r"gs://[^/]+(/.*)?", place):
            raise UserError(f"--{name}={place}: must be a folder of a bucket, gs://BUCKET/FOLDER")
    image = options.view_as(WorkerOptions).sdk_container_image
    sent = setup.setup_file or setup.extra_packages or setup.prebuild_sdk_container_engine
    if not image and not sent:
        raise UserError(
            f"--sdk_container_image: is missing; name an image of workers that have dptrees (see "
            f"{_IMAGE}), or send them dptrees by --setup_file=./setup.py"
        )


def check_dataflow_references(configuration: Configuration) -> None:
    """Sees that workers of Dataflow can follow what a configuration refers to.

    Args:
        configuration: of the release.

    Raises:
        UserError: a secret or the ledger lies on this machine.
    """
    if place := _own_place(configuration.key.reference):
        raise UserError(
            f"key: workers of Dataflow cannot read the {place} on your machine, and an image must "
            "not contain a key: put the key into a secret manager and name it as key: "
            "gcp-secret://PROJECT/NAME/VERSION"
        )
    table, ledger = configuration.table, configuration.ledger
    if table is not None and (place := _own_place(table.secret or "")):
        raise UserError(
            f"input.connection: workers of Dataflow cannot read the {place} on your machine, and "
            "an image must not contain a password: write the rows to files, or to a table of "
            "BigQuery"
        )
    if ledger is not None and ledger.file is not None:
        raise UserError(
            f"ledger: {ledger}: lies on this machine, and workers of Dataflow, which record the "
            "draw in it, cannot reach it; use postgresql://"
        )


def _own_place(reference: str) -> str:
    """What of this machine a reference of a secret names; "" where it names a service."""
    return {"file": "file", "env": "environment"}.get(reference.partition(":")[0], "")


def check_dataflow_reach(options: PipelineOptions, paths: tuple[str, ...]) -> None:
    """Sees that workers of Dataflow can reach what a release reads and writes.

    Args:
        options: Beam's.
        paths: of input and output.

    Raises:
        UserError: something lies on this machine, or a bucket is not there.
        InputError: Cloud Storage does not answer now.
    """
    for path in paths:
        if is_local(path):
            raise UserError(
                f"{path}: lies on this machine, and workers of Dataflow cannot reach it; use gs://"
            )
    cloud = options.view_as(GoogleCloudOptions)
    for name in ("temp_location", "staging_location"):
        _check_bucket(options, name, str(getattr(cloud, name)))


def _check_bucket(options: PipelineOptions, name: str, place: str) -> None:
    from apache_beam.io.gcp.gcsio import GcsIO

    bucket = place.removeprefix("gs://").split("/")[0]
    try:
        there = GcsIO(pipeline_options=options).get_bucket(bucket) is not None
    except Exception as error:
        kinds = {each.__name__ for each in type(error).__mro__}
        if kinds & {"Forbidden", "Unauthorized"}:
            return  # may hold objects that this account writes, and not be shown itself
        if "DefaultCredentialsError" in kinds:
            raise UserError("there are no credentials of Google Cloud here") from None
        if may_pass(error):
            raise InputError(f"--{name}: Cloud Storage does not answer now", again=True) from None
        raise
    if not there:
        raise UserError(f"--{name}={place}: there is no bucket {bucket}")


def size_workers(options: PipelineOptions, needed: int) -> None:
    """Chooses the machines of the workers, where nobody has, by the memory that the plan needs.

    Args:
        options: Beam's.
        needed: bytes that a process of a worker may need.

    Raises:
        UserError: no machine has as much.
    """
    worker, debug = options.view_as(WorkerOptions), options.view_as(DebugOptions)
    machine = worker.machine_type
    if machine is not None:
        if machine in MACHINES and MACHINES[machine].memory < needed:
            remark(
                f"--machine_type={machine}: a worker's process may need {needed / 2**30:.1f} GiB, "
                f"and has {MACHINES[machine].memory / 2**30:.1f}"
            )
        return
    chosen = machine_for(needed)
    worker.machine_type = chosen.name
    several = any("use_multiple_sdk_containers" in each for each in debug.experiments or [])
    if chosen.processes == 1 and not several:
        debug.add_experiment("no_use_multiple_sdk_containers")
    remark(
        f"workers are {chosen.name}: a process of one may need {needed / 2**30:.1f} GiB "
        "(--machine_type=... chooses others)"
    )


def refused_job(error: BaseException) -> InputError | None:
    """What Dataflow said of a job that it did not take; None where it was something else."""
    kinds = {each.__name__ for each in type(error).__mro__}
    if "DataflowJobAlreadyExistsError" in kinds:
        return InputError("Dataflow runs a job of this name already: wait for it, or --job_name")
    if "DefaultCredentialsError" in kinds:
        return InputError("there are no credentials of Google Cloud here")
    if "GoogleAPICallError" not in kinds:
        return None
    if may_pass(error):
        return InputError("Dataflow does not take jobs now", again=True)
    if kinds & {"Forbidden", "Unauthorized"}:
        return InputError(
            "Dataflow: this account may not start a job in the project (roles/dataflow.developer, "
            "and roles/iam.serviceAccountUser on the account of the workers), or its API is off"
        )
    # Of the options alone: a request to start a job holds no row.
    words = str(getattr(error, "message", "") or type(error).__name__).splitlines()[0]
    return InputError(f"Dataflow refused the job: {words}")
