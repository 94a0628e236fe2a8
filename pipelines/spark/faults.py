"""The failure of a Spark job, in one sentence without a value of a row."""

from __future__ import annotations

import re

from dptrees.pipelines.spark.tasks import FAULT_MARK
from dptrees.transforms.errors import InputError, ReleaseError, error_in

_MISSING = re.compile(r"No module named '(dptrees|dpcore|transforms|pipelines)\b")
_NO_ROOM = "spark.driver.maxResultSize"
_OURS = re.compile(rf"{FAULT_MARK}: (\w+ in [\w.]+, line \d+)")
_PASSING = ("ExecutorLostFailure", "FetchFailed", "was cancelled", "SparkContext was shut down")
_CONDITION = re.compile(r"[A-Z][A-Z0-9_.]+")


def spark_fault(error: Exception) -> ReleaseError:
    """Return how the failure of a Spark job is reported.

    Spark's own message may show a value of a row, such as a text that it cannot cast. So only the
    name of the error is passed on.

    Args:
        error: as pyspark raised it.
    """
    text = str(error)
    result = error_in(text)
    if result is not None:
        return result
    if _MISSING.search(text):
        return InputError(
            "spark: an executor has no dptrees, or another version: install the driver's version "
            "on every executor, on Databricks as a library of the cluster"
        )
    if _NO_ROOM in text:
        return InputError(
            f"spark: the partial counts of all partitions are larger than {_NO_ROOM}: raise it, or "
            "give df.coalesce(N) with fewer partitions"
        )
    if (found := _OURS.search(text)) is not None:
        return InputError(f"spark: a task failed with {found[1]}; this is a fault of dptrees")
    name = _condition(error)
    again = any(each in text for each in _PASSING)
    return InputError(f"spark: the job failed with {name}; see Spark's own log", again=again)


def _condition(error: Exception) -> str:
    """The name of an error of Spark; never a part of its message, which may hold a value."""
    # Spark 3.5 has the second of these methods only.
    for method in ("getCondition", "getErrorClass"):
        if callable(read := getattr(error, method, None)):
            name = read()
            if isinstance(name, str) and _CONDITION.fullmatch(name):
                return name
            break
    return type(error).__name__
