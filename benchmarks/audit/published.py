"""The exact law of what a sparse tree publishes: which nodes, with which noisy counts.

The release's own step from exact counts to published nodes is run once for each value that the
noise can take, with that value for all nodes. So the threshold, the order of comparison and which
nodes get noise at all are those that run; the probabilities of the values are computed here, from
the law's definition.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from benchmarks.audit.exact import Finding
from benchmarks.audit.outcomes import PrivacyLoss
from benchmarks.audit.recording import (
    Draw,
    Noise,
    Place,
    Recorded,
    exchanged_samples,
    public_output,
    recorded_release,
)
from benchmarks.audit.rows import (
    Integers,
    batches,
    neighboring_rows,
    sparse_leaf_counts,
)
from benchmarks.audit.trees import sparse_draft
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.privacy.budget import Budget, Measure
from dptrees.dpcore.privacy.unit import ROW_UNITS
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.sparse.publication import publish_shard

STATED = (
    (Fraction(1), Fraction(1, 10**2)),
    (Fraction(2), Fraction(1, 10**3)),
    (Fraction(4), Fraction(1, 10**6)),
)
Node = tuple[int, int, Any]  # level, shard, key
Law = dict[Hashable, float]  # of the published count; None: not published
ABSENT: Law = {None: 1.0}


def sparse_plan(question: Any, epsilon: Fraction, delta: Fraction) -> ReleasePlan:
    """The release of one sparse tree."""
    return ReleasePlan(
        name="r",
        unit=question.unit,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=(question,),
        stated=(epsilon, delta),
    )


def published_laws(recorded: Recorded) -> dict[Node, Law]:
    """The law of every node that a release may publish."""
    laws: dict[Node, Law] = {}
    for arguments, _ in recorded.shards.values():
        laws |= shard_laws(arguments)
    return laws


def shard_laws(arguments: tuple[Any, ...]) -> dict[Node, Law]:
    """The same of one shard, from the arguments of the `publish_shard` that ran."""
    level, shard = arguments[3:5]
    drawn: list[TruncatedLaplace] = []
    value = 0

    def forced(law: Any, stream: Any, size: int) -> Noise:
        drawn.append(law)
        # The sum, as the release would have it, of a value in place of noise.
        return Noise.of(np.full(size, value, np.int64), lambda exact, noise: exact + noise)

    with exchanged_samples(forced):
        keys = _published(arguments)
        if not drawn:  # exact, since public
            return {(level, shard, key): {count: 1.0} for key, count in keys.items()}
        law = drawn[0]
        assert all(each == law for each in drawn)
        found: dict[Node, Law] = defaultdict(dict)
        for value in range(-law.radius, law.radius + 1):
            for key, count in _published(arguments).items():
                found[level, shard, key][count] = _mass(law, value)
    return {node: _completed(own) for node, own in found.items()}


def _published(arguments: tuple[Any, ...]) -> dict[Any, int]:
    given: NodeCounts = publish_shard(*arguments)
    return dict(zip(given.keys.to_pylist(), given.counts.tolist(), strict=True))


def _mass(law: TruncatedLaplace, value: int) -> float:
    """P(X = value) from the definition of the law."""
    rate = float(1 / law.scale)
    total = 1 + 2 * math.fsum(math.exp(-rate * n) for n in range(1, law.radius + 1))
    return math.exp(-rate * abs(value)) / total


def _completed(law: Law) -> Law:
    """With the probability that nothing is published."""
    shown = math.fsum(law.values())
    return law | {None: 1 - shown} if 1 - shown > 1e-15 else law


def sparse_loss(one: dict[Node, Law], two: dict[Node, Law], delta: float) -> float:
    """The epsilon at a delta of all that is published, the larger of both directions."""
    changed = [
        (one.get(node, ABSENT), two.get(node, ABSENT))
        for node in one.keys() | two.keys()
        if one.get(node, ABSENT) != two.get(node, ABSENT)
    ]
    directions = (changed, [(b, a) for a, b in changed])
    return max(
        PrivacyLoss.composed(PrivacyLoss.between(a, b) for a, b in pairs).epsilon(delta)
        for pairs in directions
    )


def shows_more(plan: ReleasePlan, first: Recorded, second: Recorded, leaves: NodeCounts) -> bool:
    """Whether the second table, with the same nodes published, gives another output.

    A node keeps its noisy count where both tables have it. One that only the second has gets noise
    of 0; where that, or a node that only the first has, is published, there is nothing to compare.
    """
    (question,) = plan.questions
    known = {
        (*place, key): noisy
        for place, nodes in _nodes(first).items()
        for key, noisy in zip(nodes, _noisy(first, *place), strict=True)
    }
    nodes = _nodes(second)

    def wanted(place: Place, draw: Draw) -> Integers:
        tree, _, shard, level, _ = place
        assert draw.exact is not None
        own = zip(nodes[tree, level, shard], draw.exact.tolist(), strict=True)
        return np.array([known.get((tree, level, shard, key), n) for key, n in own], np.int64)

    again = recorded_release(plan, {question.name: leaves}, wanted)
    if _shown(first) != _shown(again):
        return False
    assert first.release is not None and again.release is not None
    return public_output(first.release) != public_output(again.release)


def _nodes(recorded: Recorded) -> dict[tuple[str, int, int], list[Any]]:
    """The nodes of every shard that get noise, in order."""
    return {
        place: arguments[5].keys.to_pylist()
        or (arguments[1].root_keys.to_pylist() if place[1] == 0 else [])
        for place, (arguments, _) in recorded.shards.items()
    }


def _noisy(recorded: Recorded, tree: str, level: int, shard: int) -> list[int]:
    noisy = recorded.draws[tree, 0, shard, level, 0].noisy
    return [] if noisy is None else noisy.tolist()


def _shown(recorded: Recorded) -> list[Any]:
    return [
        (place, given.keys.to_pylist(), given.counts.tolist())
        for place, (_, given) in recorded.shards.items()
    ]


def audit_sparse(*, plans: int, pairs: int, seed: int = 0) -> Finding:
    """Random sparse trees, each with random pairs of neighboring tables; as `exact.audit`."""
    rng, found = Random(f"sparse {seed}"), Finding()
    for _ in range(plans):
        unit = rng.choice(ROW_UNITS)
        epsilon, delta = rng.choice(STATED)
        question, palettes = sparse_draft(rng, "tree", unit, epsilon, delta)
        plan = sparse_plan(question, epsilon, delta)
        for _ in range(pairs):
            tables = neighboring_rows(rng, palettes, unit, rng.choice([0, 3, 12, 40]))
            leaves = [sparse_leaf_counts(question, batches(rng, palettes, rows)) for rows in tables]
            found.add(*sparse_pair(plan, *leaves))
    return found


def sparse_pair(plan: ReleasePlan, one: NodeCounts, two: NodeCounts) -> tuple[float, bool]:
    """The loss of a pair of leaf counts in parts of the claim, and whether a release shows more
    than its noise."""
    assert plan.stated is not None
    epsilon, delta = plan.stated
    first, second = (recorded_release(plan, {"tree": own}) for own in (one, two))
    laws = [published_laws(each) for each in (first, second)]
    ratio = sparse_loss(*laws, float(delta)) / float(epsilon)
    return ratio, shows_more(plan, first, second, two)
