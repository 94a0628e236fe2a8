"""Errors that stop a job, each one sentence without data, and failures that may pass.

An engine wraps an exception's text in its own, so the sentence is enclosed in marks by which the
launcher finds it again. After a passing failure (no memory, a full disk, a service that is down)
the user need only try again; any other must be fixed first.
"""

import errno
import os
import re
from collections.abc import Iterator
from typing import Any

_MARKED = re.compile(r"<dptrees( again)?: (.*?) :dptrees>", re.DOTALL)
_OF_SYSTEM = re.compile(r"([\w.+-]+): cannot open shared object")


class ReleaseError(Exception):
    """The release cannot be made; the message is for the person who started the job.

    Args:
        sentence: the message.
        again: it may pass by itself.
    """

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        # Beam makes an error again from its own text, with the name of the step behind it.
        marked = _MARKED.search(sentence)
        self.sentence = marked.group(2) if marked else sentence
        self.again = marked.group(1) is not None if marked else again
        super().__init__(f"<dptrees{' again' if self.again else ''}: {self.sentence} :dptrees>")

    # Engines pickle exceptions; the default would mark the sentence twice.
    def __reduce__(self) -> tuple[type["ReleaseError"], tuple[str]]:
        return type(self), (str(self),)


class InputError(ReleaseError):
    """The data cannot be read as configured: the user must fix it."""


class UniverseError(ReleaseError):
    """A public table cannot be read where it was written, or is not what was written."""


class ConservationError(ReleaseError):
    """The engine lost or repeated data on the way: the job must not publish. It may pass."""

    def __init__(self, sentence: str, *, again: bool = True) -> None:
        super().__init__(sentence, again=again)


def sentence_in(text: str) -> str | None:
    """The sentence of a `ReleaseError` somewhere in an engine's message, None without one.

    >>> sentence_in(f"RuntimeError: {InputError('no such column')} [while running 'Read']")
    'no such column'
    """
    match = _MARKED.search(text)
    return match.group(2) if match else None


def error_in(text: str) -> ReleaseError | None:
    """The `ReleaseError` whose sentence is in an engine's message; None without one.

    >>> error_in(f"Error: {InputError('the disk is full', again=True)} in step 3").again
    True
    """
    match = _MARKED.search(text)
    return InputError(match.group(0)) if match else None


def missing_library(name: str, error: ImportError) -> str:
    """Return what must be installed before a module can be imported.

    Args:
        name: of the module or the extra that has it.
        error: the fault of the import.

    >>> missing_library("dptrees[delta]", ModuleNotFoundError("No module named 'deltalake'"))
    'dptrees[delta]'
    >>> missing_library("dptrees[delta]", ImportError("libodd.so.2: cannot open shared object"))
    "the system's library libodd.so.2 (dptrees[delta] loads it)"
    """
    if isinstance(error, ModuleNotFoundError):
        return name
    found = _OF_SYSTEM.search(str(error))
    return f"the system's library {found[1]} ({name} loads it)" if found else f"a working {name}"


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
# Of S3, as `transforms.folder.beam_store` reports it: no server answered.
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
