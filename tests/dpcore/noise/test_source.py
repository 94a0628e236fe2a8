"""Noise is drawn once: a pure function of all that names it, and of nothing less."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import (
    LARGEST_DIVIDED,
    LARGEST_MEASURED,
    LargeSumError,
    NoiseSource,
    add_noise,
    combine_digests,
    counts_digest,
)
from tests.dpcore.cases import for_each

KEY, OTHER_KEY = ReleaseKey(bytes(32)), ReleaseKey(bytes([1] * 32))
LAW = DiscreteLaplace(scale=Fraction(10**6))


def source(
    key: ReleaseKey = KEY,
    release: str = "r",
    spec: bytes = b"s",
    counts: bytes = b"c",
    nonce: bytes = b"",
) -> NoiseSource:
    return NoiseSource(
        key=key, release=release, spec_digest=spec, global_digest=counts, nonce=nonce
    )


SOURCES = [
    source(),
    source(key=OTHER_KEY),
    source(release="r2"),
    source(spec=b"s2"),
    source(counts=b"c2"),
    source(nonce=bytes(16)),
    source(nonce=bytes(15) + b"n"),
    source(spec=b"sc", counts=b""),  # the same bytes, cut elsewhere
]
PLACES = [
    ("t", 0, 0, 0),
    ("t", 0, 0, 1),
    ("t", 0, 1, 0),
    ("t", 0, -1, 0),
    ("t", 1, 0, 0),
    ("u", 0, 0, 0),
]


def test_the_same_names_draw_the_same_noise() -> None:
    for place in PLACES:
        one, again = (LAW.sample(source().stream(*place), 50) for _ in range(2))
        np.testing.assert_array_equal(one, again)


def test_any_other_name_draws_other_noise() -> None:
    """At scale 1e6 two independent draws agree with probability below 1e-6."""
    draws = [
        LAW.sample(each.stream(*place), 8) for each, place in itertools.product(SOURCES, PLACES)
    ]
    for one, other in itertools.combinations(draws, 2):
        assert (one != other).sum() >= 7


def test_the_record_distinguishes_draws() -> None:
    records = {each.record() for each in SOURCES}
    assert len(records) == len(SOURCES)
    assert source().record() == source().record() and len(source().record()) == 32


def test_the_digest_of_counts_depends_on_all_that_it_digests() -> None:
    counts = np.arange(6)
    changed = counts + (np.arange(6) == 3)
    digests = [
        counts_digest(KEY, "r", "t", 0, 0, counts),
        counts_digest(OTHER_KEY, "r", "t", 0, 0, counts),
        counts_digest(KEY, "r2", "t", 0, 0, counts),
        counts_digest(KEY, "r", "t2", 0, 0, counts),
        counts_digest(KEY, "r", "t", 1, 0, counts),
        counts_digest(KEY, "r", "t", 0, 1, counts),
        counts_digest(KEY, "r", "t", 0, 0, changed),
        counts_digest(KEY, "r", "t", 0, 0, counts[:5]),
    ]
    assert len(set(digests)) == len(digests)


def test_the_digest_of_counts_is_of_values_not_of_memory() -> None:
    counts = np.arange(12)
    expected = counts_digest(KEY, "r", "t", 0, 0, counts[::2])
    assert counts_digest(KEY, "r", "t", 0, 0, counts[::2].copy()) == expected
    assert counts_digest(KEY, "r", "t", 0, 0, counts[::2].astype(">i8")) == expected


def test_digests_combine_in_any_order() -> None:
    digests = [counts_digest(KEY, "r", "t", 0, chunk, np.arange(3)) for chunk in range(5)]
    combined = combine_digests(sum(digests))
    assert combined == combine_digests(sum(reversed(digests)) + 2**256)
    assert len(combined) == 32 and combined != combine_digests(sum(digests[1:]))


@for_each("law", [LAW, DiscreteGaussian(sigma_squared=Fraction(30)), ZeroNoise()])
def test_noise_is_added_node_by_node(law: NoiseLaw) -> None:
    counts = np.arange(24).reshape(2, 3, 4)
    noisy = add_noise(law, counts, source().stream("t", 0, 0, 0))
    expected = law.sample(source().stream("t", 0, 0, 0), 24)
    assert noisy.dtype == np.int64 and noisy.shape == counts.shape
    np.testing.assert_array_equal((noisy - counts).reshape(-1), expected)
    assert add_noise(law, counts[:0], source().stream("t", 0, 0, 0)).size == 0


@pytest.mark.parametrize("largest", [LARGEST_MEASURED, LARGEST_DIVIDED])
def test_sums_beyond_the_largest_are_refused(largest: int) -> None:
    def noisy(law: NoiseLaw, counts: list[int]) -> list[int]:
        exact = np.array(counts)
        return add_noise(law, exact, source().stream("t", 0, 0, 0), largest=largest).tolist()

    inside = [7, -8, largest - 1, largest, -largest]
    assert noisy(ZeroNoise(), inside) == inside
    for beyond in (largest + 1, -largest - 1, 2**62, -(2**62)):
        with pytest.raises(LargeSumError):
            noisy(ZeroNoise(), [7, beyond])
    # The noisy number decides, not the exact one.
    noise = noisy(LAW, [0] * 200)
    least = min(noise)
    exact = [0] * 200
    exact[noise.index(least)] = largest - least
    assert least < 0 and max(noisy(LAW, exact)) == largest
