"""Shapes, budget shares and thresholds of adaptive trees over ordered domains, and their planner.

How good an adaptive tree is depends on the data, so the rules were found on public shapes of data
(decision 0025), where the optimum is flat. Under epsilon a level has about 3.2
halvings, under rho one. The root gets no budget. A node is split where its decision number is at
least 3 times the error that splitting adds, sqrt(n v), with n its children and v the variance of
a child's measurement; counts that are shrunk need less (decision 0058).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.arithmetic.elementary import exp, exp2, log, log2
from dptrees.dpcore.arithmetic.sums import integer_power
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.levels.planner import predicted_cdf_rmse, predicted_error
from dptrees.dpcore.levels.workload import (
    FREE_INTERVALS,
    OrderedWorkload,
    Planner,
    Reasons,
    TreeWorkload,
    Values,
    W,
)
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.repair.paths import Distribution, rows_below
from dptrees.dpcore.repair.planner import (
    CountError,
    assumed_rows,
    objective_reading,
    reference_histograms,
)
from dptrees.dpcore.trees.chunks import Chunk, UniformChunking
from dptrees.dpcore.trees.shapes import IrregularTree, Shape, UniformTree
from dptrees.dpcore.uniform.objectives import Objective
from dptrees.dpcore.uniform.plan import Consistency, TreePlan, TreeSetting

# Of the budget of a level that decides, what its decisions get where they are apart.
DECISION_PART = Fraction(1, 5)
# A node is split if its decision number is at least this many times the error that splitting adds.
THRESHOLD_FACTOR = 3.0
# Where shrunk counts are read: of the nodes below the root, and of those further below.
_SHRUNK_FACTORS = (2.5, 2.0)
# Halvings a level, and by how many fewer the next level above has.
_HALVINGS = {Measure.EPSILON: (3.2, 0.4), Measure.RHO: (1.0, 0.0)}
# Shares fall by this factor from level to level without a guess; and no faster with one of so many
# rows a cell, in units of the noise: a + b log10(rows), up to a bound. Faster falls for few rows
# were no closer (decision 0065).
_FALL = {Measure.EPSILON: 0.9, Measure.RHO: 0.95}
_SHRUNK_FALL = {Measure.EPSILON: 0.85, Measure.RHO: 0.95}
_GUESSED_FALL = {Measure.EPSILON: (0.85, 0.08, 1.1), Measure.RHO: (0.92, 0.04, 1.0)}
# With more rows a cell, in units of the noise, nearly all nodes are split.
_MOST_ROWS = {Measure.EPSILON: 30.0, Measure.RHO: 10.0}


def plan_adaptive(
    setting: TreeSetting,
    *,
    counts: bool,
    shrunk: bool = False,
    guessed_rows: float | None = None,
    fanouts: Sequence[int] | None = None,
) -> AdaptivePlan:
    """The plan of a uniform tree by rule.

    Args:
        setting: the leaves, and what drawing the tree may cost.
        counts: whether what is read is the integers, so that measurements decide; else decisions
            are measured apart, and estimates are unbiased given the drawn tree.
        shrunk: whether counts are shrunk (`dpcore.trees.isotonic`).
        guessed_rows: a public guess of the rows, or None.
        fanouts: the shape, where it is given.

    Raises:
        ValueError: as `AdaptivePlan` and `dpcore.trees.shapes.UniformTree`.
    """
    shape = tuple(fanouts or rule_fanouts(setting.leaves, setting.budget.measure))
    tree = UniformTree(leaves=setting.leaves, fanouts=shape)
    return with_rule(tree, setting, counts=counts, shrunk=shrunk, guessed_rows=guessed_rows)


def most_rows(setting: TreeSetting) -> float:
    """Return the number of rows up to which counts of an adaptive tree are expected to be closer
    than the counts of a tree planned for estimates: they are on public shapes of data, in the
    geometric mean, until so many rows are in each cell that nearly all nodes are split.

    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> most_rows(TreeSetting(leaves=1000, unit=ADD_REMOVE_ROW,
    ...                       budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    30000.0
    """
    if setting.leaves == 1:
        return 0.0
    most = _MOST_ROWS[setting.budget.measure] * setting.leaves
    return most / rows_in_noise(setting, 1.0)


def with_rule(
    tree: Shape,
    setting: TreeSetting,
    *,
    counts: bool,
    shrunk: bool = False,
    shares: Sequence[float] | None = None,
    guessed_rows: float | None = None,
) -> AdaptivePlan:
    """The plan of any tree, with thresholds by rule.

    Args:
        tree: its shape.
        setting: all of it but the leaves counts.
        counts, shrunk: as for `plan_adaptive`.
        shares: (h + 1,) the parts of the budget by level, of sum 1; by default by rule.
        guessed_rows: as for `plan_adaptive`, for the rule.

    Raises:
        ValueError: as `AdaptivePlan`.
    """
    if tree.height == 0:
        amounts: tuple[Fraction, ...] = (
            Fraction(0) if setting.public_total else setting.budget.amount,
        )
    else:
        if shares is None:
            shares = rule_shares(tree.height, setting, guessed_rows, shrunk=shrunk and counts)
        amounts = setting.budget.split(shares)
    plan = AdaptivePlan(
        tree=tree,
        unit=setting.unit,
        budget=setting.budget,
        level_amounts=amounts,
        thresholds=(0,) * tree.height,
        decision_part=Fraction(0) if counts else DECISION_PART,
        public_total=setting.public_total,
        keyed=setting.keyed,
        consistency=Consistency.SHRUNK if shrunk else Consistency.TOP_DOWN,
    )
    return replace(plan, thresholds=rule_thresholds(plan))


def rule_shares(
    height: int, setting: TreeSetting, guessed_rows: float | None, *, shrunk: bool
) -> list[float]:
    """(h + 1,) the parts of the budget by level: none for the root, then falling."""
    measure = setting.budget.measure
    fall = (_SHRUNK_FALL if shrunk else _FALL)[measure]
    if guessed_rows is not None and guessed_rows > 0:
        middle, slope, most = _GUESSED_FALL[measure]
        rows = rows_in_noise(setting, guessed_rows) / setting.leaves
        fall = min(most, max(fall, middle + slope * log(rows) / log(10.0)))
    falling = [float(integer_power(fall, level)) for level in range(height)]
    return [0.0, *(each / math.fsum(falling) for each in falling)]


def rule_thresholds(plan: AdaptivePlan) -> tuple[int, ...]:
    """(h,) by rule: 3 sqrt(n v) of the nodes of each level that have several children; 2.5 and 2
    where counts are shrunk and measurements decide."""
    first = later = THRESHOLD_FACTOR
    if plan.is_shrunk and not plan.decision_part:
        first, later = _SHRUNK_FACTORS
    return tuple(
        math.ceil(
            (later if level > 1 else first) * math.sqrt(_children(plan.tree, level) * variance)
        )
        for level, variance in enumerate(_child_variances(plan))
    )


def _child_variances(plan: AdaptivePlan) -> list[float]:
    """(h,) of one child's measurement; where it is not measured, of its children's sum."""
    result: list[float] = []
    below = 0.0
    for level in reversed(range(plan.tree.height)):
        law = plan.laws[level + 1]
        below = law.variance if law else _children(plan.tree, level + 1) * below
        result.insert(0, below)
    return result


def _children(tree: Shape, level: int) -> float:
    """Mean number of children of a level's nodes, over the nodes that have several."""
    if isinstance(tree, UniformTree):
        return float(min(tree.fanouts[level], tree.level_sizes[level + 1]))
    assert isinstance(tree, IrregularTree)
    several = tree.fanouts[level][tree.fanouts[level] > 1]
    return float(several.mean()) if several.size else 1.0


def rows_in_noise(setting: TreeSetting, rows: float) -> float:
    """A number of rows in units of the noise: rows times epsilon, or times the root of 2 rho, for
    units that are rows; less for units of several."""
    l1, l2_squared = level_sensitivity(setting.unit, single_node=False, keyed=setting.keyed)
    amount = float(setting.budget.amount)
    if setting.budget.measure is Measure.EPSILON:
        return rows * amount / l1
    return rows * math.sqrt(2 * amount / l2_squared)


def rule_fanouts(leaves: int, measure: Measure) -> tuple[int, ...]:
    """Fan-outs of a product that is near the leaves.

    >>> [rule_fanouts(each, Measure.EPSILON) for each in (64, 256, 1024, 4096)]
    [(8, 9), (6, 6, 8), (8, 10, 13), (6, 7, 9, 12)]
    >>> rule_fanouts(100, Measure.RHO)
    (2, 2, 2, 2, 2, 2, 2)
    """
    if leaves == 1:
        return ()
    wanted, rise = _HALVINGS[measure]
    halvings = log2(leaves)
    height = max(1, math.floor(halvings / wanted + 0.5))
    middle = (height - 1) / 2
    below = [
        max(2, round(exp2(halvings / height + rise * (level - middle))))
        for level in range(1, height)
    ]
    first = -(-leaves // math.prod(below))
    while below and first < 2:
        below = below[1:]
        first = -(-leaves // math.prod(below))
    return (first, *below)


# Decisions that are measured apart cost so much that whole levels win this much earlier (measured
# as decision 0025 does: at 4,096 cells estimates are closer up to 10,000 rows times
# epsilon, and not at 100,000).
_EARLIER = 4


def if_all_split(plan: AdaptivePlan) -> TreePlan:
    """The plan of the measurements that estimates are made of if every node is split."""
    assert isinstance(plan.tree, UniformTree)
    measured = 1 - plan.decision_part
    return TreePlan(
        tree=plan.tree,
        unit=plan.unit,
        budget=plan.budget,
        level_amounts=tuple(
            amount * (measured if plan.decides(level) else Fraction(1))
            for level, amount in enumerate(plan.level_amounts)
        ),
        public_total=plan.public_total,
        keyed=plan.keyed,
    )


def noise_if_all_split(plan: AdaptivePlan) -> float:
    """The root mean square of the errors of all CDF points in rows, if every node is split.

    >>> from dptrees.dpcore.adaptive.planner import plan_adaptive
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> from dptrees.dpcore.uniform.plan import TreeSetting
    >>> setting = TreeSetting(
    ...     leaves=4096, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> apart, together = (
    ...     noise_if_all_split(plan_adaptive(setting, counts=counts)) for counts in (False, True))
    >>> apart > together
    True
    """
    return predicted_cdf_rmse(if_all_split(plan))


def most_undivided(plan: AdaptivePlan) -> int:
    """The largest count from which on a node is split, in rows; 0 where all are."""
    return max(
        (plan.thresholds[level] for level in range(plan.tree.height) if plan.decides(level)),
        default=0,
    )


def rows_of_adaptive(setting: TreeSetting, *, counts: bool) -> float:
    """Up to how many rows an adaptive tree is expected to be closer than whole levels.

    Args:
        setting: of the tree.
        counts: whether its counts are read, and not its estimates.
    """
    if setting.leaves == 1:
        return 0.0
    return most_rows(setting) / (1 if counts else _EARLIER)


# Errors of answers about an adaptive tree take memory in proportion to its cells, 3 GB for 2^24;
# answers about whole levels do not.
_MOST_ADAPTIVE = 2**22
_OWN_LEVELS = "the mechanism adaptive has its own"
# A tree of more leaves is not simulated: it would take longer than the rest of the plan.
MOST_LEAVES = 2**14
# Of so many leaves in all, in between so many releases.
_LEAVES, _FEWEST, _MOST = 2**17, 8, 64
_PAIRS = 1024
_CHUNK = 2**17
# Simulations in each power of ten of the rows, and how near to one is at it.
_STEPS, _NEAR = 4, 0.01
_LEAST = 1e-12
# Everybody knows it: it protects nothing, and makes a prediction the same in every run.
_PUBLIC_KEY = ReleaseKey(bytes(32))


@lru_cache(maxsize=256)
def adaptive_count_error(plan: AdaptivePlan, objective: Objective, rows: int) -> CountError | None:
    """Root mean square error of the counts of an adaptive tree, by the model.

    Errors and rows are both in units of the noise, so plans that differ in the budget or the unit
    alone share their simulations; between these, a quarter of a power of ten apart, the logarithm
    of the error is interpolated. So the error falls as the budget grows, without jumps.

    Args:
        plan: of a uniform tree.
        objective: what is read.
        rows: a public guess.

    Returns:
        The errors, in the objective's unit; None of trees of one leaf or more than 16,384.

    >>> from dptrees.dpcore.adaptive.planner import plan_adaptive
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> from dptrees.dpcore.uniform.objectives import CDF
    >>> from dptrees.dpcore.uniform.plan import TreeSetting
    >>> plan = plan_adaptive(TreeSetting(
    ...     leaves=64, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))), counts=True)
    >>> few, many = (
    ...     adaptive_count_error(plan, CDF, rows) for rows in (30, 100_000))
    >>> few.typical < many.typical
    True
    """
    if not 1 < plan.tree.leaves <= MOST_LEAVES:
        return None
    scale = 1 / rows_in_noise(if_all_split(plan).setting, 1.0)
    place = max(0.0, _STEPS * log(rows / scale) / log(10.0))
    below = math.floor(place + _NEAR)
    weight = max(0.0, place - below)
    scaled = _at_scale_one(plan, scale)
    logs = _log_errors(scaled, objective, below)
    if weight > _NEAR:
        above = _log_errors(scaled, objective, below + 1)
        logs = logs + weight * (above - logs)
    errors = exp(logs) * scale
    typical = exp(float(np.mean(logs))) * scale
    return CountError(
        rows=rows, typical=typical, least=float(errors.min()), most=float(errors.max())
    )


def _at_scale_one(plan: AdaptivePlan, scale: float) -> AdaptivePlan:
    """The plan at the budget that gives one count noise of scale 1."""
    times = scale if plan.budget.measure is Measure.EPSILON else scale * scale
    ratio = Fraction(round(float(plan.budget.amount) * times, 3)) / plan.budget.amount
    scaled = replace(
        plan,
        budget=replace(plan.budget, amount=plan.budget.amount * ratio),
        level_amounts=tuple(amount * ratio for amount in plan.level_amounts),
    )
    return replace(scaled, thresholds=rule_thresholds(scaled))


@lru_cache(maxsize=256)
def _log_errors(plan: AdaptivePlan, objective: Objective, place: int) -> Floats:
    """(histograms,) logarithms of the root mean square errors at 10^(place / 4) rows."""
    tree, rows = plan.tree, max(1, round(exp(place * log(10.0) / _STEPS)))
    assert isinstance(tree, UniformTree)
    references = reference_histograms(objective, tree.leaves)
    errors = []
    for reference, prefixes in zip(
        references, _wrong_prefixes(plan, references, rows), strict=True
    ):
        reading = objective_reading(objective, tree, reference, _PAIRS)
        squares = [
            reading.mean_square(each[reading.stops], np.full(_PAIRS, each[-1])) for each in prefixes
        ]
        errors.append(math.sqrt(max(_LEAST, math.fsum(squares) / len(squares))))
    return log(np.array(errors))


@lru_cache(maxsize=8)
def _wrong_prefixes(plan: AdaptivePlan, references: tuple[Distribution, ...], rows: int) -> Floats:
    """(histograms, releases, leaves + 1) count minus truth of the leaves left of each boundary."""
    tree = plan.tree
    assert isinstance(tree, UniformTree)
    leaves, releases = tree.leaves, min(_MOST, max(_FEWEST, _LEAVES // tree.leaves))
    parts = np.arange(leaves + 1) / leaves
    exact = np.stack([np.diff(rows_below(each, rows, parts)) for each in references])
    forest = AdaptiveForest(plan, chunk_leaves=leaves)
    # Each release of public data is a tree of its own, whatever the plan's unit pays for.
    forest.chunking = UniformChunking(
        keys=len(exact) * releases, chunk_leaves=max(leaves, _CHUNK), tree=tree
    )
    counts = [
        _released(forest, chunk, np.repeat(exact, releases, axis=0)[chunk.key :][: chunk.rows])
        for chunk in forest.chunking
    ]
    wrong = np.cumsum(
        np.concatenate(counts).reshape(len(exact), releases, leaves) - exact[:, None], axis=2
    )
    return np.pad(wrong, ((0, 0), (0, 0), (1, 0))).astype(np.float64)


def _released(forest: AdaptiveForest, chunk: Chunk, exact: Integers) -> Integers:
    """(trees, leaves) counts of the leaves of a chunk's trees, from public ones."""
    noise = NoiseSource(key=_PUBLIC_KEY, release="model", spec_digest=b"", global_digest=b"")
    measured = forest.measure("", chunk, exact.reshape(-1), noise)
    roots = forest.chunk_roots(chunk, measured)
    totals = forest.chunk_totals(chunk, exact.reshape(-1))
    solved, _ = forest.solve_spine("", chunk.key, roots, totals, noise)
    levels, _ = forest.solve(chunk, measured, solved)
    return levels[-1].count


class AdaptivePlanner(Planner[W]):
    """A tree whose nodes are split only where rows are."""

    makes = AdaptiveMechanism
    # What an adaptive tree takes the place of, and is compared with, in words.
    otherwise: ClassVar[str]
    compared: ClassVar[str]

    def if_closer(self, workload: W, setting: Setting, whole: W) -> Any:
        try:
            return self.tree(workload, setting) if self.is_better(workload, setting) else None
        except ValueError:  # too large a tree, or too small a budget: whole levels may do
            return None

    @abstractmethod
    def is_better(self, workload: W, setting: Setting) -> bool:
        """Whether it is expected to be closer than whole levels, by the guess of the rows."""

    @abstractmethod
    def why_not(self, workload: W, whole: TreeQuestion[Any]) -> str:
        """Return why a tree is measured by whole levels, in words.

        Raises:
            ValueError: an adaptive tree cannot be had.
        """


class AdaptiveTree(AdaptivePlanner[OrderedWorkload]):
    """An adaptive tree over an ordered domain.

    How far off it will be depends on the data. The error of its counts is predicted by a model, the
    error of its estimates is not. There is one plan for all objectives.

    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> days = OrderedWorkload(name="day", domain=make_domain(
    ...     {"column": "day", "type": "integer", "lower": 0, "upper": 4096}))
    >>> tree = AdaptiveTree().mechanism(days, Setting(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1))))
    >>> tree.plan.tree.leaves
    4096
    """

    otherwise = "whole levels"
    compared = "whole levels'"
    refused: ClassVar[Reasons] = {
        "objective": "the mechanism adaptive has one plan for CDF, ranges and quantiles",
        **dict.fromkeys(("level_budgets", "estimation"), _OWN_LEVELS),
        "consistency": "the mechanism adaptive has top_down and shrunk alone",
        "intervals": FREE_INTERVALS,
    }
    allowed: ClassVar[Values] = {
        "objective": ("cdf", "ranges", "quantiles"),
        "consistency": ("top_down", "shrunk"),
    }

    def error_unit(self, workload: OrderedWorkload) -> str | None:
        return workload.objective.unit if workload.reads_counts else None

    def condition(self, workload: OrderedWorkload, mechanism: AdaptiveMechanism) -> str | None:
        if not workload.reads_counts:
            return None
        is_simulated = _simulated(workload, mechanism) is not None
        return "in its counts, by a model" if is_simulated else "if every node is split"

    def predicted(self, workload: OrderedWorkload, mechanism: AdaptiveMechanism) -> float:
        """Return the error of what is read of the counts, by its planner; of
        a tree too large for that model, and of estimates, their error if every node is split."""
        if not workload.reads_counts:
            return noise_if_all_split(mechanism.plan)
        simulated = _simulated(workload, mechanism)
        if simulated is not None:
            return simulated.typical
        return predicted_error(if_all_split(mechanism.plan), workload.objective)

    def mechanism(self, workload: OrderedWorkload, setting: Setting) -> AdaptiveMechanism:
        rows = guessed_float(workload)
        plan = plan_adaptive(
            workload.tree_setting(setting),
            counts=workload.reads_counts,
            shrunk=workload.consistency is Consistency.SHRUNK,
            guessed_rows=rows,
            fanouts=workload.fanouts,
        )
        return AdaptiveMechanism(plan=plan, guessed_rows=rows)

    def is_better(self, workload: OrderedWorkload, setting: Setting) -> bool:
        """Also without a guess, of counts: whole levels would need one. A tree of few cells has no
        node that could be left whole."""
        leaves, rows = workload.domain.cells, guessed_float(workload)
        if leaves > _MOST_ADAPTIVE:
            return False
        if len(workload.fanouts or rule_fanouts(leaves, setting.budget.measure)) < 2:
            return False
        if rows is None:
            return workload.reads_counts
        given = workload.tree_setting(setting)
        return rows <= rows_of_adaptive(given, counts=workload.reads_counts)

    def most_rows(self, mechanism: AdaptiveMechanism) -> float:
        """Return up to how many rows its counts are expected to be closer, to two digits."""
        setting = if_all_split(mechanism.plan).setting
        return float(f"{rows_of_adaptive(setting, counts=True):.2g}")

    def why_not(self, workload: OrderedWorkload, whole: TreeQuestion[Any]) -> str:
        setting = whole.mechanism.plan.setting
        most = float(f"{rows_of_adaptive(setting, counts=workload.reads_counts):.2g}")
        return f"an adaptive tree is expected to be closer up to {most:,.0f} rows"


def guessed_float(workload: TreeWorkload) -> float | None:
    """Return the guessed rows as a number of floating point."""
    return None if workload.guessed_rows is None else float(workload.guessed_rows)


def _simulated(workload: OrderedWorkload, mechanism: AdaptiveMechanism) -> CountError | None:
    plan, rows = mechanism.plan, mechanism.guessed_rows
    assumed = assumed_rows(if_all_split(plan).setting) if rows is None else max(1, round(rows))
    return adaptive_count_error(plan, workload.objective, assumed)
