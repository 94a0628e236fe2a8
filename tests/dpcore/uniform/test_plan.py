"""A plan spends no more than its budget, and its laws are the guarantee's."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Estimator, TreePlan
from tests.dpcore.cases import for_each


def make_plan(*amounts: str, **fields: Any) -> TreePlan:
    given: dict[str, Any] = {
        "tree": UniformTree(leaves=6, fanouts=(2, 3)),
        "unit": ADD_REMOVE_ROW,
        "budget": Budget(measure=Measure.EPSILON, amount=Fraction(1)),
        "level_amounts": tuple(Fraction(amount) for amount in amounts),
    }
    return TreePlan(**(given | fields))


PUBLIC = {"unit": SUBSTITUTE_ROW, "public_total": True}
RHO = {"budget": Budget(measure=Measure.RHO, amount=Fraction(1))}


@for_each(
    ("amounts", "fields", "message"),
    [
        (("1/2", "1/2"), {}, "2 amounts, 3 levels"),
        (("1/2", "-1/4", "1/2"), {}, "negative"),
        (("1/2", "1/2", "1/1000000000000"), {}, "above the budget"),
        (("1/2", "1/2", "0"), {}, "leaves must be measured"),
        (("0", "1", "0"), PUBLIC, "leaves must be measured"),
        (("1/3", "1/3", "1/3"), PUBLIC, "needs no budget"),
        (("0", "1/2", "1/2"), {"public_total": True}, "only under substitute"),
        (("0", "1/2", "1/2"), {**PUBLIC, "keyed": True}, "without keys"),
    ],
)
def test_refuses(amounts: tuple[str, ...], fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_plan(*amounts, **fields)


@for_each(
    ("amounts", "fields"),
    [
        (("1/3", "1/3", "1/3"), {}),
        (("0", "1/2", "1/2"), PUBLIC),
        (("1",), {"tree": UniformTree(leaves=1, fanouts=())}),
    ],
)
def test_estimates_from_above_need_a_root_that_is_measured_or_public(
    amounts: tuple[str, ...], fields: dict[str, Any]
) -> None:
    make_plan(*amounts, **fields, estimator=Estimator.ABOVE)
    with pytest.raises(ValueError, match="estimator: above needs a root"):
        make_plan("0", "1/2", "1/2", estimator=Estimator.ABOVE)


@for_each(
    ("fields", "sizes"),
    [
        ({}, (1, 1, 1)),
        ({"keyed": True}, (1, 1, 1)),
        ({"unit": SUBSTITUTE_ROW}, (1, 2, 2)),
        ({"unit": SUBSTITUTE_ROW, "keyed": True}, (2, 2, 2)),
    ],
)
def test_every_level_s_noise_fits_its_sensitivity(
    fields: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    """A level of amount b: Laplace of scale L1 / b; Gaussian of sigma^2 = L2^2 / (2 b)."""
    amounts = ("1/6", "1/3", "1/2")
    for law, size, amount in zip(make_plan(*amounts, **fields).laws, sizes, amounts, strict=True):
        assert law == DiscreteLaplace(scale=size / Fraction(amount))
    plan = make_plan(*amounts, **fields, **RHO)
    for law, size, amount in zip(plan.laws, sizes, amounts, strict=True):
        assert law == DiscreteGaussian(sigma_squared=size / (2 * Fraction(amount)))


def test_variances_are_the_laws_own() -> None:
    plan = make_plan("0", "1/2", "1/2")
    assert plan.laws[0] is None and plan.variances[0] == math.inf
    assert plan.variances[1:] == tuple(law.variance for law in plan.laws[1:] if law)
    public = make_plan("0", "0", "1", **PUBLIC)
    assert public.variances[:2] == (0.0, math.inf)


def test_one_leaf_of_public_total_spends_nothing() -> None:
    plan = make_plan("0", tree=UniformTree(leaves=1, fanouts=()), **PUBLIC)
    assert plan.laws == (None,) and plan.variances == (0.0,)
