"""Objectives: read back as they were, equal where they request the same, and what they refuse."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.planner import plan_tree, predicted_error
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.objectives import (
    CdfObjective,
    CountObjective,
    Guess,
    NodeObjective,
    Objective,
    QuantileObjective,
    RangeObjective,
)
from dptrees.dpcore.uniform.plan import TreePlan
from dptrees.dpcore.uniform.prefix_errors import TreeBatch
from tests.dpcore.cases import for_each
from tests.dpcore.tree_settings import ROWS, tree_plan, tree_setting

GUESSES = (Guess(stop=3, density=2.5), Guess(stop=9, density=0.125))
OBJECTIVES: list[Objective] = [
    CdfObjective(),
    CountObjective(),
    QuantileObjective(quantiles=(0.5,)),
    QuantileObjective(quantiles=(0.0, 0.1, 1.0)),
    QuantileObjective(quantiles=(0.25, 0.75), guesses=GUESSES),
    RangeObjective(),
    RangeObjective(widths=(1,)),
    RangeObjective(widths=(7, 2)),
    NodeObjective(weights=(1.0, 0.0, 2.5)),
]


@for_each("objective", OBJECTIVES)
def test_a_specification_is_read_back(objective: Objective) -> None:
    for spec in (objective.spec(), json.loads(json.dumps(objective.spec()))):
        again = Objective.from_spec(spec)
        assert again == objective and hash(again) == hash(objective)
        assert type(again) is type(objective) and again.spec() == objective.spec()
        assert (again.reads, again.unit) == (objective.reads, objective.unit)


def test_objectives_of_different_queries_differ() -> None:
    """Check that objectives differ as values and in their specifications; numbers of another type
    make the same objective."""
    texts = {json.dumps(objective.spec(), sort_keys=True) for objective in OBJECTIVES}
    assert len(texts) == len(set(OBJECTIVES)) == len(OBJECTIVES)
    assert len({NodeObjective(weights=(1, 0)), NodeObjective(weights=(1.0, 0.0))}) == 1
    assert RangeObjective(widths=(2, 7)) != RangeObjective(widths=(7, 2))


def test_objectives_travel_with_a_release(make_question: Any, make_release_plan: Any) -> None:
    for objective in OBJECTIVES:
        plan = make_release_plan(make_question(objective=objective))
        again = plan_from_spec(json.loads(json.dumps(plan.spec())))
        assert again == plan and again.questions[0].mechanism.objective == objective


def test_errors_have_a_unit_and_name_their_queries() -> None:
    for objective in OBJECTIVES:
        guessed = isinstance(objective, QuantileObjective) and bool(objective.guesses)
        assert objective.unit == ("cells" if guessed else "rows")
    assert len({objective.reads for objective in OBJECTIVES}) == 8  # any two lists of quantiles
    assert RangeObjective(widths=(7, 2)).reads == "ranges of 7, 2 cells"


@for_each(
    ("make", "fields", "message"),
    [
        (QuantileObjective, {"quantiles": ()}, "quantiles: there are none"),
        (QuantileObjective, {"quantiles": (0.5, 1.5)}, r"quantiles: 1\.5 is not between 0 and 1"),
        (QuantileObjective, {"quantiles": (-0.1,)}, r"quantiles: -0\.1 is not between"),
        (QuantileObjective, {"quantiles": (math.nan,)}, "quantiles: nan is not between"),
        (
            QuantileObjective,
            {"quantiles": (0.5,), "guesses": GUESSES},
            "guesses: 2 of them for 1 quantiles",
        ),
        (RangeObjective, {"widths": (3, 0)}, "widths: 0 is not a whole number of leaves above 0"),
        (RangeObjective, {"widths": (-1,)}, "widths: -1 is not"),
        (RangeObjective, {"widths": (1.5,)}, r"widths: 1\.5 is not"),
        (RangeObjective, {"widths": (True,)}, "widths: True is not"),
        (RangeObjective, {"widths": ("7",)}, "widths: '7' is not"),
        (NodeObjective, {"weights": ()}, "level_weights: at least one must be above 0"),
        (NodeObjective, {"weights": (0.0, 0.0)}, "level_weights: at least one must be above 0"),
        (NodeObjective, {"weights": (1.0, -0.5)}, r"level_weights: -0\.5 is not a number from 0"),
        (NodeObjective, {"weights": (1.0, math.nan)}, "level_weights: nan is not a number from 0"),
        (NodeObjective, {"weights": (math.inf,)}, "level_weights: inf is not a number from 0"),
        (Guess, {"stop": 3, "density": 0.0}, r"density: 0\.0 is not a positive number of rows"),
        (Guess, {"stop": 3, "density": -2.0}, r"density: -2\.0 is not a positive"),
        (Guess, {"stop": 3, "density": math.nan}, "density: nan is not a positive"),
        (Guess, {"stop": 3, "density": math.inf}, "density: inf is not a positive"),
    ],
)
def test_refuses(make: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        make(**fields)


@for_each("kind", ["median", "", None, 3])
def test_refuses_a_kind_that_there_is_not(kind: object) -> None:
    with pytest.raises(
        ValueError, match=r"^kind is .*; it must be one of cdf, counts, nodes, quantiles, ranges$"
    ):
        Objective.from_spec({"kind": kind})


def make_plan(fanouts: tuple[int, ...] = (3, 4)) -> TreePlan:
    amounts = (Fraction(1, 5), *[Fraction(4, 5) / len(fanouts)] * len(fanouts))
    return tree_plan(11, fanouts, amounts)


def test_errors_of_one_plan_agree_for_the_same_queries() -> None:
    plan = make_plan()
    cdf = predicted_error(plan, CdfObjective())
    # Every prefix is a rank with nothing taken off; all of the total is left at quantile 0.
    assert predicted_error(plan, QuantileObjective(quantiles=(0.0,))) == pytest.approx(cdf)
    # A range of all leaves is the root, ranges of one leaf are the leaves.
    whole, leaf = (predicted_error(plan, RangeObjective(widths=(n,))) for n in (11, 1))
    root, leaves = (
        predicted_error(plan, NodeObjective(weights=weights)) for weights in ((1, 0, 0), (0, 0, 1))
    )
    assert whole == pytest.approx(root) and leaf == pytest.approx(leaves)
    assert predicted_error(plan, CountObjective()) == pytest.approx(leaf)
    # Each width weighs the same, and only the ratio of weights counts.
    both = predicted_error(plan, RangeObjective(widths=(1, 11)))
    assert both**2 == pytest.approx((whole**2 + leaf**2) / 2)
    mixed = predicted_error(plan, NodeObjective(weights=(1, 0, 1)))
    assert mixed**2 == pytest.approx((root**2 + leaves**2) / 2)
    assert predicted_error(plan, NodeObjective(weights=(0.2, 0, 0.2))) == pytest.approx(mixed)


def test_all_ranges_are_the_ranges_of_every_width_by_their_number() -> None:
    plan = make_plan()
    each = [predicted_error(plan, RangeObjective(widths=(n,))) ** 2 for n in range(1, 12)]
    expected = np.average(each, weights=np.arange(11, 0, -1))
    assert predicted_error(plan, RangeObjective()) ** 2 == pytest.approx(float(expected))


def test_guesses_weigh_by_density() -> None:
    """Half the density, twice the error in cells; the mean over the quantiles is of squares."""
    plan = make_plan()

    def error(*guesses: Guess) -> float:
        quantiles = (0.25, 0.75)[: len(guesses)]
        return predicted_error(plan, QuantileObjective(quantiles=quantiles, guesses=guesses))

    one = error(Guess(stop=5, density=4.0))
    assert error(Guess(stop=5, density=2.0)) == pytest.approx(2 * one)
    both = error(Guess(stop=5, density=4.0), Guess(stop=8, density=1.0))
    other = predicted_error(
        plan, QuantileObjective(quantiles=(0.75,), guesses=(Guess(stop=8, density=1.0),))
    )
    assert both**2 == pytest.approx((one**2 + other**2) / 2)


def test_levels_and_widths_must_be_the_tree_s() -> None:
    with pytest.raises(ValueError, match=r"^level_weights: 2 of them for 3 levels"):
        predicted_error(make_plan(), NodeObjective(weights=(1, 1)))
    with pytest.raises(ValueError, match=r"^widths: 12 is more than the 11 leaves"):
        predicted_error(make_plan(), RangeObjective(widths=(3, 12)))


def test_of_very_many_guesses_some_are_searched_that_stand_for_all() -> None:
    """With densities at which the errors rise evenly with the quantiles, those that lie too far to
    one side have other errors on average."""
    leaves = 4000
    guesses = tuple(
        Guess(stop=stop, density=math.sqrt(1 - stop / leaves)) for stop in range(1, leaves)
    )
    quantiles = tuple(stop / leaves for stop in range(1, leaves))
    objective = QuantileObjective(quantiles=quantiles, guesses=guesses)
    batch, precisions = TreeBatch(leaves=leaves, fanouts=((leaves,),)), np.array([[0.0, 1.0]])
    (parts,) = objective.searched_parts(batch, precisions, 1)
    (whole,) = objective.variance(batch, precisions)
    assert parts.sum() == pytest.approx(whole, rel=2e-3)


@pytest.mark.parametrize("stop", [-1, 12])
def test_guesses_must_be_boundaries_of_the_tree(stop: int) -> None:
    objective = QuantileObjective(quantiles=(0.5,), guesses=(Guess(stop=stop, density=1.0),))
    with pytest.raises(ValueError, match=r"^(stop|guess)"):
        predicted_error(make_plan(), objective)


def test_a_search_approximates_what_is_predicted() -> None:
    """Ranges of a width are searched at a few of their places: near enough to rank plans."""
    objective = RangeObjective(widths=(5, 60))
    setting = tree_setting(300)
    own = plan_tree(setting, objective=objective)
    other = plan_tree(setting)
    assert predicted_error(own, objective) < predicted_error(other, objective)
    assert objective.is_costly and not CdfObjective().is_costly


def test_a_search_looks_at_a_few_of_many_places_and_weighs_them_alike() -> None:
    batch = TreeBatch(leaves=4096, fanouts=((16, 16, 16),))
    precisions = np.array([[0.5, 1.0, 2.0, 1.0]])
    many = RangeObjective(widths=tuple(range(1, 4097, 7)))
    guesses = tuple(Guess(stop=13 * place, density=2.0) for place in range(300))
    ranks = QuantileObjective(quantiles=(0.5,) * 300, guesses=guesses)
    for objective in (many, ranks):
        searched = objective.searched_parts(batch, precisions, 128).sum()
        assert searched == pytest.approx(objective.variance(batch, precisions)[0], rel=0.2)
    few = RangeObjective(widths=(3, 4000))  # all 97 places of the second are looked at
    searched = few.searched_parts(batch, precisions, 2**14).sum()
    assert searched == pytest.approx(few.variance(batch, precisions)[0], rel=1e-12)


@pytest.mark.parametrize("measure", list(Measure))
@pytest.mark.parametrize("leaves", [1, 2, 3, 7, 16, 41, 300])
def test_counts_are_best_measured_alone(measure: Measure, leaves: int) -> None:
    """All of the budget on the leaves; and no tree of a few levels is better."""
    setting = tree_setting(leaves, ROWS, measure)
    counts = CountObjective()
    plan = plan_tree(setting, objective=counts)
    flat = TreePlan.from_amounts(setting, *_flat(leaves))
    assert plan == flat
    assert predicted_error(plan, counts) == pytest.approx(flat.variances[-1] ** 0.5)
    for fanout in (2, 3):
        height = next(h for h in range(12) if fanout**h >= leaves)
        if height > 1:
            tree = UniformTree(leaves=leaves, fanouts=(fanout,) * height)
            shares = (Fraction(0), *[Fraction(1, height)] * height)
            assert predicted_error(
                TreePlan.from_amounts(setting, tree, shares), counts
            ) > predicted_error(plan, counts)


def _flat(leaves: int) -> tuple[UniformTree, tuple[Fraction, ...]]:
    fanouts = (leaves,) if leaves > 1 else ()
    return UniformTree(leaves=leaves, fanouts=fanouts), (*[Fraction(0)] * len(fanouts), Fraction(1))
