"""Parameters of counts between thresholds that make the predicted error small.

For an additive error E and a relative one alpha, a round that finds counts from its floor L_j up
to U_{j+1} can take the estimate

    e_j = (1 + alpha) L_j + E,   as long as   U_{j+1} <= ((1 + alpha) L_j + 2 E) / (1 - alpha),

U_j being the largest count that round j may well miss; below all rounds L_0 = 0, so that e_0 = E
and U_1 = 2 E / (1 - alpha). (The paper takes U_{j+1} itself as the estimate, which reaches a
factor of 1 + alpha only, not (1 + alpha) / (1 - alpha).) Between L_j and U_j there must be space
for

    U_j - L_j = R + (z_t + z_u) 2 c / (s epsilon_j),

R the radius of the looks' noise at ((1 - s) epsilon_j / c, delta_j / c) and 2 c / (s epsilon_j)
the scale of the search, z_t scales so that a level is seldom found without a node, z_u so that a
node of U_j is seldom missed (more seldom in later rounds, where a miss costs more), and U_{j+1} -
U_j is below c L_j by some slack, so that a round seldom runs out of levels. This gives epsilon_j;
E is the least one at which the rounds cost epsilon together. What remains free is searched: L_j /
U_j, c, z_u and how seldom is seldom, by the bound of the objective (`dpcore.thresholds.plan`). No
data are touched, and the guarantee does not depend on any of it. Source: derived here; Ghazi,
Kamath, Kumar, Manurangsi, Wu, Algorithm 4, for the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from dptrees.dpcore.arithmetic.elementary import expm1, log, log1p
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.sensitivity import GroupPrivacy, rounded_down
from dptrees.dpcore.thresholds.plan import ThresholdErrors, ThresholdPlan, ThresholdRound

Score = Callable[[ThresholdErrors], float]

# Floors between the least that lets thresholds rise and U_j, and of the first round.
_FLOORS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8)
_FIRST_FLOORS = (0.02, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75)
_CUTOFFS = (1, 2, 3, 4)
# How seldom a level without a node may be found TOP, before the size of the error that follows.
_SELDOM = (0.3, 0.1, 0.03, 0.01)
# Scales of the search from tau to U_j, besides those that the size of the error needs.
_ABOVE = (-2.0, -1.0, 0.0, 1.0)
# (U_{j+1} - U_j) / (c L_j) at most.
_TIGHT = (0.5, 0.65, 0.8, 0.9)
# Of a plan, the estimates of what no round finds, as parts of E.
_LEAST = (0.0, 0.25, 0.5, 0.75)
# delta_j ~ this^j.
_DELTA_RATIO = Fraction(3, 5)
_MOST_ROUNDS = 150
_DELTA_PARTS = [float((1 - _DELTA_RATIO) * _DELTA_RATIO**number) for number in range(_MOST_ROUNDS)]
_LEAST_RISE = 1.02
# What another layout must gain, and the E below which none gains anything, in rows.
_WORTH, _LEAST_ERROR = 0.998, 1e-3
# Budgets are rounded down to so many bits, so that scales stay short fractions.
_BITS = 32
_ESTIMATE_UNIT = 4
# Costs that are this part of epsilon from it are worked out to the last digit. Probabilities above
# the second have quantiles that twelve steps may not reach.
_UNSURE, _SLOW = 1e-5, 0.05


@dataclass(frozen=True, kw_only=True)
class _Setting:
    """The given values, as floats: a row's epsilon and delta, h, alpha, and the root's bound."""

    epsilon: float
    delta: float
    height: int
    alpha: float
    root_bound: float


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """The searched values: L_j / U_j of the first and of the later rounds, the most c, z_u, how
    seldom a level is found TOP without a node, and how tight c is."""

    first_floor: float
    floor: float
    cutoff: int
    above: float = 0.0
    seldom: float = 0.1
    tight: float = 0.8


@dataclass(frozen=True, kw_only=True)
class _Draft:
    """One round, as floats."""

    upper: float
    floor: float
    cutoff: int
    above: float
    search_epsilon: float
    node_epsilon: float
    estimate: float


class _Room(NamedTuple):
    """The conditions that a round must meet: its number, L_j and U_j, c, E, what a node of U_{j+1}
    loses, and e_j."""

    number: int
    upper: float
    floor: float
    cutoff: int
    error: float
    excess: float
    estimate: float


def calibrate(
    group: GroupPrivacy, *, height: int, alpha: float, score: Score, root_bound: int = MAX_COUNT
) -> ThresholdPlan:
    """The plan of the smallest score found; no data are touched.

    Guarantee: the plan's; it is checked exactly when the plan is made.

    Args:
        group: the epsilon and delta, and the rows that they are for.
        height: h, the level of the leaves.
        alpha: the relative error that the rounds are laid out for, above 0 and below 1.
        score: what to make small, from the bounds of a plan's errors, with which it must rise.
        root_bound: M, a public bound of the rows of a tree, by default the most that are counted;
            above it the guarantee holds, but not the predicted error.

    Returns:
        The plan; without rounds where the budget is too small for any to help.

    Raises:
        ValueError: an argument out of range.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> group = GroupPrivacy(epsilon=Fraction(1), delta=Fraction(1, 10**6), unit=ADD_REMOVE_ROW)
    >>> def worst(errors: ThresholdErrors) -> float:
    ...     return float(errors.alpha_rmse(errors.places, 0.5).max())
    >>> plan = calibrate(group, height=20, alpha=0.5, root_bound=10**6, score=worst)
    >>> round(worst(ThresholdErrors(plan, height=20, root_bound=10**6)))
    120
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it must be above 0 and below 1")
    if height < 0:
        raise ValueError(f"height is {height}; it must be at least 0")
    if not 1 <= root_bound <= MAX_COUNT:
        raise ValueError(f"root_bound is {root_bound}; it must be from 1 to 2^40")
    setting = _Setting(
        epsilon=float(group.row_epsilon),
        delta=float(group.row_delta),
        height=height,
        alpha=alpha,
        root_bound=float(root_bound),
    )
    search = _Search(setting=setting, group=group, score=score, root_bound=root_bound)
    return search.best()


