"""What a public guess of the rows chooses of a hierarchy: when every node is split all the same."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pyarrow as pa
import pytest

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes
from dptrees.dpcore.levels.hierarchy import HierarchyWorkload
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES
from tests.dpcore.adaptive_hierarchies import DOMAIN


def requested(domain: HierarchyDomain, *, is_open: bool) -> HierarchyWorkload:
    """Workload for a tree of few rows, whose nodes are better not split."""
    mechanism = "planned" if is_open else "adaptive"
    return HierarchyWorkload(name="t", domain=domain, mechanism=mechanism, guessed_rows=3.0)


def setting(epsilon: Fraction = Fraction(1)) -> Setting:
    budget = Budget(measure=Measure.EPSILON, amount=epsilon)
    return Setting(unit=ADD_REMOVE_ROW, budget=budget)


@cache
def broad() -> HierarchyDomain:
    """One node with more children than a chunk has leaves."""
    codes = pa.array([f"{number:07}" for number in (*range(CHUNK_LEAVES + 1), 10**6)])
    return HierarchyDomain(
        universe=universe_from_codes(codes, (1, 6), levels=("group", "block")), columns=("code",)
    )


def test_a_tree_that_cannot_be_cut_splits_every_node_where_that_is_open() -> None:
    assert isinstance(
        requested(broad(), is_open=True).planned(setting()).mechanism, IrregularMechanism
    )
    with pytest.raises(Refusal, match="needs a level between") as refused:
        requested(broad(), is_open=False).planned(setting())
    assert refused.value.field == "domain"


def test_so_does_one_whose_decisions_would_have_too_much_noise() -> None:
    for epsilon, kind in (
        (1, AdaptiveMechanism),
        (6e-12, IrregularMechanism),
    ):
        found = requested(DOMAIN, is_open=True).planned(setting(Fraction(epsilon)))
        assert isinstance(found.mechanism, kind)
    with pytest.raises(ValueError, match="scale is"):
        requested(DOMAIN, is_open=False).planned(setting(Fraction(6e-12)))
