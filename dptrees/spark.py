"""Differentially private releases of a Spark DataFrame.

    import dptrees.spark

    release = dptrees.spark.release(df, config, key="env:DPTREES_KEY", output="/shared/out")
    release["age"].quantiles()

Spark counts the rows where they are, and the driver draws the noise once. It needs the extra
`spark`, or a cluster that has pyspark, and dptrees on every executor. The guide is docs/spark.md.
"""

from __future__ import annotations

from dptrees.pipelines.spark.release import release

__all__ = ["release"]
