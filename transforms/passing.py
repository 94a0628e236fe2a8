"""Failures that may pass by themselves: no memory, a full disk, a network or service that is down.

After a passing fault the user need only try again; any other fault must be fixed first.
"""

import errno
import os
import re
from collections.abc import Iterator
from typing import Any

from dptrees.transforms.errors import InputError

# Of the system: no space, no memory, too many files, a network or a disk that does not answer.
_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "ENOMEM", "EMFILE", "ENFILE", "EAGAIN", "EBUSY", "EINTR", "EIO"),
        *("ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ESTALE"),
        *("EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENETRESET"),
    )
)
# Of a service that answers over HTTP: timed out, too many requests, faults of its own.
_PASSING_STATUS = frozenset((408, 429, 500, 502, 503, 504))
# Of S3, as `transforms.s3_client` reports it: no server answered.
NO_ANSWER = 0
# Of clients of services, which have classes of their own.
_PASSING_CLASS = re.compile(
    "Connect(ion|Timeout)?Error|Connect(ion)?Timeout|ReadTimeout|TransportError|ServiceUnavailable"
    "|TooManyRequests|SlowDown|GatewayTimeout|DeadlineExceeded|RetryError"
)
# As Python, Arrow, C++ and Java say it, somewhere in the message of an engine.
_NO_MEMORY = re.compile(
    r"\b\w*MemoryError\b|std::bad_alloc|malloc of size \d+ failed|can't start new thread"
)


def not_now(path: str, error: BaseException) -> InputError:
    """Make the error of a file of the input that cannot be read for a reason that may pass: in the
    system's words for its number alone, since a library's may show a value."""
    return InputError(f"input: {path} cannot be read now: {system_reason(error)}", again=True)


def system_reason(error: BaseException) -> str:
    """What the system says of the number of an error, else the name of its class: a library's own
    words may show a value.

    >>> system_reason(OSError(errno.ENOSPC, "no room for Smith, John"))
    'No space left on device'
    """
    numbers = [getattr(each, "errno", None) for each in errors_within(error)]
    number = next((each for each in numbers if each), None)
    return os.strerror(number) if isinstance(number, int) else type(error).__name__


def may_pass(error: BaseException) -> bool:
    """Whether a failure of the system or of a service may pass by itself.

    Args:
        error: as a library raised it.

    >>> may_pass(OSError(errno.ENOSPC, "full")), may_pass(PermissionError(errno.EACCES, "no"))
    (True, False)
    """
    return any(_passes(each) for each in errors_within(error))


def _passes(error: Any) -> bool:
    if isinstance(error, (MemoryError, ConnectionError, TimeoutError)):
        return True
    if isinstance(error, OSError) and error.errno in _PASSING:
        return True
    if type(error).__name__ == "S3ClientError" and error.code == NO_ANSWER:
        return True
    response = getattr(error, "response", None)
    for of in (error, response):
        for name in ("code", "status", "status_code"):
            if getattr(of, name, None) in _PASSING_STATUS:
                return True
    return _PASSING_CLASS.search(type(error).__name__) is not None


def errors_within(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those within it: Beam gathers them by path, others name their cause."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, BaseException) or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        details = getattr(each, "exception_details", None)
        waiting += details.values() if isinstance(details, dict) else []


def is_no_memory(error: BaseException) -> bool:
    """Whether memory ran out, here or on a worker whose engine's message reports it.

    >>> is_no_memory(RuntimeError("MemoryError [while running 'Release/Draw/Finish']"))
    True
    """
    return any(
        isinstance(each, MemoryError) or _NO_MEMORY.search(str(each))
        for each in errors_within(error)
    )
