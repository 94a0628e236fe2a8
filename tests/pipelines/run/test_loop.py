"""The plain loop: a graph's steps, side inputs, tags and groups, on one thread and on several.

That releases of every kind have the same bits is tested with the Python door.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from dptrees.pipelines.run import loop
from dptrees.pipelines.run.job import LOOP_RUNNER, beam_options
from dptrees.pipelines.run.loop import LoopRunner
from dptrees.transforms.errors import InputError

SEEN: list[Any] = []


class Split(beam.DoFn):
    """Even numbers, odd ones by a tag, and their number when the bundle ends."""

    def start_bundle(self) -> None:
        self._rows = 0

    def process(self, number: int, above: list[int]) -> Iterator[Any]:
        self._rows += 1
        value = number + sum(above)
        yield beam.pvalue.TaggedOutput("odd", value) if number % 2 else value

    def finish_bundle(self) -> Iterator[Any]:
        window = beam.transforms.window.GlobalWindows.windowed_value(self._rows)
        yield beam.pvalue.TaggedOutput("rows", window)


THREADS = 1


@pytest.fixture(autouse=True, params=[1, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every graph runs on one thread, and on several."""
    number: int = request.param
    monkeypatch.setattr(sys.modules[__name__], "THREADS", number)
    return number


def run(build: Any) -> list[Any]:
    """What a graph gives, in no order."""
    SEEN.clear()
    options = PipelineOptions([f"--direct_num_workers={THREADS}"])
    with beam.Pipeline(runner=LoopRunner(), options=options) as pipeline:
        build(pipeline) | "See" >> beam.Map(SEEN.append)
    return sorted(SEEN)


def test_tags_side_inputs_and_bundles() -> None:
    def build(pipeline: Any) -> Any:
        above = pipeline | "Above" >> beam.Create([100, 1000])
        numbers = pipeline | "Numbers" >> beam.Create(range(4))
        given = numbers | beam.ParDo(Split(), beam.pvalue.AsList(above)).with_outputs(
            "odd", "rows", main="even"
        )
        return (given["even"], given["odd"], given["rows"]) | beam.Flatten()

    found = run(build)
    assert found[-4:] == [1100, 1101, 1102, 1103]
    # The rows of every bundle.
    assert sum(found[:-4]) == 4


def test_groups_sums_and_shuffles() -> None:
    def build(pipeline: Any) -> Any:
        pairs = pipeline | beam.Create([("a", 1), ("b", 2), ("a", 3)]) | beam.Reshuffle()
        groups = pairs | beam.GroupByKey() | beam.MapTuple(lambda key, each: (key, len([*each])))
        sums = pairs | beam.CombinePerKey(sum)
        total = pairs | beam.Values() | beam.CombineGlobally(sum) | beam.Map(lambda n: ("all", n))
        return (groups, sums, total) | beam.Flatten()

    assert run(build) == [("a", 2), ("a", 4), ("all", 6), ("b", 1), ("b", 2)]


def test_nothing_comes_of_nothing() -> None:
    assert run(lambda pipeline: pipeline | beam.Create([]) | beam.Map(str)) == []


@pytest.mark.parametrize("fault", [InputError("planted"), KeyboardInterrupt()])
def test_faults_come_through(fault: BaseException) -> None:
    def fail(_: object) -> None:
        raise fault

    with pytest.raises(type(fault)):
        run(lambda pipeline: pipeline | beam.Create([1]) | beam.Map(fail))


def test_elements_go_all_the_way_before_the_next_one_is_read() -> None:
    """Between two groupings a thread holds one element, however many there are."""
    held, most = set[int](), [0]

    def read(number: int) -> Iterator[int]:
        for each in range(50):
            held.add(100 * number + each)
            most[0] = max(most[0], len(held))
            yield 100 * number + each

    def count(number: int) -> int:
        held.discard(number)
        return number

    def build(pipeline: Any) -> Any:
        splits = pipeline | beam.Create(range(4)) | beam.Reshuffle()
        return splits | beam.FlatMap(read) | beam.Map(count)

    assert len(run(build)) == 200 and not held
    assert most[0] <= THREADS


def test_elements_of_a_shuffle_are_shared_among_threads(threads: int) -> None:
    """Each thread has steps of its own, which begin and end their bundle once."""
    meeting = threading.Barrier(threads, timeout=20)

    class Meet(beam.DoFn):
        def start_bundle(self) -> None:
            self._seen = 0

        def process(self, number: int) -> Iterator[Any]:
            if not self._seen:
                meeting.wait()
            self._seen += 1
            yield from ()

        def finish_bundle(self) -> Iterator[Any]:
            yield beam.transforms.window.GlobalWindows.windowed_value(self._seen)

    seen = run(
        lambda pipeline: pipeline | beam.Create(range(9)) | beam.Reshuffle() | beam.ParDo(Meet())
    )
    assert sum(seen) == 9 and len(seen) == threads and min(seen) > 0


def test_a_fault_of_one_thread_stops_all() -> None:
    done = list[int]()

    def fail(number: int) -> int:
        if number == 5:
            raise InputError("planted")
        done.append(number)
        return number

    with pytest.raises(InputError, match="planted"):
        run(
            lambda pipeline: pipeline | beam.Create(range(1000)) | beam.Reshuffle() | beam.Map(fail)
        )
    assert len(done) < 1000


def test_a_collection_is_taken_by_several_steps_and_beside_others() -> None:
    def build(pipeline: Any) -> Any:
        numbers = pipeline | beam.Create(range(6)) | beam.Reshuffle()
        doubled = numbers | "Double" >> beam.Map(lambda number: 2 * number)
        total = doubled | beam.CombineGlobally(sum)
        more = doubled | "Add" >> beam.Map(
            lambda number, whole: number + whole, beam.pvalue.AsSingleton(total)
        )
        return (doubled, more) | beam.Flatten()

    assert run(build) == sorted([*range(0, 12, 2), *range(30, 42, 2)])


def test_other_steps_are_refused() -> None:
    class Other(beam.PTransform):
        def expand(self, pbegin: Any) -> Any:
            return beam.pvalue.PCollection(pbegin.pipeline)

    with pytest.raises(NotImplementedError, match="Other"):
        run(lambda pipeline: pipeline | Other())


def test_processors_are_counted_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    options = PipelineOptions(["--direct_num_workers=0"])
    assert loop._thread_count(options) == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert loop._thread_count(options) == os.cpu_count()
    assert loop._thread_count(PipelineOptions(["--direct_num_workers=3"])) == 3


def test_named_as_every_runner_is() -> None:
    options = beam_options([f"--runner={LOOP_RUNNER}"])
    assert options.get_all_options()["runner"] == LOOP_RUNNER
