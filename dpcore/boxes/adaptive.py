"""The adaptive partition: a node that is not split is measured again with all that is left.

Levels 0..h have budgets b_0..b_h of sum b. A node of level l is measured with b_l; where its
estimate does not exceed the level's threshold it is measured once more, with b_{l+1} + ... + b_h,
else its children are. Nodes of a level with b_l = 0 are taken to hold even parts of the node
above. Numbers that decide may be apart (`decision_part`); then least squares is unbiased and its
variances are exact.

Guarantee. Let data sets differ in a unit's rows, and fix a transcript: the numbers so far decide
which are requested next, so compare the laws number by number, given all before. A measurement of
node v with b_v has discrete Laplace noise of scale D / b_v, D the L1 sensitivity of a level, and
changes by a factor of at most exp(b_v |d_v| / D), d_v the change of its count. Let w_v sum the
budgets of all measurements of v. The sum of w_v along every path from the root to a part is b,
and a row is in the nodes of one path. So rows that change counts by d, a sum of at most D paths
with signs, change the transcript's probability by at most exp(sum_v w_v |d_v| / D) <= exp(b): of
c rows D = c; under ``substitute`` D = 2 c. (The root has D = c under either; the path then has b
- w_0 left.) A node without cells is not measured, and has no row. Under a rho the noise of v has
the variance D2 / (2 rho_v) and adds rho_v d_v^2 / D2 to the loss. In the squared norm |d|^2 =
sum_v w_v d_v^2 each path has b, so c paths have at most c^2 b, and a difference of two such sums
at most 2 c^2 b, as their product is not negative: D2 = c^2 or 2 c^2. Requests may depend on
results because the loss is at most b on every transcript (a privacy filter; Feldman, Zrnic 2021).
Source: derived here; McSherry 2009; Cormode et al. 2012; docs/decisions/0025.

The planner's rules were simulated on public shapes (benchmarks/box_regret.py, commit 89feee48) and
are flat around these: levels some 4 bits apart (3 for one column and for three), as deep as evenly
spread rows may be distinguished by a public guess, and two levels further (one for one column,
three for three); budgets that rise by 2^1/2 from level to level (even for one column); a node is
split where its estimate exceeds 4 standard errors of a count of its children (6 for one column, 3
for three), of two columns first in four quarters, which are not measured; numbers that only decide
take 3/10 of the levels above the last, and their own standard error is added in squares to the
threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import pairwise
from typing import ClassVar

import numpy as np

from dptrees.dpcore.arithmetic.elementary import exp
from dptrees.dpcore.arithmetic.sums import hypotenuse, integer_power
from dptrees.dpcore.arrays import Flags, Floats, Integers
from dptrees.dpcore.boxes.domain import HypercubeDomain, Nodes
from dptrees.dpcore.boxes.partition import (
    BestLinear,
    Estimates,
    Measurement,
    NodeNoise,
    child_estimates,
    grow_tree,
    largest_nodes,
    measured_nodes,
    measured_variance,
)
from dptrees.dpcore.boxes.plan import (
    EstimatedTree,
    Estimation,
    LevelsPlan,
    LevelVariances,
    refuse_sketched,
)
from dptrees.dpcore.boxes.planner import (
    PartitionChoices,
    PartitionSetting,
    bits_apart,
    exact_holding,
    finest_depth,
    level_amounts,
    most_split,
    refuse_sketches,
    requested_depth,
    useful_depth,
)
from dptrees.dpcore.noise.laws import NoiseLaw, exact_scale
from dptrees.dpcore.privacy.sensitivity import level_sensitivity, noise_law
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.specification import Refusal


@dataclass(frozen=True, kw_only=True)
class AdaptivePartitionPlan(LevelsPlan):
    """The plan of an adaptive partition: how it is measured and grown. Holds no data.

    Args:
        depths, measure, unit, public_total, holding: as of every plan of levels.
        amounts: (h + 1,) at least 0; above 0 are the last and one of the first two. A root of 0 is
            not measured, or public, and always split; another level of 0 is not measured.
        thresholds: (h,) in rows: a node of the level is split if its estimate exceeds it; at least
            0.
        most: nodes of a measured level that are split at most, those with the largest estimates.
        decision_part: p, of the budgets above the last level for the numbers that decide; 0: what
            is measured decides.
        shrunk: whether counts are drawn towards even ones by how little is known.

    Raises:
        ValueError: fields out of range, or that do not fit each other.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> plan = AdaptivePartitionPlan(
    ...     depths=(0, 4, 8), amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)),
    ...     thresholds=(0, 9), most=2**14, measure=Measure.EPSILON, unit=ADD_REMOVE_ROW)
    >>> plan.laws[1], plan.last_laws[1], plan.spending.epsilon
    (DiscreteLaplace(scale=Fraction(2, 1)), DiscreteLaplace(scale=Fraction(2, 1)), Fraction(1, 1))
    >>> AdaptivePartitionPlan.from_spec(plan.spec()) == plan
    True
    """

    mechanism: ClassVar[str] = "adaptive"
    written = (
        *("mechanism", "measure", "unit", "public_total", "levels"),
        *("thresholds", "most", "decision_part", "shrunk", "holding"),
    )

    thresholds: tuple[int, ...]
    most: int
    decision_part: Fraction = Fraction(0)
    shrunk: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.amounts) < 0 or not (max(self.amounts[:2]) and self.amounts[-1]):
            raise ValueError("amounts: at least 0; the last, and one of the first two, above 0")
        refuse_sketched(self.holding)
        if len(self.thresholds) != self.height or min(self.thresholds) < 0:
            raise ValueError(f"thresholds: {self.thresholds} are not {self.height} of at least 0")
        if self.most < 1:
            raise ValueError(f"most: {self.most} is not at least 1")
        if not 0 <= self.decision_part < 1:
            raise ValueError(f"decision_part: {self.decision_part} is not at least 0 and below 1")

    def _noise(self, level: int, amount: Fraction) -> NoiseLaw | None:
        """Return the noise law of one number of a node of a level that spends an amount."""
        if not amount:
            return None
        sensitivity = level_sensitivity(self.unit, single_node=level == 0)
        return noise_law(Budget(measure=self.measure, amount=amount), *sensitivity)

    def _decides(self, level: int) -> Fraction:
        """Budget that a level spends on its decisions alone."""
        return self.amounts[level] * self.decision_part if level < self.height else Fraction(0)

    @cached_property
    def laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) the noise of the first measurement of a node; None where there is none.

        Raises:
            ValueError: the noise would be too large for 64-bit counts.
        """
        return tuple(
            self._noise(level, amount - self._decides(level))
            for level, amount in enumerate(self.amounts)
        )

    @cached_property
    def decision_laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) the noise of the numbers that decide and nothing else; None where none do."""
        return tuple(self._noise(level, self._decides(level)) for level in range(self.height + 1))

    @cached_property
    def last_laws(self) -> tuple[NoiseLaw | None, ...]:
        """(h + 1,) the noise of the second measurement of a node that is not split; None at h."""
        return tuple(
            self._noise(level, sum(self.amounts[level + 1 :], Fraction()))
            for level in range(self.height + 1)
        )

    @cached_property
    def variances(self) -> LevelVariances:
        laws = [measured_variance(law.variance) if law else math.inf for law in self.laws]
        ended = [
            own if last is None else 1 / (1 / own + 1 / measured_variance(last.variance))
            for own, last in zip(laws, self.last_laws, strict=True)
        ]
        if self.public_total:
            laws[0] = ended[0] = 0.0
        return LevelVariances(split=tuple(laws), ended=tuple(ended))

    def selection_bias(self, level: int, estimate: Floats) -> Floats:
        """0 where numbers of their own decide. Else, of a node of count c that is split where c + e
        exceeds the threshold t, with e Laplace of scale b: E(e | e > t - c), taken at the estimated
        c and `_BIAS_SAFETY` times; with u = (t - c) / b it is b (1 + u) for u >= 0 and b (1 - u)
        p / (1 - p) with p = exp(u) / 2 below. Gaussian noise has about as much.

        >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
        >>> plan = AdaptivePartitionPlan(
        ...     depths=(0, 4, 8), amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)),
        ...     thresholds=(0, 9), most=2**14, measure=Measure.EPSILON, unit=ADD_REMOVE_ROW)
        >>> plan.selection_bias(1, np.array([5.0, 9.0, 30.0])).round(3).tolist()
        [8.969, 2.969, 0.0]
        """
        law = self.laws[level]
        if self.decision_part or law is None or level == self.height:
            return super().selection_bias(level, estimate)
        scale = math.sqrt(law.variance / 2)
        under = (self.thresholds[level] - estimate) / scale
        size = np.abs(under)
        tail = exp(-size) / 2
        # An estimate far below has other reasons than this noise.
        above = (1 + size) * np.where(under < 0, tail / (1 - tail), 1.0)
        result: Floats = _BIAS_SAFETY * scale * np.minimum(above, _MOST_BIAS)
        return result

    def estimated(self, domain: HypercubeDomain, measurement: Measurement) -> EstimatedTree:
        assert isinstance(measurement, NodeNoise)  # which the question holds for it
        tree, _ = grow_tree(self.depths, partial(self._look_at, domain, measurement))
        return EstimatedTree.solved(tree, domain if self.shrunk else None)

    def _look_at(
        self,
        domain: HypercubeDomain,
        noise: NodeNoise,
        level: int,
        nodes: Nodes,
        parents: Estimates | None,
    ) -> tuple[Estimates, Estimates, Integers]:
        """Return what is measured of the nodes of a level, the estimates that decide, and which
        nodes are split, as `grow_tree` requests it."""
        depth = self.depths[level]
        own = evidence = measured_nodes(domain, noise, level, depth, nodes)
        if self.decision_part:
            apart = replace(noise, laws=self.decision_laws, purpose="decision")
            evidence = measured_nodes(domain, apart, level, depth, nodes)
        running = _running(parents, evidence)
        places = self._split(level, domain.is_divisible(depth, nodes), running)
        return self._ended(noise, level, nodes, own, places), running, places

    def _split(self, level: int, able: Flags, running: Estimates) -> Integers:
        """(m,) the places of the nodes of a level that are split, rising.

        A root without any measurement is split. On a level that is not measured, all nodes that
        are large enough are split: the splits above leave few.
        """
        if level == self.height:
            return np.empty(0, np.int64)
        large = running.estimate > self.thresholds[level]
        if level == 0:
            large |= np.isinf(running.variance)
        places = np.flatnonzero(able & large)
        return largest_nodes(places, running.estimate, self.most) if self.amounts[level] else places

    def _ended(
        self, noise: NodeNoise, level: int, nodes: Nodes, own: Estimates, split: Integers
    ) -> Estimates:
        """Return the measurements of a level with what its nodes that are not split are measured
        again."""
        value, variance = own
        ended = variance > 0
        ended[split] = False
        places = np.flatnonzero(ended)
        if level < self.height and len(places):
            last = replace(noise, laws=self.last_laws, purpose="last")
            again = last.at(level, self.depths[level], nodes[places])
            both = 1 / (1 / variance[places] + 1 / again.variance)
            # Of a node that was not measured before the second measurement determines all.
            first = np.where(np.isinf(variance[places]), 0.0, value[places])
            value[places] = both * (first / variance[places] + again.estimate / again.variance)
            variance[places] = both
        return own

    @property
    def levels(self) -> list[dict[str, object]]:
        """Each level's depth, budget, and the exact noise of each of its numbers."""
        laws = zip(self.laws, self.decision_laws, self.last_laws, strict=True)
        return [
            {
                "depth": depth,
                self.measure.value: str(amount),
                "held": "counters",
                **_scale("", own),
                **_scale("decision_", decision),
                **_scale("last_", last),
            }
            for depth, amount, (own, decision, last) in zip(
                self.depths, self.amounts, laws, strict=True
            )
        ]


