"""What the tests of counts between thresholds share: plans made by hand, since calibration takes
seconds, and questions over the small universes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.levels.irregular import ThresholdMechanism
from dptrees.dpcore.levels.relative_errors import RelativeObjective
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.thresholds.calibration import calibrate
from dptrees.dpcore.thresholds.forest import TreeThresholds
from dptrees.dpcore.thresholds.plan import ThresholdErrors, ThresholdPlan, ThresholdRound
from tests.dpcore.hierarchy_questions import universe_domain
from tests.dpcore.mechanisms import take_mechanism
from tests.dpcore.units import bounded_unit

OBJECTIVE = RelativeObjective(metric="alpha_mrmse", alpha=0.5)


def make_round(size: int, cutoff: int = 2) -> ThresholdRound:
    """Make a round that finds counts of about 2.5 times a size, and none below half of it."""
    free = ThresholdRound(
        cutoff=cutoff,
        search_epsilon=Fraction(20 * cutoff, size),
        node_epsilon=Fraction(10 * cutoff, size),
        delta=Fraction(cutoff, 10**5),
        tau=(19 * size) // 10,
        acceptance=0,
        estimate=Fraction(5 * size, 4),
    )
    changed = {name: getattr(free, name) for name in free.__dataclass_fields__}
    return ThresholdRound(**changed | {"acceptance": size // 2 + free.noise.radius})


def whole_plan(
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    *,
    cutoff: int = 2,
    first: int = 60,
    most: int = MAX_COUNT,
) -> ThresholdPlan:
    """Rounds up to the largest count; of what one may well miss, the next misses little."""
    rounds = [make_round(first, cutoff)]
    while rounds[-1].tau < most:
        rounds.append(make_round(int(first * 1.3 ** len(rounds)), cutoff))
    return claiming(tuple(rounds), unit, least=Fraction(first // 2))


def short_plan(unit: PrivacyUnit = ADD_REMOVE_ROW) -> ThresholdPlan:
    """The first rounds, which take little time; larger counts are found by the last."""
    return whole_plan(unit, most=1500)


def claiming(
    rounds: tuple[ThresholdRound, ...], unit: PrivacyUnit, least: Fraction = Fraction(10)
) -> ThresholdPlan:
    """The plan that claims, for one row added or removed or twice of it, what rounds spend."""
    steps = 2 if unit == SUBSTITUTE_ROW else 1
    epsilon = sum((each.epsilon for each in rounds), Fraction(0))
    delta = sum((each.delta for each in rounds), Fraction(0))
    # e^epsilon is below 3^(epsilon rounded up).
    series = 1 if steps == 1 else 1 + 3 ** (int(epsilon) + 1)
    return ThresholdPlan(
        epsilon=steps * epsilon,
        delta=series * delta,
        unit=unit,
        least=least,
        rounds=rounds,
    )


def calibrated(
    *,
    height: int = 6,
    epsilon: Fraction = Fraction(1),
    delta: Fraction = Fraction(1, 10**6),
    alpha: float = 0.5,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    rows: int = 1,
    root_bound: int = 5000,
    score: Callable[[ThresholdErrors], float] | None = None,
) -> ThresholdPlan:
    """Return a plan that is calibrated for the worst alpha-RMSE, or for another score."""
    return calibrate(
        GroupPrivacy(epsilon=epsilon, delta=delta, unit=bounded_unit(unit, rows)),
        height=height,
        alpha=alpha,
        root_bound=root_bound,
        score=score or (lambda errors: worst_alpha_rmse(errors, alpha)),
    )


def threshold_question(
    form: str = "digits",
    *,
    name: str = "thresholds",
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    keys: Sequence[str] = (),
    plan: ThresholdPlan | None = None,
    **fields: Any,
) -> HierarchyQuestion[ThresholdMechanism]:
    """A question about the counts of a small universe."""
    domain = universe_domain(form)
    listed = KeyList(column="race", keys=tuple(keys), unknown="drop") if keys else None
    own = TreeThresholds(
        tree=domain.tree.shape, thresholds=plan or short_plan(unit), keyed=bool(keys)
    )
    return HierarchyQuestion(
        name=name,
        domain=domain,
        mechanism=take_mechanism(ThresholdMechanism, fields, plan=own, objective=OBJECTIVE),
        keys=listed,
        **fields,
    )


def make_stated_plan(*questions: Question) -> ReleasePlan:
    """Make a release whose guarantee is exactly what its trees spend."""
    own = [question.spending.own for question in questions]
    stated = sum((each[0] for each in own), Fraction()), sum((each[1] for each in own), Fraction())
    return ReleasePlan(
        name="release",
        unit=questions[0].unit,
        budget=Budget(measure=Measure.EPSILON, amount=stated[0]),
        questions=questions,
        stated=stated,
    )


def worst_alpha_rmse(errors: ThresholdErrors, alpha: float) -> float:
    """The largest bound of RMSE_alpha over all counts: a bound of the alpha-mRMSE."""
    return float(errors.alpha_rmse(errors.places, alpha).max())
