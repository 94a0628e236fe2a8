"""Counts of nodes against brute force; noise that is drawn when it is looked at against the noise
of the whole tree; what is not measured is not read."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dptrees.dpcore.boxes.partition import CodeCounts, Estimates, NodeNoise, Nodes
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import add_noise
from tests.dpcore.boxes.counted_boxes import SOURCE

LAWS: tuple[NoiseLaw | None, ...] = (
    None,
    DiscreteLaplace(scale=Fraction(3)),
    DiscreteGaussian(sigma_squared=Fraction(40)),
    DiscreteLaplace(scale=Fraction(10**6)),
)
DEPTHS = (0, 2, 5, 9)
FALSE_ALARM = 1e-6


def node_noise(counts: CodeCounts | None = None, **changes: Any) -> NodeNoise:
    if counts is None:
        rng = np.random.default_rng(0)
        codes = np.sort(rng.choice(512, 90, replace=False)).astype(np.uint64)
        counts = CodeCounts.from_codes(9, codes, rng.integers(1, 50, 90))
    known = {"tree": "t", "counts": counts, "laws": LAWS, "source": SOURCE}
    return NodeNoise(**known | changes)


@given(st.integers(1, 64), st.data())
@settings(deadline=None)
def test_counts_of_nodes_by_brute_force(bits: int, data: st.DataObject) -> None:
    code = st.one_of(st.integers(0, 2**bits - 1), st.sampled_from([0, 2**bits - 1]))
    rows = data.draw(st.dictionaries(code, st.integers(1, 2**40), max_size=8))
    codes = sorted(rows)
    counts = CodeCounts.from_codes(
        bits, np.array(codes, np.uint64), np.array([rows[each] for each in codes], np.int64)
    )
    depth = data.draw(st.integers(0, bits))
    requested = {each >> (bits - depth) for each in codes} | {0, 2**depth - 1}
    nodes = data.draw(st.permutations(sorted(requested)))
    found = counts.at(depth, np.array(nodes, np.uint64))
    assert found.dtype == np.int64
    assert found.tolist() == [
        sum(count for each, count in rows.items() if each >> (bits - depth) == node)
        for node in nodes
    ]


def test_the_last_code_of_64_bits_counts_at_every_depth() -> None:
    counts = CodeCounts.from_codes(64, np.array([0, 2**64 - 1], np.uint64), np.array([5, 7]))
    for depth in range(1, 65):
        ends = np.array([2**depth - 1, 0], np.uint64)
        assert counts.at(depth, ends).tolist() == [7, 5]
    assert counts.at(0, np.zeros(1, np.uint64)).tolist() == [12]


def dense(noise: NodeNoise, level: int) -> np.ndarray:
    return noise.at(level, DEPTHS[level], np.arange(2 ** DEPTHS[level], dtype=np.uint64)).estimate


class OneStream(NodeNoise):
    """Planted: a level's noise from one stream, in the order in which nodes are looked at."""

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        law, exact = self.laws[level], self.counts.at(depth, nodes)
        assert law is not None
        stream = self.source.stream(self.tree, 0, 0, level)
        return Estimates(add_noise(law, exact, stream).astype(np.float64), np.ones(len(nodes)))


def is_lazy(first: NodeNoise, again: NodeNoise, seed: int) -> bool:
    """Whether some nodes in any order and in any pieces get what all of them get at once."""
    whole = [dense(first, level) for level in (1, 2, 3)]
    rng = np.random.default_rng(seed)
    for _ in range(30):
        level = int(rng.integers(1, 4))
        nodes = rng.permutation(2 ** DEPTHS[level])[: rng.integers(1, 60)]
        found = again.at(level, DEPTHS[level], nodes.astype(np.uint64))
        if not np.array_equal(found.estimate, whole[level - 1][nodes]):
            return False
    return True


def test_noise_is_the_same_whatever_is_looked_at_and_when() -> None:
    for seed in range(5):
        noise = node_noise()
        assert is_lazy(noise, noise, seed) and is_lazy(node_noise(), node_noise(), seed)
        planted = OneStream(tree="t", counts=noise.counts, laws=LAWS, source=SOURCE)
        assert not is_lazy(planted, planted, seed)


