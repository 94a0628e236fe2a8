"""Measured coverage and variance of sums of nodes, by releases with the real samplers.

Each key is a tree of its own with its own noise, so what is counted are independent trials; limits
are at a false-alarm rate of 1e-6, and noise of a scale 30 % off passes them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.hierarchy.question import ReleasedHierarchy
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.answer_errors import SumError
from dptrees.dpcore.release.released import release_counts
from tests.dpcore.hierarchy_questions import all_nodes, hierarchy_question, make_release_plan
from tests.dpcore.test_coverage import limits
from tests.dpcore.tree_settings import scaled

KEYS, CONFIDENCES = 2500, (0.9, 0.95, 0.99)
# State and single county of one block; a county; two blocks of other counties.
PATHS = ("9", "14", "0100", "0112")
BUDGETS = {Measure.EPSILON: Fraction(1, 10), Measure.RHO: Fraction(1, 400)}


def sum_error(tree: ReleasedHierarchy) -> SumError:
    """The error of the sum of the nodes that `PATHS` lead to."""
    error = tree.errors.sum_of_nodes([tree.find(path) for path in PATHS], 0)
    assert isinstance(error, SumError)
    return error


def misses(measure: Measure, estimation: str) -> tuple[ReleasedHierarchy, np.ndarray[Any, Any]]:
    """The released tree, and (keys,) by how much the sum of its nodes is off under each key."""
    question = hierarchy_question(
        "digits",
        keys=[f"k{number}" for number in range(KEYS)],
        budget=Budget(measure=measure, amount=BUDGETS[measure]),
        estimation=estimation,
    )
    counts = np.random.default_rng(0).poisson(500, (KEYS, question.domain.cells))
    release = release_counts(make_release_plan(question), {"places": counts}, ReleaseKey(bytes(32)))
    tree = release.tree("places")
    assert isinstance(tree, ReleasedHierarchy)
    rows = all_nodes(release, "places").select(["key", "label", "estimate"]).to_pylist()
    found = dict.fromkeys((row["key"] for row in rows), 0.0)
    for row in rows:
        if row["label"] in PATHS:
            found[row["key"]] += row["estimate"]
    shape = question.domain.tree.shape
    leaves = [leaf for path in PATHS for leaf in shape.leaf_range(*tree.find(path))]
    assert len(found) == KEYS
    return tree, np.array([found[f"k{number}"] for number in range(KEYS)]) - counts[:, leaves].sum(
        axis=1
    )


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("estimation", ["least_squares", "none"])
@pytest.mark.parametrize("measure", list(Measure))
def test_sums_are_covered_as_often_as_stated(
    measure: Measure, estimation: str, planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (DiscreteLaplace, DiscreteGaussian) if planted else ():
        sample = kind.sample
        monkeypatch.setattr(
            kind,
            "sample",
            lambda law, *bits, sample=sample: sample(scaled(law, Fraction(13, 10)), *bits),
        )
    tree, off = misses(measure, estimation)
    within = []
    for confidence in CONFIDENCES:
        requested = tree.at_confidence(confidence)
        margin = sum_error(requested).margin
        least, most = limits(KEYS, confidence)
        within.append(least <= int((np.abs(off) <= margin).sum()) <= most)
    assert (not any(within)) if planted else all(within)


@pytest.mark.parametrize("measure", list(Measure))
def test_the_answer_is_reported_with_that_error(measure: Measure) -> None:
    tree, off = misses(measure, "least_squares")
    error = sum_error(tree)
    answer = tree.sum(PATHS, "k0")
    parts = [tree.at_path(path, "k0") for path in PATHS]
    assert answer.estimate == pytest.approx(sum(part.estimate or 0.0 for part in parts))
    assert answer.count == sum(part.count for part in parts)
    assert answer.std_error == pytest.approx(error.variance**0.5)
    assert answer.ci_high == pytest.approx((answer.estimate or 0.0) + error.margin)
    assert off.std() == pytest.approx(error.variance**0.5, rel=0.15)
