"""Releases with shrunk counts: all tables agree, also in chunks, and a specification is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.uniform.plan import Consistency, Estimator
from tests.dpcore.mechanisms import changed
from tests.dpcore.single_questions import alone

CELLS = 500
ONE = Budget(measure=Measure.EPSILON, amount=Fraction(1))
WORKLOAD = OrderedWorkload(
    name="x",
    domain=StepDomain(
        kind="integer", column="x", lower=0, upper=CELLS, outside="clamp", missing="first"
    ),
    quantiles=(0.5, 0.9),
    fanouts=(5, 10, 10),
    consistency=Consistency.SHRUNK,
)


def make_question(
    unit: PrivacyUnit, keys: KeyList | None, chunk_leaves: int
) -> OrderedQuestion[UniformMechanism]:
    planned = replace(WORKLOAD, keys=keys).planned(Setting(unit=unit, budget=ONE))
    return replace(planned, chunk_leaves=chunk_leaves)


@pytest.mark.parametrize("chunk_leaves", [2**17, 100])
@pytest.mark.parametrize("keys", [None, KeyList(column="k", keys=("a", "b"))])
@pytest.mark.parametrize("unit", [ADD_REMOVE_ROW, SUBSTITUTE_ROW], ids=str)
def test_all_tables_agree(unit: PrivacyUnit, keys: KeyList | None, chunk_leaves: int) -> None:
    question = make_question(unit, keys, chunk_leaves)
    rows = 1 if keys is None else 2
    counts = np.random.default_rng(1).poisson(0.4, (rows, CELLS))
    plan = alone(question)
    assert plan_from_spec(json.loads(json.dumps(plan.spec()))) == plan
    tree = release_counts(plan, {"x": counts}, ReleaseKey(bytes(32))).tree("x")
    for key in (None,) if keys is None else ("a", "b"):
        whole = tree.cdf(CELLS, key)
        root, first = tree.node(0, 0, key), [tree.node(1, node, key) for node in range(5)]
        assert root.count == whole.count == sum(each.count for each in first)
        leaves = [tree.node(3, cell, key).count for cell in range(100)]
        assert sum(leaves) == tree.cdf(100, key).count == first[0].count and min(leaves) >= 0
        assert tree.quantile(0.5, key)["value"] <= tree.quantile(0.9, key)["value"]
        assert not question.public_total or root.count == counts.sum()


def test_they_are_of_efficient_estimates() -> None:
    question = make_question(ADD_REMOVE_ROW, None, 2**17)
    with pytest.raises(ValueError, match="shrunk counts are of efficient estimates"):
        changed(question, plan=replace(question.plan, estimator=Estimator.BELOW))
