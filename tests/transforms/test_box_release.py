"""Boxes of columns on Beam: their counts held in every way, in one job, are the release in memory,
however rows are bundled, and leave nothing exact behind."""

from __future__ import annotations

import logging
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.dpcore.sketches.sketch import SketchKind
from tests.dpcore.hierarchy_questions import make_release_plan
from tests.transforms.box_questions import box_question, sketched
from tests.transforms.conftest import NONCE
from tests.transforms.every_kind import ROWS, tables_in_memory


@pytest.fixture(scope="module")
def plan() -> ReleasePlan:
    """A box held in each way."""
    questions = (
        box_question("dense", holding=Holding.DENSE),
        box_question("sparse", holding=Holding.SPARSE, depth=11),
        box_question("paper", mechanism="privhp_paper", holding=Holding.SPARSE, most=12),
        sketched("smallest", SketchKind.COUNT_MIN, rows=3),
        sketched("signed", SketchKind.COUNT_SKETCH, rows=1),
    )
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(len(questions)))
    return ReleasePlan(name="boxes", unit=ADD_REMOVE_ROW, budget=budget, questions=questions)


def written(folder: Path, table: pa.Table, files: int) -> str:
    """The rows dealt out to files of small row groups; their pattern."""
    for index in range(files):
        part = table.take(np.arange(index, table.num_rows, files))
        pq.write_table(part, folder / f"rows-{index}.parquet", row_group_size=170)
    return str(folder / "rows-*.parquet")


def test_what_the_runner_releases(
    plan, key, tmp_path, run, release_tables, small_splits, monkeypatch
) -> None:
    expected = tables_in_memory(plan, key)
    run(plan, written(tmp_path, ROWS, 1), tmp_path / "out")
    assert release_tables(tmp_path / "out") == expected
    # Another order, other files, sorted counts, and bundles that run again.
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    monkeypatch.setattr("dptrees.dpcore.boxes.held_counts.BUFFERED_ROWS", 200)
    shuffled = ROWS.take(np.random.default_rng(2).permutation(ROWS.num_rows))
    pattern, repeat = written(tmp_path, shuffled, 4), ["--direct_runner_bundle_repeat=2"]
    run(plan, pattern, tmp_path / "other", pipeline_options=repeat)
    assert release_tables(tmp_path / "other") == expected


def test_neither_the_log_nor_a_file_reports_an_exact_count(
    plan, key, tmp_path, run, release_files, release_tables, caplog
) -> None:
    """All rows are in one cell, so that its count is that of every node above it."""
    exact = 12_347
    columns = {"number": [3] * exact, "amount": [7.5] * exact, "race": ["white"] * exact}
    rows = pa.table(columns)
    caplog.set_level(logging.DEBUG)
    run(plan, written(tmp_path, rows, 1), tmp_path / "out")
    found = release_files(tmp_path / "out")
    released = release_rows(plan, rows.to_batches(), key, nonce=NONCE)
    parts = [part for question in plan.questions for part in question.parts()]
    tables = release_tables(tmp_path / "out")
    assert len(tables) == len(parts)
    texts = (b"12347", exact.to_bytes(4, "little"), exact.to_bytes(4, "big"))
    packed = {name: data for name, data in found.items() if name not in tables}
    for name, data in (packed | {"log": caplog.text.encode()}).items():
        assert data and not any(text in data for text in texts), name
    for part in parts:
        table = released.part(part.kind, part.tree, part.key, part.index)
        assert exact not in table["estimate"].to_pylist(), part


def spreads(question: HypercubeQuestion, key: ReleaseKey, rows: pa.Table) -> list[float | None]:
    """The standard errors of all nodes of a release in memory."""
    plan = make_release_plan(question)
    released = release_rows(plan, rows.to_batches(), key)
    tables = (released.part("nodes", question.name, 0, depth) for depth in question.plan.depths)
    return [each for table in tables for each in table["std_error"].to_pylist()]


@pytest.mark.parametrize("kind", SketchKind)
def test_cells_that_happen_to_be_alike_are_not_taken_for_known(kind, key) -> None:
    """No rows and little noise: all cells of the tables are 0."""
    question = sketched("sketch", kind, rows=1, amount=Fraction(60), depth=8)
    assert min(spreads(question, key, ROWS.slice(0, 0))) > 0  # type: ignore[type-var]


@pytest.mark.parametrize("holding", Holding)
def test_noise_too_small_for_a_variance_is_not_taken_for_none(holding, key) -> None:
    question = box_question(holding=holding, amount=Fraction(10**5), depth=4)
    assert min(spreads(question, key, ROWS)) > 0  # type: ignore[type-var]
