"""Shapes of sketches: what is refused, and the least shape of an error bound."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.sketches.shape import SketchKind, SketchShape

BOUNDS = [(0.3, 0.3), (0.1, 0.05), (0.01, 0.01), (0.003, 1e-6)]


@pytest.mark.parametrize(
    ("field", "value"),
    [("rows", 0), ("rows", 501), ("width", 0), ("width", 1), ("width", 3), ("width", 2**34)],
)
def test_shapes_that_are_none(field: str, value: int) -> None:
    given = {"rows": 1, "width": 2} | {field: value}
    with pytest.raises(ValueError, match=f"{field}: {value} is not"):
        SketchShape(kind=SketchKind.COUNT_MIN, **given)


@pytest.mark.parametrize("kind", SketchKind)
def test_what_a_shape_makes(kind: SketchKind) -> None:
    shape = SketchShape(kind=kind, rows=3, width=64)
    hashes = shape.hashes(public_stream("shape"), 20)
    assert (shape.bits, shape.cells, shape.empty().shape) == (6, 192, (3, 64))
    assert (hashes.rows, hashes.width, hashes.code_bits) == (3, 64, 20)
    assert hashes.signed is shape.signed is (kind is SketchKind.COUNT_SKETCH)


@pytest.mark.parametrize(("error", "failure"), BOUNDS)
def test_a_count_min_sketch_of_an_error(error: float, failure: float) -> None:
    shape = SketchShape.from_error(SketchKind.COUNT_MIN, error=error, failure=failure)
    assert shape.width >= math.e / error > shape.width / 2
    chance = 1 / (error * shape.width)
    assert chance**shape.rows <= failure < chance ** (shape.rows - 1)
    assert shape.rows <= math.ceil(math.log(1 / failure))  # theirs


@pytest.mark.parametrize(("error", "failure"), BOUNDS)
def test_a_count_sketch_of_an_error(error: float, failure: float) -> None:
    shape = SketchShape.from_error(SketchKind.COUNT_SKETCH, error=error, failure=failure)
    assert shape.width >= 3 / error**2 > shape.width / 2
    chance = 1 / (error**2 * shape.width)

    def fails(rows: int) -> float:
        return float(stats.binom.sf(rows // 2, rows, chance))

    assert shape.rows % 2 == 1 and fails(shape.rows) <= failure
    assert shape.rows == 1 or fails(shape.rows - 2) > failure


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, math.nan])
@pytest.mark.parametrize("field", ["error", "failure"])
def test_bounds_that_are_none(field: str, value: float) -> None:
    given = {"error": 0.1, "failure": 0.1} | {field: value}
    with pytest.raises(ValueError, match=f"{field}: {value} is not between 0 and 1"):
        SketchShape.from_error(SketchKind.COUNT_MIN, **given)


@pytest.mark.parametrize("kind", SketchKind)
def test_bounds_that_would_take_too_large_a_sketch(kind: SketchKind) -> None:
    with pytest.raises(ValueError, match=r"width: \d+ is not a power of two from 2 to 2\^33"):
        SketchShape.from_error(kind, error=1e-11, failure=0.1)
    with pytest.raises(ValueError, match=r"rows: \d+ is not from 1 to 500"):
        SketchShape.from_error(kind, error=0.34, failure=1e-300)
