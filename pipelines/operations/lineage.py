"""Events of OpenLineage: the release that a run makes, its inputs, and its guarantee.

A run reports START once its release is planned, and COMPLETE, FAIL or ABORT (it was stopped) when
it ends. An event holds names alone: of the release, its files, its columns, the checksum of its
manifest, and the guarantee. Facets that count rows or bytes are left out: those counts are exact.

Source: the specification of OpenLineage 2-0-2; its "Naming" has the names of data sets.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

import attr
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    parent_run,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.transport.file import FileConfig, FileTransport

from dptrees.dpcore import __version__
from dptrees.dpcore.release.guarantee import (
    CHECKSUM,
    guarantee_numbers,
    protected_unit,
    stated_guarantee,
)
from dptrees.pipelines.configuration import Configuration
from dptrees.pipelines.faults.exit_code import ExitCode
from dptrees.pipelines.faults.outcome import Outcome
from dptrees.pipelines.release_folder import read_manifest
from dptrees.pipelines.running.run_record import versions
from dptrees.pipelines.running.stage import Stage
from dptrees.transforms import files

NAMESPACE = "OPENLINEAGE_NAMESPACE"
# NAMESPACE/JOB/RUN of who started this one, as other clients take it.
PARENT = "OPENLINEAGE_PARENT_ID"
PRIVACY = "dptrees_privacy"
_PRODUCER = f"urn:dptrees:{__version__}"
_STATES = {
    ExitCode.DONE: RunState.COMPLETE,
    ExitCode.STOPPED: RunState.ABORT,
    ExitCode.TERMINATED: RunState.ABORT,
}


@attr.define
class PrivacyFacet(DatasetFacet):
    """The guarantee of a release, as its manifest has it; docs/privacy-facet.schema.json."""

    guarantee: dict[str, str]
    dataset: str | None = None

    @staticmethod
    def _get_schema() -> str:
        return "urn:dptrees:openlineage:1:PrivacyFacet"


class Lineage:
    """The events of one run.

    Args:
        run: its id; one that is no UUID is sent as one that follows from it.
        file: to which events are added, a line each; None: they go where the environment of
            OpenLineage says.
        is_of_several: the run goes through the periods of a series: each has an id that follows
            from the run's, which is their parent.
    """

    def __init__(self, run: str, file: str | None, *, is_of_several: bool = False) -> None:
        self._run, self._is_of_several = run, is_of_several
        if file is None:
            self._transport = OpenLineageClient().transport
        else:
            self._transport = FileTransport(FileConfig(log_file_path=file, append=True))

    def began(self, stage: Stage) -> None:
        """Report that a planned release is being made."""
        self._emit(stage, RunState.START)

    def ended(self, stage: Stage, outcome: Outcome) -> None:
        """Report how the run ended."""
        state = _STATES.get(outcome.code, RunState.FAIL)
        self._emit(stage, state, outcome.sentence if state is not RunState.COMPLETE else "")

    def _emit(self, stage: Stage, state: RunState, sentence: str = "") -> None:
        plan = stage.planned
        namespace, run = os.environ.get(NAMESPACE) or "dptrees", self._run
        facets = dict(_run_facets(stage, sentence))
        if self._is_of_several and plan.run is not None:
            facets["parent"] = _parent(namespace, f"{plan.name}.through", run)
            run = f"{_uuid(run)} {plan.run.period}"
        job = Job(
            namespace=namespace,
            name=plan.name,
            facets=_ours({"jobType": job_type_job.JobTypeJobFacet("BATCH", "DPTREES", "JOB")}),
        )
        event = RunEvent(
            eventTime=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            eventType=state,
            run=Run(runId=_uuid(run), facets=_ours(facets)),
            job=job,
            inputs=list(_inputs(stage.configuration, plan.columns)),
            outputs=[_output(stage, is_there=state is RunState.COMPLETE)],
            producer=_PRODUCER,
        )
        # Past the client, which may add what the environment holds.
        self._transport.emit(event)


def _run_facets(stage: Stage, sentence: str) -> Iterator[tuple[str, Any]]:
    yield (
        "processing_engine",
        processing_engine_run.ProcessingEngineRunFacet(
            version=versions()["apache-beam"], name=stage.record.runner.split(".")[-1]
        ),
    )
    if sentence:
        yield "errorMessage", error_message_run.ErrorMessageRunFacet(sentence, "PYTHON")
    parent = os.environ.get(PARENT, "").rsplit("/", 2)
    if len(parent) == 3:
        yield "parent", _parent(*parent)


def _parent(namespace: str, job: str, run: str) -> parent_run.ParentRunFacet:
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=_uuid(run)), job=parent_run.Job(namespace, job)
    )


def _ours(facets: dict[str, Any]) -> dict[str, Any]:
    """Facets that say who made them, in place of the library."""
    for facet in facets.values():
        facet._producer = _PRODUCER
    return facets


def _inputs(configuration: Configuration, columns: Iterable[str]) -> Iterator[InputDataset]:
    names = [schema_dataset.SchemaDatasetFacetFields(name=name) for name in columns]
    for namespace, name in _input_names(configuration):
        schema = schema_dataset.SchemaDatasetFacet(fields=names)
        yield InputDataset(namespace=namespace, name=name, facets=_ours({"schema": schema}))


def _input_names(configuration: Configuration) -> Iterator[tuple[str, str]]:
    """The names of what is read, as the configuration has them: no server is contacted."""
    table = configuration.table
    yield from map(dataset_name, configuration.input_paths if table is None else table.paths)
    if table is not None and not table.paths:
        yield table.kind, table.table


def _output(stage: Stage, *, is_there: bool) -> OutputDataset:
    namespace, name = dataset_name(stage.output)
    plan = stage.plan
    numbers = {name: str(value) for name, value in guarantee_numbers(plan).items()}
    numbers["unit"] = protected_unit(plan)
    numbers["guarantee"] = stated_guarantee(plan)
    numbers.pop("dataset", None)
    facets: dict[str, DatasetFacet] = {PRIVACY: PrivacyFacet(numbers, plan.dataset)}
    if is_there:
        checksum = str(read_manifest(stage.output).get(CHECKSUM))
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(checksum)
    return OutputDataset(namespace=namespace, name=name, facets=_ours(facets))


def dataset_name(path: str) -> tuple[str, str]:
    """The namespace and the name of a path or glob, as OpenLineage names data sets.

    >>> dataset_name("s3://lake/visits/*.parquet"), dataset_name("/data/visits.csv")
    (('s3://lake', 'visits/*.parquet'), ('file', '/data/visits.csv'))
    """
    if files.is_local(path):
        return "file", os.path.abspath(path.removeprefix("file://"))
    parts = urlsplit(path)
    place = parts.netloc.rsplit("@", 1)[-1]  # without a password, if somebody wrote one
    return f"{parts.scheme}://{place}", path.split("://", 1)[1].partition("/")[2]


def _uuid(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, text))
