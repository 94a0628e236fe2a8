"""Hierarchies and sums: what the pipeline releases is the release of the same counts in memory."""

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.columns import unpack
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.transforms.conservation import tree_rows
from dptrees.transforms.folder.names import universe_name
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.count import _MergePlace
from tests.dpcore.hierarchy_questions import (
    hierarchy_question,
    leaf_counts,
    make_release_plan,
    node_sums,
    random_rows,
    universe_domain,
)
from tests.dpcore.threshold_questions import make_stated_plan, threshold_question
from tests.transforms.eager import MAIN, counted, grouped, outputs
from tests.transforms.eager import summed as balances
from tests.transforms.hierarchy_releases import release_in_memory

ROWS = random_rows(11, 2600)
SIGNED = MeasureColumn(column="amount", lower=-5, upper=30)
COUNTED = MeasureColumn(column="amount", lower=0, upper=30, missing="zero")
RACES = ("white", "black", "nobody")
OTHERS = {"unknown": "other", "missing": "other"}
ADD, SUBSTITUTE = ADD_REMOVE_ROW, SUBSTITUTE_ROW
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 3))


def keyed(form: str, **fields: object) -> HierarchyQuestion[IrregularMechanism]:
    return hierarchy_question(form, keys=RACES, **fields)  # type: ignore[arg-type]


def add_remove() -> list[tuple[str, HierarchyQuestion[IrregularMechanism]]]:
    """The universe's form, and the question."""
    signed = {"name": "signed", "measure": SIGNED}
    unknown = universe_domain("digits", unknown="other")
    missing = universe_domain("columns", missing="other")
    return [
        ("digits", hierarchy_question("digits", name="digits")),
        ("columns", hierarchy_question("columns", name="columns")),
        ("paths", hierarchy_question("paths", name="paths")),
        ("digits", hierarchy_question("digits", name="unknown", domain=unknown)),
        ("columns", hierarchy_question("columns", name="missing", domain=missing)),
        ("digits", keyed("digits", name="keys")),
        ("paths", keyed("paths", name="other key", unknown_key="other")),
        ("digits", hierarchy_question("digits", name="sums", measure=COUNTED)),
        ("columns", hierarchy_question("columns", **signed)),
        ("paths", keyed("paths", name="signed of keys", measure=SIGNED)),
    ]


def public() -> list[tuple[str, HierarchyQuestion[IrregularMechanism]]]:
    total, invariants = universe_domain("digits", **OTHERS), universe_domain("paths", **OTHERS)
    plain = {"unit": SUBSTITUTE}
    return [
        ("digits", hierarchy_question(name="total", domain=total, public_level=0, **plain)),
        (
            "paths",
            hierarchy_question(
                "paths", name="invariants", domain=invariants, public_level=1, **plain
            ),
        ),
        ("columns", hierarchy_question("columns", name="private", measure=SIGNED, **plain)),
    ]


def concentrated() -> list[tuple[str, HierarchyQuestion[IrregularMechanism]]]:
    return [("paths", hierarchy_question("paths", budget=RHO, unit=SUBSTITUTE))]


RELEASES: dict[str, Callable[[], list[tuple[str, HierarchyQuestion[IrregularMechanism]]]]] = {
    "add_remove": add_remove,
    "public": public,
    "rho": concentrated,
}


def plan_for(name: str, chunk_leaves: int = 4) -> ReleasePlan:
    questions = (question for _, question in RELEASES[name]())
    return make_release_plan(*(replace(each, chunk_leaves=chunk_leaves) for each in questions))


def thresholds() -> ReleasePlan:
    return make_stated_plan(
        threshold_question("digits", name="digits"),
        threshold_question("paths", name="paths"),
        threshold_question("columns", name="keys", keys=RACES),
        hierarchy_question("digits", name="measured", estimation="none"),
    )


def substituted_thresholds() -> ReleasePlan:
    return make_stated_plan(
        threshold_question("paths", name="paths", unit=SUBSTITUTE),
        threshold_question("bushy", name="keys", keys=RACES, unit=SUBSTITUTE),
    )


def measured() -> ReleasePlan:
    return make_release_plan(
        hierarchy_question("digits", name="chains", estimation="none", budget=RHO),
        hierarchy_question("paths", name="keys", keys=RACES, estimation="none", budget=RHO),
    )


def rows_in_two_files(folder: Path, rows: pa.Table) -> str:
    pq.write_table(rows.slice(0, 1500), folder / "rows-a.parquet", row_group_size=500)
    pq.write_table(rows.slice(1500), folder / "rows-b.parquet", row_group_size=700)
    return str(folder / "rows-*.parquet")


@pytest.fixture
def check(key, release_files, release_tables) -> Callable[..., dict[str, bytes]]:
    """Compares a release with the release in memory, and returns its files."""

    def checked(plan: ReleasePlan, folder: Path, rows: pa.Table = ROWS) -> dict[str, bytes]:
        files: dict[str, bytes] = release_files(folder)
        assert release_tables(folder) == release_in_memory(plan, rows, key)
        universes = {
            universe_name(each.domain.universe.digest)
            for each in plan.questions
            if isinstance(each, HierarchyQuestion)
        }
        assert {name for name in files if name.startswith("universe-")} == universes
        assert json.loads(files["manifest.json"])["spec"] == plan.spec()
        return files

    return checked


@pytest.mark.parametrize("chunks", [2**17, 4], ids=["whole", "chunks"])
@pytest.mark.parametrize("name", RELEASES)
def test_the_pipeline_releases_what_the_counts_in_memory_give(
    name, chunks, tmp_path, run_steps, check, monkeypatch
) -> None:
    if chunks == 4:  # the other way to count, too
        monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
        monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", 400)
    plan = plan_for(name, chunks)
    assert (plan.questions[0].forest.chunking.split_level > 0) == (chunks == 4)
    run_steps(plan, ROWS, tmp_path / "out")
    check(plan, tmp_path / "out")


