"""What a public guess of the rows chooses of a hierarchy: when every node is split all the same."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from dptrees.dpcore.adaptive.hierarchy_planner import AdaptiveHierarchy
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes
from dptrees.dpcore.hierarchy.question import HierarchyWorkload
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import ReleaseTerms, Share, Workload
from dptrees.dpcore.release.mechanism_choice import MechanismChoice
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES
from tests.dpcore.adaptive_hierarchies import DOMAIN

TERMS = ReleaseTerms(unit=ADD_REMOVE_ROW)


def requested(domain: HierarchyDomain, *, is_open: bool) -> Workload[Any]:
    """Workload for a tree of few rows, whose nodes are better not split."""
    adaptive = HierarchyWorkload(
        name="t", domain=domain, candidate=AdaptiveHierarchy(guessed_rows=3.0)
    )
    if not is_open:
        return adaptive
    whole = HierarchyWorkload(name="t", domain=domain)
    return MechanismChoice(name="t", whole=whole, adaptive=adaptive, guessed_rows=3.0)


def share(epsilon: Fraction = Fraction(1)) -> Share:
    return Share(budget=Budget(measure=Measure.EPSILON, amount=epsilon))


@cache
def broad() -> HierarchyDomain:
    """One node with more children than a chunk has leaves."""
    codes = pa.array([f"{number:07}" for number in (*range(CHUNK_LEAVES + 1), 10**6)])
    return HierarchyDomain(
        universe=universe_from_codes(codes, (1, 6), levels=("group", "block")), columns=("code",)
    )


def test_a_tree_that_cannot_be_cut_splits_every_node_where_that_is_open() -> None:
    assert isinstance(
        requested(broad(), is_open=True).planned(share(), TERMS).mechanism, IrregularMechanism
    )
    with pytest.raises(Refusal, match="needs a level between") as refused:
        requested(broad(), is_open=False).planned(share(), TERMS)
    assert refused.value.field == "domain"


def test_so_does_one_whose_decisions_would_have_too_much_noise() -> None:
    for epsilon, kind in (
        (1, AdaptiveMechanism),
        (6e-12, IrregularMechanism),
    ):
        found = requested(DOMAIN, is_open=True).planned(share(Fraction(epsilon)), TERMS)
        assert isinstance(found.mechanism, kind)
    with pytest.raises(ValueError, match="scale is"):
        requested(DOMAIN, is_open=False).planned(share(Fraction(6e-12)), TERMS)
