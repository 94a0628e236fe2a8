"""All kinds of places of secrets: ``env:NAME``, an environment variable of the process that reads,
is here; each other one is a file beside this one, and a line here.

Another package adds one by an entry point of the group ``dptrees.secrets``, named as its scheme,
that is a `Scheme`. Workers need that package too.
"""

import os
from collections.abc import Iterator
from importlib.metadata import entry_points

from dptrees.transforms.secrets.amazon import AMAZON
from dptrees.transforms.secrets.google import GOOGLE
from dptrees.transforms.secrets.private_file import FILE
from dptrees.transforms.secrets.scheme import Scheme, SecretError


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
    """How references are written, in words."""
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
