"""Choice of the pairs that are measured: a forest of pairs far from independence.

One pair after the other is chosen by the exponential mechanism, among the pairs that join two trees
of the forest so far; or none, whose score is 0, and then no more are. The score of a pair, in whole
rows, is

    || x - m ||_1 - s cells / 2

where x are its exact counts in groups (`dpcore.marginals.groups`), m the rounded counts that the
released counts of its columns predict if they are independent, and s the mean size of the noise of
a cell. Half of the noise is subtracted: at that distance measuring a pair begins to pay.

The weight of a score is exp(-rate (largest score - score)), at least `FLOOR`, rounded to less than
2^-45 of itself; see `dpcore.marginals.plan` for the rate. Rounding is as if every score were off by
2^-45 / rate, for both neighbors, by permute-and-flip as by the exponential mechanism: a loss of
4 x 2^-45, which `SLACK` pays for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpcore.arrays import Floats, Integers
from dpcore.exponential.choice import flipped, weighed
from dpcore.exponential.weights import FLOOR, cached_weights
from dpcore.marginals.groups import group_sums, grouped_table
from dpcore.marginals.plan import MarginalsPlan
from dpcore.marginals.shape import Pair
from dpcore.noise.randomness import RandomStream


def table_distance(counts: Integers, predicted: Integers) -> int:
    """The L1 distance of exact counts from a public table of whole numbers, in rows.

    `dpcore.privacy.sensitivity.distance_sensitivity` bounds how far it moves.
    """
    return int(np.abs(counts - predicted).sum())


def independence_score(
    counts: Integers,
    groups: tuple[Integers, Integers],
    estimates: tuple[Floats, Floats],
    rows: float,
    noise: float,
) -> int:
    """The score of a pair: its distance from independence, less half of the noise.

    Args:
        counts: (n_i, n_j) exact.
        groups: of the cells of both columns.
        estimates: of the counts of both columns, which are public.
        rows: their sum.
        noise: the mean size of the noise of a cell, in rows.
    """
    first, second = (group_sums(*each) for each in zip(estimates, groups, strict=True))
    predicted = np.rint(first[:, np.newaxis] * (second / rows)).astype(np.int64)
    return table_distance(grouped_table(counts, *groups), predicted) - int(
        predicted.size * noise / 2
    )


def choose_forest(
    scores: dict[Pair, int], plan: MarginalsPlan, stream: Callable[[int], RandomStream]
) -> list[Pair]:
    """The chosen pairs in their order, at most `plan.most_pairs`; they have no circle.

    Args:
        scores: of all pairs, exact.
        plan: rates of the choices.
        stream: of the choice of a number, from 0.
    """
    trees = list(range(plan.shape.columns))
    chosen: list[Pair] = []
    for number in range(plan.most_pairs):
        open_pairs = [pair for pair in plan.shape.pairs if trees[pair[0]] != trees[pair[1]]]
        values = np.array([*(scores[pair] for pair in open_pairs), 0], np.int64)
        place = choose_score(values, plan, stream(number))
        if place == len(open_pairs):
            break
        chosen.append(open_pairs[place])
        kept, joined = (trees[column] for column in open_pairs[place])
        trees = [kept if tree == joined else tree for tree in trees]
    return chosen


def choose_score(scores: Integers, plan: MarginalsPlan, stream: RandomStream) -> int:
    """The place of a score, chosen by permute-and-flip or the exponential mechanism.

    Args:
        scores: (n,) exact.
        plan: its rate.
        stream: of this choice.
    """
    weights = cached_weights(plan.choice_rate).at(scores.max() - scores)
    choose = flipped if plan.flips else weighed
    return choose(np.maximum(weights, FLOOR), stream).number
