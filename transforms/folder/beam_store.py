"""Files of any other filesystem that Beam knows.

S3 gets one connection pool a process and an end to waiting: Beam has no option for either, so two
names of its module are replaced.
"""

import os
from importlib.util import find_spec
from typing import Any, BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from dptrees.transforms.errors import NO_ANSWER
from dptrees.transforms.folder.stores import FileInfo

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
    names = ("endpoint_url", "region_name", "api_version", "verify")
    secrets = ("access_key_id", "secret_access_key", "session_token")
    if isinstance(options, PipelineOptions):
        options = options.view_as(S3Options).get_all_options()
    given = {name: options.get(f"s3_{name}") for name in names}
    given |= {f"aws_{name}": options.get(f"s3_{name}") for name in secrets}
    given["use_ssl"] = not options.get("s3_disable_ssl")
    # A process that was forked has connections of its own.
    key = (os.getpid(), _environment(), *given.values())
    if key not in _clients:
        _clients[key] = _made(given)
    return _clients[key]


def _environment() -> tuple[tuple[str, str], ...]:
    """Return the variables that boto3 reads: places, profiles, regions and credentials."""
    return tuple(sorted(each for each in os.environ.items() if each[0].startswith("AWS_")))


def _made(given: dict[str, Any]) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        service_name="s3",
        **given,
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


class BeamStore:
    """Beam's filesystems; each is found by the scheme of a path."""

    def exists(self, path: str) -> bool:
        return bool(FileSystems.exists(path))

    def open(self, path: str) -> BinaryIO:
        # What is compressed is known by its bytes.
        file: BinaryIO = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
        return file

    def create(self, path: str, mime_type: str) -> BinaryIO:
        file: BinaryIO = FileSystems.create(path, mime_type, CompressionTypes.UNCOMPRESSED)
        return file

    def delete(self, path: str) -> None:
        FileSystems.delete([path])

    def info(self, path: str) -> FileInfo:
        return _info(FileSystems.get_filesystem(path).metadata(path))

    def match(self, pattern: str) -> list[FileInfo]:
        (found,) = FileSystems.match([pattern])
        return [_info(each) for each in found.metadata_list]


def _info(metadata: Any) -> FileInfo:
    changed = float(metadata.last_updated_in_seconds or 0.0)
    return FileInfo(metadata.path, metadata.size_in_bytes, changed)


def use_options(options: PipelineOptions | None) -> None:
    """Reach filesystems from this process as a job's options say: their endpoints, projects and
    accounts. Without them some of Beam's filesystems cannot be used at all."""
    FileSystems.set_options(PipelineOptions([]) if options is None else options)


def is_known(path: str) -> bool:
    """Whether Beam has a filesystem for a path here, and the options that it needs."""
    ready_store()
    try:
        FileSystems.get_filesystem(path)
    except (ValueError, OSError):
        return False
    return True


def ready_store() -> BeamStore:
    """Return Beam's filesystems, as the environment or options of a job say."""
    if FileSystems._pipeline_options is None:
        use_options(None)
    return _STORE


install()
_STORE = BeamStore()