def _scale(name: str, law: NoiseLaw | None) -> dict[str, str]:
    """The scale of a law, its name after what it is of."""
    found = {} if law is None else exact_scale(law)
    return {f"{name}{key}": value for key, value in found.items()}


def _running(parents: Estimates | None, evidence: Estimates) -> Estimates:
    """The estimates that decide, from the estimates of the parents that were split: nodes that are
    not measured have even parts of their parents', and their children learn nothing from it."""
    if parents is None:
        return evidence
    if np.isinf(evidence.variance).any():
        fanout = len(evidence.variance) // len(parents.estimate)
        return Estimates(np.repeat(parents.estimate / fanout, fanout), evidence.variance)
    return child_estimates(BestLinear(), parents, evidence)


# Biases of selections are taken so many times, since the estimates that they are taken at have them
# too; and scales of noise that they are at most.
_BIAS_SAFETY, _MOST_BIAS = 1.5, 5.0
# Of the budgets above the last level, for numbers that decide and nothing else.
DECISION_PART = Fraction(3, 10)
# No node is split into more than 2^8.
_MOST_APART = 8
# About how many bits lie between the levels, by the number of columns.
_BITS_APART = {1: 3}
_BITS_APART_MANY = 4
# Levels beyond the depth at which evenly spread rows vanish in noise, by the number of columns.
_LEVELS_BEYOND = {1: 1, 3: 3}
_LEVELS_BEYOND_MANY = 2
# By how much the budget rises from one level to the next, by the number of columns.
_RISES = {1: 1.0}
_RISES_MANY = math.sqrt(2)
# A node is split where its estimate exceeds so many standard errors of a count of its children.
_SPLIT_ERRORS = {1: 6.0, 3: 3.0}
_SPLIT_ERRORS_MANY = 4.0
# Part of these errors for quarters above the last measured level.
_QUARTERS = 0.5


