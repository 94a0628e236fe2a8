"""Random trees whose counts are found between thresholds, audited by the exact law of the release.

Source: `benchmarks.audit.searches`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from benchmarks.audit.exact import Finding
from benchmarks.audit.recording import SECRET, public_output
from benchmarks.audit.rows import (
    Integers,
    Palette,
    Palettes,
    batches,
    key_palette,
    leaf_counts,
    neighboring_rows,
)
from benchmarks.audit.searches import threshold_loss
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_paths
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.relative_objective import RelativeObjective
from dptrees.dpcore.levels.thresholds import ThresholdMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ROW_UNITS, PrivacyUnit
from dptrees.dpcore.release.in_memory import release_counts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.thresholds.forest import ThresholdForest, TreeThresholds
from dptrees.dpcore.thresholds.plan import ThresholdPlan, ThresholdRound

TREES = (("a", "b"), ("a", "b/c", "b/d"), ("a/b",), ("a", "b/c"), ("a",))
OBJECTIVE = RelativeObjective(metric="alpha_mrmse", alpha=0.5)


def _round(rng: Random, tau: int) -> ThresholdRound:
    cutoff = rng.randint(1, 2)
    node_epsilon = cutoff * Fraction(rng.randint(2, 8), 10)
    return ThresholdRound(
        cutoff=cutoff,
        search_epsilon=Fraction(rng.choice([1, 1, 4, 10]), 10),
        node_epsilon=node_epsilon,
        delta=cutoff * Fraction(1, 10 ** rng.choice([2, 4, 6])),
        tau=tau,
        acceptance=tau + rng.randint(-3, 3),
        estimate=Fraction(tau + 5),
    )


def threshold_question(
    rng: Random, unit: PrivacyUnit, *, keyed: bool
) -> tuple[HierarchyQuestion[ThresholdMechanism], Palettes]:
    """A small tree searched in one or two rounds, which claims what these spend."""
    paths = ("a", "b") if keyed else rng.choice(TREES)
    universe = universe_from_paths(pa.array(paths), "/")
    domain = HierarchyDomain(universe=universe, columns=("path",))
    taus = [rng.randint(2, 6)] if keyed else sorted(rng.sample(range(2, 12), rng.choice([1, 1, 2])))
    rounds = tuple(_round(rng, tau) for tau in taus)
    plan = TreeThresholds(tree=domain.tree.shape, thresholds=claiming(rounds, unit), keyed=keyed)
    keys = KeyList(column="by", keys=("AA", "DL")) if keyed else None
    question = HierarchyQuestion(
        name="tree",
        domain=domain,
        mechanism=ThresholdMechanism(plan=plan, objective=OBJECTIVE),
        keys=keys,
    )
    palettes = {"path": Palette(type=pa.string(), values=(*paths, "x", None))}
    return question, palettes if keys is None else palettes | {"by": key_palette(keys)}


def claiming(rounds: tuple[ThresholdRound, ...], unit: PrivacyUnit) -> ThresholdPlan:
    """The least claim that rounds keep: of one row, or of two for a row that is exchanged."""
    epsilon = sum((each.epsilon for each in rounds), Fraction(0))
    delta = sum((each.delta for each in rounds), Fraction(0))
    steps, growth = 1, Fraction(1)
    if unit.substitutes:
        # delta (1 + e^epsilon), to the next thousandth.
        steps, growth = 2, 1 + Fraction(math.ceil(1000 * math.exp(epsilon)), 1000)
    return ThresholdPlan(
        epsilon=steps * epsilon,
        delta=growth * delta,
        unit=unit,
        least=Fraction(1),
        rounds=rounds,
    )


def threshold_plan(question: HierarchyQuestion[ThresholdMechanism]) -> ReleasePlan:
    """The release of one tree between thresholds."""
    epsilon, delta = question.spending.own
    return ReleasePlan(
        name="r",
        unit=question.unit,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=(question,),
        stated=(epsilon, delta),
    )


def shows_more(
    question: HierarchyQuestion[ThresholdMechanism], one: Integers, two: Integers
) -> bool:
    """Whether a release with the estimates of another table gives another output."""
    plan, measured = threshold_plan(question), {}
    measure = ThresholdForest.measure

    def remembered(self: ThresholdForest, tree: str, chunk: Any, *rest: Any) -> Any:
        place = (chunk.key, chunk.index)
        if place not in measured:
            measured[place] = measure(self, tree, chunk, *rest)
        return measured[place]

    with patch.object(ThresholdForest, "measure", remembered):
        outputs = [
            public_output(
                release_counts(plan=plan, counts={question.name: counts}, key=ReleaseKey(SECRET))
            )
            for counts in (one, two)
        ]
    return outputs[0] != outputs[1]


def audit_thresholds(*, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Random searches, each with random pairs of neighboring tables; as `exact.audit`."""
    rng, found = Random(f"thresholds {seed}"), Finding()
    for number in range(plans):
        unit = rng.choice(ROW_UNITS)
        question, palettes = threshold_question(rng, unit, keyed=number % 4 == 3)
        epsilon, delta = question.spending.own
        for _ in range(pairs):
            tables = neighboring_rows(rng, palettes, unit, rng.randrange(30))
            one, two = (leaf_counts(question, batches(rng, palettes, rows)) for rows in tables)
            ratio = threshold_loss(question, one, two, float(delta)) / float(epsilon)
            found.add(ratio, shows_more(question, one, two))
    return found
