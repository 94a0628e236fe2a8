"""The exact privacy loss of what a release draws, between neighboring tables of rows.

All noise is recorded where it is added (`benchmarks.audit.recording`). Discrete Laplace noise of
scale b on counts that differ by d loses at most |d| / b, discrete Gaussian noise of sigma^2 loses
d^2 / (2 sigma^2) of rho, and losses add up over all draws: both sums are rationals and are compared
with the claim without rounding. Under (epsilon, delta) the losses of Gaussian noise are composed by
the dp-accounting library, which has no code in common with `dpcore.privacy.composition`.

Two things more must hold for the sums to be all that is lost: that laws do not depend on the data,
and that all which is published follows from the noisy counts. The second is tried by giving the
release of the one table the noisy counts of the other's.

A partition of a box looks at nodes that its noisy counts choose, and draws no other noise. Given
the noisy counts of the first release the second must look at the same nodes; the ratio of the
probabilities of what both have seen is then that of these nodes, so their losses are added up.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from benchmarks.audit.recording import (
    SECRET,
    Draw,
    Place,
    Recorded,
    public_output,
    recorded_release,
)
from benchmarks.audit.trees import (
    UNITS,
    Counted,
    Draft,
    Integers,
    Palettes,
    adaptive_draft,
    batches,
    box_draft,
    exact_counts,
    hierarchy_draft,
    neighbors,
    ordered_draft,
    shared,
    with_units,
)
from dptrees.dpcore.boxes.question import HypercubeQuestion
from dptrees.dpcore.irregular.plan import IrregularPlan
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.composition import certified_delta
from dptrees.dpcore.privacy.conversion import calibrated_rho, zcdp_rho
from dptrees.dpcore.privacy.unit import ROW_UNITS, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.plan import ReleasePlan, total_spending

AMOUNTS = (Fraction(1, 10), Fraction(1, 3), Fraction(1), Fraction(7, 3))
STATED = ((Fraction(1), Fraction(1, 10**4)), (Fraction(3), Fraction(1, 10**3)))
MEASURES = ("epsilon", "rho", "epsilon, delta")
# Steps of the losses that the library composes: an epsilon is known to about ten of them.
_STEP = 5e-4


@dataclass(frozen=True, kw_only=True)
class Case:
    """A release to be audited, and the columns that it reads."""

    plan: ReleasePlan
    palettes: Palettes


@dataclass(kw_only=True)
class Finding:
    """What an audit of some pairs of tables found.

    Attributes:
        pairs: how many there were.
        ratio: the largest loss of a pair, in parts of the claim.
        leaks: how many releases showed more than follows from their noisy counts.
    """

    pairs: int = 0
    ratio: Fraction | float = Fraction(0)
    leaks: int = 0

    @property
    def keeps_the_claim(self) -> bool:
        """Whether nothing was found."""
        return self.ratio <= 1 and not self.leaks

    def add(self, ratio: Fraction | float, leaked: bool) -> None:
        """Take in another pair."""
        self.pairs, self.leaks = self.pairs + 1, self.leaks + leaked
        self.ratio = max(self.ratio, ratio)


@dataclass(kw_only=True)
class Loss:
    """The losses of one tree's draws, by the kind of noise.

    Attributes:
        epsilon: of discrete Laplace noise.
        rho: of discrete Gaussian noise.
        moved: how many counts differ by d under Gaussian noise, by (sigma^2, d).
    """

    epsilon: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    moved: Counter[tuple[Fraction, int]] = field(default_factory=Counter)

    def add(self, law: Any, differences: Sequence[int]) -> None:
        """Take in the draws of one law."""
        for distance in (abs(each) for each in differences if each):
            if isinstance(law, DiscreteLaplace):
                self.epsilon += distance / law.scale
            elif isinstance(law, DiscreteGaussian):
                self.rho += distance**2 / (2 * law.sigma_squared)
                self.moved[law.sigma_squared, distance] += 1
            else:
                raise TypeError(f"no exact loss of {type(law).__name__} is known here")


# --- releases -------------------------------------------------------------------------------------


def _several(rng: Random, unit: PrivacyUnit) -> list[Draft]:
    """Trees that share a budget, of any kind."""
    return [
        ordered_draft(rng, "first", unit, published=rng.random() < 0.5),
        hierarchy_draft(rng, "second", unit, sums=rng.random() < 0.5),
        ordered_draft(rng, "third", unit),
    ]


def _boxes(rng: Random, unit: PrivacyUnit) -> list[Draft]:
    """Boxes of columns that share a budget with an ordered tree."""
    return [
        box_draft(rng, "first", unit),
        ordered_draft(rng, "second", unit),
        box_draft(rng, "third", unit, sketches=True),
    ]


Drafts = Callable[[Random, PrivacyUnit], list[Draft]]
KINDS: dict[str, Drafts] = {
    "ordered trees, planned": lambda rng, near: [ordered_draft(rng, "tree", near)],
    "ordered trees, published": lambda rng, near: [
        ordered_draft(rng, "tree", near, published=True)
    ],
    "hierarchies": lambda rng, near: [hierarchy_draft(rng, "tree", near)],
    "hierarchies, sums": lambda rng, near: [hierarchy_draft(rng, "tree", near, sums=True)],
    "hierarchies, public counts": lambda rng, near: [
        hierarchy_draft(rng, "tree", SUBSTITUTE_ROW, invariants=True)
    ],
    "several trees": _several,
    "boxes, adaptive": lambda rng, near: [adaptive_draft(rng, "box", near)],
    "boxes, exact counts": lambda rng, near: [box_draft(rng, "box", near)],
    "boxes, sketches": lambda rng, near: [box_draft(rng, "box", near, sketches=True)],
    "several boxes": _boxes,
}


def make_case(
    rng: Random, kind: str, measure: str, units: Sequence[PrivacyUnit] = ROW_UNITS
) -> Case:
    """A random release of a kind under a measure, of one of some privacy units."""
    unit = rng.choice(units)
    if kind == "hierarchies, public counts":
        unit = SUBSTITUTE_ROW
    drafts = KINDS[kind](rng, unit)
    parts = [rng.randint(1, 3) for _ in drafts]
    palettes = functools.reduce(lambda one, two: one | two, (each.palettes for each in drafts))

    def questions(budget: Budget) -> tuple[Question, ...]:
        own = zip(drafts, shared(budget, parts), strict=True)
        return tuple(draft.make(part) for draft, part in own)

    if measure == "epsilon, delta":
        return Case(plan=stated_release(questions, unit, *rng.choice(STATED)), palettes=palettes)
    budget = Budget(measure=Measure(measure), amount=rng.choice(AMOUNTS))
    plan = ReleasePlan(name="r", unit=unit, budget=budget, questions=questions(budget))
    return Case(plan=plan, palettes=palettes)


def stated_release(
    questions: Callable[[Budget], tuple[Question, ...]],
    unit: PrivacyUnit,
    epsilon: Fraction,
    delta: Fraction,
) -> ReleasePlan:
    """The release that spends as much as was certified to keep (epsilon, delta)."""

    def moved(rho: Fraction) -> Any:
        return total_spending(questions(Budget(measure=Measure.RHO, amount=rho))).moved

    def certify(rho: Fraction) -> float:
        return certified_delta(moved(rho), epsilon)

    known = moved(Fraction(1)) is not None
    rho = calibrated_rho(epsilon, delta, certify) if known else zcdp_rho(epsilon, delta)
    budget = Budget(measure=Measure.RHO, amount=rho)
    return ReleasePlan(
        name="r",
        unit=unit,
        budget=budget,
        questions=questions(budget),
        stated=(epsilon, delta),
    )


# --- pairs of tables ------------------------------------------------------------------------------


def are_neighbors(case: Case, one: Mapping[str, Counted], two: Mapping[str, Counted]) -> bool:
    """Whether two tables agree on the counts that are public; all else makes them neighbors."""
    return all(
        _public_counts(question, one[question.name]) == _public_counts(question, two[question.name])
        for question in case.plan.questions
    )


def _public_counts(question: Question, counts: Any) -> list[list[int]]:
    """Return the exact counts of each public level."""
    if isinstance(question, HypercubeQuestion):
        return [[counts.total]] if question.plan.public_total else []
    assert isinstance(question, TreeQuestion)
    lowest = -1
    if isinstance(question.plan, IrregularPlan) and question.plan.public_level is not None:
        lowest = question.plan.public_level
    elif question.public_total:
        lowest = 0
    levels = question.plan.tree.level_counts(counts)[: lowest + 1]
    return [np.ravel(level).tolist() for level in levels]


def neighboring_counts(
    rng: Random, case: Case
) -> tuple[dict[str, Counted], dict[str, Counted]] | None:
    """The exact counts of two neighboring tables; None if none were found that agree."""
    for _ in range(60):
        tables = neighbors(rng, case.palettes, case.plan.unit, rng.randrange(12))
        one, two = (exact_counts(case.plan, batches(rng, case.palettes, rows)) for rows in tables)
        if are_neighbors(case, one, two):
            return one, two
    return None


# --- losses ---------------------------------------------------------------------------------------


def losses(one: Recorded, two: Recorded, trees: Collection[str] | None = None) -> dict[str, Loss]:
    """The loss of every tree between two releases of one plan, or of some of the trees."""
    draws = [
        {place: draw for place, draw in each.draws.items() if trees is None or place[0] in trees}
        for each in (one, two)
    ]
    assert draws[0].keys() == draws[1].keys(), "which noise is drawn depends on the data"
    found: dict[str, Loss] = {}
    for place, draw in draws[0].items():
        other = draws[1][place]
        assert draw.law == other.law and draw.size == other.size, "a law depends on the data"
        assert draw.nodes == other.nodes, "which nodes are looked at depends on more than noise"
        if draw.exact is not None and other.exact is not None:
            differences = (draw.exact - other.exact).tolist()
            found.setdefault(place[0], Loss()).add(draw.law, differences)
    return found


def loss_ratio(plan: ReleasePlan, found: Mapping[str, Loss]) -> Fraction | float:
    """What a pair loses, in parts of what the release claims."""
    if plan.stated is not None:
        return _stated_ratio(plan, found)
    is_pure = plan.budget.measure is Measure.EPSILON
    spent = [each.epsilon if is_pure else each.rho for each in found.values()]
    # Noise of another kind than the budget's has no bound in its measure.
    if any(each.rho if is_pure else each.epsilon for each in found.values()):
        return math.inf
    return sum(spent, Fraction(0)) / plan.budget.amount


def _stated_ratio(plan: ReleasePlan, found: Mapping[str, Loss]) -> float:
    assert plan.stated is not None
    moved: Counter[tuple[Fraction, int]] = Counter()
    for each in found.values():
        moved.update(each.moved)
    if any(each.epsilon for each in found.values()):
        return math.inf
    epsilon, delta = plan.stated
    return epsilon_bound(tuple(sorted(moved.items())), delta) / float(epsilon)


@functools.lru_cache(maxsize=4096)
def epsilon_bound(
    moved: tuple[tuple[tuple[Fraction, int], int], ...], delta: Fraction, *, is_upper: bool = False
) -> float:
    """A bound of the epsilon of Gaussian noise at a delta, by the dp-accounting library.

    Args:
        moved: as `Loss.moved`, sorted.
        delta: the claim.
        is_upper: the upper bound, not the lower one.
    """
    if not moved:
        return 0.0
    composed = pld.identity(_STEP, pessimistic_estimate=is_upper)
    for (sigma_squared, distance), number in moved:
        one = pld.from_discrete_gaussian_mechanism(
            math.sqrt(sigma_squared),
            sensitivity=distance,
            pessimistic_estimate=is_upper,
            value_discretization_interval=_STEP,
            use_connect_dots=is_upper,
        )
        composed = composed.compose(one.self_compose(number) if number > 1 else one)
    return float(composed.get_epsilon_for_delta(float(delta)))


# --- the audit ------------------------------------------------------------------------------------


def audit_pair(
    case: Case, one: Mapping[str, Counted], two: Mapping[str, Counted], *, replay: bool = True
) -> tuple[Fraction | float, bool]:
    """The loss of a pair in parts of the claim, and whether a release shows more than its noise."""
    first, second = (recorded_release(case.plan, counts) for counts in (one, two))
    if _held(case.plan, one) != _held(case.plan, two):
        assert not set(first.names) & set(second.names), "other data draw the same noise"
    leaked = False
    # Which nodes a box is looked at in follows from noise, so the second gets that of the first.
    if replay or any(isinstance(each, HypercubeQuestion) for each in case.plan.questions):
        second = replayed(case.plan, first, two)
        leaked = shows_more(first, second)
    return loss_ratio(case.plan, losses(first, second)), leaked


def _held(plan: ReleasePlan, counts: Mapping[str, Counted]) -> list[tuple[Any, bytes]]:
    """The exact counts as they are held: of a box above the last level, or in sketches."""
    choices = KeyedChoices(key=ReleaseKey(SECRET), release=plan.name)
    return [
        ((question.name, *place), question.merge(place, [data]).to_bytes())
        for question in plan.questions
        for place, data, _ in question.split_counts(counts[question.name], choices)
    ]


def replayed(plan: ReleasePlan, first: Recorded, counts: Mapping[str, Counted]) -> Recorded:
    """The release of other counts that is given the noisy counts of a release."""

    def wanted(place: Place, draw: Draw) -> Integers | None:
        known = first.draws.get(place)
        assert known is not None and (known.size, known.nodes) == (draw.size, draw.nodes), (
            "which noise is drawn depends on the data"
        )
        return known.noisy

    return recorded_release(plan, counts, wanted=wanted)


def shows_more(first: Recorded, again: Recorded) -> bool:
    """Whether other counts with the noisy counts of a release give another output."""
    assert first.release is not None and again.release is not None
    return public_output(first.release) != public_output(again.release)


def unit_case(rng: Random, kind: str, measure: str, unit: PrivacyUnit) -> Case:
    """A random release that protects a unit; one with more keys than the unit may have, where its
    keys are bounded and the kind has any."""
    for _ in range(1 if unit.keys is None or "box" in kind else 40):
        case = make_case(rng, kind, measure, units=(unit,))
        if any(each.key_count > (unit.keys or 0) for each in case.plan.questions if each.is_keyed):
            break
    return Case(plan=case.plan, palettes=with_units(case.palettes))


def audit(
    kind: str,
    measure: str,
    *,
    plans: int,
    pairs: int,
    seed: int = 0,
    units: Sequence[PrivacyUnit] = (),
) -> Finding:
    """Random releases of a kind, each with random pairs of neighboring tables.

    Args:
        kind: one of `KINDS`.
        measure: one of `MEASURES`.
        plans, pairs: how many releases, and pairs of tables of each.
        seed: of the plans and tables; noise is keyed.
        units: which units of many rows are protected, all in turn; none: rows.
    """
    rng, found = Random(f"{'units ' if units else ''}{kind} {measure} {seed}"), Finding()
    order = rng.sample(units, len(units))
    for number in range(plans):
        unit = order[number % len(order)] if order else None
        case = unit_case(rng, kind, measure, unit) if unit else make_case(rng, kind, measure)
        for _ in range(pairs):
            tables = neighboring_counts(rng, case)
            if tables is not None:
                found.add(*audit_pair(case, *tables, replay=rng.random() < 0.5))
    return found


# Public counts belong to a table whose rows are the units.
KINDS_OF_UNITS = tuple(kind for kind in KINDS if kind != "hierarchies, public counts")
audit_units = functools.partial(audit, units=UNITS)
