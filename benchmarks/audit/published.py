"""Exact laws of what sparse trees and searches between thresholds publish.

**Sparse trees.** The release's own step from exact counts to published nodes is run once for each
value that the noise can take, with that value for all nodes. So the threshold, the order of
comparison and which nodes get noise at all are those that run; the probabilities of the values are
computed here, from the law's definition.

**Searches.** What a search releases depends on its noise through comparisons alone: of a noisy
largest count with a noisy threshold, and of a node's noisy count with the acceptance. So the
release's own code is run once for every sequence of answers that there can be, with the answers
prescribed, and each run has the probability of its answers: the noise of a threshold is summed
over, as all comparisons with it share it. Runs that release the same are one outcome. That the
probabilities of all outcomes add up to 1 shows that none was left out.

**Distance of two laws.** delta(epsilon) = max over the two directions of sum_o max(0, P(o) -
exp(epsilon) Q(o)), and epsilon at a delta is the least that keeps it. Outcomes that no other data
set has count in full.

Source: Dwork, Roth 2014, Definition 2.4, in the form of Balle, Wang 2018 (the hockey-stick
divergence).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.audit.exact import Finding
from benchmarks.audit.recording import (
    SECRET,
    Draw,
    NamedStream,
    Noise,
    Place,
    Recorded,
    exchanged_samples,
    public_output,
    recorded_release,
    stated_plan,
)
from benchmarks.audit.trees import (
    Integers,
    Palette,
    Palettes,
    batches,
    exact_counts,
    key_palette,
    neighbors,
    sparse_draft,
    with_units,
)
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_paths
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import ThresholdMechanism
from dptrees.dpcore.levels.relative_errors import RelativeObjective
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey
from dptrees.dpcore.noise.truncated_laplace import TruncatedLaplace
from dptrees.dpcore.privacy.unit import ROW_UNITS, PrivacyUnit
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.sparse.plan import publish_shard
from dptrees.dpcore.thresholds.forest import ThresholdForest, TreeThresholds
from dptrees.dpcore.thresholds.plan import ThresholdPlan, ThresholdRound

Outcomes = Mapping[Hashable, float]
# Two losses that differ by rounding are one.
_DIGITS = 11


class PrivacyLoss:
    """The privacy loss of one or of several independent draws.

    Attributes:
        losses: log P / Q, (n,), rising.
        masses: P of each, (n,).
        beyond: P of outcomes that Q does not have.

    >>> loss = PrivacyLoss.between({0: 0.75, 1: 0.25}, {0: 0.25, 1: 0.75})
    >>> round(loss.delta(0.0), 9), round(loss.delta(math.log(3)), 9)
    (0.5, 0.0)
    """

    def __init__(self, losses: Floats, masses: Floats, beyond: float) -> None:
        rounded, place = np.unique(np.round(losses, _DIGITS), return_inverse=True)
        self.losses, self.beyond = rounded, beyond
        self.masses = np.bincount(place, masses, rounded.size)

    @classmethod
    def between(cls, one: Outcomes, two: Outcomes) -> PrivacyLoss:
        """The loss of outcomes of law ``one`` against law ``two``."""
        shared = [outcome for outcome, mass in one.items() if mass and two.get(outcome, 0.0)]
        masses = np.array([one[outcome] for outcome in shared], np.float64)
        losses = np.log(masses) - np.log([two[outcome] for outcome in shared])
        beyond = math.fsum(mass for outcome, mass in one.items() if not two.get(outcome, 0.0))
        return cls(losses, masses, beyond)

    @classmethod
    def composed(cls, parts: Iterable[PrivacyLoss]) -> PrivacyLoss:
        """The loss of independent draws together."""
        whole = cls(np.zeros(1), np.ones(1), 0.0)
        for each in parts:
            losses = np.add.outer(whole.losses, each.losses).reshape(-1)
            masses = np.multiply.outer(whole.masses, each.masses).reshape(-1)
            beyond = whole.beyond + (1 - whole.beyond) * each.beyond
            whole = cls(losses, masses, beyond)
        return whole

    def delta(self, epsilon: float) -> float:
        """The least delta at an epsilon, of this direction."""
        over = self.losses > epsilon
        excess = -np.expm1(epsilon - self.losses[over])
        return float(self.masses[over] @ excess) + self.beyond

    def epsilon(self, delta: float) -> float:
        """The least epsilon at a delta, of this direction; infinite if there is none."""
        if self.beyond > delta:
            return math.inf
        low, high = 0.0, max(0.0, float(self.losses.max(initial=0.0)))
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high


def both_ways(laws: Iterable[Sequence[Outcomes]]) -> list[PrivacyLoss]:
    """The losses of independent draws together, of the one data set against the other and back."""
    pairs = list(laws)
    return [
        PrivacyLoss.composed(PrivacyLoss.between(each[a], each[1 - a]) for each in pairs)
        for a in (0, 1)
    ]


STATED = (
    (Fraction(1), Fraction(1, 10**2)),
    (Fraction(2), Fraction(1, 10**3)),
    (Fraction(4), Fraction(1, 10**6)),
)
Node = tuple[int, int, Any]  # level, shard, key
Law = dict[Hashable, float]  # of the published count; None: not published
ABSENT: Law = {None: 1.0}


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
    return max(each.epsilon(delta) for each in both_ways(changed))


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


def audit_sparse(
    *, plans: int, pairs: int, seed: int = 0, units: Sequence[PrivacyUnit] = ()
) -> Finding:
    """Random sparse trees, each with random pairs of neighboring tables; as `exact.audit`."""
    rng, found = Random(f"{'units of sparse trees' if units else 'sparse'} {seed}"), Finding()
    order = rng.sample(units, len(units))
    for number in range(plans):
        unit = order[number % len(order)] if order else rng.choice(ROW_UNITS)
        stated = rng.choice(STATED)
        question, palettes = sparse_draft(rng, "tree", unit, *stated)
        palettes = palettes if unit.is_row else with_units(palettes)
        plan = stated_plan(question, *stated)
        for _ in range(pairs):
            tables = neighbors(rng, palettes, unit, rng.choice([0, 3, 12, 40]))
            one, two = (exact_counts(plan, batches(rng, palettes, rows)) for rows in tables)
            found.add(*sparse_pair(plan, one["tree"], two["tree"]))
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


# Thresholds are distinguished by multiples of this, larger than every count and threshold here.
_SPREAD = 2**40
# Noise of a threshold beyond this many scales is left out: a part of 1e-17.
_REACH = 40


# --- one run with prescribed answers --------------------------------------------------------------


class Noisy(np.ndarray[Any, Any]):
    """Exact counts whose noise was not drawn: comparisons with them are prescribed."""

    compared: Any

    def __array_finalize__(self, origin: Any) -> None:
        self.compared = getattr(origin, "compared", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if ufunc is not np.greater_equal or inputs[0] is not self or options:
            raise TypeError(f"noisy counts are used otherwise than by comparing them: {ufunc}")
        return self.compared(np.asarray(self).view(np.ndarray), inputs[1])


@dataclass(kw_only=True)
class Run:
    """One run of a search.

    Attributes:
        answers: prescribed; where they end, the first that is possible is given and added.
        choices: how many answers were possible at each place.
        thresholds: (law, value) of each that was drawn.
        comparisons: for each threshold, the (law, count, answer) of all comparisons with it.
        probability: of the answers of looks at nodes.
    """

    answers: list[int]
    choices: list[int] = field(default_factory=list)
    thresholds: list[tuple[DiscreteLaplace, int]] = field(default_factory=list)
    comparisons: dict[int, list[tuple[DiscreteLaplace, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    probability: float = 1.0

    def drawn(self, law: Any, stream: NamedStream, size: int) -> Noise:
        """In place of noise: what shows to which counts it is added."""

        def added(exact: Any, noise: Integers) -> Any:
            if np.ndim(exact) == 0:
                return self._new_thresholds(law, int(exact), size)
            noisy = np.asarray(exact, np.int64).copy().view(Noisy)
            noisy.compared = lambda counts, limit: self._compared(law, counts, limit)
            return noisy

        return Noise.of(np.zeros(size, np.int64), added)

    def _new_thresholds(self, law: Any, value: int, size: int) -> Integers:
        first = len(self.thresholds)
        self.thresholds += [(law, value)] * size
        return value + _SPREAD * np.arange(first, first + size, dtype=np.int64)

    def _compared(self, law: Any, counts: Integers, limits: Any) -> npt.NDArray[np.bool_]:
        if np.ndim(limits) == 0:
            found = [self._looked(law, count, int(limits)) for count in counts.tolist()]
        else:
            pairs = zip(counts.tolist(), limits.tolist(), strict=True)
            found = [self._searched(law, count, limit) for count, limit in pairs]
        return np.array(found, dtype=np.bool_)

    def _searched(self, law: Any, count: int, limit: int) -> int:
        number = round(limit / _SPREAD)
        assert limit - number * _SPREAD == self.thresholds[number][1]
        answer = self._next([0, 1])
        self.comparisons[number].append((law, count, answer))
        return answer

    def _looked(self, law: TruncatedLaplace, count: int, acceptance: int) -> int:
        above = _at_least(law, acceptance - count)
        masses = {answer: mass for answer, mass in ((0, 1 - above), (1, above)) if mass > 0}
        answer = self._next(list(masses))
        self.probability *= masses[answer]
        return answer

    def _next(self, possible: list[int]) -> int:
        place = len(self.choices)
        self.choices.append(len(possible))
        if place == len(self.answers):
            self.answers.append(0)
        return possible[self.answers[place]]

    @property
    def total(self) -> float:
        """The probability of all answers."""
        stages = (
            _stage_probability(*self.thresholds[number], tuple(comparisons))
            for number, comparisons in self.comparisons.items()
        )
        return self.probability * math.prod(stages)

    def following(self) -> list[int] | None:
        """The answers of the next run; None after the last."""
        answers = list(self.answers[: len(self.choices)])
        while answers and answers[-1] + 1 == self.choices[len(answers) - 1]:
            answers.pop()
        if not answers:
            return None
        return [*answers[:-1], answers[-1] + 1]


@lru_cache(maxsize=4096)
def _at_least(law: TruncatedLaplace, least: int) -> float:
    """P(X >= least), from the definition of the law; exactly 0 or 1 beyond the radius."""
    if least > law.radius or least <= -law.radius:
        return float(least <= 0)
    rate = float(1 / law.scale)
    weights = {n: math.exp(-rate * abs(n)) for n in range(-law.radius, law.radius + 1)}
    above = math.fsum(weight for n, weight in weights.items() if n >= least)
    return above / math.fsum(weights.values())


@lru_cache(maxsize=2**16)
def _stage_probability(
    law: DiscreteLaplace, value: int, comparisons: tuple[tuple[DiscreteLaplace, int, int], ...]
) -> float:
    """P(all comparisons with one noisy threshold come out as they did)."""
    reach = math.ceil(_REACH * law.scale)
    noise = np.arange(-reach, reach + 1)
    rate = float(1 / law.scale)
    masses = np.exp(-rate * np.abs(noise)) * math.tanh(rate / 2)
    for query, count, answer in comparisons:
        reaches = _tail(query, value + noise - count)
        masses = masses * (reaches if answer else _tail(query, count - value - noise + 1))
    return math.fsum(masses.tolist())


def _tail(law: DiscreteLaplace, least: Integers) -> Floats:
    """P(X >= least)."""
    rate = float(1 / law.scale)
    weight = np.exp(-rate * np.abs(np.where(least > 0, least, 1 - least))) / (1 + math.exp(-rate))
    return np.where(least > 0, weight, 1 - weight)


# --- the law of the release -----------------------------------------------------------------------


class _AnySource:
    """In place of the source of noise: the exchanged samplers draw no bits."""

    def for_counts(self, counts: Integers) -> _AnySource:
        return self

    def stream(self, *place: Any) -> NamedStream:
        return NamedStream(place, RandomStream(bytes(32)))


def estimates_law(
    question: HierarchyQuestion[ThresholdMechanism], counts: Integers
) -> dict[bytes, float]:
    """The probability of every release of a tree with these exact counts, over all its keys."""
    found: dict[bytes, float] = defaultdict(float)
    for run, released in _runs(question, counts):
        found[released] += run.total
    assert abs(math.fsum(found.values()) - 1) < 1e-9, "some sequence of answers was left out"
    return dict(found)


def _runs(
    question: HierarchyQuestion[ThresholdMechanism], counts: Integers
) -> Iterator[tuple[Run, bytes]]:
    answers: list[int] | None = []
    chunks = list(question.forest.chunking)
    while answers is not None:
        run = Run(answers=answers)
        with exchanged_samples(run.drawn):
            levels = [
                question.forest.measure(
                    question.name,
                    chunk,
                    counts[chunk.start : chunk.start + chunk.leaves],
                    _AnySource(),  # type: ignore[arg-type]
                )
                for chunk in chunks
            ]
        yield run, b"".join(np.asarray(each).tobytes() for level in levels for each in level)
        answers = run.following()


def threshold_loss(
    question: HierarchyQuestion[ThresholdMechanism], one: Integers, two: Integers, delta: float
) -> float:
    """The epsilon at a delta between the releases of two tables, the larger of both directions."""
    laws = [estimates_law(question, counts) for counts in (one, two)]
    return max(each.epsilon(delta) for each in both_ways([laws]))


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
    return stated_plan(question, *question.spending.own)


def search_shows_more(
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


def audit_thresholds(
    *, plans: int, pairs: int, seed: int = 0, units: Sequence[PrivacyUnit] = ()
) -> Finding:
    """Random searches, each with random pairs of neighboring tables; as `exact.audit`."""
    rng, found = Random(f"{'units of searches' if units else 'thresholds'} {seed}"), Finding()
    for number in range(plans):
        unit = units[number % len(units)] if units else rng.choice(ROW_UNITS)
        question, palettes = threshold_question(rng, unit, keyed=number % 4 == 3)
        palettes = palettes if unit.is_row else with_units(palettes)
        plan, (epsilon, delta) = threshold_plan(question), question.spending.own
        for _ in range(pairs):
            tables = neighbors(rng, palettes, unit, rng.randrange(30))
            parts = (batches(rng, palettes, rows) for rows in tables)
            one, two = (exact_counts(plan, each)[question.name] for each in parts)
            ratio = threshold_loss(question, one, two, float(delta)) / float(epsilon)
            found.add(ratio, search_shows_more(question, one, two))
    return found
