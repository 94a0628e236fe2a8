"""The failure of a Spark job: one sentence, and no value of a row."""

from __future__ import annotations

import pytest

from dptrees.pipelines.spark.rows import spark_fault
from dptrees.transforms.errors import InputError


class SparkError(Exception):
    """An error of Spark with a name."""

    condition: str | None = None

    def getCondition(self) -> str | None:
        """Return the name."""
        return self.condition


class CastError(SparkError):
    """An error that has a name."""

    condition = "CAST_INVALID_INPUT"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (CastError("[CAST_INVALID_INPUT] The value 'Ada'"), "failed with CAST_INVALID_INPUT; see"),
        (SparkError("[ADA] is no number"), "failed with SparkError; see"),
        (ValueError("Ada"), "failed with ValueError; see"),
        (ValueError("ModuleNotFoundError: No module named 'dptrees'"), "an executor has no dptr"),
        (ValueError("bigger than spark.driver.maxResultSize"), r"df\.coalesce"),
        (ValueError(f"in a task: {InputError('no such column')}"), "^no such column$"),
    ],
)
def test_sentences(error: Exception, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        raise spark_fault(error)
    found = caught.value.sentence
    assert caught.match(sentence.strip("^$")) and "Ada" not in found and "ADA" not in found


def test_what_may_pass() -> None:
    assert spark_fault(ValueError("ExecutorLostFailure (executor 1)")).again
    assert not spark_fault(ValueError("another failure")).again
