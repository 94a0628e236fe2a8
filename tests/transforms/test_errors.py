"""One sentence comes through whatever an engine wraps around it."""

import errno
import pickle

import pyarrow as pa
import pytest
from apache_beam.io.filesystem import BeamIOError

from dptrees.transforms.errors import (
    ConservationError,
    InputError,
    ReleaseError,
    error_in,
    is_no_memory,
    may_pass,
    not_now,
    sentence_in,
)
from dptrees.transforms.folder.files import OutputError
from dptrees.transforms.keys import KeyReferenceError
from dptrees.transforms.steps.record import CommitError, RecordError

KINDS = [
    ReleaseError,
    InputError,
    ConservationError,
    OutputError,
    KeyReferenceError,
    RecordError,
    CommitError,
]
SENTENCE = "input: a.parquet has no column 'x'"


@pytest.mark.parametrize("kind", KINDS)
def test_a_sentence_comes_through(kind: type[ReleaseError]) -> None:
    error = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(kind(SENTENCE)))))
    assert type(error) is kind
    assert error.sentence == SENTENCE == sentence_in(str(error))
    # Made again from its text with a step's name, as Beam's local runner does it.
    again = kind(f"{kind(SENTENCE)} [while running 'Release/Record/Record']")
    again = kind(f"{again} [while running 'Release']")
    assert again.sentence == SENTENCE == sentence_in(str(again))


def test_inside_a_traceback_of_several_lines() -> None:
    text = f"RuntimeError: Traceback\n  File x\nInputError: {InputError(SENTENCE)}\n"
    assert sentence_in(text + text) == SENTENCE
    assert sentence_in("RuntimeError: <dptrees: broken off") is sentence_in("") is None
    for again in (False, True):
        error = OutputError("output: full", again=again)
        found = error_in(f"java.lang.RuntimeException: {error!s} [while running 'x']\nTrace ...")
        assert found is not None and (found.again, found.sentence) == (again, "output: full")


# --- errors that may pass by themselves, and errors that somebody must fix ---


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


def test_errors_that_may_pass() -> None:
    assert [name for name, error in PASSING.items() if not may_pass(error)] == []
    assert [name for name, error in LASTING.items() if may_pass(error)] == []
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = OSError(errno.ENOSPC, "full")
    assert may_pass(wrapped)


def test_memory_in_an_engines_words() -> None:
    assert is_no_memory(RuntimeError("numpy._core._exceptions._ArrayMemoryError: Unable to"))
    assert is_no_memory(RuntimeError("can't start new thread"))
    assert not is_no_memory(RuntimeError("no memory of it"))


def test_the_systems_words_alone_are_reported() -> None:
    reported = not_now("a.csv", OSError(errno.EIO, "at the row of Smith, John"))
    assert reported.again
    assert reported.sentence == "input: a.csv cannot be read now: Input/output error"
    assert not_now("a.csv", ClientError(503)).sentence.endswith("now: ClientError")
