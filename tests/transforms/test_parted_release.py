"""Universes whose leaves are read in parts: the release is that of the universe held whole."""

import itertools
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.hierarchy.leaves import universe_from_code_blocks
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, PrivacyUnit
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.transforms.errors import ReleaseError, UniverseError
from dptrees.transforms.folder import files
from dptrees.transforms.folder import universe as universe_file
from dptrees.transforms.folder.existing_release import folder_nonce
from dptrees.transforms.folder.names import universe_name
from dptrees.transforms.folder.universe import share_universes, universe_files
from tests.dpcore.hierarchy_questions import (
    BLOCKS,
    CODES,
    hierarchy_question,
    make_release_plan,
    random_rows,
    universe_domain,
)
from tests.transforms.conftest import table_files
from tests.transforms.eager import SLOT_HAND_OVERS, EagerRelease
from tests.transforms.hierarchy_releases import release_in_memory
from tests.transforms.losses import Planted, check_losses, drop, repeat
from tests.transforms.test_hierarchy_release import rows_in_two_files
from tests.transforms.test_object_store import BUCKET, MemoryStore

ROWS = random_rows(5, 2600)
# Unknown blocks of a known county, of an unknown one, and no text of digits.
ODD = pa.array(["0113", "0199", "7700", "abc", None] * 520)
ROWS = ROWS.set_column(
    ROWS.column_names.index("code"),
    "code",
    pa.array(np.where(np.arange(2600) % 5 == 0, ODD.to_numpy(False), ROWS["code"].to_numpy())),
)
SIGNED = MeasureColumn(column="amount", lower=-5, upper=30)
RACES = ("white", "black", "nobody")
LEVELS = ("state", "county", "block")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit below the leaves of the tests' universe, and parts of three leaves."""
    monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.MOST_WHOLE_LEAVES", 5)
    monkeypatch.setattr("dptrees.dpcore.hierarchy.universe.LEAVES_AT_ONCE", 3)
    monkeypatch.setattr("dptrees.dpcore.rows.value_lists._PART_CODES", 4)
    monkeypatch.setattr("dptrees.dpcore.questions.messages.BUFFERED_ROWS", 400)
    monkeypatch.setattr(universe_file, "_LOADED", {})


def parted(order: tuple[int, ...] = (3, 1, 2, 0)) -> Universe:
    """The blocks, from a list in blocks of three."""
    blocks = [pa.array(CODES[start : start + 3]) for start in range(0, len(CODES), 3)]
    shuffled = [blocks[place] for place in order]
    return universe_from_code_blocks(4, shuffled.__getitem__, (1, 1, 2), levels=LEVELS)


def questions(
    universe: Universe, unit: PrivacyUnit = ADD_REMOVE_ROW
) -> list[HierarchyQuestion[IrregularMechanism]]:
    """Counts, sums and keys, with each policy."""
    policies = [
        {},
        {"unknown": "other"},
        {"missing": "other"},
        {"unknown": "other", "missing": "other"},
    ]
    domains = [universe_domain("digits", universe=universe, **each) for each in policies]
    kinds = [{}, {"measure": SIGNED}, {"keys": RACES}, {"keys": RACES, "measure": SIGNED}]
    return [
        hierarchy_question("digits", name=f"t{i}{j}", domain=domain, unit=unit, **kind)  # type: ignore[arg-type]
        for i, domain in enumerate(domains)
        for j, kind in enumerate(kinds)
    ]


def make_plan(universe: Universe, chunks: int, *, every: int = 1) -> ReleasePlan:
    """Make the plan of every nth question."""
    chosen = questions(universe)[::every]
    return make_release_plan(*(replace(each, chunk_leaves=chunks) for each in chosen))


# Of 5 leaves in memory and on Beam, below.
# Of 5 leaves in memory and on Beam, below.
@pytest.mark.parametrize("chunks", [2**17, 25, 4])
def test_the_release_is_that_of_the_universe_held_whole(
    chunks, tmp_path, key, run_steps, release_tables
) -> None:
    plan, whole = make_plan(parted(), chunks), make_plan(BLOCKS, chunks)
    assert all(question.is_matched for question in plan.questions)
    assert plan.digest == whole.digest
    run_steps(plan, ROWS, tmp_path / "out")
    assert release_tables(tmp_path / "out") == release_in_memory(whole, ROWS, key)


