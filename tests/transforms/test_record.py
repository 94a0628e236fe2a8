"""The record of a draw: the same once more is fine, another one is refused."""

import json
from functools import partial

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.pipelines.run.job import BEAMS_RUNNER
from dptrees.transforms.errors import sentence_in
from dptrees.transforms.folder.layout import RECORD
from dptrees.transforms.readers.read import ReadBatches
from dptrees.transforms.release import ReleaseTrees
from dptrees.transforms.steps.record import RecordError, check_record
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
