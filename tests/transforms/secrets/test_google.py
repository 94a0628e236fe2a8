"""Secrets of Google Cloud, by its own client from a server of the service's gRPC protocol.

The server is a stand-in of a few lines, since there is no emulator of Secret Manager; messages,
names of methods, status codes and retries are those of the client.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.pipelines.cli.command import main
from dptrees.transforms import keys
from dptrees.transforms.keys import KeyReference, KeyReferenceError, SecretError
from tests import google_cloud

KEY = ReleaseKey(bytes(range(32)))
PLACE = "gcp-secret://my-project/release-key/latest"
METHOD = "/google.cloud.secretmanager.v1.SecretManagerService/AccessSecretVersion"
needs_google = google_cloud.needed()


class Service(grpc.GenericRpcHandler):
    """Versions of secrets by their names, and what is said of some others."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.versions: dict[str, bytes] = {}
        self.refusals: dict[str, grpc.StatusCode] = {}

    def service(self, details):
        from google.cloud.secretmanager_v1.types import (
            AccessSecretVersionRequest,
            AccessSecretVersionResponse,
        )

        assert details.method == METHOD
        return grpc.unary_unary_rpc_method_handler(
            self.answer,
            request_deserializer=AccessSecretVersionRequest.deserialize,
            response_serializer=AccessSecretVersionResponse.serialize,
        )

    def answer(self, request, context):
        from google.cloud.secretmanager_v1.types import AccessSecretVersionResponse

        self.requests.append(request.name)
        if request.name in self.refusals:
            context.abort(self.refusals[request.name], "Miriam-4711")
        if request.name not in self.versions:
            context.abort(grpc.StatusCode.NOT_FOUND, "Miriam-4711")
        found = {"data": self.versions[request.name]}
        return AccessSecretVersionResponse(name=request.name, payload=found)


def name(secret: str, version: str = "latest") -> str:
    return f"projects/my-project/secrets/{secret}/versions/{version}"


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service with a key, which the client of this process reaches."""
    from google.cloud.secretmanager import SecretManagerServiceClient
    from google.cloud.secretmanager_v1.services.secret_manager_service.transports import (
        SecretManagerServiceGrpcTransport,
    )

    server, made = grpc.server(ThreadPoolExecutor(4)), Service()
    server.add_generic_rpc_handlers((made,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    transport = SecretManagerServiceGrpcTransport(channel=channel)
    client = SecretManagerServiceClient(transport=transport)
    monkeypatch.setattr(keys, "_google_client", lambda: client)
    monkeypatch.setattr("dptrees.transforms.keys._held", {})
    made.versions[name("release-key")] = KEY.to_text().encode() + b"\n"
    yield made
    channel.close()
    server.stop(grace=None)


@needs_google
def test_a_key(service) -> None:
    reference = KeyReference(reference=PLACE).checked()
    assert reference.load().key_id == KEY.key_id
    assert service.requests == [name("release-key")]


@needs_google
def test_a_release(service, data, tmp_path, capsys) -> None:
    """Launcher and workers, one process here, request the key once each in a release."""
    configuration = tmp_path / "release.yaml"
    configuration.write_text(
        f"release: secret\ninput: {{format: parquet, path: {data}}}\noutput: {tmp_path / 'out'}\n"
        f"key: {PLACE}\nprivacy: {{epsilon: 1, neighbors: add_remove}}\n"
        "trees:\n  - {name: t, domain: {column: value, lower: 0, upper: 10, cells: 20}}\n"
    )
    assert main(["release", str(configuration)]) == 0
    assert len(service.requests) == 1
    assert main(["verify", str(tmp_path / "out"), "--key", PLACE]) == 0
    service.versions.clear()
    assert main(["verify", str(tmp_path / "out"), "--key", PLACE]) == 2
    assert f"{PLACE}: there is no such secret" in capsys.readouterr().err


@needs_google
@pytest.mark.parametrize(
    ("status", "words", "again"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "needs roles/secretmanager.secretAccessor", False),
        (grpc.StatusCode.NOT_FOUND, "there is no such secret, or no such version of it", False),
        (grpc.StatusCode.FAILED_PRECONDITION, "this version is disabled or destroyed", False),
        (grpc.StatusCode.UNAUTHENTICATED, "the credentials of the account", False),
        (grpc.StatusCode.UNAVAILABLE, "Secret Manager does not answer now", True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Secret Manager does not answer now", True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Secret Manager does not answer now", True),
        (grpc.StatusCode.DATA_LOSS, "cannot be read (DataLoss)", False),
    ],
    ids=str,
)
def test_refusals_of_the_service(status, words, again, service, monkeypatch) -> None:
    monkeypatch.setattr(keys, "_SECONDS", 0.5)
    service.refusals[name("release-key")] = status
    with pytest.raises(KeyReferenceError) as caught:
        KeyReference(reference=PLACE).load()
    assert caught.value.sentence.startswith(f"key: {PLACE}")
    assert words in caught.value.sentence and caught.value.again is again
    assert "4711" not in str(caught.value)


@needs_google
def test_what_is_no_key_is_not_shown(service) -> None:
    for text in (b"Miriam-4711", b"Miriam-4711\xff"):
        service.versions[name("release-key")] = text
        with pytest.raises(KeyReferenceError) as caught:
            KeyReference(reference=PLACE).load()
        assert PLACE in caught.value.sentence and "4711" not in str(caught.value)


@needs_google
def test_no_credentials(monkeypatch, tmp_path) -> None:
    from google.auth.exceptions import DefaultCredentialsError

    def client() -> None:
        raise DefaultCredentialsError("at /home/miriam")

    monkeypatch.setattr(keys, "_google_client", client)
    with pytest.raises(SecretError, match="there are no credentials of Google Cloud here"):
        keys.GOOGLE.load(PLACE, "key")


def test_without_the_library(monkeypatch) -> None:
    def client() -> None:
        raise ImportError("google.cloud.secretmanager")

    monkeypatch.setattr(keys, "_google_client", client)
    with pytest.raises(SecretError, match=r"pip install '.\[gcp\]'"):
        keys.GOOGLE.load(PLACE, "key")
