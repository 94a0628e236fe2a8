"""The URL of a database by reference: what travels is where it lies, never what it holds."""

import os
import stat

from transforms.errors import InputError


def database_url(reference: str) -> str:
    """The URL that lies at a place.

    Args:
        reference: ``env:NAME``, or ``file:PATH`` of a file that nobody else can read.

    Raises:
        InputError: there is none; the message names the place alone.

    >>> os.environ["VISITS_URL"] = "postgresql://reader@db/visits"
    >>> database_url("env:VISITS_URL")
    'postgresql://reader@db/visits'
    """
    kind, _, place = reference.partition(":")
    url = os.environ.get(place, "") if kind == "env" else _of_file(place)
    if not url.strip():
        raise InputError(f"input.connection: {reference} is not set, or empty, where rows are read")
    return url.strip()


def _of_file(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise InputError(
                    f"input.connection: {path} can be read by others; allow its owner alone "
                    "(chmod 600)"
                )
            return file.read()
    except OSError as error:
        raise InputError(f"input.connection: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"input.connection: {path} is no text") from None
