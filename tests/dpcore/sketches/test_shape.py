"""Shapes of sketches: what is refused, and what they make."""

from __future__ import annotations

import pytest

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape


def test_shapes_that_are_none() -> None:
    none = [("rows", 0), ("rows", 501), ("width", 0), ("width", 1), ("width", 3), ("width", 2**34)]
    for field, value in none:
        given = {"rows": 1, "width": 2} | {field: value}
        with pytest.raises(ValueError, match=f"{field}: {value} is not"):
            SketchShape(kind=SketchKind.COUNT_MIN, **given)


def test_what_a_shape_makes() -> None:
    for kind in SketchKind:
        shape = SketchShape(kind=kind, rows=3, width=64)
        hashes = shape.hashes(public_stream("shape"), 20)
        assert (shape.bits, shape.cells, shape.empty().shape) == (6, 192, (3, 64))
        assert (hashes.rows, hashes.width, hashes.code_bits) == (3, 64, 20)
        assert hashes.signed is shape.signed is (kind is SketchKind.COUNT_SKETCH)
