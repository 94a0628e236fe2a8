"""Intervals of adaptive trees have just the width that the variances of the drawn tree give them.

Measured coverage finds intervals that are too short. These tests find those that are too long too:
at the edges of the drawn tree, ends are compared with variances of sums that another way computes.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dptrees.dpcore.adaptive.drawn_trees import DrawnTree
from dptrees.dpcore.adaptive.mechanism import quantile_ends
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Measure, PrivacyUnit
from tests.dpcore.adaptive.test_ordered import CELLS, exact, make_question, released
from tests.dpcore.mechanisms import drawn_tree


def rank_variance(drawn: DrawnTree, edge: int, quantile: float) -> float:
    """Variance of prefix - q total, for an edge of the drawn tree.

    With A the prefix, B the rest and T = A + B, Var((1 - q) A - q B) =
    (1 - q) Var A + q Var B - q (1 - q) Var T, each the variance of a sum of leaves.
    """
    prefix, rest, total = drawn.run(0, edge), drawn.run(edge, CELLS), drawn.run(0, CELLS)
    return (1 - quantile) * prefix + quantile * rest - quantile * (1 - quantile) * total


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW], ids=str)
def test_ends_of_ranks_at_edges(measure: Measure, unit: PrivacyUnit) -> None:
    question = make_question(measure=measure, unit=unit)
    tree = released(question, exact())
    drawn, widths = drawn_tree(tree), question.widths
    estimate = tree._cdf_rows(0)["estimate"].to_numpy()
    total = float(estimate[-1])
    ends = quantile_ends(
        drawn.prefixes(estimate), np.array([total]), np.array([drawn.run(0, CELLS)]), widths
    )
    edges = [int(edge) for edge in drawn.edges if 0 < edge < CELLS]
    assert len(edges) > 5
    for quantile, edge in product((0.05, 0.5, 0.9), edges):
        found = ends(quantile)
        variance = rank_variance(drawn, edge, quantile)
        middle = float(estimate[edge - 1]) - quantile * total
        for each, own in ((found.low, found.low_variance), (found.high, found.high_variance)):
            assert each[0, edge - 1] == pytest.approx(middle, abs=1e-6), edge
            assert own[0, edge - 1] == pytest.approx(variance, abs=1e-6), edge
        assert found.margin == widths.quantile


def test_ends_inside_a_node_are_those_of_its_edges() -> None:
    question = make_question()
    tree = released(question, exact())
    drawn = drawn_tree(tree)
    estimate = tree._cdf_rows(0)["estimate"].to_numpy()
    total, variance = np.array([estimate[-1]]), np.array([drawn.run(0, CELLS)])
    ends = quantile_ends(drawn.prefixes(estimate), total, variance, question.widths)
    found = ends(0.5)
    low, high = (np.concatenate([[np.nan], each[0]]) for each in (found.low, found.high))
    inside = [stop for stop in range(1, CELLS) if not drawn.is_edge(stop)]
    assert inside
    for stop in inside:
        before, after = drawn.edges_around(stop)
        assert high[stop] == pytest.approx(high[after], abs=1e-6)
        if before > 0:
            assert low[stop] == pytest.approx(low[before], abs=1e-6)


def test_intervals_of_prefixes_and_nodes_at_edges() -> None:
    question = make_question(quantiles=())
    tree = released(question, exact())
    drawn, widths = drawn_tree(tree), question.widths
    rows = tree._cdf_rows(0).to_pylist()
    for edge in (int(edge) for edge in drawn.edges if edge > 0):
        row = rows[edge - 1]
        margin = float(widths.margin(np.array(drawn.run(0, edge))))
        assert row["ci_high"] == pytest.approx(max(row["estimate"] + margin, 0.0), abs=1e-6)
        assert row["ci_low"] == pytest.approx(max(row["estimate"] - margin, 0.0), abs=1e-6)
