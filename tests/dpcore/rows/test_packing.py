"""Arrays survive the way as bytes, in as few of them as hold the values."""

from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pytest
from apache_beam import coders
from apache_beam.coders import Coder
from apache_beam.portability import common_urns
from hypothesis import given
from hypothesis import strategies as st

from dpcore.rows.packing import pack, pack_many, unpack, unpack_many
from transforms.readers.read import ReadBatches
from transforms.release import ReleaseTrees

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(INT64, max_size=50))
def test_any_integers_come_back(values: list[int]) -> None:
    assert unpack(pack(np.array(values, dtype=np.int64))).tolist() == values


@pytest.mark.parametrize("bits, width", [(8, 1), (16, 2), (32, 4), (64, 8)])
def test_the_narrowest_width_that_holds_both_ends(bits: int, width: int) -> None:
    ends = np.array([-(2 ** (bits - 1)), 2 ** (bits - 1) - 1])
    assert pack(ends)[0] == width
    assert unpack(pack(ends)).tolist() == ends.tolist()
    if bits < 64:
        for beyond in (ends - np.array([1, 0]), ends + np.array([0, 1])):
            assert pack(beyond)[0] == 2 * width
            assert unpack(pack(beyond)).tolist() == beyond.tolist()


def test_what_comes_back_is_flat_and_writable() -> None:
    counts = unpack(pack(np.arange(6).reshape(2, 3)))
    counts += 1
    assert counts.tolist() == [1, 2, 3, 4, 5, 6]
    assert counts.dtype == np.int64


def test_strided_and_reversed_views() -> None:
    values = np.arange(1000)
    assert unpack(pack(values[::-7])).tolist() == values[::-7].tolist()


def test_small_counts_travel_in_few_bytes() -> None:
    counts = np.random.default_rng(1).poisson(1, 2**17)
    assert len(pack(counts)) < 2**17
    assert len(pack(np.zeros(2**17, dtype=np.int64))) < 100


def test_the_same_array_gives_the_same_bytes() -> None:
    values = np.random.default_rng(2).integers(-300, 300, 1000)
    assert pack(values) == pack(values.copy()) == pack(np.repeat(values, 2)[::2])


@given(st.lists(st.binary(max_size=300), max_size=20))
def test_any_byte_strings_come_back(parts: list[bytes]) -> None:
    assert unpack_many(pack_many(parts)) == parts


def test_no_parts_are_no_bytes() -> None:
    assert pack_many([]) == b""
    assert unpack_many(b"") == []


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
    assert len(names) >= 5  # by chunk, digest, balance, by spine, both ways, receipts
    for name in names:
        kinds = [type(part).__name__ for part in found[name]]
        assert not any(isinstance(part, PICKLES) for part in found[name]), (name, kinds)


def test_the_search_knows_a_pickle() -> None:
    pipeline = beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner")
    pairs = pipeline | beam.Create([(1, object)]) | beam.Map(lambda pair: pair)
    coder = coders.registry.get_coder(pairs.element_type)
    assert any(isinstance(part, PICKLES) for part in parts_of(coder))
