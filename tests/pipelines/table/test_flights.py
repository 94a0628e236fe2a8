"""examples/wide.yaml on the flights of the demo: answers and synthetic rows against the truth.

Skipped where `make demo` has not fetched the flights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.tables.released import ReleasedTable
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.hypercube.conftest import FLIGHTS, release_example

# Of some 60 intervals together below 1e-6 is out of reach of what can be requested: 1e-4 each, so
# that two misses are one time in 10^5.
CONFIDENCE = 0.9999


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of the example, and its rows."""
    place = tmp_path_factory.mktemp("wide")
    release_example("wide", place)
    return place


@pytest.fixture(scope="module")
def truth(folder: Path) -> pa.Table:
    """The rows that are counted, with the values that are counted."""
    tree = ReleaseFolder(str(folder / "out")).release.tree("flights")
    rows = pq.read_table(FLIGHTS, columns=list(tree.question.columns))
    return rows.filter(pc.is_valid(rows["dep_delay"]))


def test_intervals_hold_the_truth(folder: Path, truth: pa.Table) -> None:
    tree = ReleaseFolder(str(folder / "out")).release.tree("flights").at_confidence(CONFIDENCE)
    assert isinstance(tree, ReleasedTable)
    missed = 0
    origins, hours = (truth[name].to_numpy(zero_copy_only=False) for name in ("origin", "hour"))
    for origin in ("EWR", "JFK", "LGA"):
        for start in range(4, 24, 4):
            sides = {"origin": (origin, origin), "hour": (start, start + 4)}
            answer, inside = tree.box(sides), (hours >= start) & (hours < start + 4)
            missed += not answer.ci_low <= (inside & (origins == origin)).sum() <= answer.ci_high
    assert missed <= 1


def test_rows_are_near_the_truth(folder: Path, truth: pa.Table) -> None:
    """Total variations that a release of this budget keeps below by far: .15 of a pair."""
    made = pq.read_table(folder / "rows.parquet")
    for one, other in (("carrier", "origin"), ("hour", "origin"), ("month", "hour")):
        found = []
        for rows in (truth, made):
            counts = rows.group_by([one, other]).aggregate([([], "count_all")]).to_pylist()
            found.append(
                {(each[one], each[other]): each["count_all"] / len(rows) for each in counts}
            )
        cells = found[0].keys() | found[1].keys()
        assert np.sum([abs(found[0].get(c, 0) - found[1].get(c, 0)) for c in cells]) / 2 < 0.15
