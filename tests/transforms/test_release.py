"""The release that the pipeline makes is the release of the same counts in memory.

On Beam: every kind of tree together (hierarchies under substitution: test_hierarchy_release), cut
trees, no rows, and nulls. Of all other plans, the steps of the job, one after the other.
"""

from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.laws import DiscreteLaplace, ZeroNoise
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.transforms.release import ReleaseTrees
from tests.transforms import every_kind

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


def tables(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(".parquet")}


def check(plan, data, table, tmp_path, run, release_files, expected_files) -> None:
    run(plan, data, tmp_path / "out")
    found = release_files(tmp_path / "out")
    assert tables(found) == expected_files(plan, table)
    assert set(found) - set(tables(found)) == {"manifest.json", "nonce.json", "record.json"}


@pytest.mark.parametrize("name", PLANS)
def test_the_pipeline_releases_what_the_counts_in_memory_give(
    name, make_plan, rows, tmp_path, run_steps, release_files, expected_files
) -> None:
    arguments = dict(PLANS[name])
    plan = make_plan(*arguments.pop("names"), **arguments)
    check(plan, rows, rows, tmp_path, run_steps, release_files, expected_files)


def test_every_kind_on_beam(tmp_path, key, run, release_files, small_splits) -> None:
    pq.write_table(every_kind.ROWS, tmp_path / "rows.parquet", row_group_size=200)
    plan = every_kind.PLANS["mixed"]()
    run(plan, str(tmp_path / "rows.parquet"), tmp_path / "out")
    found = tables(release_files(tmp_path / "out"))
    universes = {name for name in found if name.startswith("universe-")}
    assert len(universes) == 2
    expected = every_kind.tables_in_memory(plan, key)
    assert {name: found[name] for name in found.keys() - universes} == expected


def test_small_chunks_with_spines(
    make_plan,
    data,
    rows,
    tmp_path,
    run,
    release_files,
    expected_files,
    monkeypatch,
    small_splits,
) -> None:
    """By sorted counts, which leave before their bundle ends."""
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", 500)
    plan = make_plan("value", "number", "carrier", fanouts=(4, 4, 2), chunk_leaves=8)
    assert all(question.forest.chunking.split_level > 0 for question in plan.questions)
    check(plan, data, rows, tmp_path, run, release_files, expected_files)


def test_more_leaves_than_a_chunk_holds(
    make_plan, rows, tmp_path, run_steps, release_files, expected_files
) -> None:
    plan = make_plan("value", cells=MANY_LEAVES, fanouts=(32, 64, 80))
    chunking = plan.questions[0].forest.chunking
    assert chunking.split_level > 0 and len(chunking) > 1
    check(plan, rows, rows, tmp_path, run_steps, release_files, expected_files)


def test_no_rows_at_all(
    make_plan, rows, tmp_path, run, run_steps, release_files, expected_files
) -> None:
    """With a private number of rows on Beam, and with a public one."""
    empty, (private, public) = rows.slice(0, 0), (tmp_path / "private", tmp_path / "public")
    pq.write_table(empty, tmp_path / "empty.parquet")
    path = str(tmp_path / "empty.parquet")
    plan = make_plan("value", "number", "carrier", missing="last")
    check(plan, path, empty, private, run, release_files, expected_files)
    plan = make_plan("value", "number", unit=SUBSTITUTE_ROW, public=True, missing="last")
    check(plan, empty, empty, public, run_steps, release_files, expected_files)


def test_only_nulls_in_columns_without_a_type(
    make_plan, tmp_path, run, release_files, expected_files
) -> None:
    nulls = pa.table({"value": pa.nulls(20), "number": pa.nulls(20), "carrier": pa.nulls(20)})
    pq.write_table(nulls, tmp_path / "nulls.parquet")
    plan = make_plan("value", "number", "carrier", missing="first", unknown="other")
    path = str(tmp_path / "nulls.parquet")
    check(plan, path, nulls, tmp_path, run, release_files, expected_files)


def test_batches_of_one_s_own_pipeline(
    make_plan, rows, tmp_path, reference, nonce, release_files, expected_files
) -> None:
    plan = make_plan("value", "carrier")
    runner = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"
    with beam.Pipeline(runner) as pipeline:
        batches = pipeline | beam.Create(rows.combine_chunks().to_batches(max_chunksize=400))
        batches | ReleaseTrees(plan, key=reference, output=str(tmp_path / "out"), nonce=nonce)
    assert tables(release_files(tmp_path / "out")) == expected_files(plan, rows)


@pytest.mark.parametrize("chunk_leaves", [8, 2**17])
def test_zero_noise_gives_the_exact_counts_back(
    chunk_leaves, make_plan, rows, tmp_path, run_steps, exact_counts, monkeypatch
) -> None:
    # The laws stay, and so their variances and the estimation; what is drawn is zero.
    monkeypatch.setattr(
        DiscreteLaplace, "sample", lambda self, stream, size: ZeroNoise().sample(stream, size)
    )
    plan = make_plan("value", "number", "carrier", fanouts=(4, 4, 2), chunk_leaves=chunk_leaves)
    run_steps(plan, rows, tmp_path / "out")
    check_exact(plan, exact_counts(plan, rows), tmp_path / "out")


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
