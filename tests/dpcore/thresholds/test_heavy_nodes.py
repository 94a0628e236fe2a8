"""Classification: Algorithm 1 line by line, its exact law on tiny trees, the guarantee, an audit.

The exact law is computed here from the paper's description (with c an integer), not from the code:
sums over the noise of the threshold, products over queries and nodes. It covers all outputs, so the
guarantee is checked by enumeration; the code is compared with the law by running it on a forest of
many copies of the tiny tree. Statistical limits have a false-alarm probability of at most 1e-6.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.noise.randomness import RandomStream, public_stream
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.papers.ghazi import Classification, classify
from dptrees.dpcore.thresholds.sparse_vector import remaining_trees, tree_weights, whole_tree
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.cases import for_each
from tests.dpcore.thresholds.enumerated_law import classification_law, p_value

FALSE_ALARM = 1e-6
COPIES = 100_000
Law = dict[tuple[bool, ...], float]


def make_classification(
    *, tau: int, root_bound: int, epsilon: object = 2, delta: object = Fraction(1, 20)
) -> Classification:
    return Classification(
        depth=3,
        root_bound=Fraction(root_bound),
        eta=Fraction(2, 5),
        alpha=Fraction(1, 2),
        tau=Fraction(tau),
        epsilon=Fraction(epsilon),
        delta=Fraction(delta),
    )


def ids(tree: UniformTree) -> list[tuple[int, int]]:
    return [(level, node) for level, n in enumerate(tree.level_sizes) for node in range(n)]


def ancestors(tree: UniformTree, level: int, node: int) -> list[tuple[int, int]]:
    found = [(level, node)]
    while level:
        level, node = level - 1, node // tree.fanouts[level - 1]
        found.append((level, node))
    return found


def exact_law(
    tree: UniformTree,
    counts: tuple[int, ...],
    parameters: Classification,
    *,
    noise_factor: float = 1.0,
    threshold_shift: int = 0,
    budget_factor: float = 1.0,
) -> Law:
    """The probability of every classification of a tiny tree, by Algorithm 1."""
    weights = tree.level_counts(np.array(counts))
    c = math.ceil(parameters.root_bound / ((1 - parameters.alpha) * parameters.tau))
    scale = noise_factor * c / (float(parameters.epsilon) * budget_factor)
    tau, radius = int(parameters.tau) + threshold_shift, parameters.noise.radius
    law = classification_law(
        {(level, node): int(weights[level][node]) for level, node in ids(tree)},
        lambda node: ancestors(tree, *node),
        cutoff=c,
        tau=tau,
        acceptance=tau - parameters.error - radius,
        radius=radius,
        node_scale=2 * scale,
        threshold_scale=4 * scale,
        query_scale=8 * scale,
    )
    return {tuple(node in top for node in ids(tree)): p for top, p in law.items()}


def hockey_stick(law: Law, other: Law, epsilon: float) -> float:
    return math.fsum(max(0.0, p - math.exp(epsilon) * other.get(o, 0.0)) for o, p in law.items())


def observed(
    tree: UniformTree, counts: tuple[int, ...], parameters: Classification, name: str
) -> Counter:
    """Classifications of COPIES copies of the tree, the trees of one forest."""
    forest_tree = UniformTree(leaves=COPIES * tree.leaves, fanouts=(COPIES, *tree.fanouts))
    weights = tree_weights(forest_tree, np.tile(np.array(counts), COPIES))
    forest = [np.array([-1])]
    forest += [np.repeat(np.arange(COPIES), n) for n in tree.level_sizes]
    deep = replace(parameters, depth=parameters.depth + 1)
    # The extra level must not change what is compared.
    deep.__dict__.update(
        {name: getattr(parameters, name) for name in ("sparse_vector", "error", "noise")}
    )
    top = classify(forest_tree, weights, deep, public_stream("classify", name), forest)
    assert not top[0].any()
    rows = np.concatenate([level.reshape(COPIES, -1) for level in top[1:]], axis=1)
    seen, n = np.unique(rows, axis=0, return_counts=True)
    return Counter({tuple(map(bool, row)): int(k) for row, k in zip(seen, n, strict=True)})


def algorithm_1(
    tree: UniformTree, weights: list[np.ndarray], parameters: Classification, stream: RandomStream
) -> set[tuple[int, int]]:
    """Algorithm 1 as printed, node by node, with the noise in the order in which it needs it."""
    c = math.ceil(parameters.root_bound / ((1 - parameters.alpha) * parameters.tau))
    tau, sparse = math.ceil(parameters.tau), parameters.sparse_vector
    left = {level: set(range(n)) for level, n in enumerate(tree.level_sizes)}
    noisy_tau = tau + int(sparse.threshold_law.sample(stream, 1)[0])
    tops, top = 0, set()
    for level in range(tree.height, -1, -1):
        if not left[level]:
            continue
        f = max(int(weights[level][u]) for u in left[level])
        noisy_f = f + int(sparse.query_law.sample(stream, 1)[0])
        if tops >= c or noisy_f < noisy_tau:
            sparse.threshold_law.sample(stream, 0)
            parameters.noise.sample(stream, 0)
            continue
        tops, noisy_tau = tops + 1, tau + int(sparse.threshold_law.sample(stream, 1)[0])
        nodes = sorted(left[level])
        for u, z in zip(nodes, parameters.noise.sample(stream, len(nodes)), strict=True):
            if weights[level][u] + z >= tau - parameters.error - parameters.noise.radius:
                for v_level, v in ancestors(tree, level, u):
                    top.add((v_level, v))
                    left[v_level].discard(v)
    return top


TINY = UniformTree(leaves=2, fanouts=(2,))
SMALL = UniformTree(leaves=4, fanouts=(2, 2))
HEAVY = make_classification(tau=90, root_bound=90)  # c = 2


def test_the_derived_parameters() -> None:
    assert (HEAVY.cutoff, HEAVY.error, HEAVY.noise.scale) == (2, 44, 2)
    assert HEAVY.error >= 16 * 2 / 2 * math.log(2 * 3 / 0.4) > HEAVY.error - 2
    paper = 2 * math.log(1 + 2 * (math.exp(1 / 2) - 1) / (1 / 20))  # R as printed
    assert HEAVY.noise.radius < paper
    assert HEAVY.noise.delta(Fraction(1, 2)) <= Fraction(1, 40)
    assert HEAVY.acceptance == 90 - 44 - HEAVY.noise.radius
    assert HEAVY.acceptance > HEAVY.noise.radius


@settings(max_examples=60, deadline=None)
@given(
    fanouts=st.lists(st.integers(2, 4), min_size=0, max_size=2),
    data=st.data(),
    seed=st.integers(0, 10**6),
)
def test_it_is_algorithm_1_line_by_line(fanouts: list[int], data: st.DataObject, seed: int) -> None:
    cells = math.prod(fanouts)
    low = cells // fanouts[0] + 1 if fanouts else 1
    tree = UniformTree(leaves=data.draw(st.integers(low, cells)), fanouts=tuple(fanouts))
    counts = data.draw(st.lists(st.integers(0, 120), min_size=tree.leaves, max_size=tree.leaves))
    weights = tree_weights(tree, np.array(counts))
    parameters = make_classification(tau=90, root_bound=data.draw(st.sampled_from([90, 250])))
    expected = algorithm_1(tree, weights, parameters, public_stream("line", seed))
    top = classify(tree, weights, parameters, public_stream("line", seed))
    assert {(level, u) for level, u in ids(tree) if top[level][u]} == expected


@pytest.mark.parametrize("epsilon", [1, 40])
def test_the_classification_is_right_when_accuracy_is_proved(epsilon: int) -> None:
    tau = 1

    def proved() -> Classification | None:
        parameters = make_classification(tau=tau, root_bound=4 * tau, epsilon=epsilon)
        parameters = replace(parameters, eta=Fraction(1, 10**9))
        needed = parameters.error + 2 * parameters.noise.radius
        return parameters if needed <= parameters.alpha * tau else None

    while (parameters := proved()) is None:
        tau *= 2
    parameters.check_accuracy()
    tree = UniformTree(leaves=4, fanouts=(2, 2))
    heavy, light = math.ceil(1.5 * tau), math.ceil(0.5 * tau) - 1
    for trial in range(20):
        weights = tree_weights(tree, np.array([heavy, light, 0, light // 2]))
        top = classify(tree, weights, parameters, public_stream("accurate", epsilon, trial))
        assert top[0][0] and top[1].tolist() == [True, False]
        assert top[2].tolist() == [True, False, False, False]


@pytest.mark.parametrize(
    ("tree", "counts", "tau", "root_bound"),
    [
        (TINY, (39, 80), 90, 90),  # c = 2, acceptance 41, R = 5
        (TINY, (42, 44), 90, 90),
        (SMALL, (38, 42, 80, 0), 90, 90),
        (SMALL, (70, 74, 150, 64), 170, 340),  # c = 4, acceptance 72, R = 10
    ],
)
def test_a_forest_follows_the_exact_law(
    tree: UniformTree, counts: tuple[int, ...], tau: int, root_bound: int
) -> None:
    parameters = make_classification(tau=tau, root_bound=root_bound)
    law = exact_law(tree, counts, parameters)
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-12)
    assert sum(p > 1e-3 for p in law.values()) >= 3
    assert p_value(observed(tree, counts, parameters, repr(counts)), law) > FALSE_ALARM


def test_an_audit_finds_planted_errors() -> None:
    seen = observed(TINY, (39, 80), HEAVY, "audit")
    assert p_value(seen, exact_law(TINY, (39, 80), HEAVY)) > FALSE_ALARM
    for planted in (
        {"noise_factor": 0.7},
        {"threshold_shift": 1},
        {"threshold_shift": -1},
        {"budget_factor": 2.0},
    ):
        law = exact_law(TINY, (39, 80), HEAVY, **planted)  # type: ignore[arg-type]
        assert p_value(seen, law) < FALSE_ALARM, planted


def neighbors(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(n + (i == place) for i, n in enumerate(counts)) for place in range(len(counts))]


@for_each("epsilon", [Fraction(1, 2), 2, 6])
@for_each("factor", [1, 2])
def test_all_outputs_of_neighbours_keep_epsilon_and_delta(epsilon: object, factor: int) -> None:
    start = make_classification(tau=1, root_bound=factor, epsilon=epsilon)
    # A node is found heavy from `edge` on, up to R more or less.
    edge = start.noise.radius + 20
    tau = start.error + start.noise.radius + edge
    parameters = make_classification(tau=tau, root_bound=factor * tau, epsilon=epsilon)
    low = edge - start.noise.radius
    assert (parameters.cutoff, parameters.acceptance) == (2 * factor, edge)
    worst = 0.0
    for counts in ((low - 1, 3 * tau), (low - 1, 0), (tau, low), (edge, edge - 1), (0, 0)):
        law = exact_law(TINY, counts, parameters)
        for moved in neighbors(counts):
            other = exact_law(TINY, moved, parameters)
            for one, two in ((law, other), (other, law)):
                worst = max(worst, hockey_stick(one, two, float(parameters.epsilon)))
    # Of the c looks that share delta one is used here, almost surely.
    assert 0.1 / factor < worst / float(parameters.delta) <= 1


def with_noise(parameters: Classification, noise: TruncatedLaplace) -> Classification:
    """The same thresholds and search, but other noise at the nodes."""
    planted = replace(parameters)
    planted.__dict__.update(
        noise=noise, error=parameters.error + parameters.noise.radius - noise.radius
    )
    return planted


def test_the_enumeration_finds_a_radius_that_is_too_small() -> None:
    """delta is used up where a sibling makes the level TOP and one row makes a node reachable."""
    parameters = make_classification(tau=400, root_bound=200 * 2, delta=Fraction(1, 10**4))
    radius = parameters.noise.radius

    def spent(noise: TruncatedLaplace) -> float:
        edge = parameters.acceptance - noise.radius
        planted = with_noise(parameters, noise)
        laws = [exact_law(TINY, (n, 4000), planted) for n in (edge - 1, edge)]
        return hockey_stick(laws[1], laws[0], float(parameters.epsilon)) / float(parameters.delta)

    # The level takes one of the two looks that delta is shared by.
    assert 0.25 < spent(parameters.noise) <= 0.5
    small = TruncatedLaplace(scale=parameters.noise.scale, radius=round(0.7 * radius))
    assert spent(small) > 1
    # The radius of Algorithm 1 as printed leaves half of delta unused.
    printed = math.ceil(2 * math.log(1 + 2 * (math.exp(1 / 2) - 1) * 10**4))
    assert spent(TruncatedLaplace(scale=parameters.noise.scale, radius=printed)) <= 0.25


def test_remaining_trees_are_whole_subtrees_of_bottom_nodes() -> None:
    tree = UniformTree(leaves=11, fanouts=(3, 2, 2))
    rng = np.random.default_rng(5)
    for _ in range(50):
        top = [rng.random(n) < 0.2 for n in tree.level_sizes]
        for level in range(tree.height - 1, -1, -1):
            top[level] |= tree.child_sum(level, top[level + 1].astype(np.int64)) > 0
        found = remaining_trees(tree, whole_tree(tree), top)
        roots: dict[int, tuple[int, int]] = {}
        for level, node in ids(tree):
            owner = int(found[level][node])
            assert (owner < 0) == bool(top[level][node])
            if owner >= 0:
                root = roots.setdefault(owner, (level, node))
                assert root in ancestors(tree, level, node)
                parent = ancestors(tree, level, node)[1:2]
                assert (root == (level, node)) == (
                    not parent or bool(top[parent[0][0]][parent[0][1]])
                )
        assert sorted(roots) == list(range(len(roots)))


def test_nothing_is_drawn_where_no_node_can_be_heavy() -> None:
    parameters = make_classification(tau=90, root_bound=89)
    stream = public_stream("trivial")
    top = classify(TINY, tree_weights(TINY, np.array([500, 500])), parameters, stream)
    assert not any(level.any() for level in top)
    assert stream.bytes(8) == public_stream("trivial").bytes(8)


@for_each(
    ("make", "message"),
    [
        (lambda: replace(HEAVY, depth=0), "depth is 0"),
        (lambda: replace(HEAVY, root_bound=Fraction(0)), "root_bound is 0"),
        (lambda: replace(HEAVY, eta=Fraction(1, 2)), "eta is 1/2"),
        (lambda: replace(HEAVY, alpha=Fraction(1)), "alpha is 1"),
        (lambda: replace(HEAVY, tau=Fraction(-1)), "tau is -1"),
        (lambda: replace(HEAVY, epsilon=Fraction(0)), "epsilon is 0"),
        (lambda: replace(HEAVY, delta=Fraction(0)), "delta is 0"),
        (lambda: HEAVY.check_accuracy(), "Delta \\+ 2 R"),
        (lambda: tree_weights(TINY, np.array([1, -1])), "negative"),
        (lambda: tree_weights(TINY, np.array([2**40, 1])), "sum"),
        (lambda: tree_weights(TINY, np.array([1.0, 2.0])), "int64"),  # type: ignore[arg-type]
        (lambda: tree_weights(TINY, np.array([1, 2, 3])), "every leaf"),
        (
            lambda: classify(
                TINY, tree_weights(TINY, np.array([1, 2])), replace(HEAVY, depth=1), public_stream()
            ),
            "depth is 1; the tree has 2",
        ),
    ],
)
def test_bad_arguments_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
