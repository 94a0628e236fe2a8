"""Releases through Spark Connect, whose DataFrame has no SparkContext, as on serverless clusters.

The session is in a process of its own: one process has either this or a session of its own Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.optional import table_library
from tests.pipelines.python.conftest import fixed, read_files

REQUIRED_BY = "DPTREES_REQUIRE_SPARK_CONNECT"
table_library("pyspark", REQUIRED_BY)
table_library("grpc_status", REQUIRED_BY)
if shutil.which("java") is None and not os.environ.get(REQUIRED_BY):
    pytest.skip("Spark needs java", allow_module_level=True)

CONFIG = {
    "release": "connected",
    "privacy": {"epsilon": 1, "neighbors": "add_remove", "unit": "city", "max_rows": 9},
    "trees": [
        {
            "name": "minutes",
            "domain": {"column": "minutes", "type": "integer", "lower": 0, "upper": 300},
        }
    ],
}
SCRIPT = """
import json, os, sys
from pyspark.sql import SparkSession
from tests.pipelines.spark.conftest import by_spark

session = SparkSession.builder.remote("local[2]").getOrCreate()
frame = session.read.parquet(os.path.abspath("rows.parquet")).repartition(3)
assert "connect" in type(frame).__module__
by_spark(frame, json.loads(sys.argv[1]), output="counted")
"""


@pytest.mark.usefixtures("work")
def test_the_same_bytes(rows: pa.Table) -> None:
    paths = os.pathsep.join(each for each in sys.path if each)
    environment = os.environ | {"PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", SCRIPT, json.dumps(CONFIG)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    fixed(rows, CONFIG, output="expected")
    assert read_files(Path("counted")) == read_files(Path("expected"))
