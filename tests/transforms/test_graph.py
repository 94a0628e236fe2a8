"""What travels between the steps of a job are bytes: nothing that is shuffled is pickled."""

from collections.abc import Iterator

import apache_beam as beam
from apache_beam import coders
from apache_beam.coders import Coder
from apache_beam.portability import common_urns

from transforms.readers.read import ReadBatches
from transforms.release import ReleaseTrees


def coders_of_shuffles(plan, reference, data: str, output: str) -> dict[str, list[Coder]]:
    """The coders, with all that they consist of, of what each GroupByKey takes."""
    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    rows = pipeline | ReadBatches(patterns=(data,), format="parquet", plan=plan)
    rows | ReleaseTrees(plan, key=reference, output=output)
    proto, context = pipeline.to_runner_api(return_context=True)
    found = {}
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn:
            (name,) = transform.inputs.values()
            coder = proto.components.pcollections[name].coder_id
            found[transform.unique_name] = list(parts_of(context.coders.get_by_id(coder)))
    return found


def parts_of(coder: Coder) -> Iterator[Coder]:
    yield coder
    for part in coder._get_component_coders():
        yield from parts_of(part)


PICKLES = (
    coders.FastPrimitivesCoder,
    coders.PickleCoder,
    coders.DillCoder,
    coders.CloudpickleCoder,
)


def test_what_is_shuffled_is_not_pickled(make_plan, reference, data, tmp_path) -> None:
    plan = make_plan("value", "carrier")
    found = coders_of_shuffles(plan, reference, data, str(tmp_path / "out"))
    # Reshuffle, of a few files and splits, adds a pickle of its own around each element.
    names = [name for name in found if "Reshuffle" not in name]
    assert len(names) >= 5  # by place, digest, balance, by group, both ways, receipts
    for name in names:
        kinds = [type(part).__name__ for part in found[name]]
        assert not any(isinstance(part, PICKLES) for part in found[name]), (name, kinds)


def test_the_search_knows_a_pickle() -> None:
    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    pairs = pipeline | beam.Create([(1, object)]) | beam.Map(lambda pair: pair)
    coder = coders.registry.get_coder(pairs.element_type)
    assert any(isinstance(part, PICKLES) for part in parts_of(coder))
