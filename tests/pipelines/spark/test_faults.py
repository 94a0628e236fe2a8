"""The failure of a Spark job: one sentence, and no value of a row."""

from __future__ import annotations

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
