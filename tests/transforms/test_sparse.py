"""Large sparse trees: what the pipeline releases is the release of the same counts in memory, and
a loss at any hand-over is found out."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.utils.windowed_value import WindowedValue

from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Budget, Measure, Neighbors
from dpcore.privacy.conversion import rho_of
from dpcore.release.plan import ReleasePlan
from dpcore.sparse.counter import SparseCounter
from dpcore.sparse.node_counts import NodeCounts
from dpcore.sparse.tables import shard_counts
from tests.dpcore.hierarchy_questions import hierarchy_question, random_rows
from tests.transforms.hierarchy_releases import DELTA, files_of, sparse_question
from tests.transforms.test_conservation import drop, plant_input, plant_output, repeat
from transforms import sparse
from transforms.conservation import expected_balance, tree_chunks
from transforms.errors import sentence_in
from transforms.readers.read import BALANCE
from transforms.solve import unpack_digest
from transforms.sparse import _EmptyShards, _MergeShard, _PartialShards

MAIN = None
ROWS = random_rows(21, 2600)
ROWS = ROWS.append_column(
    "number", pa.array(np.minimum(np.random.default_rng(4).geometric(0.05, 2600) - 3, 300))
)
FORMS = ("labels", "paths", "codes")


def sparse_plan(*forms: str, **fields: Any) -> ReleasePlan:
    questions = tuple(sparse_question(form, name=form, **fields) for form in forms)
    count = len(questions)
    return ReleasePlan(
        name="sparse",
        neighbors=Neighbors.ADD_REMOVE,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(2 * count)),
        questions=questions,
        stated=(Fraction(2 * count), DELTA * count),
    )


def mixed_plan(make_question: Callable[..., OrderedQuestion] | None = None) -> ReleasePlan:
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    share = Budget(measure=Measure.RHO, amount=rho_of(epsilon, delta) / 2)
    return ReleasePlan(
        name="mixed",
        neighbors=Neighbors.ADD_REMOVE,
        budget=Budget(measure=Measure.RHO, amount=share.amount * 2),
        questions=(
            sparse_question("paths", name="paths"),
            hierarchy_question("digits", budget=share),
            hierarchy_question("columns", name="routes", budget=share, keys=("white", "black")),
            sparse_question("codes", name="codes", prune=40),
        ),
        stated=(epsilon + 4, delta + 2 * DELTA),
    )


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The rows in several splits."""
    pq.write_table(ROWS.slice(0, 1500), tmp_path / "rows-a.parquet", row_group_size=500)
    pq.write_table(ROWS.slice(1500), tmp_path / "rows-b.parquet", row_group_size=700)
    return str(tmp_path / "rows-*.parquet")


def tables(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if "/" in name or "quant" in name}


@pytest.mark.parametrize("prune", [0, 60])
def test_the_pipeline_releases_what_the_counts_in_memory_give(
    prune, source, tmp_path, key, run, release_files, small_splits, monkeypatch
) -> None:
    if prune:  # partial counts leave before their bundle ends
        monkeypatch.setattr(
            sparse, "SparseCounter", lambda d, s: SparseCounter(d, s, most_leaves=5)
        )
    plan = sparse_plan(*FORMS, prune=prune)
    run(plan, source, tmp_path / "out")
    found = release_files(tmp_path / "out")
    assert tables(found) == files_of(plan, ROWS, key)
    assert found.keys() - tables(found).keys() == {"manifest.json", "nonce.json", "record.json"}
    parts = json.loads(found["manifest.json"])["parts"]
    assert [(part["tree"], part["chunk"]) for part in parts] == sorted(
        (q.name, level) for q in plan.sparse for level in range(q.plan.height + 1)
    )
    assert all(part["rows"] > 0 for part in parts)


def test_beside_ordered_trees_and_hierarchies(
    source, tmp_path, key, run, release_files, make_plan, rows, small_splits, monkeypatch
) -> None:
    monkeypatch.setattr("dpcore.hierarchy.question.CHUNK_LEAVES", 4)
    plan = mixed_plan()
    run(plan, source, tmp_path / "out")
    found = release_files(tmp_path / "out")
    assert tables(found) == files_of(plan, ROWS, key)
    assert {name.split("/")[1].split("-")[0] for name in tables(found)} == {
        "paths",
        "places",
        "routes",
        "codes",
    }


def test_no_rows_at_all(tmp_path, key, run, release_files) -> None:
    rows = ROWS.slice(0, 0)
    pq.write_table(rows, tmp_path / "none.parquet")
    plan = sparse_plan(*FORMS)
    run(plan, str(tmp_path / "none.parquet"), tmp_path / "out")
    found = tables(release_files(tmp_path / "out"))
    assert found == files_of(plan, rows, key)
    sizes = {name: pq.read_table(pa.BufferReader(data)).num_rows for name, data in found.items()}
    roots = [size for name, size in sizes.items() if "-000000-000000-" in name]
    assert roots == [1, 1, 1] and sum(sizes.values()) == 3  # nothing else passes its threshold


# --- the steps without an engine ----------------------------------------------------------------


def is_windowed(element: Any) -> bool:
    return isinstance(element, WindowedValue)


