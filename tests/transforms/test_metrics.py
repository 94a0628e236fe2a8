"""Counters show how much of the work is done, and nothing that depends on the rows."""

import ast
import re
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.dpcore.questions.messages import UNITS, Part, ReleasedPart
from dptrees.dpcore.questions.released import NODES
from dptrees.transforms import conservation
from dptrees.transforms.beam.release import ReadBatches, ReleaseTrees
from dptrees.transforms.folder.layout import planned_parts
from dptrees.transforms.steps import draw
from tests.transforms.conftest import LOCAL_RUNNER

PROJECT = Path(__file__).resolve().parents[2]
NAMES = {"splits_read", "chunks_measured", "parts_written", "bytes_written"}


@pytest.fixture
def plan(make_plan):
    """Two trees in chunks, one of them with keys."""
    return make_plan("value", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)


@pytest.fixture
def counters(plan, reference):
    """Releases rows and returns the project's counters: those committed, and how often updated."""

    def counted(patterns: str, output: Path) -> dict[str, int]:
        options = PipelineOptions([f"--runner={LOCAL_RUNNER}"], save_main_session=False)
        pipeline = beam.Pipeline(options=options)
        read = pipeline | "Read" >> ReadBatches(patterns=(patterns,), format="parquet", plan=plan)
        read | "Release" >> ReleaseTrees(plan, key=reference, output=str(output))
        result = pipeline.run()
        result.wait_until_finish()
        found = result.metrics().query(MetricsFilter().with_namespace(conservation.NAMESPACE))
        assert not found["distributions"] and not found["gauges"]
        sums: dict[str, int] = {}
        for each in found["counters"]:
            name = each.key.metric.name
            sums[name] = sums.get(name, 0) + each.result
        return sums

    return counted


def test_counters_are_those_of_the_plan_and_of_the_files(
    plan, data, tmp_path, counters, small_splits
) -> None:
    found = counters(data, tmp_path / "out")
    written = [*tmp_path.glob("out/nodes/*"), *tmp_path.glob("out/cdf/*")]
    assert found == {
        # Row groups of 500, 500, 500, 200 and of 700, 600 rows; splits of 1,000 or more.
        "splits_read": 3,
        "chunks_measured": sum(len(question.forest.chunking) for question in plan.questions),
        "parts_written": len(list(planned_parts(plan))),
        "bytes_written": sum(path.stat().st_size for path in written),
    }
    assert len(written) == found["parts_written"]


def other_rows(rows: pa.Table) -> pa.Table:
    """Return as many rows; other ones, and far more, are dropped or out of bounds."""
    value = np.full(rows.num_rows, np.nan)
    value[::7] = 1e6
    return rows.set_column(rows.column_names.index("value"), "value", pa.array(value))


def test_other_and_fewer_rows_give_the_same_counters(
    data, rows, tmp_path, counters, small_splits
) -> None:
    """In files of the same layout; of fewer rows, but for splits."""

    def of_files(name: str, first: pa.Table, second: pa.Table) -> dict[str, int]:
        folder = tmp_path / name
        folder.mkdir()
        pq.write_table(first, folder / "a.parquet", row_group_size=500)
        pq.write_table(second, folder / "b.parquet", row_group_size=700)
        return counters(str(folder / "*.parquet"), tmp_path / f"{name} out")

    first, other = counters(data, tmp_path / "first out"), other_rows(rows)
    second = of_files("other", other.slice(0, 1700), other.slice(1700))
    fewer = of_files("fewer", rows.slice(0, 1), rows.slice(0, 0))
    # What is released is noisy; the rest must not differ at all.
    assert first.pop("bytes_written") > 0 and second.pop("bytes_written") > 0
    assert first == second
    for name in ("chunks_measured", "parts_written"):
        assert first[name] == fewer[name]


def test_counters_are_named_in_one_place_and_documented() -> None:
    named = {
        each
        for name, each in vars(conservation).items()
        if re.fullmatch("[A-Z]+_[A-Z]+", name) and isinstance(each, str)
    }
    assert named == NAMES
    page = (PROJECT / "docs" / "metrics.md").read_text()
    assert {name for name in NAMES if f"`{name}`" in page} == NAMES


def makes_metrics(source: str) -> bool:
    """Whether a module imports what metrics are made with."""
    return any(
        "Metrics" in {alias.name for alias in node.names}
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
    ) or any(
        isinstance(node, ast.Attribute) and node.attr in ("Metrics", "distribution")
        for node in ast.walk(ast.parse(source))
    )


def test_no_other_module_makes_metrics() -> None:
    """Where the rows are counted, no counter may be made beside the documented ones. The
    preflight's counters are of a job of its own, which reads no row."""
    assert makes_metrics("from apache_beam.metrics import Metrics")
    assert makes_metrics("beam.metrics.Metrics.counter('a', 'b').inc()")
    assert not makes_metrics("question.counter(dense=True)")  # of rows
    layers = ("dpcore", "transforms", "pipelines")
    modules = [path for layer in layers for path in sorted((PROJECT / layer).rglob("*.py"))]
    made = [path for path in modules if makes_metrics(path.read_text())]
    assert [path.name for path in made] == ["adapter.py", "preflight.py"]


@pytest.mark.parametrize(("kind", "counts"), [(NODES, True), (UNITS, False)])
def test_bytes_of_remembered_units_are_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, counts: bool
) -> None:
    """Their size depends on how many units there have been, and on no noise."""
    counted: list[int] = []

    def count(name: str, amount: int) -> None:
        if name == conservation.BYTES_WRITTEN:
            counted.append(amount)

    monkeypatch.setattr(conservation, "_counters", [count])
    part = Part(kind=kind, tree="t", key=0, index=0)
    draw.write_part(str(tmp_path), ReleasedPart(part, pa.table({"sealed": [b"x" * 1000]})))
    assert bool(counted) == counts and len(list(tmp_path.glob(f"{kind}/*"))) == 1