def plan_adaptive(setting: PartitionSetting, choices: PartitionChoices) -> AdaptivePartitionPlan:
    """The plan for a setting.

    Raises:
        Refusal: a choice that the domain, or another choice, does not allow, or that an adaptive
            partition does not have; a memory limit below the least plan, which the sentence says.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Measure
    >>> plan = plan_adaptive(
    ...     PartitionSetting(bits=16, diameters=lambda depth: 2.0 ** -(depth // 2), dimensions=2,
    ...                      budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
    ...                      unit=ADD_REMOVE_ROW),
    ...     PartitionChoices.from_mechanism("adaptive", rows=10**6))
    >>> plan.depths, plan.thresholds
    ((0, 4, 6, 8, 10, 12, 14, 16), (0, 35, 22, 26, 16, 22, 15))
    """
    _refuse(choices)
    measured = _depths(setting, choices)
    shares = dict(zip(measured, _amounts(setting, choices, len(measured) - 1), strict=True))
    depths = _with_quarters(measured) if setting.dimensions == 2 else measured
    amounts = tuple(shares.get(depth, Fraction(0)) for depth in depths)
    part = DECISION_PART if choices.decided_apart else Fraction(0)
    return AdaptivePartitionPlan(
        depths=depths,
        amounts=amounts,
        thresholds=_thresholds(setting, choices, amounts, part),
        most=most_split(choices, setting, measured),
        measure=setting.budget.measure,
        unit=setting.unit,
        decision_part=part,
        shrunk=choices.estimation is Estimation.SHRUNK,
        public_total=setting.public_total,
        holding=exact_holding(choices, depths[-1]),
    )


