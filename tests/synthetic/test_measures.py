"""benchmarks/synthetic/measures.py against brute force and closed forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

from benchmarks.synthetic import measures
from benchmarks.synthetic.grown_tree import Partition, make_partition, whole_cube
from dptrees.dpcore.arrays import Floats

SEEDS = range(8)


def line(edges: Floats, mass: Floats) -> Partition:
    """Boxes of one column between neighboring edges."""
    return Partition(lower=edges[:-1, None], upper=edges[1:, None], mass=mass)


def random_line(rng: np.random.Generator, boxes: int) -> Partition:
    inner = np.sort(rng.random(boxes - 1))
    mass = rng.exponential(size=boxes) * (rng.random(boxes) < 0.7)
    return line(np.concatenate(([0.0], inner, [1.0])), mass)


def random_nodes(rng: np.random.Generator, dimensions: int, splits: int) -> Partition:
    """A partition into nodes of the hierarchy, by splitting random leaves."""
    leaves = [(0, 0)]
    for _ in range(splits):
        code, level = leaves.pop(rng.integers(len(leaves)))
        leaves += [(2 * code, level + 1), (2 * code + 1, level + 1)]
    codes, levels = np.array(leaves).T
    mass = rng.exponential(size=len(leaves)) * (rng.random(len(leaves)) < 0.7)
    return make_partition(codes, levels, mass, dimensions)


# --- one column ---


@pytest.mark.parametrize("point", [0.0, 0.3, 0.5, 1.0])
def test_one_point_and_the_uniform_distribution(point: float) -> None:
    found = measures.line_distance(np.array([[point]]), whole_cube(1))
    assert found == pytest.approx((point**2 + (1 - point) ** 2) / 2, abs=1e-15)


def test_regular_points_and_the_uniform_distribution() -> None:
    points = (np.arange(10)[:, None] + 0.5) / 10
    assert measures.line_distance(points, whole_cube(1)) == pytest.approx(1 / 40)


@pytest.mark.parametrize("seed", SEEDS)
def test_line_distance_is_that_of_a_fine_discretisation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    partition = random_line(rng, 9)
    sample = np.round(rng.beta(2, 8, (int(rng.integers(1, 60)), 1)), 2)  # with ties
    parts = 20_000
    inside = (np.arange(parts) + 0.5) / parts
    atoms = (partition.lower + inside * (partition.upper - partition.lower)).ravel()
    weights = np.repeat(partition.probability, parts)
    expected = wasserstein_distance(sample[:, 0], atoms, v_weights=weights)
    assert measures.line_distance(sample, partition) == pytest.approx(expected, abs=1 / parts)


def test_line_distance_with_gaps_between_boxes() -> None:
    gap = Partition(
        lower=np.array([[0.0], [0.75]]), upper=np.array([[0.25], [1.0]]), mass=np.array([1.0, 1.0])
    )
    assert measures.line_distance(np.array([[0.0], [1.0]]), gap) == pytest.approx(1 / 8)


def test_line_distance_needs_one_column() -> None:
    with pytest.raises(ValueError, match="one column"):
        measures.line_distance(np.zeros((3, 2)), whole_cube(2))


# --- between samples ---


def test_sliced_distance_of_one_column_is_the_distance() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((50, 1)), rng.beta(2, 8, (70, 1))
    assert measures.sliced_distance(a, b, rng=rng) == pytest.approx(
        wasserstein_distance(a[:, 0], b[:, 0])
    )


def test_sliced_distance_of_a_shift_is_its_mean_projection() -> None:
    rng = np.random.default_rng(0)
    a = rng.random((200, 2))
    # E |cos| of a random direction in the plane is 2 / pi; 4,000 directions have an sd of .005.
    found = measures.sliced_distance(a, a + np.array([0.3, 0.4]), rng=rng, directions=4000)
    assert found == pytest.approx(0.5 * 2 / np.pi, abs=0.5 * 0.03)


@pytest.mark.parametrize("metric", measures.METRICS)
def test_transport_is_the_best_of_all_assignments(metric: str) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((6, 3)), rng.random((6, 3))
    order = {"linf": np.inf, "l1": 1, "l2": 2}[metric]
    best = min(
        np.linalg.norm(a - b[list(each)], ord=order, axis=1).mean()
        for each in itertools.permutations(range(6))
    )
    assert measures.transport_distance(a, b, metric=metric) == pytest.approx(best)


def test_transport_of_one_column_is_the_distance() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((80, 1)), rng.beta(2, 8, (80, 1))
    expected = wasserstein_distance(a[:, 0], b[:, 0])
    assert measures.transport_distance(a, b) == pytest.approx(expected)


def test_transport_refuses_other_sizes_and_too_many_points() -> None:
    with pytest.raises(ValueError, match="3 and 4"):
        measures.transport_distance(np.zeros((3, 1)), np.zeros((4, 1)))
    many = np.zeros((20_000, 1))
    with pytest.raises(ValueError, match="distances"):
        measures.transport_distance(many, many)


# --- the tree bound ---


def cells(dimensions: int, rounds: int) -> tuple[Floats, Floats]:
    """All cells of side 2^-rounds."""
    grid = np.stack(
        np.meshgrid(*[np.arange(2**rounds)] * dimensions, indexing="ij"), axis=-1
    ).reshape(-1, dimensions)
    return grid / 2**rounds, (grid + 1) / 2**rounds


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_tree_bound_is_its_formula_over_all_cells(seed: int, dimensions: int) -> None:
    rng = np.random.default_rng(seed)
    partition, sample = random_nodes(rng, dimensions, 12), rng.beta(2, 8, (40, dimensions))
    rounds = 3
    expected = 2.0**-rounds
    for level in range(1, rounds + 1):
        boxes = cells(dimensions, level)
        here = ((sample[None] >= boxes[0][:, None]) & (sample[None] < boxes[1][:, None])).all(2)
        apart = here.mean(axis=1) - measures.released_fractions(partition, boxes)
        expected += 2.0**-level * np.abs(apart).sum() / 2
    assert measures.tree_bound(sample, partition, rounds=rounds) == pytest.approx(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_tree_bound_is_above_the_distance_on_a_line(seed: int) -> None:
    rng = np.random.default_rng(seed)
    partition, sample = random_nodes(rng, 1, 30), rng.beta(2, 8, (100, 1))
    exact = measures.line_distance(sample, partition)
    assert exact <= measures.tree_bound(sample, partition)


@pytest.mark.parametrize("seed", SEEDS)
def test_tree_bound_is_above_the_transport_to_tiny_boxes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bits = 20
    corners = rng.integers(0, 2**bits, (60, 2)) / 2**bits
    tiny = Partition(lower=corners, upper=corners + 2.0**-bits, mass=np.ones(60))
    sample = rng.beta(2, 8, (60, 2))
    bound = measures.tree_bound(sample, tiny, rounds=12)
    assert measures.transport_distance(sample, corners) <= bound + 2.0**-bits


def test_tree_bound_of_a_partition_that_is_the_data_is_the_resolution() -> None:
    rng = np.random.default_rng(3)
    sample = rng.random((64, 2))
    boxes = cells(2, 4)
    inside = ((sample[None] >= boxes[0][:, None]) & (sample[None] < boxes[1][:, None])).all(2)
    same = Partition(lower=boxes[0], upper=boxes[1], mass=inside.sum(axis=1).astype(float))
    assert measures.tree_bound(sample, same, rounds=4) == pytest.approx(2.0**-4)


# --- columns and boxes ---


@pytest.mark.parametrize("seed", SEEDS)
def test_kolmogorov_smirnov_on_a_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    partition, sample = random_nodes(rng, 2, 20), np.round(rng.beta(2, 8, (50, 2)), 2)
    grid = np.unique(np.concatenate((np.linspace(0, 1, 2001), sample.ravel() - 1e-12)))
    worst = 0.0
    for column in range(2):
        low, high = partition.lower[:, column], partition.upper[:, column]
        inside = np.clip((grid[:, None] - low) / (high - low), 0, 1)
        data = (sample[:, column] <= grid[:, None]).mean(axis=1)
        worst = max(worst, np.abs(inside @ partition.probability - data).max())
    assert measures.kolmogorov_smirnov(sample, partition) == pytest.approx(worst, abs=1e-9)


def test_kolmogorov_smirnov_of_one_point_and_the_uniform_distribution() -> None:
    assert measures.kolmogorov_smirnov(np.array([[0.3]]), whole_cube(1)) == pytest.approx(0.7)


@pytest.mark.parametrize("seed", SEEDS)
def test_fractions_of_boxes_one_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "BLOCK", 64)  # several blocks
    rng = np.random.default_rng(seed)
    partition, sample = random_nodes(rng, 3, 15), rng.random((30, 3))
    boxes = measures.random_boxes(rng, 25, 3)
    expected = []
    for low, high in zip(*boxes, strict=True):
        released = 0.0
        for lower, upper, mass in zip(
            partition.lower, partition.upper, partition.probability, strict=True
        ):
            common = np.clip(np.minimum(upper, high) - np.maximum(lower, low), 0, None)
            released += mass * np.prod(common / (upper - lower))
        inside = np.mean([bool((low <= row).all() and (row <= high).all()) for row in sample])
        expected.append(abs(released - inside))
    np.testing.assert_allclose(measures.box_errors(sample, partition, boxes), expected, atol=1e-12)


def test_a_box_of_the_whole_cube_has_all() -> None:
    boxes = np.zeros((1, 2)), np.ones((1, 2))
    partition = random_nodes(np.random.default_rng(0), 2, 5)
    assert measures.released_fractions(partition, boxes) == pytest.approx([1.0])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sample_of_a_partition_is_close_to_it(seed: int) -> None:
    """Massart: sup |F - G| > t has probability below 2 exp(-2 n t^2), in each of two columns."""
    rng = np.random.default_rng(seed)
    partition, rows = random_nodes(rng, 2, 20), 20_000
    limit = np.sqrt(np.log(4 / 1e-7) / (2 * rows))
    assert measures.kolmogorov_smirnov(partition.sample(rng, rows), partition) < limit
    wrong = make_partition(np.array([0, 1]), np.array([1, 1]), np.array([0.3, 0.7]), 2)
    right = make_partition(np.array([0, 1]), np.array([1, 1]), np.array([0.35, 0.65]), 2)
    assert measures.kolmogorov_smirnov(wrong.sample(rng, rows), right) > limit


@pytest.mark.parametrize(
    ("lower", "upper", "mass", "error"),
    [
        (np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), "empty"),
        (np.zeros((1, 1)), np.ones((1, 1)), -np.ones(1), "negative"),
        (np.zeros((1, 1)), np.ones((1, 1)), np.array([np.nan]), "negative or no number"),
        (np.zeros((1, 1)), np.ones((1, 2)), np.ones(1), "shapes"),
        (np.zeros((1, 1)), np.ones((1, 1)), np.ones(2), "masses"),
    ],
)
def test_what_is_no_partition(lower: Floats, upper: Floats, mass: Floats, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        Partition(lower=lower, upper=upper, mass=mass)
