"""What the tests of adaptive hierarchies share: questions over small universes, and their
releases."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes
from dptrees.dpcore.hierarchy.question import HierarchyQuestion, ReleasedHierarchy
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.keys import KeyList
from tests.dpcore.hierarchy_questions import make_release_plan, universe_domain
from tests.dpcore.mechanisms import take_mechanism

# 4 groups of 5 codes each in 3 states, the last with a single group.
GROUPS = universe_from_codes(
    pa.array([f"{a}{b}{c}" for a in range(3) for b in range(1 if a == 2 else 4) for c in range(5)]),
    (1, 1, 1),
    levels=("state", "group", "block"),
)
DOMAIN = HierarchyDomain(universe=GROUPS, columns=("code",))


def adaptive_question(
    form: str | None = None,
    *,
    name: str = "places",
    domain: HierarchyDomain | None = None,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    budget: Budget | None = None,
    keys: Sequence[str] = (),
    public: bool = False,
    counts: bool = True,
    threshold: int = 12,
    **fields: Any,
) -> HierarchyQuestion[AdaptiveMechanism]:
    """A question whose budget is split equally, and whose thresholds are all alike."""
    domain = domain or (DOMAIN if form is None else universe_domain(form))
    budget = budget or Budget(measure=Measure.EPSILON, amount=Fraction(1))
    shape = domain.tree.shape
    share = budget.amount / (shape.height + (not public))
    plan = AdaptivePlan(
        tree=shape,
        unit=unit,
        budget=budget,
        level_amounts=(Fraction(0) if public else share,) + (share,) * shape.height,
        thresholds=(threshold,) * shape.height,
        decision_part=Fraction(0) if counts else Fraction(1, 5),
        public_total=public,
        keyed=bool(keys),
    )
    listed = KeyList(column="race", keys=tuple(keys)) if keys else None
    return HierarchyQuestion(
        name=name,
        domain=domain,
        mechanism=take_mechanism(AdaptiveMechanism, fields, plan=plan),
        keys=listed,
        **fields,
    )


def released(
    question: HierarchyQuestion[AdaptiveMechanism],
    counts: np.ndarray[Any, Any],
    seed: int = 0,
) -> ReleasedHierarchy:
    """A release of exact counts of the leaves, (keys * K,)."""
    key = ReleaseKey(seed.to_bytes(32, "big"))
    tree = release_counts(make_release_plan(question), {question.name: counts}, key).tree(
        question.name
    )
    assert isinstance(tree, ReleasedHierarchy)
    return tree
