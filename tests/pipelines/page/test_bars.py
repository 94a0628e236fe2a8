"""Intervals of bars: only a count without an error is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.pipelines.show.charts import Bars
from dptrees.pipelines.show.page_nodes import ShownKeys, crosstab, rows_text, table_bars

NODES = pa.table(
    {
        "label": ["far below 0", "invariant", "noisy"],
        "count": [0, 7, 5],
        "estimate": [-927.0, 7.0, 5.0],
        "std_error": [445.0, 0.0, 1.0],
        "ci_low": [0.0, 7.0, 3.0],
        "ci_high": [0.0, 7.0, 9.0],
    }
)
INTERVALS = ["0 to 0", "exact", "3.0 to 9.0"]


def test_an_interval_without_a_width_is_exact_only_without_an_error() -> None:
    bars = Bars(
        name="place",
        bars=list(table_bars(NODES, NODES["label"].to_pylist())),
        title="Rows",
        confidence="95 %",
        in_order=True,
    )
    assert [row["interval"] for row in bars.rows] == INTERVALS
    both = pa.concat_tables([NODES.append_column("code", [np.full(3, code)]) for code in (0, 1)])
    table: Any = crosstab("place", both, ShownKeys(labels=["a", "b"], codes=[0, 1], size=2))
    assert table["titles"] == ["place", "a", "b"]
    for column in (1, 2):
        assert [row[column]["interval"] for row in table["rows"]] == INTERVALS
    assert [rows_text(NODES, place) for place in (0, 1)] == ["-930 [0 to 0]", "7, exact"]
