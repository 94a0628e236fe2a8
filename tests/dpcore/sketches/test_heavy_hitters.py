"""Heavy hitters: of candidates, and down a hierarchy of sketches; what is bounded and complete."""

from __future__ import annotations

import numpy as np
import pytest

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.sketches.estimates import SketchEstimator, estimates
from dptrees.dpcore.sketches.heavy_hitters import Estimate, heavy_candidates, heavy_hitters
from dptrees.dpcore.sketches.sketch import Codes, PrefixSketches, SketchKind, SketchShape

BITS = 40
LEVELS = tuple(range(8, BITS + 1, 4))
RNG = np.random.default_rng(3)
HEAVY = RNG.integers(0, 2**BITS, 20, dtype=np.uint64)
LIGHT = RNG.integers(0, 2**BITS, 20_000, dtype=np.uint64)
ROWS = np.concatenate([np.repeat(HEAVY, 1000), LIGHT])


def exact(rows: Codes, bits: int) -> Estimate:
    """Exact counts of prefixes."""

    def estimate(level: int, codes: Codes) -> Floats:
        values, counts = np.unique(rows >> np.uint64(bits - level), return_counts=True)
        place = np.searchsorted(values, codes).clip(max=values.size - 1)
        return np.where(values[place] == codes, counts[place], 0).astype(np.float64)

    return estimate


def sketched(kind: SketchKind, estimator: SketchEstimator) -> Estimate:
    shape = SketchShape(kind=kind, rows=5, width=1024)
    sketches = PrefixSketches(shape=shape, code_bits=BITS, levels=LEVELS)
    hashes, tables = sketches.hashes(ReleaseKey(bytes(32)), "heavy"), sketches.empty()
    sketches.update(hashes, tables, ROWS)

    def estimate(level: int, codes: Codes) -> Floats:
        place = LEVELS.index(level)
        return estimates(estimator, tables[place], hashes[place], codes)

    return estimate


@pytest.mark.parametrize("levels", [(1, 2, 3, 4, 5, 6), (6,), (2, 6), (3, 4)])
def test_all_and_only_the_heavy_ones_of_exact_counts(levels: tuple[int, ...]) -> None:
    rows = RNG.zipf(1.3, 1000).clip(max=64).astype(np.uint64) - np.uint64(1)
    found = heavy_hitters(exact(rows, 6), levels, threshold=20, most=64)
    values, counts = np.unique(rows >> np.uint64(6 - levels[-1]), return_counts=True)
    assert found.codes.tolist() == values[counts > 20].tolist()
    assert found.counts.tolist() == counts[counts > 20].tolist()
    assert found.complete


KINDS = [
    (SketchKind.COUNT_MIN, SketchEstimator.MINIMUM),
    (SketchKind.COUNT_MIN, SketchEstimator.MEDIAN),
    (SketchKind.COUNT_SKETCH, SketchEstimator.MEDIAN),
]


@pytest.mark.parametrize(("kind", "estimator"), KINDS)
def test_heavy_hitters_of_sketches(kind: SketchKind, estimator: SketchEstimator) -> None:
    found = heavy_hitters(sketched(kind, estimator), LEVELS, threshold=500, most=200)
    assert found.complete
    # Every heavy code, and in a million children of prefixes nothing else.
    assert found.codes.tolist() == sorted(HEAVY.tolist())
    assert found.counts == pytest.approx(np.full(20, 1000), abs=200)


def test_candidates() -> None:
    codes = np.array([7, 3, 5, 9], np.uint64)
    counts = np.array([2.0, 4.0, 4.0, 4.0])
    kept = heavy_candidates(codes, counts, threshold=2, most=3)
    assert (kept.codes.tolist(), kept.counts.tolist(), kept.complete) == (
        [3, 5, 9],
        [4, 4, 4],
        True,
    )
    cut = heavy_candidates(codes, counts, threshold=0, most=2)
    assert (cut.codes.tolist(), cut.complete) == ([3, 5], False)
