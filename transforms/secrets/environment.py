"""``env:NAME``: an environment variable of the process that reads."""

import os

from transforms.secrets.scheme import Scheme, SecretError


def _load(reference: str, name: str) -> str:
    variable = reference.partition(":")[2]
    text = os.environ.get(variable, "")
    if not text:
        raise SecretError(f"{name}: the environment variable {variable} is not set")
    return text


ENVIRONMENT = Scheme(
    name="env",
    written="env:NAME",
    pattern=r"env:[A-Za-z_][A-Za-z0-9_]*",
    load=_load,
    remote=False,
)