@dataclass(frozen=True, kw_only=True)
class _Scored:
    value: float
    plan: ThresholdPlan


@dataclass(frozen=True, kw_only=True)
class _Search:
    """Coordinate descent: the layout of the rounds by E, how seldom they fail by the score."""

    setting: _Setting
    group: GroupPrivacy
    score: Score
    root_bound: int
    known: dict[tuple[_Shape, float], _Scored] = field(default_factory=dict)
    roughly_known: dict[tuple[_Shape, float], _Scored] = field(default_factory=dict)

    def best(self) -> ThresholdPlan:
        """The plan of the least score found, by two orders of the coordinates."""
        cautions = {"tight": _TIGHT, "seldom": _SELDOM, "above": _ABOVE}
        orders = (("tight", "seldom", "above"), ("above", "seldom", "tight"))
        results = [self._descended({name: cautions[name] for name in order}) for order in orders]
        return self._with_least(min(results, key=lambda each: each.value)).plan

    def _descended(self, cautions: dict[str, tuple[float, ...]]) -> _Scored:
        least = (1 - self.setting.alpha) / (1 + self.setting.alpha)
        floors = tuple(least + (1 - least) * part for part in _FLOORS)
        start = _Shape(first_floor=0.3, floor=floors[3], cutoff=2)
        shape, error = _laid_out(self.setting, start, floors)
        best = self._scored(shape, error)
        for name, values in (*cautions.items(), *cautions.items()):
            start = shape
            for value in values:
                tried = _laid_out(self.setting, _varied(start, name, value), floors)
                if self._roughly_scored(*tried).value >= best.value:
                    continue
                scored = self._scored(*tried)
                if scored.value < best.value:
                    shape, best = tried[0], scored
        return best

    # Both descents begin at the same layout, and each comes back to some of its own.

    def _scored(self, shape: _Shape, error: float) -> _Scored:
        if (shape, error) not in self.known:
            plan = self._roughly_scored(shape, error).plan
            self.known[shape, error] = self._score_plan(plan)
        return self.known[shape, error]

    def _roughly_scored(self, shape: _Shape, error: float) -> _Scored:
        """The plan of a layout, with a score that is not above the plan's."""
        if (shape, error) not in self.roughly_known:
            drafts = _drafts(self.setting, shape, error) or []
            plan = _plan(drafts, error, self.group)
            self.roughly_known[shape, error] = self._score_plan(plan, is_rough=True)
        return self.roughly_known[shape, error]

    def _score_plan(self, plan: ThresholdPlan, *, is_rough: bool = False) -> _Scored:
        height, most = self.setting.height, self.root_bound
        errors = ThresholdErrors(plan, height=height, root_bound=most, is_rough=is_rough)
        return _Scored(value=self.score(errors), plan=plan)

    def _with_least(self, found: _Scored) -> _Scored:
        """Return the plan with the best estimate of the counts that no round finds."""
        tried = [
            self._score_plan(replace(found.plan, least=_short(float(found.plan.least) * part)))
            for part in _LEAST
        ]
        return min([found, *tried], key=lambda each: each.value)


