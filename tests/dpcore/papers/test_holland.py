"""Formulas of Holland et al. by enumeration and brute force; what is false in print is refuted."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import optimize

from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.partition import Estimates, EvenShares, GrownLevel, GrownTree
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.papers.holland import (
    candidate_sum,
    gamma,
    gamma_sum,
    miss_bound,
    multifractal_tails,
    noise_term,
    privhp,
    pruned_diameters,
    rate,
    row_error,
    sampled_leaf,
    sibling_difference,
    tail,
    wasserstein_bound,
)
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW
from dptrees.dpcore.sketches.estimates import SketchEstimator, estimates
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape, update


def enforce_consistency(parent: Floats, children: Floats) -> Floats:
    """(g, 2) children that add up to their (g,) parents."""
    known = Estimates(parent, np.full(parent.shape, np.nan))
    return EvenShares().children(known, children, np.ones(children.shape)).estimate


COUNTS = np.array([7, 4, 4, 1, 0, 2])


def collisions(counts: np.ndarray, w: int) -> np.ndarray:
    """(functions, nodes) e_theta under all functions from the nodes to w cells."""
    hashes = np.array(list(itertools.product(range(w), repeat=len(counts))))
    same = hashes[:, :, None] == hashes[:, None, :]
    return (same * counts).sum(axis=2) - counts


@pytest.mark.parametrize("w", [2, 3, 4])
def test_errors_of_rows_by_all_hash_functions(w: int) -> None:
    errors = collisions(COUNTS, w)
    total = COUNTS.sum()
    for node, count in enumerate(COUNTS):
        exact = errors[:, node].mean()
        assert exact == pytest.approx(row_error(total, count, w))
        # E min of j independent rows, and the bound for every k.
        values, times = np.unique(errors[:, node], return_counts=True)
        above = np.cumsum(times[::-1])[::-1] / times.sum()
        for j, k in itertools.product((2, 3, 5), range(1, w)):
            smallest = float((above**j * np.diff(values, prepend=0)).sum())
            others = tail(np.delete(COUNTS, node), k)
            assert smallest <= row_error(total, count, w, j=j, k=k, tail=others) + 1e-12
    assert row_error(total, 0, w, j=40, k=1, tail=tail(COUNTS, 1)) == pytest.approx(
        min(total / w, tail(COUNTS, 1) / (w - 1))
    )


@pytest.mark.parametrize("w", [2, 3, 4])
def test_lemma_6_by_all_hash_functions(w: int) -> None:
    """The printed bound is passed by every pair of siblings, the corrected one by none."""
    total = COUNTS.sum()
    errors = collisions(COUNTS, w)
    refuted = 0
    for left, right in itertools.combinations(range(len(COUNTS)), 2):
        c_0, c_1 = COUNTS[left], COUNTS[right]
        exact = np.abs(errors[:, left] - errors[:, right]).mean()
        assert exact <= sibling_difference(total, c_0, c_1, w) + 1e-12
        assert sibling_difference(total, c_0, c_1, w) <= (2 * total - c_0 - c_1) / w
        refuted += exact > abs(c_0 - c_1) / w + 1e-12
    assert refuted == 15
    # One other node: of independent triples it is in one of two cells with (2 / w) (1 - 1 / w).
    alone = collisions(np.array([5, 2, 9]), w)
    exact = np.abs(alone[:, 0] - alone[:, 1]).mean()
    assert exact == pytest.approx(sibling_difference(16, 5, 2, w) - 2 * 9 / w**2)


def test_equal_siblings_miss_by_a_hundred_rows() -> None:
    """64 pairs of equal siblings of 100 rows each, w = 64, the sketches of releases."""
    shape = SketchShape(kind=SketchKind.COUNT_MIN, rows=1, width=64)
    codes, found = np.arange(128, dtype=np.uint64), []
    for draw in range(200):
        hashes, table = shape.hashes(public_stream("siblings", draw)), shape.empty()
        update(hashes, table, codes, np.full(128, 100))
        rows = estimates(SketchEstimator.MINIMUM, table, hashes, codes)
        found.append(np.abs(rows[::2] - rows[1::2]).mean())
    assert round(np.mean(found)) == 148
    assert np.mean(found) <= sibling_difference(12_800, 100, 100, 64)


def test_algorithm_4_one_node_at_a_time() -> None:
    def one(parent: float, left: float, right: float) -> tuple[float, float]:
        left, right = max(left, 0.0), max(right, 0.0)
        surplus = left + right - parent
        if left - surplus / 2 < 0:
            return 0.0, parent
        if right - surplus / 2 < 0:
            return parent, 0.0
        return left - surplus / 2, right - surplus / 2

    values = [-3.0, -0.5, 0.0, 0.5, 2.0, 7.0]
    triples = list(itertools.product([0.0, 1.0, 4.0], values, values))
    parents, children = np.array(triples)[:, 0], np.array(triples)[:, 1:]
    found = enforce_consistency(parents, children)
    assert enforce_consistency(np.array([4.6]), np.array([[3.5, 3.7]])).round(6).tolist() == [
        [2.2, 2.4]  # Example 7.1
    ]
    np.testing.assert_allclose(found, [one(*each) for each in triples])


def exact_miss(c: Floats, m: Floats) -> Floats:
    """(|D_0| + |D_1| - |D|) / 2 of (..., 2) exact and consistent counts."""
    off = np.abs(c - m)
    return (off.sum(axis=-1) - np.abs((c - m).sum(axis=-1))) / 2


def test_a_miss_is_at_most_half_of_both_errors() -> None:
    """All small cases of Algorithm 4 with its corrections; half of the difference is passed."""
    errors = np.arange(-6.0, 7.0)
    grid = np.array(list(itertools.product([0.0, 1, 5], [0.0, 4], errors, errors, [0.0, 2, 6, 11])))
    c, off, parent = grid[:, :2], grid[:, 2:4], grid[:, 4]
    consistent = enforce_consistency(parent, c + off)
    missed = exact_miss(c, consistent)
    assert (missed <= np.abs(off).sum(axis=1) / 2 + 1e-12).all()
    assert (missed == np.abs(off).sum(axis=1) / 2).any()
    # Case 2 of the proof of Lemma 6: a count below 0 that is set to 0.
    assert (missed > np.abs(off[:, 0] - off[:, 1]) / 2 + 1e-12).any()
    plain = (c + off >= 0).all(axis=1) & (consistent > 0).all(axis=1)
    assert (missed <= np.abs(off[:, 0] - off[:, 1]) / 2 + 1e-12)[plain].all()
    assert miss_bound(3, 5, 2) == 6
    # No more is moved than the node holds, exactly and as estimated.
    assert (missed <= np.minimum(c.sum(axis=1), parent) + 1e-12).all()


def transport(p: Floats, q: Floats, distance: Floats) -> float:
    """W1 by linear programming."""
    n = len(p)
    rows = np.kron(np.eye(n), np.ones(n))
    columns = np.kron(np.ones(n), np.eye(n))
    solved = optimize.linprog(
        distance.ravel(), A_eq=np.concatenate((rows, columns)), b_eq=np.concatenate((p, q))
    )
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(6))
def test_moves_between_siblings_bound_w1(seed: int) -> None:
    """Appendix C: the sum of misses times diameters, and the error of the root."""
    rng = np.random.default_rng(seed)
    depth, n = 3, 40
    exact = [np.bincount(rng.integers(0, 8, n) // 2 * 2, minlength=8).astype(float)]
    while len(exact[0]) > 1:
        exact.insert(0, exact[0].reshape(-1, 2).sum(axis=1))
    counts = [np.maximum(exact[0] + rng.normal(0, 6), 1)]
    moved = abs(exact[0][0] - counts[0][0])
    for level in range(1, depth + 1):
        noisy = exact[level].reshape(-1, 2) + rng.normal(0, 5, (2 ** (level - 1), 2))
        found = enforce_consistency(counts[-1], noisy)
        moved += gamma(level - 1, 1) * exact_miss(exact[level].reshape(-1, 2), found).sum()
        counts.append(found.ravel())
    leaves = np.arange(8)
    above = (leaves[:, None] ^ leaves).astype(float)
    distance = np.where(above == 0, 0, 2.0 ** (np.floor(np.log2(np.maximum(above, 1))) - 2))
    w1 = transport(exact[-1] / n, counts[-1] / counts[-1].sum(), distance)
    assert 0 < w1 <= moved / n + 1e-9


@pytest.mark.parametrize(("skew", "k"), [(0.5, 8), (0.7, 4), (0.8, 16), (0.9, 4)])
def test_tails_of_the_multifractal_law_and_the_printed_bound(skew: float, k: int) -> None:
    depth, start = 9, k.bit_length() - 1
    tails = multifractal_tails(skew, k, depth)
    hot = [""]
    for level in range(1, depth + 1):
        candidates = sorted(
            (name + bit for name in hot for bit in "01"),
            key=lambda name: (-(skew ** name.count("0")) * (1 - skew) ** name.count("1"), name),
        )
        hot, cold = candidates[:k], candidates[k : 2 * k]
        mass = sum(skew ** name.count("0") * (1 - skew) ** name.count("1") for name in cold)
        assert tails[level] == pytest.approx(mass, abs=1e-12)
    assert tails.max() <= 1 - skew + 1e-12
    printed = (1 - skew) * skew ** np.arange(depth - start)
    if skew == 0.5:
        assert tails[start + 1 :] == pytest.approx(0.5 ** np.arange(1, depth - start + 1))
    else:
        assert (tails[start + 2 :] > 1.07 * printed[1:]).any()


def test_ranks_and_tails() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 50, 16)
    for _ in range(50):
        chosen = rng.permutation(16)[:8]
        assert candidate_sum(counts[chosen], 4, 7) <= tail(counts, 4)
    assert candidate_sum(counts, 0, 15) == counts.sum() and tail(counts, 16) == 0


@pytest.mark.parametrize("dimensions", [1, 2, 5, 1000])
def test_sums_of_diameters(dimensions: int) -> None:
    k, r = 16, 40
    closed = (
        k ** (-1 / dimensions) * (1 - (k / 2**r) ** (1 / dimensions)) / (1 - 2 ** (-1 / dimensions))
    )
    assert pruned_diameters(k, r, dimensions) == pytest.approx(closed)
    whole = [gamma(level, dimensions) for level in range(4, 40)]
    assert all(2 ** (-level / dimensions) <= own for level, own in enumerate(whole, 4))
    assert gamma_sum(5, dimensions) == 32 * gamma(5, dimensions)


@pytest.mark.parametrize("k", [1, 4, 16])
def test_lemma_5_is_the_best_split_and_the_plan_has_it(k: int) -> None:
    r, epsilon = 9, 0.5
    levels = np.array([1.0, *(min(2.0**i, k) * gamma(i, 2) for i in range(r))])
    plan = privhp(k=k, r=r, epsilon=Fraction(1, 2), dimensions=2)
    amounts = np.array(plan.amounts, float)
    best = noise_term(levels, epsilon)
    assert (levels / amounts).sum() == pytest.approx(best, rel=1e-4)
    rng = np.random.default_rng(k)
    for _ in range(20):
        other = amounts * np.exp(rng.normal(0, 0.05, r + 1))
        assert (levels / (other * epsilon / other.sum())).sum() > best
    assert sum(plan.amounts) == Fraction(1, 2)


def test_theorem_2_of_the_plan() -> None:
    plan = privhp(k=4, r=6, epsilon=Fraction(3), w=32, j=5)
    replaced = privhp(k=4, r=6, epsilon=Fraction(3), w=32, j=5, unit=SUBSTITUTE_ROW)
    for level, (amount, law) in enumerate(zip(plan.amounts, plan.laws, strict=True)):
        factor = 5 if level > 2 else 1
        assert law == DiscreteLaplace(scale=factor / amount)
        twice = 1 if level == 0 else 2
        assert replaced.laws[level] == DiscreteLaplace(scale=twice * factor / amount)


def test_the_walk_ends_in_leaves_as_often_as_they_count() -> None:
    def level(depth: int, parents: list[int]) -> GrownLevel:
        size = len(parents)
        nodes = np.arange(size, dtype=np.uint64)
        return GrownLevel(depth, nodes, np.array(parents), np.zeros(size), np.ones(size))

    tree = GrownTree(levels=(level(0, [0]), level(1, [0, 0]), level(2, [0, 0, 1, 1])))
    counts = [np.array([20]), np.array([9, 11]), np.array([9, 0, 4, 7])]
    walks = [sampled_leaf(tree, counts, (place + 0.5) / 10) for place in range(200)]
    found = [walks.count((2, place)) for place in range(4)]
    assert found == [90, 0, 40, 70]
    # At both ends, and where counts meet, the leaf has rows.
    assert [sampled_leaf(tree, counts, u)[1] for u in (0, 9, 9.1, 13, 13.1, 20)] == [
        0,
        0,
        2,
        2,
        3,
        3,
    ]
    for left, right in ((0, 9), (9, 0)):
        halves = GrownTree(levels=tree.levels[:2])
        for u in (0.0, 4.5, 9.0):
            found = sampled_leaf(halves, [np.array([9]), np.array([left, right])], u)
            assert found == (1, int(left == 0))
    deeper = GrownTree(levels=(*tree.levels, level(3, [2, 2])))
    walks = [sampled_leaf(deeper, [*counts, np.array([1, 3])], place + 0.5) for place in range(20)]
    expected = {(2, 0): 9, (3, 0): 1, (3, 1): 3, (2, 3): 7}
    assert {leaf: walks.count(leaf) for leaf in set(walks)} == expected


def test_parts_of_the_bound() -> None:
    """One level by hand; each part is linear in its cause."""
    given = {"k": 2, "gammas": np.array([1.0, 0.5, 0.25, 0.125]), "tails": np.array([0, 0, 6, 9.0])}
    sigmas = np.array([0.5, 1, 2, 4])
    found = wasserstein_bound(100, sigmas=sigmas, collisions=8.0, **given)
    # Level 2 is pruned; levels 2 and 3 have sketches.
    assert found.pruning == pytest.approx(0.25 * 6 / 100) and found.resolution == 0.125
    weights = np.array([1 * (1 + 2 * 0.25), 2 * (0.5 + 2 * 0.25), 2 * 0.25])
    assert found.sketch == pytest.approx(weights[1:].sum() * 8 / 100)
    assert found.noise == pytest.approx((weights @ [1, 1 / 2, 1 / 4] + (1 + 0.25) * 2) / 100)
    silent = wasserstein_bound(100, sigmas=np.full(4, math.inf), collisions=0.0, **given)
    assert silent.total == pytest.approx(0.25 * 6 / 100 + 0.125)
    rows = wasserstein_bound(100, sigmas=sigmas, collisions=8.0, j=2, **given)
    assert rows.noise - found.noise == pytest.approx((weights[1:] @ [1 / 2, 1 / 4]) * 2 / 100)
    crowded = wasserstein_bound(100, sigmas=np.full(4, math.inf), collisions=1e6, **given)
    assert crowded.sketch == pytest.approx(1.0 + 0.25)  # n rows on both levels
    # The order of the sketch's part: 1 / w, not 1 / (k w).
    small, large = (rate(k, 4096, dimensions=1, epsilon_n=1e12, f=0.0) for k in (16, 256))
    assert small == pytest.approx(large, rel=1e-3)
