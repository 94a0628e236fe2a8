"""The exception of the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_OPTIONS = {
    "use --value": "give a value and its level=",
    "found by --path": "found by their paths, without level=",
    "leave --column out": "leave column() out",
}


class Error(Exception):
    """An error that you can fix.

    The message is one sentence, the same that the command prints. It contains no data.
    """

    # As it is caught.
    __module__ = "dptrees"


@contextmanager
def user_errors(*, is_query: bool = False) -> Iterator[None]:
    """Convert every error of a user to an `Error`.

    Args:
        is_query: whether queries are answered, which dpcore refuses by a ValueError. Elsewhere a
            ValueError is a fault of the program.

    >>> with user_errors(is_query=True):
    ...     raise ValueError("range: 5 is above 1")
    Traceback (most recent call last):
    dptrees.Error: range: 5 is above 1
    """
    # Not above: this module is imported where an import must be quick.
    from dptrees.pipelines.release_folder import FolderError
    from dptrees.pipelines.sections.error import ConfigurationError
    from dptrees.pipelines.user_error import UserError
    from dptrees.transforms.errors import ReleaseError

    try:
        yield
    except ReleaseError as error:
        raise Error(error.sentence) from None
    except (UserError, ConfigurationError, FolderError) as error:
        raise Error(str(error)) from None
    except ValueError as error:
        if not is_query:
            raise
        raise Error(_in_python(str(error))) from None


def _in_python(sentence: str) -> str:
    """Replace options of the command in a sentence by arguments of Python.

    >>> _in_python("path: tree age is no hierarchy; use --value")
    'path: tree age is no hierarchy; give a value and its level='
    """
    for option, here in _OPTIONS.items():
        sentence = sentence.replace(option, here)
    return sentence
