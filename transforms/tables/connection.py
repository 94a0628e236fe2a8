"""The URL or the options of a database: a secret, which travels as the name of its place."""

import os

from dptrees.transforms.errors import InputError
from dptrees.transforms.secrets.private_file import read_private_file

CONNECTION = "input.connection"


def connection_text(reference: str, kind: str = "URL of a database") -> str:
    """The text at the place of a connection.

    Args:
        reference: ``env:NAME``, or ``file:PATH`` of a file that no one else can read.
        kind: what it is, for messages.

    Raises:
        InputError: there is none; the message names the place alone.
        SecretError: the file is missing, another user's, readable by others or no text.

    >>> os.environ["VISITS_URL"] = "postgresql://reader@db/visits"
    >>> connection_text("env:VISITS_URL")
    'postgresql://reader@db/visits'
    """
    scheme, _, place = reference.partition(":")
    if scheme == "env":
        text = os.environ.get(place, "").strip()
    else:
        text = read_private_file(place, CONNECTION, kind, made_by=None).strip()
    if not text:
        raise InputError(f"{CONNECTION}: {reference} is not set, or empty, where rows are read")
    return text
