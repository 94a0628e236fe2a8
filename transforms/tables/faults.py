"""Messages about a table that cannot be read: never a library's words, which may show a value."""

from collections.abc import Iterator
from contextlib import contextmanager

from transforms.errors import InputError, ReleaseError
from transforms.passing import may_pass, system_reason


@contextmanager
def reading_table(name: str, extra: str) -> Iterator[None]:
    """Report faults of a library, while it reads a table, as the input's.

    Args:
        name: of the table.
        extra: of dptrees, which installs the library.

    Raises:
        InputError: the library is not installed, or could not read the table.

    >>> with reading_table("the Delta table visits", "delta"):
    ...     raise ValueError("cannot cast 'Smith, John'")
    Traceback (most recent call last):
    transforms.errors.InputError: <dptrees: input: the Delta table visits cannot be read (Value...
    """
    try:
        yield
    except (ReleaseError, MemoryError):
        raise
    except ImportError:
        raise InputError(
            f"input: {name} needs dptrees[{extra}] installed where it is read"
        ) from None
    except Exception as error:  # every library has errors of its own
        if may_pass(error):
            raise InputError(
                f"input: {name} cannot be read now: {system_reason(error)}", again=True
            ) from None
        raise InputError(
            f"input: {name} cannot be read ({type(error).__name__}; what the library says of it is "
            "not told, since it may show a value)"
        ) from None
