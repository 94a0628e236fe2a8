"""Digests of tasks: each task must arrive once. And the sentences of failures of Spark."""

from __future__ import annotations

import itertools

import pytest

from dptrees.pipelines.spark.rows import _outputs, spark_fault
from dptrees.pipelines.spark.tasks import (
    RECEIVED,
    SENT,
    SHARDS_TASK,
    Digest,
    Message,
    check_digests,
)
from dptrees.transforms.errors import ConservationError, InputError


def outputs(senders: tuple[int, ...], counts: tuple[int, ...]) -> list[Message]:
    """The messages of tasks that arrived, each with its digest; `counts` are by task."""
    found: list[Message] = []
    for sender in senders:
        digest, own = Digest(), [Message("counts", "age", 0, 0, bytes([counts[sender]]))]
        found += [*digest.passing(own), digest.message(SENT, sender)]
    return found


# The outputs of four tasks: three are equal, as of partitions with the same rows.
COUNTS = (1, 1, 1, 2)
# The last tasks cannot be missed, since nobody says how many there are.
WHOLE = {tuple(range(number)) for number in range(5)}


def test_each_task_must_arrive_once() -> None:
    """All selections of up to five tasks, with repetitions, in all orders."""
    for number in range(6):
        for senders in itertools.product(range(4), repeat=number):
            arrived = outputs(senders, COUNTS)
            if tuple(sorted(senders)) in WHOLE:
                assert len(list(_outputs(arrived, is_direct=True))) == number
            else:
                with pytest.raises(ConservationError, match="lost or repeated data"):
                    list(_outputs(arrived, is_direct=True))


def test_the_task_of_shards_must_arrive_once() -> None:
    def arrived(*senders: int) -> list[Message]:
        digests = [Digest().message(SENT, each) for each in senders]
        return [*digests, Digest().message(RECEIVED), Digest().message(RECEIVED)]

    for whole in ((SHARDS_TASK, 0, 1), (SHARDS_TASK,)):
        check_digests(arrived(*whole), gives_shards=True)
    for senders in ((), (0, 1), (SHARDS_TASK, SHARDS_TASK, 0), (SHARDS_TASK, 1)):
        with pytest.raises(ConservationError, match="lost or repeated data"):
            check_digests(arrived(*senders), gives_shards=True)


class SparkError(Exception):
    """An error of Spark with a name."""

    condition: str | None = None

    def getCondition(self) -> str | None:
        """Return the name."""
        return self.condition


class CastError(SparkError):
    """An error that has a name."""

    condition = "CAST_INVALID_INPUT"


def test_sentences() -> None:
    for error, words in (
        (CastError("[CAST_INVALID_INPUT] The value 'Ada'"), "failed with CAST_INVALID_INPUT; see"),
        (SparkError("[ADA] is no number"), "failed with SparkError; see"),
        (ValueError("Ada"), "failed with ValueError; see"),
        (ValueError("ModuleNotFoundError: No module named 'dptrees'"), "an executor has no dptr"),
        (ValueError("bigger than spark.driver.maxResultSize"), "df.coalesce"),
    ):
        sentence = spark_fault(error).sentence
        assert words in sentence and "ada" not in sentence.lower()
    passed = spark_fault(ValueError(f"in a task: {InputError('no such column')}"))
    assert passed.sentence == "no such column"


def test_what_may_pass() -> None:
    assert spark_fault(ValueError("ExecutorLostFailure (executor 1)")).again
    assert not spark_fault(ValueError("another failure")).again
