"""What an engine counts by itself, elements between steps, does not distinguish two inputs that
differ in one row, even where that row is alone in its chunk."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.dpcore.boxes import held_counts
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.transforms.beam.release import ReadBatches, ReleaseTrees
from tests.dpcore.hierarchy_questions import make_release_plan
from tests.transforms import every_kind
from tests.transforms.box_questions import box_question, sketched
from tests.transforms.conftest import LOCAL_RUNNER
from tests.transforms.hierarchy_releases import DELTA, sparse_question
from tests.transforms.test_parted_release import parted, questions
from tests.transforms.test_rounds import chosen

ELEMENT_COUNT = "beam:metric:element_count:v1"

Counts = Callable[[ReleasePlan, pa.Table, str], Counter[str]]


@pytest.fixture
def counted(tmp_path: Path, reference) -> Counts:
    """Releases rows, and returns how many elements the engine saw in each PCollection."""

    def counts(plan: ReleasePlan, rows: pa.Table, name: str) -> Counter[str]:
        source = tmp_path / f"{name}.parquet"
        pq.write_table(rows, source, row_group_size=500)
        options = PipelineOptions([f"--runner={LOCAL_RUNNER}"], save_main_session=False)
        pipeline = beam.Pipeline(options=options)
        read = pipeline | ReadBatches(patterns=(str(source),), format="parquet", plan=plan)
        read | ReleaseTrees(plan, key=reference, output=str(tmp_path / name))
        result = pipeline.run()
        result.wait_until_finish()
        found: Counter[str] = Counter()
        for info in result.monitoring_infos():
            if info.urn == ELEMENT_COUNT:
                count = beam.coders.VarIntCoder().decode(info.payload)
                found[info.labels["PCOLLECTION"]] += count
        return found

    return counts


@pytest.fixture
def check_alike(counted: Counts) -> Callable[..., Counter[str]]:
    """Releases columns, and them with other values, and compares the numbers of elements."""

    def check(
        plan: ReleasePlan, columns: dict[str, Any], others: dict[str, dict[str, Any]]
    ) -> Counter[str]:
        first = counted(plan, pa.table(columns), "first")
        for name, values in others.items():
            assert counted(plan, pa.table(columns | values), name) == first, name
        return first

    return check


def test_dense_histograms(counted, make_plan, small_splits) -> None:
    plan = make_plan("value", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)
    # All rows in the first chunk of eight cells, but for one in the last.
    value = np.append(np.full(2999, 0.5), 9.9)
    rows = pa.table({"value": value, "carrier": ["UA"] * 3000})
    first = counted(plan, rows, "first")
    assert first == counted(plan, rows.slice(0, 2999), "one row less")
    another_value = rows.set_column(0, "value", pa.array(np.full(3000, 0.5)))
    assert first == counted(plan, another_value, "another value")
    chunks = sum(len(question.forest.chunking) for question in plan.questions)
    assert chunks == 16
    # Both splits may share a bundle; and every chunk has its empty partial.
    assert any(count >= 2 * chunks for count in first.values())


def test_bundles_without_a_row_that_is_kept(check_alike, make_plan, small_splits) -> None:
    plan = make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8)
    none = {"value": [np.nan] * 3000}
    check_alike(plan, {"value": [np.nan] * 2999 + [3.0]}, {"none": none})


def test_shards_of_a_sparse_tree(check_alike, small_splits) -> None:
    question = sparse_question("labels", name="labels")
    plan = ReleasePlan(
        name="sparse",
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=question.plan.epsilon),
        questions=(question,),
        stated=(question.plan.epsilon, DELTA),
    )
    other = {question.columns[0]: ["x"] * 1999 + ["y"]}
    check_alike(plan, {each: ["x"] * 2000 for each in question.columns}, {"other": other})


@pytest.mark.parametrize("buffered", [2**23, 700])
def test_leaves_that_are_matched_in_parts(check_alike, small_splits, monkeypatch, buffered) -> None:
    """Also where counts leave before their bundle ends, and whatever matches no leaf."""
    monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.MOST_WHOLE_LEAVES", 5)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", buffered)
    question = replace(questions(parted())[4], chunk_leaves=5)
    assert question.is_matched and question.domain.unknown == "other"
    codes = ("9001", "0199", "7700", None)
    others = {f"with {code}": {"code": ["0100"] * 1999 + [code]} for code in codes}
    check_alike(make_release_plan(question), {"code": ["0100"] * 2000}, others)


@pytest.mark.parametrize("most", [2**21, 300])
def test_shards_of_a_selection(check_alike, small_splits, monkeypatch, most) -> None:
    """Also where counts leave before their bundle ends: after so many rows, whatever they hold."""
    monkeypatch.setattr("dptrees.dpcore.questions.one_part.MOST_ROWS", most)
    others = {
        "another key": {"race": ["x"] * 1999 + ["y"]},
        "no key": {"race": ["x"] * 1999 + [None]},
        "many keys": {"number": list(range(2000))},
    }
    columns = {"number": [3] * 2000, "race": ["x"] * 2000}
    check_alike(every_kind.PLANS["selection"](), columns, others)


@pytest.mark.parametrize("cells", [2**25, 1])
def test_cells_of_a_sketch(check_alike, small_splits, monkeypatch, cells) -> None:
    """Also where the tables are too large to be held, and counts leave before their bundle ends."""
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", cells)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", 700)
    others = {
        "another value": {"race": ["x"] * 1999 + ["y"]},
        "no value": {"race": ["x"] * 1999 + [None]},
        "many values": {"number": list(range(2000))},
    }
    columns = {"number": [3] * 2000, "race": ["x"] * 2000}
    check_alike(every_kind.PLANS["sketch"](), columns, others)


def test_quantiles_in_rounds(check_alike) -> None:
    """Wherever rows are, and whatever their keys: every chunk is queried, and answers."""
    plan = make_release_plan(chosen("deep", (0.1, 0.5, 0.7)), chosen("keyed", (0.5,), keyed=True))
    other = {"value": [0.1, 0.2, 9.9], "carrier": ["UA", "UA", "AA"]}
    check_alike(plan, {"value": [0.1, 0.2, 0.15], "carrier": ["UA"] * 3}, {"other": other})


@pytest.mark.parametrize("buffered", [2**23, 700])
def test_boxes_of_columns(check_alike, small_splits, monkeypatch, buffered) -> None:
    """However their counts are held, also where codes leave before their bundle ends."""
    monkeypatch.setattr("dptrees.dpcore.boxes.held_counts.BUFFERED_ROWS", buffered)
    plan = make_release_plan(
        box_question("dense", holding=Holding.DENSE),
        box_question("sparse", holding=Holding.SPARSE),
        sketched("sketches", SketchKind.COUNT_SKETCH, rows=3),
    )
    others = {
        "another number": {"number": [3] * 2999 + [20]},
        "a row that is dropped": {"race": ["white"] * 2999 + ["dropped"]},
        "many codes": {"number": np.random.default_rng(3).integers(-5, 25, 3000)},
    }
    columns = {"number": [3] * 3000, "amount": [1.0] * 3000, "race": ["white"] * 3000}
    check_alike(plan, columns, others)


def test_a_box_that_sends_no_empty_shards_is_found(counted, small_splits, monkeypatch) -> None:
    sent = held_counts.code_partials
    monkeypatch.setattr(
        held_counts, "code_partials", lambda *given: (each for each in sent(*given) if each.data)
    )
    plan = make_release_plan(box_question(holding=Holding.SPARSE))
    columns = {"amount": [1.0] * 3000, "race": ["white"] * 3000}
    counts = [
        counted(plan, pa.table(columns | {"number": [3] * 2999 + [last]}), f"last {last}")
        for last in (3, 20)
    ]
    assert counts[0] != counts[1]
