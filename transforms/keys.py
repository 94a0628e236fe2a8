"""Release keys and the places of secrets: what travels to workers is a reference, never the key.

A worker loads the key when it starts and compares it with a check value (a keyed digest of a
constant, which reveals nothing), so that a worker with another key fails. A place holds one key,
or after a rotation one a line: `current` first, then `retired` ones, under which earlier
releases are finished, repaired and verified. Kubernetes mounts secrets as files of root on a
read-only file system in memory: a group of the process may read those; any other file must be
its owner's alone. Another package adds a scheme by an entry point of the group
``dptrees.secrets``.
"""

import hmac
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dptrees.dpcore.noise.randomness import ReleaseKey, key_id_from_check
from dptrees.transforms.errors import ReleaseError, may_pass

# Of the text; some hundred keys.
LARGEST_TEXT = 2**16
_CURRENT, _RETIRED = "current", "retired"


@dataclass(frozen=True, kw_only=True)
class KeyRing:
    """The keys of one place.

    Args:
        keys: at least one; the first is the current one, the others are retired, newest first.

    >>> ring = KeyRing(keys=(ReleaseKey(bytes(32)),))
    >>> KeyRing.from_text(ring.to_text()).ids
    ('e7d3cc645c3203e9',)
    >>> rotated = KeyRing.from_text(ring.rotated(ReleaseKey(bytes(range(32)))).to_text())
    >>> len(rotated.ids), rotated.ids[1]
    (2, 'e7d3cc645c3203e9')
    """

    keys: tuple[ReleaseKey, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The public ids of all keys, the current one's first."""
        return tuple(key.key_id for key in self.keys)

    @property
    def current(self) -> ReleaseKey:
        """The key of new releases."""
        return self.keys[0]

    @property
    def oldest(self) -> ReleaseKey:
        """The key that was there before any rotation."""
        return self.keys[-1]

    def find_key(self, key_id: str) -> ReleaseKey | None:
        """The key of an id, None where it is not here."""
        return next((key for key in self.keys if key.key_id == key_id), None)

    def rotated(self, key: ReleaseKey) -> "KeyRing":
        """The ring in which a new key is current, and all others are retired."""
        return KeyRing(keys=(key, *self.keys))

    def to_text(self) -> str:
        """Return the text of the key file; the inverse of `from_text`."""
        if len(self.keys) == 1:
            return self.current.to_text() + "\n"
        states = (_CURRENT, *[_RETIRED] * (len(self.keys) - 1))
        return "".join(
            f"{state} {key.key_id} {key.to_text()}\n"
            for state, key in zip(states, self.keys, strict=True)
        )

    @classmethod
    def from_text(cls, text: str) -> "KeyRing":
        """The keys of a text; white space around it is ignored.

        Raises:
            ValueError: it is of neither form. The message never shows the text.
        """
        lines = text.strip().splitlines()
        if not lines or lines[0].split()[:1] not in ([_CURRENT], [_RETIRED]):
            return cls(keys=(ReleaseKey.from_text(text),))
        if len(text) > LARGEST_TEXT:
            raise ValueError("holds more keys than can be read; remove retired ones")
        keys = tuple(
            _line_key(number, line, _RETIRED if number else _CURRENT)
            for number, line in enumerate(lines)
        )
        ids = [key.key_id for key in keys]
        twice = [each for each in ids if ids.count(each) > 1]
        if twice:
            raise ValueError(f"holds the key {twice[0]} twice")
        return cls(keys=keys)


def _line_key(number: int, line: str, state: str) -> ReleaseKey:
    """The key of a line, whose words must be its state, its id and the key."""
    words = line.split()
    try:
        key = ReleaseKey.from_text(words[2])
    except (IndexError, ValueError):
        key = None
    if key is None or words[:2] != [state, key.key_id] or len(words) != 3:
        raise ValueError(
            f"line {number + 1} must be {state!r}, the id of the key and the key: the current key "
            "first, then those that are retired"
        )
    return key


class SecretError(ReleaseError):
    """A secret cannot be read; the message names its reference, never the secret."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A kind of place.

    Args:
        name: the part before the first colon.
        written: how its references are written, for people.
        pattern: of a whole reference.
        load: from a reference, and what its secret is called in the configuration, the text of the
            secret; raises `SecretError`, with `again` where it may pass. Libraries of a service are
            imported here, since not everybody has them.
        remote: it is a service. Workers then query it once per process.
    """

    name: str
    written: str
    pattern: str
    load: Callable[[str, str], str]
    remote: bool

    def takes(self, reference: str) -> bool:
        """Whether a reference is one of this kind, as far as its form shows."""
        return re.fullmatch(self.pattern, reference) is not None


_REASONS = {
    "ResourceNotFoundException": "there is no such secret, or no such version of it",
    "AccessDeniedException": "may not be read by the account that runs, which needs "
    "secretsmanager:GetSecretValue on it",
    "DecryptionFailure": "may not be decrypted by the account that runs, which needs kms:Decrypt",
    "InvalidRequestException": "is marked for deletion",
    "UnrecognizedClientException": "the credentials of the account that runs are refused",
    "InvalidClientTokenId": "the credentials of the account that runs are refused",
    "ExpiredTokenException": "the credentials of the account that runs have expired",
    "NoCredentialsError": "there are no credentials of AWS here",
}
_PASSING = ("ThrottlingException", "InternalServiceError", "RequestLimitExceeded")
_ARGUMENTS = {"stage": "VersionStage", "version": "VersionId"}


@contextmanager
def _asking(
    reference: str, name: str, service: str, client: str, reasons: Mapping[str, str]
) -> Iterator[None]:
    """Report faults of a service or of its client, never in a library's words.

    Args:
        reference: of the secret.
        name: what the secret is called in the configuration.
        service: its name.
        client: what must be installed, and how.
        reasons: what is wrong, by the codes of the service and the classes of errors.

    Raises:
        SecretError: the secret cannot be read; with `again` where that may pass.
    """
    try:
        yield
    except ImportError:
        raise SecretError(f"{name}: {reference} needs {client}") from None
    except Exception as error:
        response = getattr(error, "response", None)
        code = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
        kinds = [code, *(each.__name__ for each in type(error).__mro__)]
        if known := [reasons[each] for each in kinds if each in reasons]:
            raise SecretError(f"{name}: {reference}: {known[0]}") from None
        if code in _PASSING or may_pass(error) or getattr(error, "retryable", False):
            again = f"{name}: {reference}: {service} does not answer now"
            raise SecretError(again, again=True) from None
        raise SecretError(
            f"{name}: {reference} cannot be read ({code or type(error).__name__})"
        ) from None


def _load(reference: str, name: str) -> str:
    parts = urlsplit(reference)
    chosen = {_ARGUMENTS[key]: values[0] for key, values in parse_qs(parts.query).items()}
    client = "boto3: in a clone of dptrees, pip install '.[aws]'"
    with _asking(reference, name, "Secrets Manager", client, _REASONS):
        secret = parts.path.removeprefix("/")
        answer = _client(parts.netloc).get_secret_value(SecretId=secret, **chosen)
    if "SecretString" in answer:
        return str(answer["SecretString"])
    return bytes(answer["SecretBinary"]).decode("ascii", errors="replace")


def _client(region: str) -> Any:
    import boto3

    return boto3.session.Session().client("secretsmanager", region_name=region)


AMAZON = Scheme(
    name="aws-secretsmanager",
    written="aws-secretsmanager://REGION/NAME",
    pattern=r"aws-secretsmanager://[a-z0-9-]+/[A-Za-z0-9/_+=.@:-]+"
    r"(\?(stage|version)=[A-Za-z0-9_-]+)?",
    load=_load,
    remote=True,
)


_SECONDS = 30
# By names of classes of google.api_core and google.auth.
_GOOGLE_REASONS = {
    "NotFound": "there is no such secret, or no such version of it",
    "PermissionDenied": "may not be read by the account that runs, which needs "
    "roles/secretmanager.secretAccessor on it",
    "Unauthenticated": "the credentials of the account that runs are refused",
    "FailedPrecondition": "this version is disabled or destroyed",
    "InvalidArgument": "is no name of a version of a secret",
    "DefaultCredentialsError": "there are no credentials of Google Cloud here",
}


def _load_google_secret(reference: str, name: str) -> str:
    project, secret, version = reference.partition("://")[2].split("/")
    path = f"projects/{project}/secrets/{secret}/versions/{version}"
    needed = "the client of Secret Manager: in a clone of dptrees, pip install '.[gcp]'"
    with _asking(reference, name, "Secret Manager", needed, _GOOGLE_REASONS):
        from google.api_core.retry import Retry

        request, retry = {"name": path}, Retry(timeout=_SECONDS)
        client = _google_client()
        answer = client.access_secret_version(request=request, retry=retry, timeout=_SECONDS)
        return bytes(answer.payload.data).decode("ascii", errors="replace")


def _google_client() -> Any:
    from google.cloud.secretmanager import SecretManagerServiceClient

    return SecretManagerServiceClient()


GOOGLE = Scheme(
    name="gcp-secret",
    written="gcp-secret://PROJECT/NAME/VERSION",
    pattern=r"gcp-secret://[a-z0-9:.-]+/[A-Za-z0-9_-]{1,255}/[A-Za-z0-9_-]+",
    load=_load_google_secret,
    remote=True,
)


_MOUNTS = "/proc/self/mountinfo"


def read_private_file(
    path: str, name: str = "key", kind: str = "release key", made_by: str | None = "keygen"
) -> str:
    """The text of a file that only its owner, the user who runs or root, can read.

    Args:
        path: of the file.
        name: what it is called in the configuration.
        kind: what it holds.
        made_by: the command of dptrees that makes such a file; None: none does.

    Raises:
        SecretError: it is missing, another user's, readable by others or no text.
    """
    try:
        with open(path, encoding="ascii", opener=_open_at_once) as file:
            if broken := _broken_privacy(path, os.fstat(file.fileno())):
                raise SecretError(f"{name}: {broken}")
            return file.read(LARGEST_TEXT + 1)
    except FileNotFoundError:
        where = "" if os.path.isabs(path) else f" in {os.getcwd()}, where relative paths start"
        made = "" if made_by is None else f"; make it with: dptrees {made_by} {path}"
        raise SecretError(f"{name}: {path} does not exist{where}{made}") from None
    except UnicodeDecodeError:
        raise SecretError(f"{name}: {path} is not a {kind}") from None
    except OSError as error:
        raise SecretError(f"{name}: {path} cannot be read: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    # A pipe would be waited for, before it could be seen that it is no file.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _broken_privacy(path: str, status: os.stat_result) -> str:
    """Return why a file is not private to the user who runs dptrees; "" if it is.

    Judged is the file that was opened, wherever a link has led to it: Kubernetes mounts secrets
    behind links. Its owner knows the key and can change it; root can do so anyway.
    """
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a file"
    if status.st_uid not in (os.geteuid(), 0):
        return (
            f"{path} belongs to user {status.st_uid}; it must belong to the user who runs "
            f"dptrees ({os.geteuid()}) or to root"
        )
    if status.st_mode & stat.S_IRWXO or (
        status.st_mode & stat.S_IRWXG and not _is_mounted_secret(status)
    ):
        return f"{path} can be read by others; allow its owner alone (chmod 600)"
    return ""


def _is_mounted_secret(status: os.stat_result) -> bool:
    """Whether a file is one of root that a group of this process may read, and nobody may write, on
    a read-only file system in memory."""
    group = status.st_mode & stat.S_IRWXG
    groups = {os.getegid(), *os.getgroups()}
    if status.st_uid != 0 or group != stat.S_IRGRP or status.st_gid not in groups:
        return False
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    try:
        with open(_MOUNTS, encoding="utf-8", errors="replace") as mounts:
            return any(_is_read_only_memory(line.split(), device) for line in mounts)
    except OSError:  # no Linux
        return False


def _is_read_only_memory(words: list[str], device: str) -> bool:
    """Whether a line of the table of mounts is a read-only tmpfs of a device; see proc(5)."""
    kind = words[words.index("-") + 1 :][:1]
    return words[2] == device and kind == ["tmpfs"] and "ro" in words[5].split(",")


FILE = Scheme(
    name="file",
    written="file:PATH",
    pattern=r"file:[^\0]+",
    load=lambda reference, name: read_private_file(reference.partition(":")[2], name),
    remote=False,
)


def _variable(reference: str, name: str) -> str:
    variable = reference.partition(":")[2]
    text = os.environ.get(variable, "")
    if not text:
        raise SecretError(f"{name}: the environment variable {variable} is not set")
    return text


ENVIRONMENT = Scheme(
    name="env",
    written="env:NAME",
    pattern=r"env:[A-Za-z_][A-Za-z0-9_]*",
    load=_variable,
    remote=False,
)

SCHEMES = {each.name: each for each in (ENVIRONMENT, FILE, GOOGLE, AMAZON)}
GROUP = "dptrees.secrets"


def written() -> str:
    """Return the forms of references, in words."""
    *others, last = [each.written for each in SCHEMES.values()]
    return f"{', '.join(others)} or {last}"


def has_scheme(text: str) -> bool:
    """Whether a text begins with a known scheme, and so is no path.

    >>> has_scheme("env:RELEASE_KEY"), has_scheme("release.key")
    (True, False)
    """
    return ":" in text and _known(text.partition(":")[0]) is not None


def is_reference(text: str) -> bool:
    """Whether a string is a reference of a known scheme, as far as its form shows.

    >>> is_reference("env:RELEASE_KEY"), is_reference("gcp-secret://p/n/latest")
    (True, True)
    >>> is_reference("release.key"), is_reference("gcp-secret://p")
    (False, False)
    """
    scheme = _known(text.partition(":")[0])
    return scheme is not None and scheme.takes(text)


def find_scheme(reference: str) -> Scheme:
    """The scheme of a reference.

    Raises:
        SecretError: there is none of that name.
    """
    name = reference.partition(":")[0]
    scheme = _known(name)
    if scheme is None:
        known = ", ".join(f"{each}:" for each in SCHEMES)
        raise SecretError(f"key: {name}: is none of {known}")
    if scheme.remote and not scheme.takes(reference):
        raise SecretError(f"key: {reference} is not {scheme.written}")
    return scheme


def _known(name: str) -> Scheme | None:
    return SCHEMES.get(name) or next(_added(name), None)


def _added(name: str) -> Iterator[Scheme]:
    """The scheme that another package brings."""
    for point in entry_points(group=GROUP, name=name) if name else ():
        scheme = point.load()
        if isinstance(scheme, Scheme):
            yield scheme


# What services gave this process, by reference: each step of each thread of a worker loads the key.
_held: dict[str, KeyRing] = {}
_load_lock = threading.Lock()


class KeyReferenceError(ReleaseError):
    """The key cannot be loaded; the message names the reference, never the key."""


@dataclass(frozen=True, kw_only=True)
class KeyReference:
    """The place of the release key, and its check value.

    Args:
        reference: with one of the schemes, such as ``file:PATH``, ``env:NAME`` or
            ``gcp-secret://PROJECT/NAME/VERSION``.
        check_value: from the launcher's key; empty on the launcher itself.
    """

    reference: str
    check_value: bytes = b""

    @property
    def key_id(self) -> str:
        """The public id of the key that is meant; "" on the launcher itself."""
        return key_id_from_check(self.check_value)

    def load(self) -> ReleaseKey:
        """The key: that of the check value, else the current one.

        Raises:
            KeyReferenceError: it is missing, another user's, readable by others, malformed or
                another key.
        """
        if not self.check_value:
            return self.ring().current
        with _load_lock:
            for ring in self._rings():
                for key in ring.keys:
                    if hmac.compare_digest(self.check_value, key.check_value()):
                        return key
        raise KeyReferenceError(f"key: {self.reference} holds another key than the launcher's")

    def ring(self) -> KeyRing:
        """All keys of the place.

        Raises:
            KeyReferenceError: as of `load`.
        """
        try:
            scheme = find_scheme(self.reference)
            text = scheme.load(self.reference, "key")
        except SecretError as error:
            raise KeyReferenceError(error.sentence, again=error.again) from None
        try:
            ring = KeyRing.from_text(text)
        except ValueError as error:
            raise KeyReferenceError(f"key: {self.reference}: {error}") from None
        if scheme.remote:
            _held[self.reference] = ring
        return ring

    def _rings(self) -> Iterator[KeyRing]:
        """All keys of the place: as this process has read them of a service before, then as they
        are now, since the key may have been rotated meanwhile."""
        if self.reference in _held:
            yield _held[self.reference]
        yield self.ring()

    def checked(self, begun: str | None = None) -> "KeyReference":
        """The same reference with the check value of the key that it leads to here; a file is
        named from the root, since a worker may run in another folder.

        Args:
            begun: the id of the key under which the release was begun, as
                `transforms.folder.existing_release.key_id_of_folder` returns it; None for a new
                release, "" for one that was begun before keys had ids, and so before any rotation.

        Raises:
            KeyReferenceError: as of `load`, or the key of that id is not there.
        """
        kind, separator, place = self.reference.partition(":")
        place = os.path.abspath(place) if kind == "file" else place
        return replace(
            self,
            reference=f"{kind}{separator}{place}",
            check_value=self._begun(begun).check_value(),
        )

    def _begun(self, key_id: str | None) -> ReleaseKey:
        ring = self.ring()
        if key_id is None:
            return ring.current
        key = ring.find_key(key_id) if key_id else ring.oldest
        if key is None:
            raise KeyReferenceError(
                f"key: {self.reference} does not hold the key {key_id}, under which this release "
                f"was made or begun; it holds {', '.join(ring.ids)}"
            )
        return key
