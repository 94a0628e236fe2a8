"""The one exception of the Python door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Error(Exception):
    """Something that you can mend; the message is one sentence, the same that the command prints,
    and holds no data."""


@contextmanager
def told(*, asking: bool = False) -> Iterator[None]:
    """Makes every mistake of a user's an `Error`.

    Args:
        asking: questions are answered, which dpcore refuses by a ValueError; elsewhere one is a
            fault of the program.

    >>> with told(asking=True):
    ...     raise ValueError("range: 5 is above 1")
    Traceback (most recent call last):
    pipelines.python.error.Error: range: 5 is above 1
    """
    # Not above: this module is imported where an import must be quick.
    from pipelines.release_folder import FolderError
    from pipelines.sections.error import ConfigurationError
    from pipelines.user_error import UserError
    from transforms.errors import ReleaseError

    try:
        yield
    except ReleaseError as error:
        raise Error(error.sentence) from None
    except (UserError, ConfigurationError, FolderError) as error:
        raise Error(str(error)) from None
    except ValueError as error:
        if not asking:
            raise
        raise Error(str(error)) from None
