"""Files of a release, written whole or not at all, on a local disk or any Beam filesystem.

On a local disk a file appears under its name by one atomic step, after its bytes have reached
the disk. Object stores show whole objects only, and a rename there is a copy, so objects are
written at their final name. S3 gets one connection pool a process and an end to waiting: Beam
has no option for either, so two names of its module are replaced.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any, BinaryIO, TypeVar

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from dptrees.transforms.errors import NO_ANSWER, ReleaseError, may_pass

# Beam tries again what has no status, or one of 500 and more.
_CANNOT_ASK = 400

# Together at most a minute: three times this long to connect, or to wait for the next bytes.
_CONNECT_SECONDS = 6
_READ_SECONDS = 18
_ATTEMPTS = 3
# Beam's threads of one process.
_CONNECTIONS = 32

_clients: dict[tuple[Any, ...], Any] = {}


def http_status(error: Any) -> int:
    """The HTTP status in a client's error.

    Args:
        error: as boto3 raised it.

    Returns:
        the status of the answer; `NO_ANSWER` where none came; 400 where no request could be sent,
        without credentials, say.
    """
    from botocore.exceptions import ConnectionError, HTTPClientError
    from urllib3.exceptions import HTTPError

    # An error without an answer may have None for it.
    answer = getattr(error, "response", None) or {}
    if status := answer.get("ResponseMetadata", {}).get("HTTPStatusCode"):
        return int(status)
    came_to_nothing = (ConnectionError, HTTPClientError, HTTPError, OSError)
    return NO_ANSWER if isinstance(error, came_to_nothing) else _CANNOT_ASK


def shared_client(options: Any) -> Any:
    """The client of this process for some options of a pipeline.

    Args:
        options: a PipelineOptions, or a dictionary of its options.
    """
    names = ("endpoint_url", "region_name", "api_version", "verify", "disable_ssl")
    secrets = ("access_key_id", "secret_access_key", "session_token")
    if isinstance(options, PipelineOptions):
        options = options.view_as(S3Options).get_all_options()
    given = {name: options.get(f"s3_{name}") for name in names + secrets}
    # A process that was forked has connections of its own.
    key = (os.getpid(), _environment(), *given.values())
    if key not in _clients:
        _clients[key] = _made(given)
    return _clients[key]


def _environment() -> tuple[tuple[str, str], ...]:
    """What boto3 reads there: places, profiles, regions and credentials."""
    return tuple(sorted(each for each in os.environ.items() if each[0].startswith("AWS_")))


def _made(given: dict[str, Any]) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        service_name="s3",
        endpoint_url=given["endpoint_url"],
        region_name=given["region_name"],
        api_version=given["api_version"],
        verify=given["verify"],
        use_ssl=not given["disable_ssl"],
        aws_access_key_id=given["access_key_id"],
        aws_secret_access_key=given["secret_access_key"],
        aws_session_token=given["session_token"],
        config=Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            max_pool_connections=_CONNECTIONS,
        ),
    )


def install() -> None:
    """Let Beam reach S3 so, where boto3 is installed."""
    try:
        from apache_beam.io.aws.clients.s3 import boto3_client
    except ImportError:
        return
    if find_spec("boto3") is None:
        return

    class Client(boto3_client.Client):
        """Beam's client, with the connections of this process."""

        def __init__(self, options: Any) -> None:
            self.client = shared_client(options)
            # As Beam's own begins: which object is being read, and how far.
            self._download_request = None
            self._download_stream = None
            self._download_pos = 0

    boto3_client.Client = Client
    boto3_client.get_http_error_code = http_status


TEMPORARY_SUFFIX = ".tmp"
_TRIES = 3

Result = TypeVar("Result")

install()


class OutputError(ReleaseError):
    """The output cannot be written; the message names the place and the system's reason."""


def is_local(path: str) -> bool:
    """Whether a path lies on a local disk."""
    return FileSystems.get_scheme(path) in (None, "file")


def absolute(path: str) -> str:
    """A path that means the same on a worker, which may run in another folder than the launcher.

    >>> absolute("gs://bucket/rows/*.parquet")
    'gs://bucket/rows/*.parquet'
    """
    return path if FileSystems.get_scheme(path) else os.path.abspath(path)


def join(folder: str, *names: str) -> str:
    """A path below a folder, on whatever filesystem the folder lies."""
    return str(FileSystems.join(folder, *names))


def use_options(options: PipelineOptions) -> None:
    """Reaches filesystems from this process as a job's options say: their endpoints, projects and
    accounts. Without them some of Beam's filesystems cannot be used at all."""
    FileSystems.set_options(options)


def use_environment() -> None:
    """Reaches filesystems as the environment says, unless a job's options said how."""
    if FileSystems._pipeline_options is None:
        use_options(PipelineOptions([]))


def failure_reason(error: BaseException) -> str:
    """Why a filesystem failed, in one line: the system's own reason within Beam's wrapping.

    >>> failure_reason(BeamIOError("List operation failed", {"s3://bucket": OSError(13, "Denied")}))
    'Denied'
    >>> failure_reason(AssertionError("Missing boto3 requirement"))
    's3:// needs dptrees[aws] installed here and on the workers'
    """
    while isinstance(error, BeamIOError) and error.exception_details:
        inner = next(iter(error.exception_details.values()))
        if not isinstance(inner, BaseException):
            break
        error = inner
    text = str(getattr(error, "strerror", None) or error).strip()
    if text == "Missing boto3 requirement":  # Beam's own words, which name no extra
        return "s3:// needs dptrees[aws] installed here and on the workers"
    return text.splitlines()[0][:200] if text else type(error).__name__


