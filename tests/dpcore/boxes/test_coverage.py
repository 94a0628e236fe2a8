"""Measured coverage of the intervals of partitions, draw by draw: what a stated confidence holds.

Of nodes that are there by plan coverage is at least nominal. Nodes that are looked at because their
noisy counts were large are biased by that, and so is the largest of many, as of any noisy counts:
here only that their errors are about as large as docs/synthetic.md says.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from dptrees.dpcore.boxes.partition import CodeCounts, Estimates, NodeNoise, Nodes
from dptrees.dpcore.boxes.parts import interval, standard_margin
from dptrees.dpcore.boxes.plan import EstimatedTree
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.unit import Measure
from tests.dpcore.boxes.boxes import box_domain, draw_rows, plan_question

FALSE_ALARM = 1e-6
BOX = box_domain(16, 16)
ROWS = draw_rows(BOX, 2000)
COLUMNS = {name: ROWS.column(name) for name in ROWS.schema.names}
CODES, COUNTS = np.unique(BOX.codes(COLUMNS), return_counts=True)
EXACT = CodeCounts.from_codes(BOX.bits, CODES, COUNTS)


@cache
def exact_at(depth: int) -> CodeCounts:
    nodes, places = np.unique(CODES >> np.uint64(BOX.bits - depth), return_inverse=True)
    counts = np.zeros(len(nodes), np.int64)
    np.add.at(counts, places, COUNTS)
    return CodeCounts.from_codes(depth, nodes, counts)


class WiderNoise(NodeNoise):
    """Planted: noise 30 % wider than stated."""

    def at(self, level: int, depth: int, nodes: Nodes) -> Estimates:
        found = super().at(level, depth, nodes)
        exact = self.counts.at(depth, nodes)
        return Estimates(exact + 1.3 * (found.estimate - exact), found.variance)


def grown(
    question: HypercubeQuestion,
    draw: int,
    noise_class: type[NodeNoise] = NodeNoise,
    counts: CodeCounts | None = None,
) -> EstimatedTree:
    source = NoiseSource(
        key=ReleaseKey(bytes(32)),
        release="coverage",
        spec_digest=b"",
        global_digest=b"",
        nonce=draw.to_bytes(8, "big"),
    )
    plan = question.plan
    exact = counts or exact_at(plan.depths[-1])
    return plan.estimated(BOX, noise_class(tree="box", counts=exact, laws=plan.laws, source=source))


def held(
    question: HypercubeQuestion,
    confidence: float,
    *,
    draws: int,
    noise_class: type[NodeNoise] = NodeNoise,
) -> tuple[np.ndarray, np.ndarray]:
    """How often the interval of each node of the first measured level held the truth, of some
    draws; and that without the half row."""
    plan = question.plan
    truth = EXACT.at(plan.depths[1], np.arange(2 ** plan.depths[1], dtype=np.uint64))
    margin = standard_margin(plan.measure, confidence)
    own = np.zeros((2, len(truth)), np.int64)
    for draw in range(draws):
        found = grown(question, draw, noise_class).estimates[1]
        error = np.sqrt(found.variance)
        low, high = interval(found.estimate, error, margin, np.inf)
        own[0] += (low <= truth) & (truth <= high)
        own[1] += np.abs(found.estimate - truth) <= margin * error
    return own[0], own[1]


def least(confidence: float, nodes: int, draws: int) -> float:
    """Fewer of the draws of any of so many nodes are a coverage below nominal."""
    return float(stats.binom.ppf(FALSE_ALARM / nodes, draws, confidence))


MEASURES = {Measure.EPSILON: Fraction(1), Measure.RHO: Fraction(1, 2)}


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("measure", Measure)
def test_one_level_covers_though_its_noise_is_whole(measure: Measure, confidence: float) -> None:
    """Laplace noise of scale 1, Gaussian noise of sigma 1; at 95 % not so without the half row."""
    draws = 3000 if confidence == 0.95 else 1000
    question = plan_question(BOX, depth=3, measure=measure, amount=MEASURES[measure], bits_apart=3)
    own, planted = held(question, confidence, draws=draws)
    assert own.min() >= least(confidence, 8, draws)
    if confidence == 0.95:
        assert planted.min() < least(confidence, 8, draws)


@pytest.mark.parametrize(("measure", "most"), [(Measure.EPSILON, 1), (Measure.RHO, 64)])
def test_nodes_of_the_first_level_are_covered_where_others_grow(
    measure: Measure, most: int
) -> None:
    """Below them the partition grows by their noise; noise 30 % wider than stated is seen."""
    question = plan_question(
        BOX, depth=8, measure=measure, amount=MEASURES[measure] / 9, bits_apart=3, most=most
    )
    assert question.plan.depths == (0, 2, 5, 8)
    assert held(question, 0.95, draws=1000)[0].min() >= least(0.95, 4, 1000)
    wider = held(question, 0.95, draws=1000, noise_class=WiderNoise)[0]
    assert wider.min() < least(0.95, 4, 1000)


def test_the_whole_tree_is_unbiased_where_nothing_is_chosen() -> None:
    """Least squares of all nodes: mean 0, mean square 1 in standard errors, level by level."""
    draws = 1000
    question = plan_question(
        BOX, depth=6, amount=Fraction(1, 3), bits_apart=2, most=64, split_errors=0.0
    )
    errors: dict[int, list[np.ndarray]] = {}
    for draw in range(draws):
        found = grown(question, draw)
        for level, own in zip(found.tree.levels, found.estimates, strict=True):
            truth = EXACT.at(level.depth, level.nodes)
            errors.setdefault(level.depth, []).append(
                (own.estimate - truth) / np.sqrt(own.variance)
            )
    for depth, parts in errors.items():
        z = np.array(parts)
        assert z.shape == (draws, 2**depth)
        limit = stats.norm.isf(FALSE_ALARM / 2 / z.shape[1])
        assert np.abs(z.mean(axis=0)).max() < limit / np.sqrt(draws)
        spread = (z**2).std(axis=0) / np.sqrt(draws)
        assert (np.abs((z**2).mean(axis=0) - 1) < 1.3 * limit * spread).all()
        # 30 % more or less would be seen over all nodes of the level together.
        if depth == 6:
            pooled = (z**2).mean(axis=1)
            margin = limit * pooled.std() / np.sqrt(draws)
            assert abs(pooled.mean() - 1) < margin < 0.3


def test_what_growth_chooses_is_not_far_off() -> None:
    """Sanity: over all nodes of a level the bias is a small part of a standard error."""
    question = plan_question(BOX, depth=8, amount=Fraction(1, 2), bits_apart=4, most=64)
    chosen, every = [], []
    for draw in range(300):
        found = grown(question, draw)
        level, own = found.tree.levels[1], found.estimates[1]
        truth = EXACT.at(level.depth, level.nodes)
        z = (own.estimate - truth) / np.sqrt(own.variance)
        every.append(z.mean())
        chosen.append(z[~found.tree.leaves()[1]].mean())
    assert abs(np.mean(every)) < 0.1
    assert -0.1 < np.mean(chosen) < 0.5
