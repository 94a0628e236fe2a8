"""An existing release is found by its specification, before a row is read."""

import json

import apache_beam as beam
import pyarrow as pa
import pytest

from dptrees.transforms.beam.release import ReleaseTrees
from dptrees.transforms.errors import InputError
from dptrees.transforms.folder.existing_release import ExistingReleaseError, is_released
from tests.transforms.conftest import LOCAL_RUNNER


class Untouched(beam.DoFn):
    """Fails where a row is read."""

    def process(self, element):
        raise AssertionError("a row was read")


def test_it_exists_once_its_manifest_does(make_plan, rows, run_steps, tmp_path) -> None:
    out, plan = tmp_path / "out", make_plan()
    assert not is_released(str(out), plan)
    run_steps(plan, rows, out)
    assert is_released(str(out), plan)
    with pytest.raises(
        ExistingReleaseError, match="a release of another specification; choose another"
    ):
        is_released(str(out), make_plan(cells=29))
    manifest = json.loads((out / "manifest.json").read_text())
    manifest["spec"]["format"] = 2
    del manifest["checksum"]
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ExistingReleaseError, match="of another version of dptrees"):
        is_released(str(out), plan)


def test_the_transform_compares_no_rows_with_those_of_a_release_that_exists(
    make_plan, rows, run_steps, tmp_path, reference, release_files, caplog
) -> None:
    caplog.set_level("INFO", logger="dptrees")
    out, plan, seen = tmp_path / "out", make_plan(), tmp_path / "seen"
    run_steps(plan, rows, out)
    before = release_files(out)
    given = {"plan": plan, "key": reference, "output": str(out)}
    with beam.Pipeline(LOCAL_RUNNER) as pipeline:
        batches = pipeline | beam.Create(rows.slice(0, 5).to_batches())
        with pytest.raises(ExistingReleaseError, match=r"no row would be counted: .* if_exists="):
            batches | "refused" >> ReleaseTrees(**given)
        with pytest.raises(InputError, match="if_exists: 'skip' is not 'error' or 'use'"):
            ReleaseTrees(**given, if_exists="skip")
        manifest = batches | ReleaseTrees(**given, if_exists="use")
        manifest | beam.Map(lambda path: seen.write_text(path))
    assert release_files(out) == before
    assert seen.read_text() == str(out / "manifest.json")
    (line,) = [each.getMessage() for each in caplog.records if each.name.startswith("dptrees")]
    assert line == f"dptrees: {out} contains the release; no row is counted"


WINDOWS = {
    "fixed": beam.WindowInto(beam.window.FixedWindows(60)),
    "global, triggered": beam.WindowInto(
        beam.window.GlobalWindows(),
        trigger=beam.trigger.Repeatedly(beam.trigger.AfterCount(3)),
        accumulation_mode=beam.trigger.AccumulationMode.DISCARDING,
    ),
}


def test_rows_that_are_refused_when_the_graph_is_built(make_plan, tmp_path, reference) -> None:
    from apache_beam.testing.test_stream import TestStream

    batch = pa.RecordBatch.from_pydict({"value": [1.0]})
    words = "they are windowed or triggered, but a release counts"
    refused = [(beam.Create([batch]) | window, words) for window in WINDOWS.values()]
    for rows, words in [*refused, (TestStream(), "they have no end, but a release counts all")]:
        release = ReleaseTrees(make_plan(), key=reference, output=str(tmp_path / "out"))
        with pytest.raises(InputError, match=words):
            beam.Pipeline(LOCAL_RUNNER) | rows | release
        assert not (tmp_path / "out").exists()