def exists(path: str) -> bool:
    """Whether there is a file.

    Raises:
        OutputError: the filesystem does not answer.
    """
    return _guarded(path, "looked up", lambda: bool(FileSystems.exists(path)))


def read_bytes(path: str) -> bytes:
    """The whole of a small file.

    Raises:
        OutputError: it is not there, or cannot be read.
    """
    return _guarded(path, "read", lambda: _read(path))


def write_whole(path: str, data: bytes, *, private: bool = False) -> None:
    """Writes a file that is seen whole or not at all; replaces one of the same name.

    Args:
        path: of the file.
        data: its bytes.
        private: on a local disk only its owner may read it, from its first byte on, and a folder
            that is made for it is of its owner alone.

    Raises:
        OutputError: disk full, no permission, or whatever else the system says.
    """
    write = partial(_write_local, private=private) if is_local(path) else _write
    _guarded(path, "written", lambda: write(path, data))


def write_by(path: str, fill: Callable[[BinaryIO], None]) -> None:
    """Write a file that is too large to be held in memory, as `write_whole` does.

    Args:
        path: of the file.
        fill: writes its bytes, one after the other.

    Raises:
        OutputError: as of `write_whole`.
    """
    write = _write_local if is_local(path) else _write
    _guarded(path, "written", lambda: write(path, fill))


def open_file(path: str) -> BinaryIO:
    """A file for reading pieces of it.

    Raises:
        OutputError: it is not there, or cannot be read.
    """
    return _guarded(path, "read", lambda: _open(path))


def write_once(path: str, data: bytes, *, private: bool = False) -> bool:
    """Writes a file unless there is one, `private` as `write_whole` does. Of two writers at once
    only one succeeds where the filesystem is local; Beam's object stores cannot create on
    condition, so there the last one stays, and who must be sure reads the file again. Returns
    whether this call wrote it.

    Raises:
        OutputError: as of `write_whole`.
    """
    if is_local(path):
        return _guarded(path, "written", lambda: _finished(path, data, _linked, private))
    if exists(path):
        return False
    _guarded(path, "written", lambda: _write(path, data))
    return True


def _guarded(path: str, done: str, act: Callable[[], Result]) -> Result:
    try:
        return act()
    except Exception as error:
        # Clients of object stores have errors of their own; on a local disk others are our faults.
        if is_local(path) and not isinstance(error, (OSError, BeamIOError)):
            raise
        raise OutputError(
            f"output: {path} cannot be {done}: {failure_reason(error)}", again=may_pass(error)
        ) from None


def _open(path: str) -> BinaryIO:
    file: BinaryIO = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return file


def _read(path: str) -> bytes:
    with _open(path) as file:
        return bytes(file.read())


Content = bytes | Callable[[BinaryIO], None]


def _put(file: BinaryIO, content: Content) -> None:
    if isinstance(content, bytes):
        file.write(content)
    else:
        content(file)


def _write(path: str, data: Content) -> None:
    # Browsers show a page only where the store calls it one.
    mime_type = "text/html" if path.endswith(".html") else "application/octet-stream"
    file = FileSystems.create(path, mime_type, CompressionTypes.UNCOMPRESSED)
    try:
        _put(file, data)
    except BaseException:
        _abandon(file, path)
        raise
    file.close()


def _abandon(file: BinaryIO, path: str) -> None:
    """Closes a file that could not be written. Closing makes the object of what was written so far,
    which must not stay."""
    with contextlib.suppress(Exception):
        file.close()
    with contextlib.suppress(Exception):
        FileSystems.delete([path])


def _temporary(path: str, data: Content, private: bool) -> str:
    """A file beside ``path`` that holds the data, safely on disk."""
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700 if private else 0o777, exist_ok=True)
    name = os.path.join(folder, f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    try:
        with open(name, "xb", opener=_open_private if private else None) as file:
            _put(file, data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return name


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_local(path: str, data: Content, *, private: bool = False) -> None:
    _finished(path, data, os.replace, private)


def _linked(name: str, path: str) -> bool:
    try:
        os.link(name, path)
    except FileExistsError:
        return False
    return True


def _finished(
    path: str, data: Content, finish: Callable[[str, str], Result], private: bool
) -> Result:
    """Gives a temporary file with the data its name, in one step; returns what that returns."""
    left = _TRIES
    while True:
        left -= 1
        name = _temporary(path, data, private)
        try:
            return finish(name, path)
        except FileNotFoundError:
            # A run of the same release that has just ended sweeps what others left, and took this.
            if not left:
                raise
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def names_below(folder: str) -> Iterator[str]:
    """The paths of all files directly in a folder, each once; nothing where there is none.

    Raises:
        OutputError: the folder cannot be listed.
    """
    if is_local(folder):
        yield from _guarded(folder, "listed", lambda: _local_names(folder))
        return
    # Unlike a shell's, Beam's star also matches names that begin with a dot. A folder's own name
    # may hold letters that mean something in a pattern; they must not lead into other folders.
    matches = _guarded(folder, "listed", lambda: FileSystems.match([join(folder, "*")]))
    paths = {metadata.path for match in matches for metadata in match.metadata_list}
    yield from sorted(path for path in paths if path == join(folder, path.rsplit("/", 1)[-1]))


def _local_names(folder: str) -> list[str]:
    try:
        with os.scandir(folder.removeprefix("file://")) as entries:
            return sorted(join(folder, entry.name) for entry in entries if entry.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []


def delete(paths: list[str]) -> None:
    """Deletes files; one that somebody else deleted meanwhile is gone all the same.

    Raises:
        OutputError: one cannot be deleted.
    """
    for path in paths:
        _guarded(path, "deleted", partial(_delete, path))


def _delete(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if is_local(path):
            os.unlink(path.removeprefix("file://"))
        else:
            FileSystems.delete([path])
