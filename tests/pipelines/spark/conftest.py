"""The rows and the configurations of all kinds, as of the tests of the Python API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dptrees.pipelines.python.release import Release
from dptrees.pipelines.spark.rows import counted_by_spark
from tests.pipelines.python.conftest import fixed, golden_rows, read_files, rows, work

__all__ = ["golden_rows", "rows", "work"]

UNIT = {"unit": "city", "max_rows": 9}
MINUTES = {"column": "minutes", "type": "integer", "lower": 0, "upper": 300}


def config(**privacy: Any) -> dict[str, Any]:
    """A small configuration."""
    return {
        "release": "small",
        "privacy": {"epsilon": 1, "neighbors": "add_remove", **privacy},
        "trees": [{"name": "minutes", "domain": MINUTES}],
    }


def by_spark(frame: Any, given: dict[str, Any], **call: Any) -> Release:
    """A release of a DataFrame under the key and the nonce of the golden ones."""
    return fixed(frame, given, counted_by=counted_by_spark, **call)


def compare(frame: Any, rows: Any, given: dict[str, Any], **call: Any) -> None:
    """Compare all files of two releases under one key and nonce."""
    fixed(rows, given, output="expected", **call)
    by_spark(frame, given, output="counted", **call)
    assert read_files(Path("counted")) == read_files(Path("expected"))