@pytest.mark.parametrize("make", [thresholds, substituted_thresholds, measured])
def test_thresholds_and_hierarchies_as_they_were_measured(make, tmp_path, run_steps, check) -> None:
    run_steps(make(), ROWS, tmp_path / "out")
    check(make(), tmp_path / "out")


def test_public_nodes_on_beam(tmp_path, run, check, small_splits) -> None:
    plan = plan_for("public")
    run(plan, rows_in_two_files(tmp_path, ROWS), tmp_path / "out")
    check(plan, tmp_path / "out")


def test_no_rows_at_all(tmp_path, run_steps, check) -> None:
    rows, plan = ROWS.slice(0, 0), plan_for("add_remove")
    run_steps(plan, rows, tmp_path / "out")
    found = check(plan, tmp_path / "out", rows)
    # One for each universe, however many trees share it.
    assert sum(name.startswith("universe-") for name in found) == 3


@pytest.mark.parametrize("name", ["add_remove", "public"])
def test_zero_noise_gives_what_is_counted_by_hand(name, tmp_path, run_steps, without_noise) -> None:
    run_steps(plan_for(name), ROWS, tmp_path / "out")
    nodes = pa.concat_tables(pq.read_table(p) for p in (tmp_path / "out" / "nodes").iterdir())
    rows = nodes.to_pylist()
    for form, question in RELEASES[name]():
        truth = node_sums(question, form, ROWS)
        mine = {(row["key"], row["label"]): row for row in rows if row["tree"] == question.name}
        assert truth.keys() <= mine.keys()
        for place, row in mine.items():
            assert row["count"] == truth.get(place, 0)
            assert row["estimate"] == pytest.approx(truth.get(place, 0), abs=1e-6)


# --- exact sums, however they are buffered ------------------------------------------------------


def summed(
    plan: ReleasePlan,
    batches: list[pa.RecordBatch],
    sizes: list[int],
    reference: KeyReference,
) -> dict[str, list[int]]:
    """The sums of the partial counts of bundles, and that the balance comes out at zero."""
    stops = np.cumsum(sizes).tolist()
    bundles = [batches[stop - size : stop] for stop, size in zip(stops, sizes, strict=True)]
    given = outputs(counted(plan, bundles))
    partials, balance = dict(grouped(given[MAIN])), given[BALANCE]
    merge = _MergePlace(plan, reference)
    merge.setup()
    found: dict[str, list[int]] = {}
    for question in plan.questions:
        leaves: list[int] = []
        for place in question.places:
            key = (question.name, *place)
            merged = outputs(merge.process((key, partials.get(key, []))))
            leaves += unpack(merged[MAIN][0][1]).tolist()
            balance += merged[BALANCE]
        found[question.name] = leaves
    totals = balances(balance)
    assert all(totals[tree_rows(question.name)] == 0 for question in plan.questions)
    assert totals["rows"] == -sum(batch.num_rows for batch in batches)
    return found


# Row by row is slow, and a few hundred rows have every kind.
@pytest.mark.parametrize("chunk_leaves", [4, 2**17])
@pytest.mark.parametrize(
    "cells, buffered, many",
    [(0, 1, 260), (0, 700, 2600), (0, 2**23, 2600), (2**25, 2**23, 2600)],
)
def test_dense_and_sparse_sums_are_exact(
    chunk_leaves, cells, buffered, many, reference, monkeypatch
) -> None:
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", cells)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", buffered)
    plan, rows = plan_for("add_remove", chunk_leaves), ROWS.slice(0, many)
    batches = rows.combine_chunks().to_batches(max_chunksize=many * 2 // 13)
    expected = {q.name: leaf_counts(q, rows).tolist() for q in plan.questions}
    assert sum(expected["signed"]) not in (0, sum(expected["columns"]))
    for sizes in ([7], [1, 0, 2, 4]):
        assert len(batches) == sum(sizes)
        assert summed(plan, batches, sizes, reference) == expected


def test_sums_of_the_largest_bounds_do_not_overflow(reference) -> None:
    measure = MeasureColumn(column="amount", lower=-(2**31), upper=2**31)
    plan = make_release_plan(hierarchy_question("digits", measure=measure))
    rows = ROWS.set_column(6, "amount", pa.array([1e300, -1e300] * 1300))
    batches = rows.combine_chunks().to_batches(max_chunksize=900)
    found = summed(plan, batches, [3], reference)["places"]
    assert found == leaf_counts(plan.questions[0], rows).tolist()
    assert max(map(abs, found)) >= 2**31


def test_a_plan_in_flight_is_small(tmp_path) -> None:
    """What every step carries: the place of the universe, not its leaves."""
    from dptrees.dpcore.hierarchy.domain import HierarchyDomain
    from dptrees.dpcore.hierarchy.leaves import universe_from_codes
    from dptrees.transforms.folder.universe import share_universes

    universe = universe_from_codes(pa.array([f"{n:05d}" for n in range(50_000)]), (2, 3))
    domain = HierarchyDomain(universe=universe, columns=("code",))
    plan = make_release_plan(hierarchy_question("digits", domain=domain))
    shared = share_universes(plan, str(tmp_path / "out"))
    assert len(pickle.dumps(plan)) > 50_000 > 5_000 > len(pickle.dumps(shared))
    again = pickle.loads(pickle.dumps(shared))
    assert again == plan and again.digest == plan.digest == shared.digest
    rows = {"code": pa.array(["00003", "49999", None, "50000"])}
    assert again.questions[0].leaf_ids(rows).tolist() == [3, 49_999]