def test_everything_that_distinguishes_a_draw_changes_the_noise() -> None:
    """Tree, purpose, level, key, release, nonce, specification, counts: so does none of them twice
    give the same bits."""
    nodes = np.arange(64, dtype=np.uint64)
    law = DiscreteLaplace(scale=Fraction(2**30))
    counts = CodeCounts.from_codes(9, np.array([3], np.uint64), np.array([5]))
    base: dict[str, Any] = {"counts": counts, "laws": (None, law, law, law)}
    variants = [
        node_noise(**base).at(2, 6, nodes),
        node_noise(**base).at(2, 7, nodes),
        node_noise(**base, tree="u").at(2, 6, nodes),
        node_noise(**base, purpose="other").at(2, 6, nodes),
        *(
            node_noise(**base, source=replace(SOURCE, **{name: value})).at(2, 6, nodes)
            for name, value in {
                "key": ReleaseKey(bytes(31) + b"1"),
                "release": "q",
                "nonce": b"n",
                "spec_digest": b"other",
                "global_digest": b"other",
                "own_digest": b"other",
            }.items()
        ),
    ]
    seen = [value for each in variants for value in each.estimate.tolist()]
    # 640 draws of a law of 2^31 likely values.
    assert len(set(seen)) > len(seen) - 5
    assert len({tuple(each.estimate.tolist()) for each in variants}) == len(variants)


@pytest.mark.parametrize("law", [each for each in LAWS if each is not None][:2])
@pytest.mark.parametrize("depth", [12, 64])
def test_the_noise_of_nodes_has_its_law(law: NoiseLaw, depth: int) -> None:
    """Chi-square over 4096 nodes without rows; a law 30 % wider is seen."""
    counts = CodeCounts.from_codes(depth, np.empty(0, np.uint64), np.empty(0, np.int64))
    noise = node_noise(counts, laws=(None, law))
    first = 0 if depth == 12 else 2**64 - 4096
    found = noise.at(1, depth, np.arange(4096, dtype=np.uint64) + np.uint64(first))
    assert np.allclose(found.variance, law.variance)
    edges = np.arange(-8, 9)
    cuts = np.concatenate([[-np.inf], edges, [np.inf]])
    seen = np.histogram(found.estimate, bins=cuts + 0.5)[0]

    def chance(each: NoiseLaw) -> float:
        above = np.concatenate([[1.0], each.survival(edges), [0.0]])
        return float(stats.chisquare(seen, -np.diff(above) * 4096).pvalue)

    assert chance(law) > FALSE_ALARM
    wider: NoiseLaw = DiscreteLaplace(scale=Fraction(39, 10))
    if isinstance(law, DiscreteGaussian):
        wider = DiscreteGaussian(sigma_squared=law.sigma_squared * Fraction(169, 100))
    assert chance(wider) < FALSE_ALARM


def test_an_unmeasured_root_is_not_read() -> None:
    """Its value is the same whatever the counts are; planted: a public root is reported exactly."""
    root = np.zeros(1, np.uint64)
    for counts in (1, 10**6):
        noise = node_noise(CodeCounts.from_codes(9, np.array([3], np.uint64), np.array([counts])))
        found = noise.at(0, 0, root)
        assert found.estimate.tolist() == [0.0] and found.variance.tolist() == [np.inf]
        reported = replace(noise, public_total=True).at(0, 0, root)
        assert reported.estimate.tolist() == [counts] and reported.variance.tolist() == [0.0]


def test_a_level_without_a_law_is_read_at_no_depth_but_the_public_root() -> None:
    noise = node_noise(laws=(None, None), public_total=True)
    found = noise.at(1, 2, np.arange(4, dtype=np.uint64))
    assert not found.estimate.any() and np.isinf(found.variance).all()


def test_next_to_no_noise_is_not_none() -> None:
    """A variance of 0 would say that no row can be there."""
    law = DiscreteLaplace(scale=Fraction(1, 1000))
    assert law.variance == 0.0
    found = node_noise(laws=(None, law)).at(1, 2, np.arange(4, dtype=np.uint64))
    assert (found.variance > 0).all() and (found.variance < 1e-20).all()