# The second turn of a descent begins where the first one ended.
@lru_cache(maxsize=256)
def _laid_out(setting: _Setting, shape: _Shape, floors: tuple[float, ...]) -> tuple[_Shape, float]:
    """The layout of the least E, one coordinate after the other, as long as it falls."""
    grid: dict[str, tuple[float, ...]] = {
        "first_floor": _FIRST_FLOORS,
        "floor": floors,
        "cutoff": _CUTOFFS,
    }
    best, improved = _least_error(setting, shape), True
    while improved and best > _LEAST_ERROR * 1.01:
        improved = False
        for name, values in grid.items():
            for value in values:
                tried = _varied(shape, name, value)
                if tried != shape and _affordable(setting, tried, best * _WORTH):
                    # What E buys is not quite monotone, so the least one found may be no better.
                    error = _least_error(setting, tried)
                    if error < best:
                        shape, best, improved = tried, error, True
    return shape, best


def _varied(shape: _Shape, name: str, value: float) -> _Shape:
    return _Shape(**{**asdict(shape), name: value})


def _least_error(setting: _Setting, shape: _Shape) -> float:
    """The least E at which the rounds of a shape cost epsilon at most: at M none is needed."""
    low, high = _LEAST_ERROR, setting.root_bound
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _affordable(setting, shape, middle) else (middle, high)
    return high


# A turn of a layout looks at the shapes of the last one again.
@lru_cache(maxsize=256)
def _affordable(setting: _Setting, shape: _Shape, error: float) -> bool:
    rough = _rough_cost(setting, shape, error)
    if abs(rough - setting.epsilon) > _UNSURE * setting.epsilon:
        return rough < setting.epsilon
    drafts = _drafts(setting, shape, error)
    return drafts is not None and _cost(drafts) <= setting.epsilon


def _rough_cost(setting: _Setting, shape: _Shape, error: float) -> float:
    """The cost of `_drafts`, to a part of 1e-5; infinite where there are none, and cut off where it
    is above epsilon already."""
    spent = 0.0
    for room in _rooms(setting, shape, error):
        if room is None:
            return math.inf
        spent += _round_budgets(setting, shape, room, _rough_quantile).both
        if spent > setting.epsilon * (1 + 2 * _UNSURE):
            break
    return spent


def _cost(drafts: list[_Draft]) -> float:
    return sum(each.search_epsilon + each.node_epsilon for each in drafts)


def _drafts(setting: _Setting, shape: _Shape, error: float) -> list[_Draft] | None:
    """The rounds for an additive error E; None where they do not rise to the root's bound, or cost
    more than epsilon before they do."""
    drafts, spent = list[_Draft](), 0.0
    for room in _rooms(setting, shape, error):
        if room is None or spent > setting.epsilon:
            return None
        drafts.append(draft := _draft(setting, shape, room))
        spent += draft.search_epsilon + draft.node_epsilon
    return drafts


def _rooms(setting: _Setting, shape: _Shape, error: float) -> Iterator[_Room | None]:
    """The conditions of the rounds for an additive error E; None, at the end, where these do not
    rise to the root's bound."""
    alpha, number = setting.alpha, 0
    upper, below = 2 * error / (1 - alpha), error
    while upper < setting.root_bound:
        floor = upper * (shape.floor if number else shape.first_floor)
        reach = ((1 + alpha) * floor + 2 * error) / (1 - alpha)
        cutoff = max(1, min(shape.cutoff, math.ceil((reach - upper) / (shape.tight * floor))))
        reach = min(reach, upper + shape.tight * cutoff * floor)
        if reach < upper * _LEAST_RISE or number == _MOST_ROUNDS:
            yield None
            return
        # What a node of U_{j+1} would lose if it were missed.
        excess = max((1 - alpha) * reach - below, error)
        below = (1 + alpha) * floor + error
        yield _Room(
            number=number,
            upper=upper,
            floor=floor,
            cutoff=cutoff,
            error=error,
            excess=excess,
            estimate=below,
        )
        upper, number = reach, number + 1


def _draft(setting: _Setting, shape: _Shape, room: _Room) -> _Draft:
    """The cheapest round with space between floor and upper."""
    budgets = _round_budgets(setting, shape, room, _difference_quantile)
    return _Draft(
        upper=room.upper,
        floor=room.floor,
        cutoff=room.cutoff,
        above=budgets.above,
        search_epsilon=budgets.both - budgets.node,
        node_epsilon=budgets.node,
        estimate=room.estimate,
    )


