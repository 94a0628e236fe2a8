"""The record of a draw: written once nothing was lost; the same once more is fine, another one is
refused."""

import json
from collections.abc import Callable
from functools import partial

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from hypothesis import given
from hypothesis import strategies as st

from dptrees.dpcore.noise.source import combine_digests
from dptrees.pipelines.run.engine import BEAMS_RUNNER
from dptrees.transforms.beam.adapter import _Fold
from dptrees.transforms.beam.release import ReadBatches, ReleaseTrees
from dptrees.transforms.errors import ConservationError, ReleaseError, sentence_in
from dptrees.transforms.folder.existing_release import NonceError, folder_nonce
from dptrees.transforms.folder.names import RECORD
from dptrees.transforms.steps.record import (
    RecordError,
    _Record,
    add_digests,
    check_record,
    pack_digest,
    unpack_digest,
)
from tests.transforms.at_once import run_at_once

ONE, TWO = b"\x01" * 32, b"\x02" * 32
OTHER_DATA = "made from other data, with another key"


def test_recorded_once_and_no_other_draw(tmp_path) -> None:
    folder = str(tmp_path / "out")
    check_record(folder, ONE)
    before = (tmp_path / "out" / RECORD).read_bytes()
    check_record(folder, ONE)
    with pytest.raises(RecordError) as caught:
        check_record(folder, TWO)
    assert folder in caught.value.sentence and OTHER_DATA in caught.value.sentence
    assert ONE.hex() not in str(caught.value) and TWO.hex() not in str(caught.value)
    assert (tmp_path / "out" / RECORD).read_bytes() == before
    assert json.loads(before) == {"record": ONE.hex()}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [RECORD]


def test_of_two_draws_at_once_one_is_refused(tmp_path) -> None:
    for attempt in range(20):
        draws = [
            partial(check_record, str(tmp_path / str(attempt)), record) for record in (ONE, TWO)
        ]
        found = run_at_once(*draws)
        assert sorted(isinstance(each, RecordError) for each in found) == [False, True]


@pytest.fixture
def refused(run, tmp_path, release_files):
    """Runs a job into a folder that holds something, and sees it refused and nothing changed."""

    def check(plan, data, **options) -> None:
        before = release_files(tmp_path / "out")
        with pytest.raises(Exception) as caught:
            run(plan, data, tmp_path / "out", **options)
        sentence = sentence_in(str(caught.value))
        assert sentence is not None and OTHER_DATA in sentence
        assert release_files(tmp_path / "out") == before

    return check


def test_other_data_as_a_repair_of_a_release(make_plan, rows, tmp_path, run_steps, refused) -> None:
    run_steps(make_plan(), rows, tmp_path / "out")
    pq.write_table(rows.slice(0, rows.num_rows - 1), tmp_path / "fewer.parquet")
    refused(make_plan(), str(tmp_path / "fewer.parquet"), repair=True)


def test_another_plan_or_id_into_a_folder_with_a_record(
    make_plan, data, rows, tmp_path, run_steps, refused
) -> None:
    run_steps(make_plan(), rows, tmp_path / "out")
    (tmp_path / "out" / "manifest.json").unlink()
    refused(make_plan(cells=29), data)
    refused(make_plan(release="another"), data)


def test_a_job_that_is_run_twice_finds_its_folder(
    make_plan, reference, rows, tmp_path, release_files
) -> None:
    """One graph, run again: in its own folder the same bits, in none of its own nothing."""
    data, out = tmp_path / "rows.parquet", tmp_path / "out"
    pq.write_table(rows, data)
    plan = make_plan()
    options = PipelineOptions([f"--runner={BEAMS_RUNNER}"], save_main_session=False)
    pipeline = beam.Pipeline(options=options)
    read = pipeline | ReadBatches(patterns=(str(data),), format="parquet", plan=plan)
    read | ReleaseTrees(plan, key=reference, output=str(out))
    pipeline.run().wait_until_finish()
    first = release_files(out)
    pipeline.run().wait_until_finish()
    assert release_files(out) == first
    out.rename(tmp_path / "published")
    pq.write_table(rows.slice(5), data)
    with pytest.raises(Exception, match="no longer has the unfinished release"):
        pipeline.run().wait_until_finish()
    assert not list(out.rglob("*.parquet")) and not (out / "manifest.json").exists()


