"""A release on Dataflow, as far as it goes without Google: Beam's Dataflow runner translates and
stages the job, its client sends it, and a stand-in of the service runs what was staged."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from apache_beam.io.filesystems import FileSystems
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.cli.command import main
from dptrees.pipelines.run.dataflow import cancel_job
from dptrees.transforms import keys
from dptrees.transforms.folder import files
from tests import google_cloud
from tests.dataflow.service import Service, dataflow
from tests.transforms.test_key_reference import holds, plain_forms
from tests.transforms.test_object_store import NONCE, parquet, settings

pytestmark = google_cloud.needed(server=True)
KEY = ReleaseKey(bytes(range(7, 39)))
PLACE = "gcp-secret://test/release-key/latest"
IMAGE = "europe-docker.pkg.dev/test/images/dptrees-worker:1.0"


@pytest.fixture(scope="module")
def storage() -> Iterator[google_cloud.Storage]:
    """A server of Cloud Storage."""
    with google_cloud.storage() as running:
        yield running


@pytest.fixture
def service() -> Iterator[Service]:
    """A service of Dataflow."""
    with dataflow() as running:
        yield running


@pytest.fixture
def rows() -> pa.Table:
    """Some rows of two columns."""
    random = np.random.default_rng(5)
    return pa.table(
        {
            "value": random.uniform(0, 10, 3000),
            "carrier": random.choice(["UA", "AA", "DL"], 3000),
        }
    )


@pytest.fixture
def bucket(storage, monkeypatch: pytest.MonkeyPatch, rows, request) -> str:
    """A bucket with rows, which this process reaches; and the key in Secret Manager."""
    storage.reach(monkeypatch)
    payload = SimpleNamespace(data=KEY.to_text().encode())
    secrets = SimpleNamespace(access_secret_version=lambda **_: SimpleNamespace(payload=payload))
    monkeypatch.setattr(keys, "_google_client", lambda: secrets)
    made = storage.new_bucket(request.node.name)
    made.blob("rows/a.parquet").upload_from_string(parquet(rows))
    return f"gs://{made.name}"


@pytest.fixture
def configuration(bucket: str, tmp_path: Path) -> str:
    """Write the configuration of a release from the bucket to the bucket; return its path."""
    chosen = settings(f"{bucket}/rows/*.parquet", f"{bucket}/out", tmp_path)
    del chosen["key_file"]
    path = tmp_path / "release.yaml"
    path.write_text(yaml.safe_dump(chosen | {"key": PLACE}))
    return str(path)


@pytest.fixture
def options(bucket: str, service: Service) -> list[str]:
    """What a person gives, and where the stand-ins are."""
    return [
        *("--runner=DataflowRunner", "--project=test", "--region=europe-west1"),
        *(f"--temp_location={bucket}/temp", f"--sdk_container_image={IMAGE}"),
        f"--dataflow_endpoint=http://localhost:{service.port}",
    ]


def read(path: str) -> bytes:
    with FileSystems.open(path) as file:
        return bytes(file.read())


Described = Callable[..., tuple[dict[str, Any], beam_runner_api_pb2.Pipeline]]


@pytest.fixture
def described(configuration: str, options: list[str], bucket: str) -> Described:
    """Describes a job as for a template: the request that would be sent, and the pipeline."""

    def made(*more: str) -> tuple[dict[str, Any], beam_runner_api_pb2.Pipeline]:
        template = f"--template_location={bucket}/template/job.json"
        assert main(["release", configuration, *options, template, *more]) == 0
        job = json.loads(read(f"{bucket}/template/job.json"))
        url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
        return job, beam_runner_api_pb2.Pipeline.FromString(read(url))

    return made


def test_the_job_that_is_sent(described, bucket, capsys) -> None:
    job, pipeline = described()
    assert "the job is written, but has not run" in capsys.readouterr().err
    (pool,) = job["environment"]["workerPools"]
    assert pool["machineType"] == "e2-standard-4"
    assert pool["numThreadsPerWorker"] == 1
    scaling = pool["autoscalingSettings"]
    assert scaling == {"algorithm": "AUTOSCALING_ALGORITHM_BASIC", "maxNumWorkers": 10}
    (image,) = pool["sdkHarnessContainerImages"]
    assert image["containerImage"] == IMAGE
    assert {"use_runner_v2", "shuffle_mode=service"} <= set(job["environment"]["experiments"])
    assert job["type"] == "JOB_TYPE_BATCH"
    assert len(json.dumps(job)) < 20_000  # what is large is staged
    assert job["environment"]["sdkPipelineOptions"]["options"]["save_main_session"] is False
    (environment,) = {
        each.payload
        for each in pipeline.components.environments.values()
        if each.urn == common_urns.environments.DOCKER.urn
    }
    assert beam_runner_api_pb2.DockerPayload.FromString(environment).container_image == IMAGE
    assert not files.exists(f"{bucket}/out/manifest.json")


def test_neither_the_job_nor_what_is_staged_holds_the_key(described, bucket) -> None:
    job, pipeline = described()
    staged = pipeline.SerializeToString()
    needles = plain_forms(KEY)
    assert not holds(json.dumps(job).encode(), needles)
    assert not holds(staged, needles)
    # Not because the payloads stay closed: where the key lies is found in them.
    assert holds(staged, [PLACE.encode()]) and holds(staged, [KEY.check_value()])
    for metadata in FileSystems.match([f"{bucket}/temp/**"])[0].metadata_list:
        assert not holds(read(metadata.path), needles), metadata.path


def test_the_steps_of_the_job(described) -> None:
    _, pipeline = described()
    transforms = pipeline.components.transforms.values()
    urns = [each.spec.urn for each in transforms]
    assert urns.count(common_urns.primitives.GROUP_BY_KEY.urn) >= 5
    names = {each.unique_name for each in transforms}
    for step in ("Read", "Release", "Release/Commit"):
        assert step in names or any(each.startswith(f"{step}/") for each in names), step
    # Noise is drawn and committed with the record of the draw at the side.
    sided = set()
    for each in transforms:
        if each.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload)
            sided |= {each.unique_name} if payload.side_inputs else set()
    assert any("Commit" in each for each in sided) and any("Draw" in each for each in sided)
    bounded = {each.is_bounded for each in pipeline.components.pcollections.values()}
    assert bounded == {beam_runner_api_pb2.IsBounded.BOUNDED}


@pytest.mark.parametrize(
    ("given", "place", "expected"),
    [
        ("--machine_type=n2-highmem-8", ("machineType",), "n2-highmem-8"),
        ("--number_of_worker_harness_threads=3", ("numThreadsPerWorker",), 3),
        ("--max_num_workers=40", ("autoscalingSettings", "maxNumWorkers"), 40),
        ("--num_workers=25", ("autoscalingSettings", "maxNumWorkers"), 25),
        (
            "--autoscaling_algorithm=NONE",
            ("autoscalingSettings",),
            {"algorithm": "AUTOSCALING_ALGORITHM_NONE"},
        ),
    ],
)
def test_what_is_given_wins(given, place, expected, described) -> None:
    found: Any = described(given)[0]["environment"]["workerPools"][0]
    for name in place:
        found = found[name]
    assert found == expected


def test_a_release_and_again(
    configuration, options, service, bucket, rows, tmp_path, capsys
) -> None:
    assert main(["release", configuration, *options, *NONCE]) == 0
    (job,) = service.jobs.values()
    assert job["currentState"] == "JOB_STATE_DONE"
    # The same bytes as on this machine.
    (tmp_path / "rows.parquet").write_bytes(parquet(rows))
    chosen = yaml.safe_load(Path(configuration).read_text())
    chosen["input"]["path"], chosen["output"] = str(tmp_path / "*.parquet"), str(tmp_path / "out")
    (tmp_path / "local.yaml").write_text(yaml.safe_dump(chosen))
    assert main(["release", str(tmp_path / "local.yaml"), *NONCE]) == 0
    local = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(local) > 5
    for path in local:
        name = path.relative_to(tmp_path / "out").as_posix()
        if name != "report.html":
            assert read(f"{bucket}/out/{name}") == path.read_bytes(), name
    # Again: no job.
    capsys.readouterr()
    assert main(["release", configuration, *options]) == 0
    assert "already there" in capsys.readouterr().out and len(service.jobs) == 1


def test_a_template_that_has_run_is_completed_by_the_same_command(
    described, configuration, options, bucket, monkeypatch
) -> None:
    from tests.dataflow.service import run_pipeline

    _, pipeline = described()
    assert not files.exists(f"{bucket}/out/manifest.json")
    run_pipeline(pipeline)
    assert files.exists(f"{bucket}/out/manifest.json")
    assert not files.exists(f"{bucket}/out/report.html")
    assert main(["release", configuration, *options]) == 0
    assert files.exists(f"{bucket}/out/report.html")


def test_a_job_that_fails_is_reported_in_its_own_sentence(
    configuration, options, service, bucket, monkeypatch, capsys
) -> None:
    service.holds = False
    monkeypatch.setattr(Service, "_run", lambda self, job: "JOB_STATE_FAILED")
    assert main(["release", configuration, *options]) == 75
    assert "the engine ended the job" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, 2, "Dataflow: this account may not start a job in the project"),
        (400, 2, "Dataflow refused the job"),
        (503, 75, "Dataflow does not take jobs now"),
    ],
)
def test_a_job_that_is_refused(
    status, code, words, configuration, options, service, capsys
) -> None:
    service.refusal = status
    assert main(["release", configuration, *options]) == code
    assert words in capsys.readouterr().err


def test_cancelling(service, options, capsys) -> None:
    import apache_beam as beam
    from google.cloud import dataflow_v1beta3

    from dptrees.pipelines.run.engine import engine_options

    service.holds = True
    chosen = engine_options(options)
    pipeline = beam.Pipeline(options=chosen)
    pipeline | beam.Create([1])
    result = pipeline.run()
    cancel_job(result, chosen)
    (job,) = service.jobs.values()
    assert job["requestedState"] == dataflow_v1beta3.JobState.JOB_STATE_CANCELLED
    assert not capsys.readouterr().err