class _Budgets(NamedTuple):
    """The epsilon of a round, that of its looks, and scales of the search from tau to U_j."""

    both: float
    node: float
    above: float


def _round_budgets(
    setting: _Setting, shape: _Shape, room: _Room, quantile: Callable[[float], float]
) -> _Budgets:
    """The least budgets of a round: s is best for a / (1 - s) + b / s.

    a represents the radius of the looks, b for the margins of the search; both depend on the budget
    by logarithms only.
    """
    cutoff, gap = room.cutoff, room.upper - room.floor
    ratio = room.error / room.excess
    rarely = shape.seldom * ratio * ratio
    wait = quantile(rarely / max(1, setting.height * cutoff))
    delta = setting.delta * _DELTA_PARTS[room.number]
    a, above = 10.0, 1.0
    for _ in range(4):
        root = math.sqrt(a)
        roots = root + math.sqrt(max(0.5, 2 * (wait + above)))
        epsilon = cutoff / gap * roots * roots
        node = epsilon * root / roots
        growth = expm1(min(node / cutoff, 50.0)) * cutoff / (2 * delta)
        a = max(0.1, log1p(growth))
        # Missed nodes lose about a scale of the search, which is more than E in later rounds.
        scale = 2 * cutoff / (epsilon - node)
        lost = max(1.0, (1 - setting.alpha) * scale / room.error)
        above = max(0.0, quantile(shape.seldom / (lost * lost)) + shape.above)
    return _Budgets(epsilon, node, above)


# Most rounds look for a few probabilities.
@lru_cache(maxsize=2**12)
def _difference_quantile(probability: float) -> float:
    """z >= 0 with (2 + z) e^-z / 4 = probability, the tail of a difference of two Laplace noises.

    >>> z = _difference_quantile(1e-3)
    >>> round((2 + z) * math.exp(-z) / 4, 9)
    0.001
    """
    z = 0.0
    for _ in range(12):
        before, z = z, log((2 + z) / (4 * probability))
        if z <= 0:
            return 0.0
        if z == before:  # as it would stay
            break
    return z


@lru_cache(maxsize=2**12)
def _rough_quantile(probability: float) -> float:
    """The same to a part of 1e-6, by Newton's method, in fewer logarithms.

    >>> z = _rough_quantile(1e-3)
    >>> round((2 + z) * math.exp(-z) / 4, 8)
    0.001
    """
    if probability > _SLOW:
        return _difference_quantile(probability)
    size = -log(4 * probability)
    z = size + log(2.75 + size)
    for _ in range(2):
        z -= (z - size - log(2 + z)) * (2 + z) / (1 + z)
    return z


def _plan(drafts: list[_Draft], error: float, group: GroupPrivacy) -> ThresholdPlan:
    """The plan of drafts: budgets scaled to the whole and rounded down, radii exact."""
    scale = group.row_epsilon / Fraction(max(_cost(drafts), 1e-12))
    rounds: list[ThresholdRound] = []
    for number, draft in enumerate(drafts):
        share = group.row_delta * (1 - _DELTA_RATIO) * _DELTA_RATIO**number
        search = rounded_down(Fraction(draft.search_epsilon) * scale, _BITS)
        # Rising, so that an estimate says its round, and none is above that of its parent.
        below = rounds[-1].estimate if rounds else _short(error)
        free = ThresholdRound(
            cutoff=draft.cutoff,
            search_epsilon=search,
            node_epsilon=rounded_down(Fraction(draft.node_epsilon) * scale, _BITS),
            delta=rounded_down(share, _BITS),
            tau=0,
            acceptance=0,
            estimate=max(_short(draft.estimate), below + Fraction(1, _ESTIMATE_UNIT)),
        )
        tau = round(draft.upper - draft.above * float(free.sparse_vector.query_law.scale))
        tau = max(tau, rounds[-1].tau + 1 if rounds else 1)
        acceptance = math.ceil(draft.floor) + free.noise.radius
        rounds.append(replace(free, tau=tau, acceptance=acceptance))
    return ThresholdPlan(
        epsilon=group.epsilon,
        delta=group.delta,
        unit=group.unit,
        least=_short(error),
        rounds=tuple(rounds),
    )


def _short(value: float) -> Fraction:
    return Fraction(round(value * _ESTIMATE_UNIT), _ESTIMATE_UNIT)
