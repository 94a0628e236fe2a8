"""Adaptive trees as a mechanism, with their intervals, errors and manifest entry.

Where the tree was divided down to an edge, a number has a standard error. Given the drawn tree an
error is a sum of independent noises with known coefficients, so margins are taken from the widest
laws of such sums, in standard errors of the error blurred by half a row. Inside a node that was
not split, a count lies between 0 and the node's count, and a prefix between the prefixes at its
edges; each end of such an interval fails with half the error probability at most. Where
measurements decide, noise that splits a node stays in its estimate, so intervals are wider by a
fifth: that is measured, not proved (docs/decisions/0025). Intervals of quantiles are not widened
(docs/quantiles.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.adaptive.drawn_trees import (
    ENDED,
    AdaptiveRoots,
    DrawnLevel,
    DrawnPrefixes,
    DrawnTree,
    DrawnTrees,
    listed_nodes,
)
from dptrees.dpcore.adaptive.forest import AdaptiveForest
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw, exact_scale
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.answer_errors import (
    AnswerErrors,
    Differences,
    Ends,
    IntervalRule,
    Intervals,
    LeafRun,
    SumBounds,
    SumError,
    merged_runs,
)
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism, ReportedErrors
from dptrees.dpcore.questions.released import CDF, ERROR_COLUMNS, NODES
from dptrees.dpcore.specification import Refusal, coded
from dptrees.dpcore.trees.error_laws import (
    ErrorLaw,
    QuantileMargin,
    QuantileWidths,
    clipped_intervals,
    one_sided,
    prefix_margin,
)
from dptrees.dpcore.trees.forests import LevelSolution, PrefixSolution, RootSolutions
from dptrees.dpcore.trees.shapes import IrregularTree, UniformTree
from dptrees.dpcore.uniform.plan import Consistency

# Noise so wide that its lattice does not show.
_WIDE = Fraction(2**12)
# Of intervals where measurements decide.
WIDENED = 1.2
_ALIKE = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_RESTS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True, kw_only=True)
class AdaptiveWidths(QuantileWidths):
    """Half-widths of the intervals on either side, at one confidence.

    Args:
        confidence: the coverage.
        slope, offset: a margin is slope sd + offset rows, sd of the error blurred by half a row.
        quantile: the margins that decide a quantile. None: as the others, as for widths that were
            stored without.
    """

    later = "quantile"

    confidence: float
    slope: float
    offset: float = 0.5
    quantile: QuantileMargin | None = field(default=None, metadata=coded(omit=None))

    def margin(self, variance: Floats) -> Floats:
        """The half-widths of intervals in rows, for estimates of these variances."""
        return prefix_margin((self.slope, self.offset), variance)

    @property
    def sloped(self) -> tuple[float, float]:
        """The argument of `prefix_margin`."""
        return self.slope, self.offset


def adaptive_widths(measure: Measure, confidence: float, *, counts: bool = False) -> AdaptiveWidths:
    """The widths of noise that pays in a measure: Laplace noise under epsilon, Gaussian under rho.

    Args:
        measure: of the budget.
        confidence: of the intervals.
        counts: measurements decide (`AdaptivePlan.decision_part` is 0): see the module.

    Raises:
        ValueError: the confidence is not above 0 and at most 0.9999.
    """
    slope, one = (_widest_slope(measure, each) for each in (confidence, one_sided(confidence)))
    return AdaptiveWidths(
        confidence=confidence,
        slope=slope * (WIDENED if counts else 1.0),
        quantile=QuantileMargin(both=(slope, 0.5), one=(one, 0.5)),
    )


@lru_cache(maxsize=16)
def _widest_slope(measure: Measure, confidence: float) -> float:
    """The widest half-width of all laws, in standard errors."""
    normal = DiscreteGaussian(sigma_squared=_WIDE**2)
    widths = [_standard_width([(normal, 1.0, 1)], confidence)]
    if measure is Measure.EPSILON:
        laplace = DiscreteLaplace(scale=_WIDE)
        widths += [_standard_width([(laplace, 1.0, each)], confidence) for each in _ALIKE]
        share = math.sqrt(laplace.variance / normal.variance)
        widths += [
            _standard_width(
                [
                    (laplace, math.sqrt(1.0 - rest), 1),
                    (normal, share * math.sqrt(rest), 1),
                ],
                confidence,
            )
            for rest in _RESTS
        ]
    return float(np.max(widths))


def _standard_width(terms: list[tuple[NoiseLaw, float, int]], confidence: float) -> float:
    law = ErrorLaw(terms=tuple(terms))
    return law.half_width(confidence) / math.sqrt(law.variance)


class AdaptiveIntervals(IntervalRule):
    """The intervals of an adaptive tree, of any shape.

    Args:
        widths: half-widths at one confidence.
    """

    def __init__(self, widths: AdaptiveWidths) -> None:
        self._widths = widths

    def margins(self, solved: LevelSolution) -> Floats:
        assert isinstance(solved, DrawnLevel)
        return self._widths.margin(solved.holder_variance)

    def nodes(self, solved: LevelSolution, bottom: float, top: float) -> Intervals:
        assert isinstance(solved, DrawnLevel)
        return node_intervals(solved, self._widths, top)

    def prefixes(self, prefixes: PrefixSolution, total: float | None) -> Intervals:
        assert isinstance(prefixes, DrawnPrefixes)
        return prefix_intervals(prefixes, self._widths, np.inf if total is None else total)

    def differences(self, prefixes: PrefixSolution, roots: RootSolutions) -> Ends:
        assert isinstance(prefixes, DrawnPrefixes) and isinstance(roots, AdaptiveRoots)
        return quantile_ends(prefixes, roots.total, roots.total_variance, self._widths)


def node_intervals(solved: DrawnLevel, widths: AdaptiveWidths, top: float) -> Intervals:
    """The estimates of a solved level with their errors; standard errors are NaN inside nodes that
    were not split.

    Args:
        solved: (rows, n).
        widths: of the intervals.
        top: the public number of rows, or infinite.
    """
    variance, inside = solved.holder_variance, solved.inside
    estimate, error, low, high = clipped_intervals(
        solved.holder_estimate, variance, widths.margin(variance), top
    )
    return (
        np.where(inside, solved.estimate, estimate),
        np.where(inside, np.nan, error),
        np.where(inside, 0.0, low),
        high,
    )


def prefix_intervals(prefixes: DrawnPrefixes, widths: AdaptiveWidths, top: float) -> Intervals:
    """The estimates of CDF points with their errors, likewise.

    Args:
        prefixes: (rows, n).
        widths: of the intervals.
        top: the public number of rows, or infinite.
    """
    inside = np.isnan(prefixes.variance)
    below, above = (
        clipped_intervals(estimate, variance, widths.margin(variance), top)
        for estimate, variance in (
            (prefixes.low_estimate, prefixes.low_variance),
            (prefixes.high_estimate, prefixes.high_variance),
        )
    )
    return (
        np.where(inside, prefixes.estimate, above[0]),
        np.where(inside, np.nan, above[1]),
        np.minimum(below[2], above[3]),
        np.maximum(below[2], above[3]),
    )


def quantile_ends(
    prefixes: DrawnPrefixes, total: Floats, variance: Floats, widths: AdaptiveWidths
) -> Ends:
    """Return the estimates of prefix - q total around every leaf, with their variances.

    Args:
        prefixes: (rows, n).
        total: (rows,) the estimates of the whole trees.
        variance: (rows,) of these, given the drawn trees.
        widths: of the intervals.
    """

    def own(of: Floats, alpha: Floats, quantile: float) -> Floats:
        # Rounding may take the difference of a known count below 0.
        return np.maximum(
            of + variance[:, None] * (quantile * quantile - 2 * quantile * alpha), 0.0
        )

    def ends(quantile: float) -> Differences:
        wanted = quantile * total[:, None]
        return Differences(
            prefixes.low_estimate - wanted,
            prefixes.high_estimate - wanted,
            own(prefixes.low_variance, prefixes.low_alpha, quantile),
            own(prefixes.high_variance, prefixes.high_alpha, quantile),
            widths.quantile or widths.sloped,
        )

    return ends


class AdaptiveAnswerErrors(AnswerErrors):
    """Errors of the answers about an adaptive tree, at one confidence.

    Args:
        plan: by which it was drawn.
        widths: half-widths of intervals.
        rows: gives all rows of nodes of some keys.
    """

    def __init__(
        self, plan: AdaptivePlan, widths: AdaptiveWidths, rows: Callable[[range], pa.Table]
    ) -> None:
        super().__init__(plan.tree)
        self._plan, self._widths, self._rows = plan, widths, rows
        self._last: tuple[int, DrawnTree] | None = None

    def drawn(self, key: int) -> DrawnTree:
        """Return the drawn tree of a key; the last one is kept for the next answer."""
        last = self._last  # another thread may replace it meanwhile
        if last is None or last[0] != key:
            last = key, DrawnTree.from_rows(self._plan, self._rows(range(key, key + 1)))
            self._last = last
        return last[1]

    def node(self, level: int, std_error: float) -> float:
        return self._margin(std_error * std_error)

    def _margin(self, variance: float) -> float:
        return float(self._widths.margin(np.array(variance)))

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError | SumBounds:
        drawn = self.drawn(key)
        runs = [(start, stop) for start, stop in runs if start < stop]
        around = [[drawn.edges_around(end) for end in run] for run in runs]
        inner = [(start[1], stop[0]) for start, stop in around]
        outer = [(start[0], stop[1]) for start, stop in around]
        if inner == outer:
            variance = drawn.runs(runs)
            return SumError(variance=variance, margin=self._margin(variance))
        return SumBounds(
            inner=[(start, stop) for start, stop in inner if start < stop],
            outer=merged_runs(outer),
        )

    def leaf_blocks(self, key: int) -> Integers:
        return self.drawn(key).edges

    def weighted(self, weights: Floats, key: int) -> float:
        return self.drawn(key).weighted(weights)

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        drawn = self.drawn(keys.start).alone if len(keys) == 1 else self._drawn_trees(keys)
        prefixes = drawn.prefixes(points["estimate"].to_numpy().reshape(len(keys), -1))
        return quantile_ends(prefixes, totals, drawn.total_variances, self._widths)

    def _drawn_trees(self, keys: range) -> DrawnTrees:
        """The drawn trees of several keys."""
        listed = listed_nodes(self._plan.tree.height, len(keys), self._rows(keys), "ended")
        return DrawnTrees.from_listed(self._plan, len(keys), listed)


def node_errors(
    plan: AdaptivePlan,
    keys: int,
    nodes: pa.Table,
    rule: IntervalRule,
) -> tuple[DrawnTrees, float | None, Iterator[ReportedErrors]]:
    """Return the drawn trees, the public number of rows, and the stated errors of all nodes by
    level.

    Args:
        plan: of the trees.
        keys: how many they are.
        nodes: their rows.
        rule: the intervals of the release.

    Raises:
        ValueError: as `DrawnTrees`.
    """
    listed = {
        column: listed_nodes(plan.tree.height, keys, nodes, column)
        for column in ("ended", "estimate", *ERROR_COLUMNS)
    }
    drawn = DrawnTrees.from_listed(plan, keys, listed["ended"])
    levels = drawn.levels(listed["estimate"])
    total = float(levels[0].estimate[0, 0]) if plan.public_total else None
    top = np.inf if total is None else total

    def by_level() -> Iterator[ReportedErrors]:
        for level, solved in enumerate(levels):
            at = listed["estimate"][level][0]
            estimate, error, low, high = (each[:, at] for each in rule.nodes(solved, 0.0, top))
            results = [listed[column][level][1] for column in ERROR_COLUMNS]
            yield NODES, (estimate, error, low, high), results

    return drawn, total, by_level()


def point_errors(
    drawn: DrawnTrees,
    points: pa.Table,
    total: float | None,
    rule: IntervalRule,
) -> ReportedErrors:
    """Return the stated errors of the points of the CDFs.

    Args:
        drawn: the trees.
        points: their rows, in the order of keys and leaves.
        total: the public number of rows, None where it is private.
        rule: the intervals of the release.
    """
    estimate, *found = (
        np.asarray(points[column].fill_null(-1.0).to_numpy().reshape(len(drawn.ended[0]), -1))
        for column in ("estimate", *ERROR_COLUMNS)
    )
    return CDF, rule.prefixes(drawn.prefixes(estimate), total), found


def level_entries(plan: AdaptivePlan) -> list[dict[str, object]]:
    """The budget of each level, the noise of its nodes, and the count from which on they are
    split."""
    measure, levels = plan.budget.measure.value, list[dict[str, object]]()
    for level, (size, amount) in enumerate(
        zip(plan.tree.level_sizes, plan.level_amounts, strict=True)
    ):
        public = plan.public_total and level == 0
        entry: dict[str, object] = {"level": level, "nodes": size, measure: str(amount)}
        law = plan.laws[level]
        unmeasured = "exact: the number of rows is public" if public else "not measured"
        entry["noise"] = unmeasured if law is None else exact_scale(law)
        if level < plan.tree.height and plan.decides(level):
            decision, last = plan.decision_laws[level], plan.last_laws[level]
            entry["split_from"] = plan.thresholds[level]
            entry["noise_of_decision"] = (
                "the measurement's" if decision is None else exact_scale(decision)
            )
            entry["noise_of_second_measurement"] = None if last is None else exact_scale(last)
        levels.append(entry)
    return levels


def in_words(plan: AdaptivePlan) -> str:
    """Describe how the tree is drawn, as a paragraph for a statistician."""
    if plan.decision_part:
        decided = (
            f"a number of its own, with {plan.decision_part} of its level's part of the budget, so "
            "that estimates are unbiased given the tree that came out, and standard errors are "
            "those given this tree"
        )
    else:
        decided = (
            "the measurement itself, which counts and estimates then use too: standard errors are "
            "those of a tree that had been known before, and intervals are a fifth wider, with "
            "which they were measured to hold as often as stated"
        )
    return (
        "An adaptive tree, drawn from the root down. A node that is reached is measured with its "
        "level's part of the budget; if a noisy number is below split_from it is not split, and is "
        "measured again with all that is left of the budget below it; else its children are "
        f"reached. What decides is {decided}. Every path from the root to a leaf of the tree that "
        "came out spends the budget, whatever comes out. The column ended of the nodes says which "
        "nodes were split (null), which were not (their own level), and which lie inside one that "
        "was not (its level): these share its count evenly and have no standard error."
    )


def named_level_entries(plan: AdaptivePlan, names: Sequence[str]) -> list[dict[str, object]]:
    """The budget of each level of an adaptive hierarchy, the noise of its nodes, and the count from
    which on they are split.

    ``chain`` is as in a hierarchy that splits every node: how many nodes above share a node's
    measurement.
    """
    levels: list[dict[str, object]] = []
    for level, name in enumerate(names):
        noise = [
            {"chain": chain, **exact_scale(law)}
            for chain in _chains(plan, level)
            if (law := plan.law(level, chain)) is not None
        ]
        public = level == 0 and plan.public_total
        said: dict[str, object] = {
            "level": level,
            "name": name,
            "nodes": plan.tree.level_sizes[level],
            plan.budget.measure.value: str(plan.level_amounts[level]),
            "noise": noise or ("none: public and exact" if public else "not measured"),
        }
        if plan.decides(level):
            last, decision = plan.last_law(level), plan.decision_law(level)
            said["split_from"] = plan.thresholds[level]
            said["decided_by"] = "the measurement" if decision is None else exact_scale(decision)
            said["measured_again"] = None if last is None else exact_scale(last)
        levels.append(said)
    return levels


def _chains(plan: AdaptivePlan, level: int) -> list[int]:
    """The lengths of the chains above the nodes of a level that are measured when reached."""
    tree = plan.tree
    assert isinstance(tree, IrregularTree)
    if level == tree.height > 0:
        # Leaves with one parent are alike.
        lengths = np.where(tree.fanouts[-1] == 1, tree.chains[-1] + 1, 0)
    else:
        passed = np.broadcast_to(plan.passed_on(level), (tree.level_sizes[level],))
        lengths = plan.chains(level)[~passed]
    result: list[int] = np.unique(lengths).tolist()
    return result


@dataclass(frozen=True, kw_only=True)
class AdaptiveMechanism(Mechanism[AdaptiveForest, AdaptiveWidths]):
    """A tree that is divided only where rows are.

    Args:
        plan: of trees of any shape.
        guessed_rows: the guess of the rows that the plan was made for, None where there was none.
        weights: of the levels that the plan was made for; None: 1 for each.
    """

    output_only = ("guessed_rows", "weights", "consistency")
    widths_kind = AdaptiveWidths
    errors_are_known = False
    node_fields = (ENDED,)

    plan: AdaptivePlan
    guessed_rows: float | None = None
    weights: NodeWeights | None = None

    @property
    def roots_kind(self) -> type[AdaptiveRoots]:
        return AdaptiveRoots

    @property
    def is_ordered(self) -> bool:
        """Whether leaves have an order, as the leaves of a uniform tree do."""
        return isinstance(self.plan.tree, UniformTree)

    @property
    def kind(self) -> str:
        return "adaptive" if self.is_ordered else "adaptive_hierarchy"

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    @property
    def counts(self) -> bool:
        """Whether the plan is for counts: its measurements decide which nodes are split."""
        return self.plan.decision_part == 0

    def check(self, layout: ChunkLayout, forest: Callable[[], AdaptiveForest]) -> None:
        tree = self.plan.tree
        may_split = not self.is_ordered and tree.height > 0
        if may_split and forest().chunking.split_level == tree.height:
            raise Refusal(
                "domain",
                f"a node with more than {layout.chunk_leaves} children needs a level between",
            )
        self.plan.check_noise()

    def forest(self, layout: ChunkLayout) -> AdaptiveForest:
        return AdaptiveForest(self.plan, keys=layout.keys, chunk_leaves=layout.chunk_leaves)

    def widths(self, confidence: float) -> AdaptiveWidths:
        return adaptive_widths(self.plan.budget.measure, confidence, counts=self.counts)

    def intervals(self, forest: AdaptiveForest, widths: AdaptiveWidths) -> AdaptiveIntervals:
        return AdaptiveIntervals(widths)

    def answer_errors(
        self, forest: AdaptiveForest, widths: AdaptiveWidths, rows: Callable[[range], pa.Table]
    ) -> AdaptiveAnswerErrors:
        return AdaptiveAnswerErrors(self.plan, widths, rows)

    def node_columns(self, solved: LevelSolution) -> list[pa.Array]:
        assert isinstance(solved, DrawnLevel)
        return [solved.ended_column]

    def reported_errors(
        self, rule: IntervalRule, keys: int, nodes: pa.Table, points: pa.Table | None
    ) -> Iterator[ReportedErrors]:
        drawn, total, levels = node_errors(self.plan, keys, nodes, rule)
        yield from levels
        if points is not None:
            yield point_errors(drawn, points, total, rule)

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        if level_names is None:
            return {
                "mechanism": "adaptive",
                "words": in_words(self.plan),
                "levels": level_entries(self.plan),
                "decision_part": str(self.plan.decision_part),
                "consistency": self.plan.consistency.value,
            }
        return {
            "mechanism": "adaptive",
            "for": "counts" if self.counts else "estimates",
            "estimation": "least_squares",
            "consistency": Consistency.TOP_DOWN.value,
            "levels": named_level_entries(self.plan, level_names),
        }

    # By hand: the plan of a uniform tree is inline, and that of a hierarchy is not.
    def spec(self) -> dict[str, Any]:
        """Return the specification; `from_entries` reads it back."""
        tree, kind = self.plan.tree, {"kind": self.kind}
        last: dict[str, Any] = {"guessed_rows": self.guessed_rows}
        if isinstance(tree, UniformTree):
            return kind | tree.spec() | self.plan.spec() | last
        weights = None if self.weights is None else self.weights.spec()
        return kind | {"leaves": tree.leaves, "plan": self.plan.spec(), "weights": weights} | last

    @classmethod
    def from_entries(cls, left: dict[str, Any], **context: Any) -> AdaptiveMechanism:
        """Read what `spec` writes; the shape of a hierarchy's tree is in the context."""
        guess, weights = left.pop("guessed_rows"), None
        if guess is not None and (isinstance(guess, bool) or not isinstance(guess, (int, float))):
            raise Refusal.from_value("guessed_rows", f"{guess!r} must be a number or null.")
        value = left.get("consistency")
        if value == "averaged":
            raise Refusal.from_value(
                "consistency", f"{value!r} is of a development version; counts are top_down."
            )
        if "tree" in context:
            plan, weights = AdaptivePlan.from_spec(left.pop("plan"), **context), left.pop("weights")
        else:
            plan = AdaptivePlan.from_entries(left, tree=UniformTree.from_entries(left), **context)
        for name in ("kind", "leaves"):  # they follow from the shape
            left.pop(name, None)
        return cls(
            plan=plan,
            guessed_rows=guess,
            weights=None if weights is None else NodeWeights.from_spec(weights),
        )
