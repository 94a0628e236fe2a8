"""The graph of a job: bytes alone are shuffled, and steps have the names that others know."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.coders import Coder
from apache_beam.portability import common_urns

from dptrees.transforms.beam.release import ReadBatches, ReleaseTrees
from tests.engines.test_faults import STEPS


def build_graph(plan, reference, data: str, output: str) -> tuple[Any, Any]:
    """Build the job as an engine receives it, and the context that reads its coders."""
    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    rows = pipeline | "Read" >> ReadBatches(patterns=(data,), format="parquet", plan=plan)
    rows | "Release" >> ReleaseTrees(plan, key=reference, output=output)
    return pipeline.to_runner_api(return_context=True)


def coders_of_shuffles(proto, context) -> dict[str, list[Coder]]:
    """The coders, with all that they consist of, of what each GroupByKey takes."""
    found = {}
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn:
            (name,) = transform.inputs.values()
            coder = proto.components.pcollections[name].coder_id
            found[transform.unique_name] = list(component_coders(context.coders.get_by_id(coder)))
    return found


def component_coders(coder: Coder) -> Iterator[Coder]:
    yield coder
    for part in coder._get_component_coders():
        yield from component_coders(part)


PICKLES = (
    coders.FastPrimitivesCoder,
    coders.PickleCoder,
    coders.DillCoder,
    coders.CloudpickleCoder,
)


def test_what_is_shuffled_is_not_pickled(make_plan, reference, data, tmp_path) -> None:
    plan = make_plan("value", "carrier")
    found = coders_of_shuffles(*build_graph(plan, reference, data, str(tmp_path / "out")))
    # Reshuffle, of a few files and splits, adds a pickle of its own around each element.
    names = [name for name in found if "Reshuffle" not in name]
    assert len(names) >= 5  # by place, digest, balance, by group, both ways, receipts
    for name in names:
        kinds = [type(part).__name__ for part in found[name]]
        assert not any(isinstance(part, PICKLES) for part in found[name]), (name, kinds)


def test_faults_are_planted_in_steps_of_the_job(make_plan, reference, data, tmp_path) -> None:
    """Check that the steps that faults wait for by name exist: those tests need engines that are
    mostly not installed."""
    proto, _ = build_graph(make_plan("value"), reference, data, str(tmp_path / "out"))
    names = [each.unique_name for each in proto.components.transforms.values()]
    assert all(any(step in name for name in names) for step in STEPS)


def test_the_search_knows_a_pickle() -> None:
    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    pairs = pipeline | beam.Create([(1, object)]) | beam.Map(lambda pair: pair)
    coder = coders.registry.get_coder(pairs.element_type)
    assert any(isinstance(part, PICKLES) for part in component_coders(coder))
