"""Choice of the pairs that are measured: those that are far from what is predicted.

One pair after the other is chosen by the exponential mechanism, among the pairs that may be added
to the graph of the chosen ones; or none, whose score is 0, and then no more are. The score of a
pair, in whole rows, is

    || x - m ||_1 - s cells / 2

where x are its exact counts in groups (`dpcore.marginals.groups`), m the rounded counts that the
released numbers predict, and s the mean size of the noise of a cell. Half of the noise is
subtracted: at that distance measuring a pair begins to pay.

The weight of a score is exp(-rate (largest score - score)), at least `FLOOR`, rounded to less than
2^-45 of itself; see `dpcore.marginals.plan` for the rate. Rounding is as if every score were off by
2^-45 / rate, for both neighbors, by permute-and-flip as by the exponential mechanism: a loss of
4 x 2^-45, which `SLACK` pays for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choice import flipped, weighed
from dptrees.dpcore.exponential.weights import FLOOR, cached_weights
from dptrees.dpcore.marginals.graph import ChordalGraph
from dptrees.dpcore.marginals.shape import Pair
from dptrees.dpcore.noise.randomness import RandomStream

# The most cells of the joint counts of a clique.
MOST_CLIQUE_CELLS = 2**18


def table_distance(counts: Integers, predicted: Integers) -> int:
    """The L1 distance of exact counts from a public table of whole numbers, in rows.

    `dpcore.privacy.sensitivity.distance_sensitivity` bounds how far it moves.
    """
    return int(np.abs(counts - predicted).sum())


def pair_score(counts: Integers, predicted: Floats, noise: float) -> int:
    """The score of a pair: its distance from what is predicted, less half of the noise.

    Args:
        counts: (g_i, g_j) exact.
        predicted: (g_i, g_j) from released numbers.
        noise: the mean size of the noise of a cell, in rows.
    """
    distance = table_distance(counts, np.rint(predicted).astype(np.int64))
    return distance - int(predicted.size * noise / 2)


def choose_pairs(
    scores: Mapping[Pair, int],
    graph: ChordalGraph,
    may_join: Callable[[Sequence[int]], bool],
    choose: Callable[[Integers, int], int],
    numbers: Sequence[int],
) -> list[Pair]:
    """The chosen pairs in their order; they are added to the graph.

    Args:
        scores: of all pairs that are not in the graph, exact.
        graph: of the pairs chosen before.
        may_join: whether some columns may be a clique.
        choose: gives the place of a score, from all scores and the number of the choice.
        numbers: of the choices.
    """
    chosen: list[Pair] = []
    for number in numbers:
        candidates = [
            pair
            for pair in scores
            if (clique := graph.new_clique(*pair)) is not None and may_join(clique)
        ]
        values = np.array([*(scores[pair] for pair in candidates), 0], np.int64)
        place = choose(values, number)
        if place == len(candidates):
            break
        chosen.append(candidates[place])
        graph.add(*candidates[place])
    return chosen


def choose_score(scores: Integers, rate: Fraction, stream: RandomStream, *, flips: bool) -> int:
    """The place of a score, chosen by permute-and-flip or the exponential mechanism.

    Args:
        scores: (n,) exact.
        rate: of the weights.
        stream: of this choice.
        flips: by permute-and-flip.
    """
    weights = cached_weights(rate).at(scores.max() - scores)
    choose = flipped if flips else weighed
    return choose(np.maximum(weights, FLOOR), stream).number


def is_small(clique: Sequence[int], cells: Sequence[int], most_columns: int) -> bool:
    """Whether some columns have few enough joint counts.

    Args:
        clique: the columns.
        cells: of each column, in a model.
        most_columns: of a clique.
    """
    joint = math.prod(cells[column] for column in clique)
    # Any two columns may: their counters are in memory anyway.
    return len(clique) <= most_columns and (len(clique) == 2 or joint <= MOST_CLIQUE_CELLS)
