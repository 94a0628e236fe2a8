"""Releases that hold trees of every kind at once, under one (epsilon, delta).

Trees under pure epsilon, sparse trees and searches between thresholds spend amounts of their own,
which add up; the trees that share a rho keep what is left. So the epsilons that the parts have at
their own deltas must add up to no more than the epsilon of the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from benchmarks.audit.exact import Finding, epsilon_bound, losses
from benchmarks.audit.published import (
    published_laws,
    sparse_loss,
    threshold_loss,
    threshold_question,
)
from benchmarks.audit.recording import recorded_release
from benchmarks.audit.trees import (
    Palettes,
    Row,
    batches,
    hierarchy_draft,
    neighboring_rows,
    ordered_draft,
    sparse_draft,
    tree_counts,
)
from dptrees.dpcore.privacy.conversion import zcdp_rho
from dptrees.dpcore.privacy.unit import ROW_UNITS, Budget, Measure, PrivacyUnit
from dptrees.dpcore.release.plan import ReleasePlan

# What the trees spend that share a rho, and what the pure and the sparse tree spend.
_SHARED = (Fraction(1), Fraction(1, 10**4))
_PURE = Fraction(1, 2)
_SPARSE = (Fraction(1), Fraction(1, 10**3))


def whole_release(rng: Random, unit: PrivacyUnit) -> tuple[ReleasePlan, Palettes]:
    """A release of five trees, and the columns that they read."""
    sparse, columns = sparse_draft(rng, "sparse", unit, *_SPARSE)
    search, path = threshold_question(rng, unit, keyed=False)
    drafts = [
        ordered_draft(rng, "ordered", unit),
        hierarchy_draft(rng, "hierarchy", unit, sums=True),
        hierarchy_draft(rng, "pure", unit),
    ]
    rho = Budget(measure=Measure.RHO, amount=zcdp_rho(*_SHARED))
    budgets = [rho.share(Fraction(1, 3)), rho.share(Fraction(2, 3))]
    budgets.append(Budget(measure=Measure.EPSILON, amount=_PURE))
    made = [draft.make(budget) for draft, budget in zip(drafts, budgets, strict=True)]
    epsilon, delta = search.spending.own
    plan = ReleasePlan(
        name="r",
        unit=unit,
        budget=rho,
        questions=(*made, sparse, search),
        stated=(_SHARED[0] + _PURE + _SPARSE[0] + epsilon, _SHARED[1] + _SPARSE[1] + delta),
    )
    palettes = columns | path
    for draft in drafts:
        palettes |= draft.palettes
    return plan, palettes


def whole_loss(
    rng: Random, plan: ReleasePlan, palettes: Palettes, tables: Sequence[list[Row]]
) -> Fraction | float:
    """The epsilon of all parts of a release between two tables, each at its own delta."""
    parts = [batches(rng, palettes, rows) for rows in tables]
    counts = [{q.name: tree_counts(q, own) for q in plan.questions} for own in parts]
    first, second = (recorded_release(plan, each) for each in counts)
    found = losses(first, second, ("ordered", "hierarchy", "pure"))
    moved: Counter[Any] = Counter()
    for name in ("ordered", "hierarchy"):
        moved.update(found[name].moved if name in found else {})
    assert "pure" not in found or not found["pure"].moved
    laws = [published_laws(each) for each in (first, second)]
    search = plan.question("tree")
    pair = [each["tree"] for each in counts]
    return (
        epsilon_bound(tuple(sorted(moved.items())), _SHARED[1])
        + (found["pure"].epsilon if "pure" in found else 0)
        + sparse_loss(*laws, float(_SPARSE[1]))
        + threshold_loss(search, *pair, float(search.spending.own[1]))  # type: ignore[arg-type]
    )


def audit_whole(*, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Random releases of all kinds, each with random pairs of tables; as `exact.audit`."""
    rng, found = Random(f"whole {seed}"), Finding()
    for _ in range(plans):
        unit = rng.choice(ROW_UNITS)
        plan, palettes = whole_release(rng, unit)
        assert plan.stated is not None
        for _ in range(pairs):
            tables = neighboring_rows(rng, palettes, unit, rng.randrange(20))
            loss = whole_loss(rng, plan, palettes, tables)
            found.add(loss / float(plan.stated[0]), leaked=False)
    return found
