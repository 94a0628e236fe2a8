"""The release that the pipeline makes is the release of the same counts in memory.

On Beam: every kind of tree together (hierarchies under substitution: test_hierarchy_release), cut
trees, no rows, and nulls. Of all other plans, the steps of the job, one after the other.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.beam.release import ReleaseTrees
from tests.transforms import every_kind
from tests.transforms.conftest import LOCAL_RUNNER, NONCE

MANY_LEAVES = 2**17 + 2**13

PLANS = {
    "several trees": {"names": ("value", "number", "carrier")},
    "keys with an other cell": {"names": ("carrier",), "unknown": "other", "missing": "last"},
    "rows outside dropped": {"names": ("value", "number"), "outside": "drop"},
    "public number of rows": {
        "names": ("value", "number"),
        "unit": SUBSTITUTE_ROW,
        "missing": "last",
        "public": True,
    },
    "one cell": {"names": ("value",), "cells": 1},
}


@pytest.fixture
def check(tmp_path, release_tables, expected_files) -> Callable[..., None]:
    """Runs a job, and compares its release with the release in memory."""

    def checked(run: Callable[..., None], plan: ReleasePlan, given: Any, rows: pa.Table) -> None:
        folder = tmp_path / f"out-{plan.digest.hex()[:8]}"
        run(plan, given, folder)
        assert release_tables(folder) == expected_files(plan, rows)

    return checked


@pytest.mark.parametrize("name", PLANS)
def test_the_pipeline_releases_what_the_counts_in_memory_give(
    name, make_plan, rows, run_steps, check
) -> None:
    arguments = dict(PLANS[name])
    check(run_steps, make_plan(*arguments.pop("names"), **arguments), rows, rows)


@pytest.mark.parametrize(("name", "universes"), [("mixed", 2), ("sketch", 0)])
def test_every_kind_on_beam(
    name, universes, tmp_path, key, run, release_tables, small_splits
) -> None:
    pq.write_table(every_kind.ROWS, tmp_path / "rows.parquet", row_group_size=200)
    plan = every_kind.PLANS[name]()
    run(plan, str(tmp_path / "rows.parquet"), tmp_path / "out")
    assert release_tables(tmp_path / "out") == every_kind.tables_in_memory(plan, key)
    assert len([*(tmp_path / "out").glob("universe-*")]) == universes


def test_small_chunks_with_spines(
    make_plan, data, rows, run, check, monkeypatch, small_splits
) -> None:
    """By sorted counts, which leave before their bundle ends."""
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", 500)
    plan = make_plan("value", "number", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)
    assert all(question.forest.chunking.split_level > 0 for question in plan.questions)
    check(run, plan, data, rows)


def test_more_leaves_than_a_chunk_holds(make_plan, rows, run_steps, check) -> None:
    plan = make_plan("value", cells=MANY_LEAVES, fanouts=(32, 64, 80))
    chunking = plan.questions[0].forest.chunking
    assert chunking.split_level > 0 and len(chunking) > 1
    check(run_steps, plan, rows, rows)


def test_no_rows_at_all(make_plan, rows, tmp_path, run, run_steps, check) -> None:
    """With a private number of rows on Beam, and with a public one."""
    empty, path = rows.slice(0, 0), str(tmp_path / "empty.parquet")
    pq.write_table(empty, path)
    check(run, make_plan("value", "number", "carrier", missing="last"), path, empty)
    plan = make_plan("value", "number", unit=SUBSTITUTE_ROW, public=True, missing="last")
    check(run_steps, plan, empty, empty)


def test_only_nulls_in_columns_without_a_type(make_plan, tmp_path, run, check) -> None:
    nulls = pa.table({"value": pa.nulls(20), "number": pa.nulls(20), "carrier": pa.nulls(20)})
    path = str(tmp_path / "nulls.parquet")
    pq.write_table(nulls, path)
    plan = make_plan("value", "number", "carrier", missing="first", unknown="other")
    check(run, plan, path, nulls)


def test_batches_of_one_s_own_pipeline(make_plan, rows, reference, check) -> None:
    def piped(plan: ReleasePlan, table: pa.Table, folder: Path) -> None:
        with beam.Pipeline(LOCAL_RUNNER) as pipeline:
            batches = pipeline | beam.Create(table.combine_chunks().to_batches(max_chunksize=400))
            batches | ReleaseTrees(plan, key=reference, output=str(folder), nonce=NONCE)

    check(piped, make_plan("value", "carrier"), rows, rows)


def test_zero_noise_gives_the_exact_counts_back(
    make_plan, rows, tmp_path, run_steps, exact_counts, without_noise
) -> None:
    for leaves in (8, 2**17):
        plan = make_plan("value", "number", "carrier", fanouts=(4, 4, 2), chunk_leaves=leaves)
        run_steps(plan, rows, tmp_path / str(leaves))
        check_exact(plan, exact_counts(plan, rows), tmp_path / str(leaves))


def test_noise_is_seen_as_no_exact_counts(
    make_plan, rows, tmp_path, run_steps, exact_counts
) -> None:
    plan = make_plan("value", "number", "carrier", fanouts=(4, 4, 2))
    run_steps(plan, rows, tmp_path / "out")
    with pytest.raises(AssertionError):
        check_exact(plan, exact_counts(plan, rows), tmp_path / "out")


def check_exact(plan: ReleasePlan, exact, folder: Path) -> None:
    for question in plan.questions:
        nodes = pa.concat_tables(
            pq.read_table(path) for path in (folder / "nodes").glob(f"{question.name}-*")
        )
        leaves = exact[question.name].reshape(question.key_count, -1)
        tree = question.plan.tree
        for code, label in enumerate(question.key_labels):
            mine = nodes.filter([value == label for value in nodes["key"].to_pylist()])
            for level in range(tree.height + 1):
                at = mine.filter(np.equal(mine["level"].to_numpy(), level)).sort_by("node")
                truth = tree.level_counts(leaves[code][None])[level][0]
                assert at["count"].to_pylist() == truth.tolist()
                np.testing.assert_allclose(at["estimate"].to_numpy(), truth, atol=1e-9)
        cdf = pa.concat_tables(
            pq.read_table(path) for path in sorted((folder / "cdf").glob(f"{question.name}-*"))
        )
        truth = np.cumsum(leaves, axis=1).ravel()
        assert cdf["count"].to_pylist() == truth.tolist()
        np.testing.assert_allclose(cdf["estimate"].to_numpy(), truth, atol=1e-9)
