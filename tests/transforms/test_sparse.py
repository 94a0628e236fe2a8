"""Large sparse trees: what the pipeline releases is the release of the same counts in memory, and
its partial counts add up (losses: test_conservation)."""

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.sparse import question
from dptrees.dpcore.sparse.question import SparseCounter
from dptrees.transforms.conservation import expected_balance, tree_chunks
from dptrees.transforms.keys import KeyReference
from dptrees.transforms.readers.read import BALANCE
from dptrees.transforms.steps.count import _DIGEST, _MergePlace
from dptrees.transforms.steps.counting import EmptyPlaces
from dptrees.transforms.steps.record import unpack_digest
from tests.transforms.eager import MAIN, counted, grouped, outputs, summed
from tests.transforms.every_kind import numbered_rows
from tests.transforms.hierarchy_releases import DELTA, release_in_memory, sparse_question

ROWS = numbered_rows(2600)
CHOICES = KeyedChoices(key=ReleaseKey(bytes(32)), release="release")
FORMS = ("labels", "paths", "codes")


def sparse_plan(*forms: str, **fields: Any) -> ReleasePlan:
    questions = tuple(sparse_question(form, name=form, **fields) for form in forms)
    count = len(questions)
    return ReleasePlan(
        name="sparse",
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(2 * count)),
        questions=questions,
        stated=(Fraction(2 * count), DELTA * count),
    )


@pytest.mark.parametrize("prune", [0, 60])
def test_the_pipeline_releases_what_the_counts_in_memory_give(
    prune, tmp_path, key, run_steps, release_tables, monkeypatch
) -> None:
    if prune:  # partial counts leave before their bundle ends
        monkeypatch.setattr(
            question, "SparseCounter", lambda d, s: SparseCounter(d, s, most_leaves=5)
        )
    plan = sparse_plan(*FORMS, prune=prune)
    run_steps(plan, ROWS, tmp_path / "out")
    assert release_tables(tmp_path / "out") == release_in_memory(plan, ROWS, key)
    parts = json.loads((tmp_path / "out" / "manifest.json").read_text())["parts"]
    assert [(part["tree"], part["chunk"]) for part in parts] == sorted(
        (q.name, level) for q in plan.questions for level in range(q.plan.height + 1)
    )
    assert all(part["rows"] > 0 for part in parts)


def test_no_rows_at_all(tmp_path, key, run_steps, release_tables) -> None:
    plan, rows = sparse_plan(*FORMS), ROWS.slice(0, 0)
    run_steps(plan, rows, tmp_path / "out")
    found = release_tables(tmp_path / "out")
    assert found == release_in_memory(plan, rows, key)
    sizes = {name: pq.read_table(pa.BufferReader(data)).num_rows for name, data in found.items()}
    roots = [size for name, size in sizes.items() if "-000000-000000-" in name]
    assert roots == [1, 1, 1] and sum(sizes.values()) == 3  # nothing else passes its threshold


# --- the steps without an engine ----------------------------------------------------------------


@pytest.mark.parametrize("most", [2, 40, 2**22])
def test_bundles_do_not_matter_to_a_shard(most, reference, monkeypatch) -> None:
    monkeypatch.setattr(
        question, "SparseCounter", lambda d, s: SparseCounter(d, s, most_leaves=most)
    )
    batches = ROWS.combine_chunks().to_batches(max_chunksize=400)
    for sizes in ([7], [1, 0, 2, 4], [1] * 7):
        stops = np.cumsum(sizes).tolist()
        bundles = [batches[stop - size : stop] for stop, size in zip(stops, sizes, strict=True)]
        check_shards(bundles, reference)


def check_shards(bundles: list[list[pa.RecordBatch]], reference: KeyReference) -> None:
    plan = sparse_plan(*FORMS)
    given = outputs(counted(plan, bundles))
    names = [question.name for question in plan.questions]
    empty = [each for name in names for each in EmptyPlaces(plan).process(name)]
    expected = {(q.name, *place): own for q in plan.questions for place, own in exact(q).items()}
    merge, digests, balance = _MergePlace(plan, reference), 0, given[BALANCE]
    merge.setup()
    for place, data in grouped([*given[MAIN], *empty]):
        merged = outputs(merge.process((place, data)))
        ((same, counts),) = merged[MAIN]
        found, own = NodeCounts.from_bytes(counts), expected.pop(place)
        assert same == place and found.keys.to_pylist() == own.keys.to_pylist()
        assert found.counts.tolist() == own.counts.tolist()
        digests += sum(unpack_digest(digest)[1] for digest in merged[_DIGEST])
        balance += merged[BALANCE]
    assert not expected and digests == sum(expected_balance(plan).values())
    totals = {name: n for name, n in summed(balance).items() if n}
    assert totals == expected_balance(plan) | {"rows": -ROWS.num_rows}


def exact(requested: Any) -> dict[Place, NodeCounts]:
    columns = {name: ROWS[name] for name in requested.columns}
    partials = requested.split_counts(requested.domain.leaf_counts(columns), CHOICES)
    return {each.place: requested.merge(each.place, [each.data]) for each in partials}


def test_expected_balance_counts_every_shard() -> None:
    expected = expected_balance(sparse_plan("paths", "codes"))
    assert expected[tree_chunks("paths")] == 1 + 3 * 3
    assert expected[tree_chunks("codes")] == 1 + 2 * 3
