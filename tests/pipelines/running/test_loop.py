"""The plain loop: a graph's steps once each, side inputs, tags and groups, and faults as they are.

That releases of every kind have the same bits is tested with the Python door.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.running.job import LOOP_RUNNER, beam_options
from pipelines.running.loop import LoopRunner
from transforms.errors import InputError

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


def run(build: Any) -> list[Any]:
    """What a graph gives, in no order."""
    SEEN.clear()
    with beam.Pipeline(runner=LoopRunner(), options=PipelineOptions([])) as pipeline:
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

    assert run(build) == [4, 1100, 1101, 1102, 1103]


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


def test_other_steps_are_refused() -> None:
    class Other(beam.PTransform):
        def expand(self, pbegin: Any) -> Any:
            return beam.pvalue.PCollection(pbegin.pipeline)

    with pytest.raises(NotImplementedError, match="Other"):
        run(lambda pipeline: pipeline | Other())


def test_named_as_every_runner_is() -> None:
    options = beam_options([f"--runner={LOOP_RUNNER}"])
    assert options.get_all_options()["runner"] == LOOP_RUNNER
