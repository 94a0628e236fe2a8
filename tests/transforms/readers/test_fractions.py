"""A fraction is never rounded to a whole number: for every reader, type of column and domain.

Rows with whole numbers count alike in all of them, and a row with a fraction counts as a row that
no domain of whole numbers knows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

import dptrees
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import parse_configuration
from tests.transforms.readers.read_files import read_batches

# The last three are fractions; what is floored, cut off or rounded would be 2, 3 or 4.
WHOLE, BROKEN = [3.0, 4.0, 3.0, 2.0], [3.5, 2.75, 3.25]
TREES = {
    "integer": "domain: {column: x, type: integer, lower: 0, upper: 10}",
    "wide cells": "domain: {column: x, type: integer, lower: 0, upper: 10, cells: 5}",
    "values": "domain: {column: x, type: integer, values: [0, 9]}",
    "mean": "domain: {column: x, type: integer, lower: 0, upper: 10}\n  objective: mean",
    "categories": "domain: {column: x, categories: [2, 3, 4]}",
    "keys": "domain: {column: y, lower: 0, upper: 10, cells: 10}\n"
    "  group_by: {column: x, keys: [2, 3, 4]}",
    "box": "domain: {kind: hypercube, columns: [{column: x, type: integer, lower: 0, upper: 10, "
    "out_of_range: drop}, {column: y, lower: 0, upper: 10, cells: 10}]}",
    "table": "domain: {kind: table, columns: [{column: x, type: integer, lower: 0, upper: 10}, "
    "{column: y, lower: 0, upper: 10, cells: 10}]}",
    "codes": "domain: {kind: sparse, column: x, bits: [4, 4]}",
}
TYPES = [
    *(pa.float16(), pa.float32(), pa.float64(), pa.dictionary(pa.int8(), pa.float64())),
    *(pa.decimal128(9, 2), pa.decimal256(50, 2)),
]
WRITERS: dict[str, Callable[[pa.Table, Path], object]] = {
    "parquet": pq.write_table,
    "arrow": feather.write_feather,
    "csv": pcsv.write_csv,
    "json": lambda table, path: path.write_text("\n".join(map(json.dumps, table.to_pylist()))),
}


def plan_of(tree: str, format: str = "parquet") -> ReleasePlan:
    return parse_configuration(
        f"release: a\ninput: {{format: {format}, path: a}}\noutput: o\nkey_file: k\n"
        "privacy: {epsilon: 1, delta: 1e-9, neighbors: add_remove}\n"
        f"trees:\n- name: a\n  {tree}\n"
    ).plan()


def column(values: list[float], type: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type):
        return pa.array([Decimal(str(each)) for each in values], type)
    return pa.array(values, pa.float64()).cast(
        type.value_type if pa.types.is_dictionary(type) else type
    )


def places(format: str, plan: ReleasePlan, x: pa.Array, tmp_path: Path) -> list[str]:
    """Where each row of a file counts."""
    path = tmp_path / f"rows.{format}"
    WRITERS[format](pa.table({"x": x, "y": [1.0] * len(x)}), path)
    (question,) = plan.questions
    found = []
    for batch in read_batches(format, str(path), plan):
        for row in range(batch.num_rows):
            rows = batch.slice(row, 1)
            columns = {name: rows.column(name) for name in question.columns}
            added = question.row_increments(columns).increments
            found.append(repr([None if each is None else each.tolist() for each in added]))
    return found


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("format", WRITERS)
def test_no_fraction_counts_as_a_whole_number(format: str, name: str, tmp_path: Path) -> None:
    plan = plan_of(TREES[name], format)
    expected = places(format, plan, pa.array([3, 4, 3, 2, 77, None, None]), tmp_path)
    nowhere = {expected[-1], expected[4]}  # of a missing and an unknown value
    assert len(set(expected[:4])) == (2 if name == "wide cells" else 3)
    for type in TYPES if format in ("parquet", "arrow") else [pa.float64()]:
        if format == "arrow" and pa.types.is_dictionary(type):
            continue
        found = places(format, plan, column(WHOLE + BROKEN, type), tmp_path)
        assert found[:4] == expected[:4], type
        assert set(found[4:]) <= nowhere, type


def test_whole_number_bounds_alone_do_not_read_a_column_of_fractions(tmp_path: Path) -> None:
    (question,) = plan_of("domain: {column: x, values: [0, 9]}").questions
    for exact in (pa.int64(), pa.decimal128(9, 0), pa.bool_()):
        question.check_types({"x": exact})
    for type in TYPES:
        with pytest.raises(ValueError, match=r"x.*type: integer"):
            question.check_types({"x": type})
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"v": [0.5, 1.5]}), path)
    with pytest.raises(dptrees.Error, match=r"type double.*type number"):
        dptrees.of(str(path), epsilon=1).metrics("v", ["mean"], (0, 100)).release()


@pytest.mark.parametrize("bounds", [(0, 100), (0.0, 100.0)], ids=str)
@pytest.mark.parametrize("whole", [True, False])
def test_bounds_of_either_spelling_answer_the_same_question(
    bounds: tuple[float, float], whole: bool
) -> None:
    values = [float(each) if whole else each + 0.984 for each in range(100)] * 10
    true = sum(values) / len(values)
    request = dptrees.of(pa.table({"v": values}), epsilon=1e6).metrics("v", ["mean"], bounds)
    with pytest.warns(UserWarning, match="above 10"):
        found = request.release()["v"].mean()
    low, high = found.interval
    assert low <= true <= high
    assert abs(found.value - true) < 0.06
    assert high - low < 0.21
    assert not whole or isinstance(bounds[0], float) or abs(found.value - true) < 1e-6


def test_a_mean_of_durations_includes_the_part_of_a_unit() -> None:
    rows = pa.table({"stay": pa.array([59, 119, 179] * 1000, pa.duration("s"))})
    domain = {"column": "stay", "type": "duration", "unit": "minutes", "lower": 0, "upper": 10}
    config = {
        "privacy": {"epsilon": 1e6, "neighbors": "add_remove"},
        "trees": [{"name": "stay", "domain": domain}],
    }
    with pytest.warns(UserWarning, match="above 10"):
        found = dptrees.release(rows, config)["stay"].mean()
    low, high = found.interval
    assert low <= 119 / 60 <= high
    assert 0.99 < high - low < 1.01