def _refuse(choices: PartitionChoices) -> None:
    """
    Raises:
        Refusal: a choice that an adaptive partition does not have.
    """
    refuse_sketches(choices, "an adaptive partition needs exact counts until a node is looked at")
    if choices.parts is not None:
        raise Refusal("parts", "an adaptive partition splits by noise, not by a part of all rows")
    if choices.shares == "lemma_5":
        raise Refusal("shares", "lemma_5 is of a partition whose levels are all measured")
    if choices.estimation is Estimation.EVEN_SHARES:
        raise Refusal("estimation", "an adaptive partition is estimated by least squares")


def _depths(setting: PartitionSetting, choices: PartitionChoices) -> tuple[int, ...]:
    """Choose depths that step from the root as in other partitions; what remains is a step
    of its own, or joins the last step where it is less than half of one."""
    usual = _BITS_APART.get(setting.dimensions, _BITS_APART_MANY)
    apart = choices.bits_apart or bits_apart(setting.dimensions, usual)
    useful = useful_depth(setting, choices.guessed_rows)
    beyond = _LEVELS_BEYOND.get(setting.dimensions, _LEVELS_BEYOND_MANY)
    finest = requested_depth(setting, choices) or finest_depth(setting, useful, apart, beyond)
    depths = [0]
    while depths[-1] < finest:
        rest = finest - depths[-1]
        joined = 2 * rest < 3 * apart and rest <= _MOST_APART
        depths.append(finest if joined else depths[-1] + min(apart, rest))
    return tuple(depths)


