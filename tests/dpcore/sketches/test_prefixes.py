"""Sketches of the levels of a hierarchy: each is the sketch of that level's prefixes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.sketches.sketch import PrefixSketches, SketchKind, SketchShape, update

KEY = ReleaseKey(bytes(range(32)))
SHAPE = SketchShape(kind=SketchKind.COUNT_SKETCH, rows=2, width=32)
UNSIGNED = SketchShape(kind=SketchKind.COUNT_MIN, rows=2, width=32)
RNG = np.random.default_rng(5)
CODES = {
    "distinct": RNG.integers(0, 2**50, 5000, dtype=np.uint64),
    "repeated": RNG.integers(0, 2**50, 40, dtype=np.uint64)[RNG.integers(0, 40, 5000)],
    "none": np.array([], np.uint64),
}


def make_sketches(*levels: int, bits: int = 50) -> PrefixSketches:
    return PrefixSketches(shape=SHAPE, code_bits=bits, levels=levels)


@pytest.mark.parametrize("kind", CODES)
def test_each_level_is_the_sketch_of_its_prefixes(kind: str) -> None:
    for weighted in (False, True):
        sketches, codes = make_sketches(1, 7, 33, 50), CODES[kind]
        counts = np.arange(codes.size) if weighted else None
        hashes, tables = sketches.hashes(KEY, "t"), sketches.empty()
        sketches.update(hashes, tables, codes, counts)
        for place, level in enumerate(sketches.levels):
            expected = SHAPE.empty()
            update(hashes[place], expected, codes >> np.uint64(50 - level), counts)
            assert (tables[place] == expected).all()
        assert tables.size == sketches.cells


def test_the_functions_follow_from_all_that_shapes_them() -> None:
    def columns(sketches: PrefixSketches, place: int, *name: str) -> list[int]:
        return next(sketches.hashes(KEY, *name)[place].cells(CODES["distinct"] >> np.uint64(49)))[
            0
        ].tolist()

    one = columns(make_sketches(20, 40), 1, "t")
    assert one == columns(make_sketches(10, 30, 40), 2, "t")
    others = [
        columns(make_sketches(20, 40), 1, "u"),
        columns(make_sketches(20, 41), 1, "t"),
        columns(make_sketches(20, 40, bits=51), 1, "t"),
        columns(replace(make_sketches(20, 40), shape=UNSIGNED), 1, "t"),
    ]
    assert one not in others


def test_levels_that_are_none_and_codes_of_no_bits_or_too_many() -> None:
    for levels in ((), (0, 1), (2, 1), (1, 1), (50, 51)):
        with pytest.raises(ValueError, match="levels: "):
            make_sketches(*levels)
    for bits in (0, 65):
        with pytest.raises(ValueError, match=f"code_bits: {bits} is not from 1 to 64"):
            make_sketches(1, bits=bits)


def test_what_cannot_be_counted() -> None:
    sketches = make_sketches(3, 50)
    with pytest.raises(ValueError, match="one has more than 3 bits"):
        sketches.update(sketches.hashes(KEY), sketches.empty(), np.array([2**50], np.uint64))
