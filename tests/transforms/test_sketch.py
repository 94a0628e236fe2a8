"""SketchCodes: any bundling and order of merges gives the counters of all codes at once."""

import pickle
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.sketches.prefixes import PrefixSketches
from dptrees.dpcore.sketches.shape import SketchKind, SketchShape
from dptrees.transforms.key_reference import KeyReference, KeyReferenceError
from dptrees.transforms.sketch import SketchCodes
from tests.transforms.conftest import LOCAL_RUNNER

NAME = ("release", "tree")
BITS = 12
KINDS = pytest.mark.parametrize("kind", SketchKind)


def make_sketches(kind: SketchKind) -> PrefixSketches:
    shape = SketchShape(kind=kind, rows=2, width=8)
    return PrefixSketches(shape=shape, code_bits=BITS, levels=(5, BITS))


def expected(kind: SketchKind, key: ReleaseKey, batches: list[np.ndarray]) -> bytes:
    """All codes at once, without Beam."""
    sketches = make_sketches(kind)
    tables = sketches.empty()
    codes = np.concatenate([np.zeros(0, np.uint64), *batches])
    sketches.update(sketches.hashes(key, *NAME), tables, codes)
    return sketches.to_bytes(tables)


@st.composite
def batch(draw: st.DrawFn) -> np.ndarray:
    codes = draw(st.lists(st.integers(0, 2**BITS - 1), max_size=20))
    return np.array(codes * draw(st.sampled_from([1, 1, 100])), np.uint64)


def combined(combiner: SketchCodes, batches: list[np.ndarray], data: st.DataObject) -> bytes:
    """The output by the combiner's calls, bundled and merged as an engine might."""
    accumulators: list[Any] = []
    left = list(data.draw(st.permutations(batches)))
    while left:
        size = data.draw(st.integers(0, len(left)))
        accumulator = combiner.create_accumulator()
        for codes in left[:size]:
            accumulator = combiner.add_input(accumulator, codes)
        accumulators.append(travelled(combiner, accumulator, data))
        left = left[size:]
    while len(accumulators) > 1:
        several = data.draw(st.integers(2, len(accumulators)))
        merged = combiner.merge_accumulators(iter(accumulators[:several]))
        merged = combiner.merge_accumulators([travelled(combiner, merged, data)])
        accumulators = [*accumulators[several:], merged]
    return combiner.extract_output(combiner.merge_accumulators(accumulators))


def travelled(combiner: SketchCodes, accumulator: Any, data: st.DataObject) -> Any:
    """Perhaps made compact, and sent to another worker."""
    if data.draw(st.booleans()):
        accumulator = combiner.compact(accumulator)
        assert isinstance(accumulator, bytes)
    return pickle.loads(pickle.dumps(accumulator))


@KINDS
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batches=st.lists(batch(), max_size=6), data=st.data())
def test_any_bundling_and_order_of_merges(
    kind: SketchKind,
    batches: list[np.ndarray],
    data: st.DataObject,
    reference: KeyReference,
    key: ReleaseKey,
) -> None:
    combiner = pickle.loads(pickle.dumps(SketchCodes(make_sketches(kind), reference, NAME)))
    combiner.setup()
    assert combined(combiner, batches, data) == expected(kind, key, batches)


@KINDS
def test_after_it_was_made_compact_more_is_added(
    kind: SketchKind, reference: KeyReference, key: ReleaseKey
) -> None:
    combiner = SketchCodes(make_sketches(kind), reference, NAME)
    combiner.setup()
    codes = np.arange(100, dtype=np.uint64)
    accumulator = combiner.compact(combiner.add_input(combiner.create_accumulator(), codes))
    accumulator = combiner.add_input(combiner.compact(accumulator), codes)
    assert combiner.extract_output(accumulator) == expected(kind, key, [codes, codes])


@KINDS
@pytest.mark.parametrize("rows", [0, 5000])
def test_in_a_pipeline(
    kind: SketchKind, rows: int, reference: KeyReference, key: ReleaseKey
) -> None:
    codes = np.random.default_rng(1).integers(0, 2**BITS, rows, dtype=np.uint64)
    batches = np.split(codes, 10)
    with beam.Pipeline(runner=LOCAL_RUNNER) as pipeline:
        sketched = (
            pipeline
            | "Batches" >> beam.Create(batches)
            | "Sketch" >> beam.CombineGlobally(SketchCodes(make_sketches(kind), reference, NAME))
        )
        assert_that(sketched, equal_to([expected(kind, key, batches)]))


def test_what_travels_holds_the_key_s_place_alone(reference: KeyReference, key: ReleaseKey) -> None:
    sketches = make_sketches(SketchKind.COUNT_SKETCH)
    combiner = SketchCodes(sketches, reference, NAME)
    assert key.to_text().encode() not in pickle.dumps(combiner)
    combiner.setup()
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        pickle.dumps(combiner)


def test_a_worker_with_another_key_fails(reference: KeyReference, key_file: Any) -> None:
    key_file.write_text(ReleaseKey(bytes(32)).to_text())
    with pytest.raises(KeyReferenceError, match="another key than the launcher's"):
        SketchCodes(make_sketches(SketchKind.COUNT_MIN), reference, NAME).setup()


def test_it_takes_arrays_alone(reference: KeyReference) -> None:
    combiner = SketchCodes(make_sketches(SketchKind.COUNT_MIN), reference, NAME)
    with pytest.raises(beam.typehints.decorators.TypeCheckError, match="ndarray"):
        beam.Pipeline() | beam.Create(["text"]) | beam.CombineGlobally(combiner)
