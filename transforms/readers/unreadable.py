"""Messages about a file of the input that cannot be read: never a library's words, which may show
a value."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from transforms.errors import InputError
from transforms.passing import may_pass, not_now


@contextmanager
def reading(path: str, otherwise: str) -> Iterator[None]:
    """Report faults of the system and of Arrow, while a file is read, as the input's.

    Args:
        path: of the file.
        otherwise: what the file is, where it can be read and is not what it should be.

    Raises:
        InputError: it is not there, may not be read, cannot be read now, or is damaged.

    >>> with reading("a.csv", "is not a CSV file"):
    ...     raise pa.ArrowInvalid("a value")
    Traceback (most recent call last):
    transforms.errors.InputError: <dptrees: input: a.csv is not a CSV file, or is damaged or cut ...
    """
    try:
        yield
    except MemoryError:  # Arrow's too; it says nothing about the file
        raise
    except FileNotFoundError:
        raise InputError(f"input: {path} does not exist") from None
    except PermissionError:
        raise InputError(f"input: {path} cannot be read: permission denied") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        if may_pass(error):
            raise not_now(path, error) from None
        raise InputError(f"input: {path} {otherwise}, or is damaged or cut short") from None