def test_on_beam(tmp_path, key, run, release_tables, small_splits) -> None:
    """Each policy once, and each of counts, sums and keys."""
    plan, whole = make_plan(parted(), 5, every=5), make_plan(BLOCKS, 5, every=5)
    run(plan, rows_in_two_files(tmp_path, ROWS), tmp_path / "out")
    assert release_tables(tmp_path / "out") == release_in_memory(whole, ROWS, key)


def test_in_memory(key) -> None:
    expected, found = (
        table_files(release_rows(make_plan(each, 5), ROWS.combine_chunks().to_batches(), key))
        for each in (BLOCKS, parted())
    )
    assert found == expected


def test_of_few_chunks_each_gets_something_from_each_bundle(monkeypatch) -> None:
    (question,) = (replace(questions(parted())[2], chunk_leaves=5),)
    counter = question.counter(dense=True, choices=None)  # type: ignore[arg-type]
    assert [partial.place for partial in counter.take()] == list(question.places)
    monkeypatch.setattr("dptrees.dpcore.questions.sparse_counts.MOST_SENT", 1)
    assert list(counter.take()) == []


def test_nothing_is_lost_on_the_way(tmp_path, reference) -> None:
    plan = make_release_plan(questions(parted())[6])
    numbers = itertools.count()

    def release(fault: Planted) -> None:
        output = str(tmp_path / str(next(numbers)))
        shared = share_universes(plan, output)
        nonce = folder_nonce(output, bytes(16), reference.key_id)
        release = EagerRelease(shared, reference, output, nonce, change=fault)
        release.run([ROWS.combine_chunks().to_batches()])

    check_losses(release, tmp_path, itertools.product(SLOT_HAND_OVERS, [drop, repeat], [0, -1]))
    assert not list(tmp_path.rglob("record.json"))


def test_a_unit_that_is_bounded_looks_its_rows_up(key) -> None:
    unit = replace(ADD_REMOVE_ROW, columns=("id",), rows=3)
    (question, *_) = questions(parted(), unit=unit)
    assert not question.is_matched
    whole = questions(BLOCKS, unit=unit)[0]
    columns = {"code": ROWS["code"].combine_chunks()}
    assert np.array_equal(question.leaf_ids(columns), whole.leaf_ids(columns))


# --- the file ---


def shared_plan(folder: Path) -> ReleasePlan:
    return share_universes(make_release_plan(*questions(parted())[:2]), str(folder))


def test_the_file_is_the_one_that_every_universe_has(tmp_path) -> None:
    plan = shared_plan(tmp_path / "out")
    path = tmp_path / "out" / universe_name(BLOCKS.digest)
    assert pq.read_table(path) == BLOCKS.to_table()
    assert list(universe_files(plan)) == [path.name]
    before = path.stat().st_mtime_ns
    universe_file._LOADED.clear()
    assert universe_files(shared_plan(tmp_path / "out")) == universe_files(plan)
    assert path.stat().st_mtime_ns == before


def test_one_that_an_older_version_wrote_whole_is_read_in_parts(tmp_path) -> None:
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / universe_name(BLOCKS.digest)
    pq.write_table(BLOCKS.to_table(), path, row_group_size=4)
    data = path.read_bytes()
    plan = shared_plan(tmp_path / "out")
    universe = plan.questions[0].domain.universe  # type: ignore[attr-defined]
    assert universe.is_parted and path.read_bytes() == data
    assert universe.paths(3, np.arange(10)).to_pylist() == CODES
    assert universe.find("1310") == BLOCKS.find("1310")


def test_a_worker_reads_the_upper_levels_and_what_it_requests(tmp_path, monkeypatch) -> None:
    message = pickle.dumps(shared_plan(tmp_path / "out"))
    universe_file._LOADED.clear()
    monkeypatch.setattr(files, "read_bytes", lambda path: pytest.fail(path))
    plan = pickle.loads(message)
    assert plan.digest == make_release_plan(*questions(BLOCKS)[:2]).digest
    assert plan.questions[0].node_labels(3, np.array([9, 0])).to_pylist() == ["9001", "0100"]


