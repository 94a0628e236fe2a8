"""The failure of a job on an engine, in one sentence.

An engine wraps what its workers raise in its own words, and has failures of its own: a worker that
was lost, a job server that does not answer. Those may pass by themselves. What a step of ours
raised without a sentence is a fault of the program, and is seen whole.
"""

from __future__ import annotations

import re

import grpc

from dptrees.dpcore.specification import ANOTHER_MATRIX
from dptrees.pipelines.faults.outcome import NO_MEMORY
from dptrees.transforms.errors import (
    InputError,
    ReleaseError,
    error_in,
    errors_within,
    is_no_memory,
)

_MISSING = re.compile(r"No module named 'dptrees\b")
_NO_SPACE = re.compile("No space left on device|Disk quota exceeded")
# Java's traces, which Python's own failures follow.
_PYTHON = "Traceback (most recent call last)"
_NOT_THERE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def engine_fault(error: Exception, *, remote: bool) -> ReleaseError | None:
    """Return how the failure of a job is reported; None for a fault of the program.

    Args:
        error: as Beam raised it.
        remote: the workers are other processes.
    """
    text = " ".join(str(each) for each in errors_within(error))
    result = error_in(text)
    if result is not None:
        return result
    if ANOTHER_MATRIX in text:
        return InputError(ANOTHER_MATRIX)
    if is_no_memory(error) or "OutOfMemoryError" in text:
        return InputError(NO_MEMORY, again=True)
    if _NO_SPACE.search(text):
        return InputError("a disk is full where the job ran", again=True)
    if not remote:
        return None
    if _MISSING.search(text):
        return InputError(
            "workers: they have no dptrees, or another version of it: install that of the "
            "launcher there, or send it with --setup_file=./setup.py"
        )
    if any(_is_away(each) for each in errors_within(error)):
        return InputError("the job server does not answer, or no longer", again=True)
    if _PYTHON not in text:
        return InputError(
            "the engine ended the job: a worker was lost, or there is no room for a worker; see "
            "the engine's log",
            again=True,
        )
    return None


def _is_away(error: BaseException) -> bool:
    if isinstance(error, grpc.FutureTimeoutError):
        return True
    code = getattr(error, "code", None)
    return isinstance(error, grpc.RpcError) and callable(code) and code() in _NOT_THERE