@pytest.mark.parametrize("most", [2, 40, 2**22])
@pytest.mark.parametrize("sizes", [[7], [1, 0, 2, 4], [1] * 7])
def test_bundles_do_not_matter_to_a_shard(most, sizes, reference, monkeypatch) -> None:
    monkeypatch.setattr(sparse, "SparseCounter", lambda d, s: SparseCounter(d, s, most_leaves=most))
    plan = sparse_plan(*FORMS)
    batches = ROWS.combine_chunks().to_batches(max_chunksize=400)
    step, partials, balance, start = _PartialShards(plan), {}, {}, 0

    def take(element: Any) -> None:
        element = element.value if is_windowed(element) else element
        if hasattr(element, "tag"):
            given = element.value.value if is_windowed(element.value) else element.value
            balance[given[0]] = balance.get(given[0], 0) + given[1]
        else:
            partials.setdefault(element[0], []).append(element[1])

    for size in sizes:
        step.start_bundle()
        for batch in batches[start : start + size]:
            for each in step.process(batch):
                take(each)
        for each in step.finish_bundle():
            take(each)
        start += size
    for tree in range(len(plan.sparse)):
        for place, data in _EmptyShards(plan).process(tree):
            partials.setdefault(place, []).append(data)
    expected = {
        (q.name, level, shard): counts
        for q in plan.sparse
        for (level, shard), counts in shards_of(q).items()
    }
    merge, digests = _MergeShard(plan, reference), 0
    merge.setup()
    for place, data in sorted(partials.items()):
        (same, counts), digest, *increments = merge.process((place, data))
        found, exact = NodeCounts.from_bytes(counts), expected.pop(place)
        assert same == place and found.keys.to_pylist() == exact.keys.to_pylist()
        assert found.counts.tolist() == exact.counts.tolist()
        digests += unpack_digest(digest.value)[1]
        for each in increments:
            take(each)
    assert not expected and digests == sum(expected_balance(plan).values())
    assert {name: n for name, n in balance.items() if n} == expected_balance(plan)


def shards_of(question: Any) -> dict[tuple[int, int], NodeCounts]:
    columns = {name: ROWS[name] for name in question.columns}
    return shard_counts(question, question.domain.leaf_counts(columns))


# --- nothing is lost ----------------------------------------------------------------------------

OUTPUTS = {
    "partial counts": (sparse._PartialShards, "finish_bundle", MAIN),
    "merged shards": (sparse._MergeShard, "process", MAIN),
    "digests": (sparse._MergeShard, "process", sparse._DIGEST),
    "balance of partials": (sparse._PartialShards, "finish_bundle", BALANCE),
    "balance of shards": (sparse._MergeShard, "process", BALANCE),
    "published nodes": (sparse._Publish, "process", MAIN),
}


@pytest.fixture
def fails(source, tmp_path, run, small_splits) -> Callable[..., str]:
    """Runs the job, sees that it fails without a release, and returns the sentence."""

    def failed(planted: list[Any], **fields: Any) -> str:
        with pytest.raises(Exception) as caught:
            run(sparse_plan("labels", **fields), source, tmp_path / "out")
        assert planted, "nothing was planted"
        assert not (tmp_path / "out" / "manifest.json").exists()
        sentence = sentence_in(f"{caught.value} {caught.value.__cause__ or ''}")
        assert sentence is not None and "\n" not in sentence
        return sentence

    return failed


@pytest.mark.parametrize("place", OUTPUTS)
def test_a_step_that_loses_an_output(place, fails, monkeypatch) -> None:
    planted = plant_output(monkeypatch, *OUTPUTS[place], drop)
    assert fails(planted).startswith("the engine lost or repeated data: ")


@pytest.mark.parametrize("place", ["partial counts", "digests", "published nodes"])
def test_a_step_that_repeats_an_output(place, fails, monkeypatch) -> None:
    planted = plant_output(monkeypatch, *OUTPUTS[place], repeat)
    assert fails(planted).startswith("the engine lost or repeated data: ")


@pytest.mark.parametrize("change", [drop, repeat])
def test_shards_on_the_way_to_the_noise(change, fails, monkeypatch) -> None:
    planted = plant_input(monkeypatch, sparse._Publish, change)
    assert "the shards of tree labels did not arrive exactly once" in fails(planted)


def test_an_empty_shard_that_nobody_made(fails, monkeypatch) -> None:
    """All partials of a shard without rows."""
    planted: list[Any] = []
    process = _EmptyShards.process

    def without(self, tree):
        touched = {
            place for place, counts in shards_of(self._plan.sparse[tree]).items() if len(counts)
        }
        for (name, level, shard), data in process(self, tree):
            if not planted and (level, shard) not in touched:
                planted.append((level, shard))
                continue
            yield (name, level, shard), data

    def touched_only(self, question):
        return (element for element in taken(self, question) if element[1])

    taken = sparse._PartialShards._taken
    monkeypatch.setattr(_EmptyShards, "process", without)
    monkeypatch.setattr(sparse._PartialShards, "_taken", touched_only)
    assert "do not balance" in fails(planted, shards=40)


def test_a_lost_receipt(fails, monkeypatch) -> None:
    planted = plant_output(monkeypatch, sparse._WriteLevels, "process", MAIN, drop)
    assert "the parts of the release did not arrive" in fails(planted)


def test_expected_balance_counts_every_shard() -> None:
    plan = mixed_plan()
    expected = expected_balance(plan)
    assert expected[tree_chunks("paths")] == 1 + 3 * 3
    assert expected[tree_chunks("codes")] == 1 + 2 * 3
    assert expected[tree_chunks("places")] == 1