def test_on_an_object_store(monkeypatch) -> None:
    monkeypatch.setattr(MemoryStore, "objects", {})
    monkeypatch.setattr(MemoryStore, "failure", [])
    message = pickle.dumps(share_universes(make_plan(parted(), 5), f"{BUCKET}/out"))
    assert list(MemoryStore.objects) == [f"{BUCKET}/out/{universe_name(BLOCKS.digest)}"]
    universe_file._LOADED.clear()
    question = pickle.loads(message).questions[0]
    assert question.is_matched
    assert question.node_labels(3, np.array([9, 0])).to_pylist() == ["9001", "0100"]


@pytest.mark.parametrize("code", ["0102", "9101"])
def test_another_file_is_refused(code, tmp_path) -> None:
    """One with another leaf, one with another county."""
    message = pickle.dumps(shared_plan(tmp_path / "out"))
    path = tmp_path / "out" / universe_name(BLOCKS.digest)
    changed = sorted([*CODES[:-1], "9002"]) if code == "0102" else [*CODES[:-1], code]
    other = universe_from_code_blocks(1, lambda _: pa.array(changed), (1, 1, 2), levels=LEVELS)
    universe_file._LOADED.clear()
    files.write_whole(str(path), lambda file: universe_file.write_universe(other, file))
    with pytest.raises((UniverseError, ValueError), match="not"):
        pickle.loads(message).questions[0].node_labels(3, np.array([9]))


# --- the list ---


def test_a_list_in_any_order_gives_the_same_universe() -> None:
    for order in ((0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)):
        assert parted(order).is_parted and parted(order) == BLOCKS
        assert parted(order).to_table() == BLOCKS.to_table()
    assert parted().extended == BLOCKS.extended
    assert parted().extended.find("other") == BLOCKS.extended.find("other")


def test_a_leaf_twice_is_reported() -> None:
    blocks = [pa.array(["0101", "0102"]), pa.array(["0203", "0101"])]
    with pytest.raises(ValueError, match="'0101' is listed more than once"):
        universe_from_code_blocks(2, blocks.__getitem__, (2, 2))


def test_a_list_that_changes_is_reported() -> None:
    blocks = [pa.array(["0101", "0102"]), pa.array(["0203", "0204"])]
    universe = universe_from_code_blocks(2, blocks.__getitem__, (2, 2))
    blocks[0] = pa.array(["0101"])
    fresh = universe.level_labels[-1].codes.followed_by(1)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="not what it was"):
        fresh[:]


@pytest.mark.parametrize("fault", ["gone", "cut"])
def test_a_worker_without_the_file_says_so(fault, tmp_path, monkeypatch) -> None:
    domain = universe_domain("digits", universe=parted())
    plan = make_release_plan(hierarchy_question("digits", domain=domain))
    travelling = pickle.dumps(share_universes(plan, str(tmp_path)))
    monkeypatch.setattr(universe_file, "_LOADED", {})
    (file,) = tmp_path.glob("universe-*")
    if fault == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(ReleaseError, match=r"cannot be read|is not the file") as caught:
        pickle.loads(travelling)
    assert str(tmp_path) in caught.value.sentence and "\n" not in caught.value.sentence


def test_a_list_that_changes_before_it_is_written_is_reported(tmp_path) -> None:
    """A release whose file is not that of its specification would be read by nobody."""
    blocks = [pa.array(CODES[start : start + 3]) for start in range(0, len(CODES), 3)]
    universe = universe_from_code_blocks(4, lambda at: blocks[at], (1, 1, 2), levels=LEVELS)
    _ = universe.digest
    for at, block in enumerate(blocks):  # every block's last leaf becomes another
        codes = block.to_pylist()
        codes[-1] = f"{int(codes[-1]) + 1:04d}"
        blocks[at] = pa.array(codes)
    held = universe.level_labels[-1].codes
    if hasattr(held, "_held"):
        held._held.clear()
    plan = make_release_plan(
        hierarchy_question("digits", domain=universe_domain("digits", universe=universe))
    )
    with pytest.raises(ReleaseError, match="changed while it was read") as caught:
        share_universes(plan, str(tmp_path))
    assert caught.value.again
