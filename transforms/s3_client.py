"""S3 as Beam reaches it, with one connection pool a process and an end to waiting.

Beam makes a client for every file that it opens, which takes a third of a second of a processor,
and tries seven times more, over ten minutes, where nothing answers at all. Beam has no option for
either, so two names of its module are replaced. A store that answers that it is busy (503) is
tried again as Beam does.
"""

import os
from importlib.util import find_spec
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from dptrees.transforms.passing import NO_ANSWER

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
