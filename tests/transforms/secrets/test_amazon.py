"""Secrets of AWS, by boto3 from a server that speaks the service's protocol (moto)."""

from collections.abc import Iterator

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms import keys
from dptrees.transforms.keys import KeyReference, KeyReferenceError, SecretError

KEY, OTHER = ReleaseKey(bytes(range(32))), ReleaseKey(bytes(range(1, 33)))
REGION = "eu-central-1"
PLACE = f"aws-secretsmanager://{REGION}/prod/release-key"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a server."""
    pytest.importorskip("boto3", reason="no boto3 to reach the service with")
    server = pytest.importorskip("moto.server", reason="no moto to serve secrets")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def service(endpoint: str, monkeypatch: pytest.MonkeyPatch):
    """A client of the service, which this process reaches by its environment."""
    import boto3

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SECRETS_MANAGER", endpoint)
    monkeypatch.setattr("dptrees.transforms.keys._held", {})
    client = boto3.client("secretsmanager", region_name=REGION)
    client.create_secret(Name="prod/release-key", SecretString=OTHER.to_text())
    client.put_secret_value(SecretId="prod/release-key", SecretString=KEY.to_text() + "\n")
    yield client
    client.delete_secret(SecretId="prod/release-key", ForceDeleteWithoutRecovery=True)


def test_the_current_version_and_another(service) -> None:
    reference = KeyReference(reference=PLACE).checked()
    assert reference.load().key_id == KEY.key_id
    previous = KeyReference(reference=f"{PLACE}?stage=AWSPREVIOUS")
    assert previous.load().key_id == OTHER.key_id


def test_a_secret_of_bytes(service) -> None:
    service.put_secret_value(SecretId="prod/release-key", SecretBinary=KEY.to_text().encode())
    assert KeyReference(reference=PLACE).load().key_id == KEY.key_id


def test_one_that_is_not_there(service) -> None:
    with pytest.raises(KeyReferenceError) as caught:
        KeyReference(reference=f"{PLACE}-not").load()
    assert caught.value.sentence == (
        f"key: {PLACE}-not: there is no such secret, or no such version of it"
    )
    assert not caught.value.again


def test_what_is_no_key_is_not_shown(service) -> None:
    service.put_secret_value(SecretId="prod/release-key", SecretString="Miriam-4711")
    with pytest.raises(KeyReferenceError) as caught:
        KeyReference(reference=PLACE).load()
    assert PLACE in caught.value.sentence and "4711" not in str(caught.value)


def refused(error: Exception, monkeypatch: pytest.MonkeyPatch) -> SecretError:
    """Return the error that reports a refusal of the service."""

    class Client:
        def get_secret_value(self, **request: str) -> None:
            raise error

    monkeypatch.setattr(keys, "_client", lambda region: Client())
    with pytest.raises(SecretError) as caught:
        keys.AMAZON.load(PLACE, "key")
    assert "4711" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("code", "words", "again"),
    [
        ("AccessDeniedException", "needs secretsmanager:GetSecretValue on it", False),
        ("DecryptionFailure", "needs kms:Decrypt", False),
        ("ThrottlingException", "does not answer now", True),
        ("InternalServiceError", "does not answer now", True),
        ("Unheard", "cannot be read (Unheard)", False),
    ],
)
def test_refusals_of_the_service(code, words, again, monkeypatch) -> None:
    exceptions = pytest.importorskip("botocore.exceptions")
    answer = {"Error": {"Code": code, "Message": "Miriam-4711"}}
    error = refused(exceptions.ClientError(answer, "GetSecretValue"), monkeypatch)
    assert words in error.sentence and error.again is again


def test_no_network_and_no_credentials(monkeypatch) -> None:
    exceptions = pytest.importorskip("botocore.exceptions")
    assert refused(exceptions.EndpointConnectionError(endpoint_url="x"), monkeypatch).again
    assert refused(exceptions.ConnectTimeoutError(endpoint_url="x"), monkeypatch).again
    error = refused(exceptions.NoCredentialsError(), monkeypatch)
    assert not error.again and "there are no credentials of AWS here" in error.sentence


def test_without_the_library(monkeypatch) -> None:
    def absent(region: str) -> None:
        raise ImportError("boto3")

    monkeypatch.setattr(keys, "_client", absent)
    with pytest.raises(
        SecretError, match=r"needs boto3: in a clone of dptrees, pip install '.\[aws\]'"
    ):
        keys.AMAZON.load(PLACE, "key")
