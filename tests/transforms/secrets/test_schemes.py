"""Places of secrets by scheme: how they are written, and one that another package brings."""

from importlib.metadata import EntryPoint

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.transforms import keys
from dptrees.transforms.keys import KeyReference, KeyReferenceError, KeyRing, Scheme, SecretError

KEY, NEXT = ReleaseKey(bytes(range(32))), ReleaseKey(bytes(range(1, 33)))


REFERENCES = [
    "env:RELEASE_KEY",
    "file:/var/run/secrets/release.key",
    "gcp-secret://my-project/release-key/latest",
    "gcp-secret://example.com:my-project/release_key/12",
    "aws-secretsmanager://eu-central-1/prod/release-key",
    "aws-secretsmanager://eu-central-1/prod/release-key?stage=AWSPREVIOUS",
    "aws-secretsmanager://eu-central-1/arn:aws:secretsmanager:eu-central-1:1:secret:a-b",
]
OTHERS = [
    "release.key",
    "env:9",
    "vault://a/b",
    "gcp-secret://project/name",
    "gcp-secret://project/name/latest/more",
    "gcp-secret:project/name/1",
    "aws-secretsmanager://eu-central-1",
    "aws-secretsmanager://eu-central-1/name?stage=a&version=b",
    "",
]


def test_what_is_a_reference() -> None:
    assert [each for each in REFERENCES if not keys.is_reference(each)] == []
    assert [each for each in REFERENCES if not keys.has_scheme(each)] == []
    assert [each for each in OTHERS if keys.is_reference(each)] == []
    with pytest.raises(KeyReferenceError) as caught:
        KeyReference(reference="gcp-secret://project/name").load()
    assert caught.value.sentence == (
        "key: gcp-secret://project/name is not gcp-secret://PROJECT/NAME/VERSION"
    )


class Vault:
    """A service whose secret can change, and that counts its loads."""

    def __init__(self) -> None:
        self.ring, self.loads = KeyRing(keys=(KEY,)), 0

    def load(self, reference: str, name: str) -> str:
        self.loads += 1
        if reference.endswith("/none"):
            raise SecretError(f"{name}: {reference} is away", again=True)
        return self.ring.to_text()


VAULT = Vault()
SCHEME = Scheme(
    name="vault",
    written="vault://PLACE",
    pattern="vault://.+",
    load=lambda reference, name: VAULT.load(reference, name),
    remote=True,
)


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Vault:
    """A scheme as another package brings it."""
    point = EntryPoint(name="vault", group=keys.GROUP, value=f"{__name__}:SCHEME")
    monkeypatch.setattr(EntryPoint, "load", lambda self: SCHEME)
    monkeypatch.setattr(
        keys, "entry_points", lambda group, name: [point] if name == point.name else []
    )
    monkeypatch.setattr("dptrees.transforms.keys._held", {})
    VAULT.__init__()  # type: ignore[misc]
    return VAULT


def test_another_package_adds_one(vault) -> None:
    reference = KeyReference(reference="vault://a").checked()
    assert reference.load().key_id == KEY.key_id
    with pytest.raises(KeyReferenceError) as caught:
        KeyReference(reference="vault://a/none").load()
    assert caught.value.again


def test_a_worker_loads_the_key_once_and_again_after_a_rotation(vault) -> None:
    reference = KeyReference(reference="vault://a").checked()
    loads = vault.loads
    for _ in range(20):
        assert reference.load().key_id == KEY.key_id
    assert vault.loads == loads  # the launcher's own process loaded it

    # A job that runs goes on under its key, and the next one takes the new key.
    vault.ring = vault.ring.rotated(NEXT)
    rotated = KeyReference(reference="vault://a").checked()
    assert rotated.load().key_id == NEXT.key_id
    assert reference.load().key_id == KEY.key_id

    # A worker that has read the old ring reads again, and one without the key fails.
    vault.ring = KeyRing(keys=(ReleaseKey(b"\x07" * 32),))
    late = KeyReference(reference="vault://a").checked()
    assert late.load().key_id == vault.ring.current.key_id
    with pytest.raises(KeyReferenceError, match="holds another key than the launcher's"):
        reference.load()
