"""S3 as Beam reaches it: one client a process, and an end to waiting where nothing answers."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from dptrees.transforms.errors import NO_ANSWER, may_pass
from dptrees.transforms.folder import beam_store as s3_client
from dptrees.transforms.folder import files
from dptrees.transforms.folder.files import OutputError

boto3 = pytest.importorskip("boto3", reason="no boto3 to reach S3 with")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clients of other tests, and credentials that no server looks at."""
    monkeypatch.setattr(s3_client, "_clients", {})
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def away() -> str:
    """The address of no server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def reach(endpoint: str) -> PipelineOptions:
    """Let this process reach S3 there."""
    options = PipelineOptions([f"--s3_endpoint_url={endpoint}", "--s3_region_name=us-east-1"])
    files.use_options(options)
    return options


def test_all_files_have_one_client(away: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from apache_beam.io.aws.s3io import S3IO

    options = reach(away)
    one, other = S3IO(options=options).client, S3IO(options=options).client
    assert one is not other and one.client is other.client
    # As workers have the options.
    worker = S3IO(options=options.view_as(S3Options).get_all_options()).client
    assert worker.client is one.client
    # What is read of an object is each one's own.
    assert {"_download_request", "_download_stream", "_download_pos"} <= vars(one).keys()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert S3IO(options=options).client.client is not one.client


def test_beams_client_has_what_ours_begins_with() -> None:
    """Another version of Beam may have more."""
    from apache_beam.io.aws.clients.s3 import boto3_client

    ours = boto3_client.Client
    (beams,) = ours.__bases__
    names = {"s3_region_name": "us-east-1"}
    assert vars(beams(names)).keys() == vars(ours(names)).keys()


@pytest.mark.parametrize("server", ["away", "deaf"])
def test_a_store_that_does_not_answer(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_client, "_READ_SECONDS", 0.2)
    reach(request.getfixturevalue(server))
    began = time.monotonic()
    with pytest.raises(OutputError) as caught:
        files.exists("s3://bucket/name")
    assert caught.value.again
    with pytest.raises(OutputError) as caught:
        files.read_bytes("s3://bucket/name")
    assert caught.value.again
    # Beam would wait for ten minutes.
    assert time.monotonic() - began < 60


def test_no_credentials_are_not_waited_for(
    away: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    reach(away)
    with pytest.raises(OutputError, match="credentials") as caught:
        files.exists("s3://bucket/name")
    assert not caught.value.again


def test_a_store_that_answers() -> None:
    from apache_beam.io.aws.clients.s3.messages import S3ClientError
    from botocore.exceptions import ClientError

    for status in (301, 403, 404, 503):
        answer: Any = {"ResponseMetadata": {"HTTPStatusCode": status}}
        error = ClientError(answer, "HeadObject")
        assert s3_client.http_status(error) == status
        assert may_pass(S3ClientError("told", status)) is (status == 503)
    assert may_pass(S3ClientError("told", NO_ANSWER))


def test_the_longest_wait_is_a_minute() -> None:
    """Beside it are pauses of at most 1 and 2 seconds."""
    assert s3_client._ATTEMPTS * s3_client._READ_SECONDS + 3 <= 60
