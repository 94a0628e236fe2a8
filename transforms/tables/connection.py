"""The URL of a database by reference: what travels is where it lies, never what it holds."""

import os
import re

from transforms.errors import InputError
from transforms.secrets.private_file import read_private_file

_NAME = "input.connection"
# All that libpq takes for a URL; it takes other strings for settings. It may name several servers.
_HOST = r"(?:\[[^\]]*\]|[^:/?,\[\]]*)(?::[0-9]*)?"
_URL = re.compile(rf"postgres(?:ql)?://(?:[^/@]*@)?{_HOST}(?:,{_HOST})*(?:[/?].*)?")


def database_url(reference: str) -> str:
    """The URL that lies at a place.

    Args:
        reference: ``env:NAME``, or ``file:PATH`` of a file that nobody else can read.

    Raises:
        InputError: there is none; the message names the place alone.
        SecretError: the file is missing, another user's, readable by others or no text.

    >>> os.environ["VISITS_URL"] = "postgresql://reader@db/visits"
    >>> database_url("env:VISITS_URL")
    'postgresql://reader@db/visits'
    """
    kind, _, place = reference.partition(":")
    if kind == "env":
        url = os.environ.get(place, "").strip()
    else:
        url = read_private_file(place, _NAME, "URL of a database", made_by=None).strip()
    if not url:
        raise InputError(f"{_NAME}: {reference} is not set, or empty, where rows are read")
    if not _URL.fullmatch(url):
        raise InputError(f"{_NAME}: {reference} holds no URL postgresql://USER@HOST/DATABASE")
    return url