# --- digests of all counts, and the draw that is recorded ---


DIGESTS = st.lists(st.integers(0, 2**256 - 1), max_size=8)


@given(digests=DIGESTS, data=st.data())
def test_digests_sum_in_any_order_and_any_bundles(digests, data) -> None:
    combine = _Fold(add_digests)
    elements = data.draw(st.permutations([pack_digest(digest, 1) for digest in digests]))
    cut = data.draw(st.integers(0, len(elements)))
    bundles = []
    for part in (elements[:cut], elements[cut:], []):
        accumulator = combine.create_accumulator()
        for element in part:
            accumulator = combine.add_input(accumulator, element)
        bundles.append(accumulator)
    one, two, empty = bundles
    left = combine.merge_accumulators([combine.merge_accumulators([one, two]), empty])
    right = combine.merge_accumulators([empty, combine.merge_accumulators([two, one])])
    assert combine.extract_output(left) == combine.extract_output(right)
    total, chunks = unpack_digest(combine.extract_output(left)) if digests else (0, 0)
    assert combine_digests(total) == combine_digests(sum(digests))
    assert chunks == len(digests)


NONCE = bytes(range(16))
CHUNKS = 4
WHOLE, BALANCED = pack_digest(5, CHUNKS), {"chunks of tree value": CHUNKS}


@pytest.fixture
def recording(make_plan, reference, tmp_path) -> Callable[..., _Record]:
    """Makes the step that records, of a tree in chunks."""

    def made(*witness: Callable[[bytes], object]) -> _Record:
        plan = make_plan("value", fanouts=(4, 4, 2), chunk_leaves=8)
        assert len(plan.questions[0].places) == CHUNKS
        step = _Record(plan, reference, str(tmp_path / "out"), NONCE, *witness)
        step.setup()
        return step

    return made


def test_nothing_is_recorded_before_the_balance_holds(recording, tmp_path) -> None:
    for digest, balance in (
        (WHOLE, BALANCED | {"rows": 1}),
        (WHOLE, {}),
        (pack_digest(5, CHUNKS - 1), BALANCED),
    ):
        with pytest.raises(ConservationError):
            list(recording().process(digest, balance))
        assert not (tmp_path / "out").exists()
    folder_nonce(str(tmp_path / "out"), NONCE)
    assert list(recording().process(WHOLE, BALANCED)) == [NONCE + combine_digests(5)]
    assert (tmp_path / "out" / RECORD).exists()


def test_a_witness_is_requested_before_anything_is_recorded(recording, tmp_path) -> None:
    records: list[bytes] = []
    folder_nonce(str(tmp_path / "out"), NONCE)

    def refuse(record: bytes) -> None:
        records.append(record)
        raise ReleaseError("refused")

    with pytest.raises(ReleaseError, match="refused"):
        list(recording(refuse).process(WHOLE, BALANCED))
    assert not (tmp_path / "out" / RECORD).exists()
    assert len(list(recording(records.append).process(WHOLE, BALANCED))) == 1
    text = (tmp_path / "out" / RECORD).read_text()
    assert records[0] == records[1] and records[0].hex() in text


@pytest.mark.parametrize("left", ["nothing", "another", "damaged"])
def test_a_job_that_outlived_its_folder_draws_nothing(left, recording, tmp_path) -> None:
    """Run a step again, as a jar or a template does, under a nonce that was used."""
    records, out = [], tmp_path / "out"
    if left != "nothing":
        folder_nonce(str(out), bytes(range(1, 17)))
    if left == "damaged":
        (out / "nonce.json").write_text("{")
    with pytest.raises(NonceError, match="no longer has the unfinished release"):
        list(recording(records.append).process(WHOLE, BALANCED))
    assert not records and not (out / RECORD).exists()
