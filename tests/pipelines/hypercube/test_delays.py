"""examples/delays.yaml on the flights of the demo: answers and synthetic rows against the truth.

Skipped where `make demo` has not fetched the flights; the continuous integration runs it after.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from dptrees.dpcore.questions.released import Released
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.hypercube.conftest import FLIGHTS, release_example

COLUMNS = ["carrier", "hour", "dep_delay", "distance"]
# Of 60 intervals together below 1e-6: each misses with at most 1e-8, the least request being
# 1e-4; the true law has lighter tails than the quantile that is used.
CONFIDENCE = 0.9999


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the example, and its rows."""
    place = tmp_path_factory.mktemp("delays")
    release_example("delays", place)
    return place


@pytest.fixture(scope="module")
def truth() -> pa.Table:
    """The rows that are counted: those with a delay."""
    rows = pyarrow.parquet.read_table(FLIGHTS, columns=COLUMNS)
    return rows.filter(pc.is_valid(rows["dep_delay"]))


def below(rows: pa.Table, column: str, value: object) -> int:
    found = rows[column]
    if column == "dep_delay":
        found = pc.max_element_wise(pc.min_element_wise(found, 223), -32)
    return int(pc.sum(pc.less(found, pa.scalar(value, found.type))).as_py() or 0)


QUERIES = [
    *(("carrier", carrier) for carrier in ("AA", "B6", "EV", "MQ", "UA", "US", "WN")),
    *(("hour", hour) for hour in (6, 8, 12, 16, 18, 20)),
    *(("dep_delay", minutes) for minutes in (-10, -5, 0, 5, 15, 60, 120)),
    *(("distance", miles) for miles in (200, 500, 768, 1024, 2048, 4096)),
]


def test_intervals_hold_the_truth(folder: Path, truth: pa.Table) -> None:
    tree: Released = ReleaseFolder(str(folder / "out")).release.tree("flights")
    tree = tree.at_confidence(CONFIDENCE)
    for column, value in QUERIES:
        answer = tree.select_column(column).cdf(value)
        assert answer.ci_low <= below(truth, column, value) <= answer.ci_high, (column, value)


def test_synthetic_rows_have_the_marginals_of_the_release(folder: Path, truth: pa.Table) -> None:
    """A part has within one row of its count, so a column is off by chance inside parts only: by
    the standard deviation of rows that lie evenly in the parts that a value cuts."""
    rows = pyarrow.parquet.read_table(folder / "rows.parquet")
    assert rows.schema.names == COLUMNS
    assert rows.schema.field("carrier").type == pa.string()
    assert rows.schema.field("hour").type == pa.int64()
    tree = ReleaseFolder(str(folder / "out")).release.tree("flights")
    for column, value in QUERIES:
        answer = tree.select_column(column).cdf(value)
        cut = answer.ci_high - answer.ci_low
        # Bernoulli rows in the cut parts, at most `cut` of them, 6 standard deviations.
        allowed = 6 * np.sqrt(cut / 4 + 1) + 2
        assert abs(below(rows, column, value) - answer.count) <= allowed, (column, value)


def test_synthetic_marginals_are_within_the_stated_errors_of_the_true_ones(
    folder: Path, truth: pa.Table
) -> None:
    rows = pyarrow.parquet.read_table(folder / "rows.parquet")
    tree = ReleaseFolder(str(folder / "out")).release.tree("flights").at_confidence(CONFIDENCE)
    for column, value in QUERIES:
        answer = tree.select_column(column).cdf(value)
        own, true = below(rows, column, value), below(truth, column, value)
        assert abs(own - true) <= answer.ci_high - answer.ci_low + 2, (column, value)
        # What a release is good for: no marginal is far off, spread evenly in parts as it is.
        assert abs(own / len(rows) - true / len(truth)) < 0.04, (column, value)