def _with_quarters(measured: tuple[int, ...]) -> tuple[int, ...]:
    """Below the first measured level one every two bits.

    >>> _with_quarters((0, 4, 8, 13))
    (0, 4, 6, 8, 10, 12, 13)
    """
    between = {depth for above, below in pairwise(measured[1:]) for depth in range(above, below, 2)}
    return tuple(sorted({*measured, *between}))


def _amounts(
    setting: PartitionSetting, choices: PartitionChoices, levels: int
) -> tuple[Fraction, ...]:
    """Return the budget of each level; the root, whose count follows, has none unless it is
    requested."""
    rises = 1.0 if choices.shares == "equal" else _RISES.get(setting.dimensions, _RISES_MANY)
    root = choices.root and not setting.public_total
    shares = np.array([float(integer_power(rises, level)) for level in range(levels + root)])
    return level_amounts(setting, shares / shares.sum(), root=root)


def _thresholds(
    setting: PartitionSetting,
    choices: PartitionChoices,
    amounts: tuple[Fraction, ...],
    part: Fraction,
) -> tuple[int, ...]:
    """(h,) in rows."""
    chosen, last = choices.split_errors, len(amounts) - 1
    if chosen is None:
        chosen = _SPLIT_ERRORS.get(setting.dimensions, _SPLIT_ERRORS_MANY)
    results, decides = [], 0.0
    for level, (own, below) in enumerate(pairwise(amounts)):
        if level == 0 and not own:
            results.append(0)
            continue
        if not below:
            # A child that ends is measured with all that is left.
            least = chosen * _deviation(setting, sum(amounts[level + 1 :], Fraction()))
        elif level + 1 == last:
            least = chosen * _deviation(setting, below)
        else:
            errors = chosen if own else chosen * _QUARTERS
            least = errors * _deviation(setting, below * (1 - part))
        # Quarters share the number that decided, and its error.
        decides = _deviation(setting, own * part) if own and part else decides / 4
        results.append(round(hypotenuse(least, decides)))
    return tuple(results)


def _deviation(setting: PartitionSetting, amount: Fraction) -> float:
    """Return the standard deviation of the noise of a count below the root that spends an
    amount."""
    sensitivity = level_sensitivity(setting.unit, single_node=False)
    law = noise_law(Budget(measure=setting.budget.measure, amount=amount), *sensitivity)
    return math.sqrt(law.variance)
