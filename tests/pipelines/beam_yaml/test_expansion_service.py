"""`DPTree` by its URN: expanded by a service in another process, and run by a client."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import grpc
import pytest
from apache_beam.internal import pickler
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_expansion_api_pb2,
    beam_expansion_api_pb2_grpc,
    beam_runner_api_pb2,
)
from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder

from dptrees.pipelines.beam_yaml import URN
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.beam_yaml.test_transform import RUNNER, small_section
from tests.pipelines.conftest import PROJECT, Workspace, search_path

# The service's Python is the client's, and so its steps run in the client's process.
EMBEDDED = ("--environment_type=beam:env:embedded_python:v1",)


class Visit(NamedTuple):
    """A row, in the coder of rows that all languages have."""

    x: float
    place: str


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running expansion service."""
    log: Path = tmp_path_factory.mktemp("service") / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "dptrees.expansion_service", *EMBEDDED],
            cwd=PROJECT,
            env={"PYTHONPATH": search_path(), "PATH": ""},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        urn, _, found = process.stdout.readline().strip().partition(" at ")
        assert urn == URN and found.startswith("localhost:"), log.read_text()
        yield found
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    finally:
        process.kill()


def expanded(address: str, section: dict[str, object]) -> None:
    """Runs a pipeline whose release is expanded by the service."""
    beam.coders.registry.register_coder(Visit, beam.coders.RowCoder)
    payload = ImplicitSchemaPayloadBuilder({"configuration": json.dumps(section)})
    visits = [Visit(12.5, "north"), Visit(50.0, "south")] * 100
    with beam.Pipeline(RUNNER) as pipeline:
        rows = pipeline | beam.Create(visits).with_output_types(Visit)
        rows | ExternalTransform(URN, payload, address)


def test_a_release_by_its_urn(address: str, workspace: Workspace) -> None:
    output = workspace.folder / "own"
    expanded(address, small_section(workspace, output))
    release = ReleaseFolder(str(output)).release
    assert [question.name for question in release.plan.questions] == ["all", "places"]


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_other_transforms_are_refused(address: str, tmp_path: Path) -> None:
    planted = pickler.dumps(Planted(tmp_path / "planted"))
    spec = beam_runner_api_pb2.FunctionSpec(urn="beam:transform:pickled_python:v1", payload=planted)
    request = beam_expansion_api_pb2.ExpansionRequest(
        namespace="a", transform=beam_runner_api_pb2.PTransform(unique_name="t", spec=spec)
    )
    with grpc.insecure_channel(address) as channel:
        reported = beam_expansion_api_pb2_grpc.ExpansionServiceStub(channel).Expand(request)
    assert reported.error == f"beam:transform:pickled_python:v1: this service expands {URN} alone"
    assert not (tmp_path / "planted").exists()
    pickler.loads(planted)
    assert (tmp_path / "planted").exists()


def test_no_files_are_served(address: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    file = beam_runner_api_pb2.ArtifactFilePayload(path=str(tmp_path / "file"))
    requested = beam_artifact_api_pb2.GetArtifactRequest(
        artifact=beam_runner_api_pb2.ArtifactInformation(
            type_urn="beam:artifact:type:file:v1", type_payload=file.SerializeToString()
        )
    )
    with grpc.insecure_channel(address) as channel:
        stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="UNIMPLEMENTED"):
            list(stub.GetArtifact(requested))


def test_a_mistake_comes_back_with_its_sentence(address: str, workspace: Workspace) -> None:
    section = small_section(workspace, workspace.folder / "own") | {"confidence": 2}
    with pytest.raises(RuntimeError, match="DPTree: confidence: 2 must be a number above 0"):
        expanded(address, section)
    assert not (workspace.folder / "own").exists()
