"""Errors that may pass by themselves are distinguished from errors that somebody must fix."""

from __future__ import annotations

import errno

import pyarrow as pa
import pytest
from apache_beam.io.filesystem import BeamIOError

from dptrees.transforms.errors import error_in, is_no_memory, may_pass, not_now
from dptrees.transforms.folder.files import OutputError


class ClientError(Exception):
    """Error like the errors of service clients."""

    def __init__(self, code: int) -> None:
        super().__init__("Smith, John")
        self.code = code


class ConnectTimeoutError(Exception):
    """Error with the name of one of botocore's."""


PASSING = {
    "disk": OSError(errno.ENOSPC, "full"),
    "quota": OSError(errno.EDQUOT, "full"),
    "network": ConnectionResetError(),
    "time": TimeoutError(),
    "memory": pa.ArrowMemoryError("malloc of size 4 failed"),
    "a service": ClientError(503),
    "too many requests": ClientError(429),
    "a client's class": ConnectTimeoutError(),
    "Beam's wrapping": BeamIOError("failed", {"s3://a": OSError(errno.ETIMEDOUT, "slow")}),
}
LASTING = {
    "permission": PermissionError(errno.EACCES, "denied"),
    "no file": FileNotFoundError(errno.ENOENT, "none"),
    "too large": OSError(errno.EFBIG, "too large"),
    "a service": ClientError(404),
    "Beam's wrapping": BeamIOError("failed", {"s3://a": ClientError(403)}),
    "a fault": ZeroDivisionError(),
}


@pytest.mark.parametrize("name", PASSING)
def test_passing(name: str) -> None:
    assert may_pass(PASSING[name])


@pytest.mark.parametrize("name", LASTING)
def test_lasting(name: str) -> None:
    assert not may_pass(LASTING[name])


def test_a_cause_counts() -> None:
    try:
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError as error:
            raise RuntimeError("wrapped") from error
    except RuntimeError as wrapped:
        assert may_pass(wrapped)


def test_memory_in_an_engines_words() -> None:
    assert is_no_memory(RuntimeError("numpy._core._exceptions._ArrayMemoryError: Unable to"))
    assert is_no_memory(RuntimeError("can't start new thread"))
    assert not is_no_memory(RuntimeError("no memory of it"))


def test_the_systems_words_alone_are_reported() -> None:
    reported = not_now("a.csv", OSError(errno.EIO, "at the row of Smith, John"))
    assert (
        reported.again
        and reported.sentence == "input: a.csv cannot be read now: Input/output error"
    )
    assert not_now("a.csv", ClientError(503)).sentence.endswith("now: ClientError")


@pytest.mark.parametrize("again", [False, True])
def test_the_mark_comes_through_an_engine(again: bool) -> None:
    error = OutputError("output: full", again=again)
    found = error_in(f"java.lang.RuntimeException: {error!s} [while running 'x']\nTraceback ...")
    assert found is not None and (found.again, found.sentence) == (again, "output: full")
