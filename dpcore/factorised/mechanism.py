"""Matrix factorization as a mechanism: noisy weighted sums of cells, and all counts from them.

Each tree is within one chunk. An error mixes the discrete Gaussian noise of many sums, each of
hundreds of units or more, so intervals are normal, to a part in a million. Nonnegative integers
follow by isotonic regression of the prefixes, since a strategy keeps the errors of prefixes small
and all alike (docs/factorised.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import power
from dptrees.dpcore.arithmetic.normal import normal_quantile
from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.factorised.optimum import Read
from dptrees.dpcore.factorised.plan import ROWS, FactorizedErrors, FactorizedPlan
from dptrees.dpcore.factorised.strategies import (
    MOST_LEAVES,
    MOST_OPTIMAL,
    listed_tree,
    plan_strategy,
)
from dptrees.dpcore.levels.workload import (
    FREE_INTERVALS,
    OrderedWorkload,
    Planner,
    ReadAs,
    Reasons,
    Values,
)
from dptrees.dpcore.noise.laws import exact_scale
from dptrees.dpcore.noise.source import LARGEST_DIVIDED, NoiseSource, add_noise
from dptrees.dpcore.privacy.unit import Measure
from dptrees.dpcore.questions.answer_errors import (
    AnswerErrors,
    Ends,
    LeafRun,
    SlopedIntervals,
    SumError,
    difference_ends,
)
from dptrees.dpcore.questions.planning import ChunkLayout, Mechanism, Noise, Setting, Way
from dptrees.dpcore.repair.planner import assumed_rows
from dptrees.dpcore.specification import INLINE, Refusal, coded
from dptrees.dpcore.trees.chunks import CHUNK_LEAVES, Chunk, UniformChunking, saturated_sums
from dptrees.dpcore.trees.closest_cdf import closest_cdf_l2
from dptrees.dpcore.trees.consistency import consistent_counts
from dptrees.dpcore.trees.error_laws import QuantileMargin, QuantileWidths, one_sided, prefix_margin
from dptrees.dpcore.trees.forests import (
    LevelSolution,
    Measurements,
    PrefixSolution,
    RootSolutions,
    SingleChunkTrees,
    level_solutions,
)
from dptrees.dpcore.uniform.objectives import Objective, QuantileObjective, RangeObjective
from dptrees.dpcore.uniform.plan import Consistency

# Of counts: cells are fewer than 2^20, so that their low parts together are fewer than 2^32 rows.
_LOW_BITS, _WORD_BITS = 12, 32


class FactorizedForest(SingleChunkTrees):
    """The trees of one plan, one per key.

    Args:
        plan: of every tree.
        keys: how many trees.
        chunk_leaves: the most leaves of a chunk with several trees.
        top_down: whether integers are made from the top down, as in releases of before.
    """

    def __init__(
        self,
        plan: FactorizedPlan,
        keys: int = 1,
        chunk_leaves: int = CHUNK_LEAVES,
        *,
        top_down: bool = False,
    ) -> None:
        self.plan, self.root_is_known = plan, plan.public_total
        self._top_down = top_down
        most = max(chunk_leaves, plan.tree.leaves)
        self.chunking = UniformChunking(tree=plan.tree, keys=keys, chunk_leaves=most)

    @property
    def errors(self) -> FactorizedErrors:
        """Standard errors of all estimates."""
        return compute_errors(self.plan)

    @property
    def root_variance(self) -> float:
        """Variance of the estimated total of a tree."""
        return self.errors.total

    def measure(
        self, tree: str, chunk: Chunk, counts: Integers, noise: NoiseSource
    ) -> Measurements:
        """The noisy sums, (rows, K)."""
        leaves = counts.reshape(chunk.rows, -1)
        stream = noise.for_counts(leaves).stream(
            tree, chunk.key, chunk.index, self.plan.tree.height
        )
        return [add_noise(self.plan.law, self._sums(leaves), stream, largest=LARGEST_DIVIDED)]

    def _sums(self, leaves: Integers) -> Integers:
        """M x, saturated: each sum changes by no more than without that. Sums of more than `ROWS`
        rows are added up from low and high parts of the counts, so that none wraps."""
        measured = self.plan.strategy.measured
        if int(leaves.sum(axis=-1).max()) <= ROWS:
            return measured(leaves)
        low, high = measured(leaves & (2**_LOW_BITS - 1)), measured(leaves >> _LOW_BITS)
        carried = (high & (2 ** (_WORD_BITS - _LOW_BITS) - 1)) << _LOW_BITS
        return saturated_sums(np.stack([low + carried, high >> (_WORD_BITS - _LOW_BITS)]))

    def chunk_roots(self, chunk: Chunk, measurements: Measurements) -> Floats:
        return np.asarray(self._estimated(measurements).sum(axis=-1))

    def solve(
        self, chunk: Chunk, measurements: Measurements, roots: RootSolutions
    ) -> tuple[list[LevelSolution], PrefixSolution]:
        prefixes = np.cumsum(self._estimated(measurements), axis=-1)
        variance, alpha = self.prefix_variances(chunk)
        if self.root_is_known:
            prefixes += alpha * (roots.total[:, None] - prefixes[:, -1:])
        tree = self.plan.tree
        estimates = tree.level_counts(np.diff(prefixes, axis=-1, prepend=0.0))
        counts = self._counts(prefixes, estimates, roots.count)
        ranges = self.chunking.node_ranges(chunk)
        levels = level_solutions(0, ranges, estimates, self.errors.levels, counts)
        return levels, PrefixSolution(
            estimate=prefixes,
            variance=np.broadcast_to(variance, prefixes.shape),
            alpha=np.broadcast_to(alpha, prefixes.shape),
            count=np.cumsum(counts[-1], axis=-1),
        )

    def _counts(
        self, prefixes: Floats, estimates: list[Floats], totals: Integers
    ) -> list[Integers]:
        """(rows, n) per level: integers that are near the prefixes, or near the nodes."""
        tree = self.plan.tree
        if self._top_down:
            alike = [np.ones(size) for size in tree.level_sizes]
            return consistent_counts(tree, alike, estimates, totals[:, None])
        rising = closest_cdf_l2(prefixes, totals)
        return list(tree.level_counts(np.diff(rising, axis=-1, prepend=0)))

    def prefix_variances(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """The variance of every prefix, and the coefficient of the total's estimate in it: (1, K)
        each, from the plan alone."""
        return self.errors.prefixes[None], self.errors.alpha[None]

    def _estimated(self, measurements: Measurements) -> Floats:
        (measured,) = measurements
        assert measured is not None
        return self.plan.strategy.estimated(measured)


@lru_cache(maxsize=4)
def compute_errors(plan: FactorizedPlan) -> FactorizedErrors:
    """Compute the errors of a plan, which takes long."""
    return FactorizedErrors(plan)


@dataclass(frozen=True, kw_only=True)
class NormalWidths(QuantileWidths):
    """Half-widths of intervals on either side, in standard errors.

    Args:
        confidence: the coverage.
        closer: whether quantiles have margins of their own; not for widths that were stored
            without.

    >>> round(NormalWidths(confidence=0.95).width, 2)
    1.96
    """

    later = "closer"

    confidence: float
    closer: bool = field(default=False, metadata=coded(omit=False))

    @property
    def quantile(self) -> QuantileMargin | None:
        """The margins that decide a quantile; None: the margins of prefixes do."""
        if not self.closer:
            return None
        one = NormalWidths(confidence=one_sided(self.confidence)).width
        return QuantileMargin(both=(self.width, 0.0), one=(one, 0.0))

    @property
    def width(self) -> float:
        """Half-width of the interval of a node, a prefix or a range."""
        return normal_quantile((1.0 + self.confidence) / 2.0)

    def band(self, prefixes: int) -> float:
        """Return the half-width of a simultaneous band over all prefixes. Normal errors are all
        within their limits at least as often as if they were independent.

        Source: Sidak 1967.

        >>> round(NormalWidths(confidence=0.95).band(1000), 2)
        4.05
        """
        return normal_quantile((1.0 + power(self.confidence, 1.0 / prefixes)) / 2.0)


class FactorizedAnswerErrors(AnswerErrors):
    """Errors of the answers about weighted sums of cells, at one confidence.

    Args:
        plan: the sums and their noise.
        widths: half-widths of intervals.
    """

    def __init__(self, plan: FactorizedPlan, widths: NormalWidths) -> None:
        super().__init__(plan.tree)
        self._widths, self._errors = widths, compute_errors(plan)

    def node(self, level: int, std_error: float) -> float:
        return self._widths.width * std_error

    def sum(self, runs: Sequence[LeafRun], key: int) -> SumError:
        variance = self._errors.runs(runs)
        return SumError(variance=variance, margin=self._widths.width * math.sqrt(variance))

    def weighted(self, weights: Floats, key: int) -> float:
        return self._errors.weighted(weights)

    def prefix(self, stop: int, key: int, *, simultaneous: bool) -> SumError:
        variance = self._errors.runs([(0, stop)])
        if simultaneous:
            return SumError(variance=variance, margin=float(self.band(np.array(variance))))
        # As in the table of the CDF.
        margin = float(prefix_margin((self._widths.width, 0.0), np.array(variance)))
        return SumError(variance=variance, margin=margin)

    def band(self, variances: Floats) -> Floats:
        return prefix_margin((self._widths.band(self._tree.leaves), 0.0), variances)

    def quantile_ends(self, points: pa.Table, totals: Floats, keys: range) -> Ends:
        errors = self._errors
        prefixes = PrefixSolution(
            estimate=points["estimate"].to_numpy().reshape(len(keys), -1),
            variance=errors.prefixes[None],
            alpha=errors.alpha[None],
            count=points["count"].to_numpy().reshape(len(keys), -1),
        )
        margin = self._widths.quantile or (self._widths.width, 0.0)
        return difference_ends(prefixes, totals, errors.total, margin)


@dataclass(frozen=True, kw_only=True)
class FactorizedMechanism(Mechanism[FactorizedForest, NormalWidths]):
    """The nodes, CDF and quantiles of a tree from noisy weighted sums of its cells.

    Args:
        plan: the sums and their noise.
        consistency: which integers are released beside the estimates: ``L2``, or ``TOP_DOWN`` of
            releases from before there was the other.

    Raises:
        ValueError: another consistency.
    """

    written = ("kind", "plan", "consistency")
    output_only = ("consistency",)
    widths_kind = NormalWidths

    plan: FactorizedPlan = field(metadata=INLINE)
    consistency: Consistency = field(
        default=Consistency.L2, metadata=coded(omit=Consistency.TOP_DOWN)
    )

    def __post_init__(self) -> None:
        if self.consistency not in (Consistency.L2, Consistency.TOP_DOWN):
            raise ValueError("consistency: of a strategy l2 or top_down")

    @classmethod
    def from_entries(cls, left: dict[str, Any], **context: Any) -> FactorizedMechanism:
        """Refuse fan-outs other than the fan-outs of such a tree."""
        mechanism: FactorizedMechanism = super().from_entries(left, **context)
        tree = mechanism.plan.tree
        listed = listed_tree(tree.leaves)
        if tree != listed:
            raise ValueError(f"fanouts: {list(tree.fanouts)} are not {list(listed.fanouts)}")
        return mechanism

    @property
    def kind(self) -> str:
        return "factorised"

    @property
    def public_total(self) -> bool:
        return self.plan.public_total

    def forest(self, layout: ChunkLayout) -> FactorizedForest:
        return FactorizedForest(
            self.plan,
            keys=layout.keys,
            chunk_leaves=layout.chunk_leaves,
            top_down=self.consistency is Consistency.TOP_DOWN,
        )

    def widths(self, confidence: float) -> NormalWidths:
        return NormalWidths(confidence=confidence, closer=True)

    def intervals(self, forest: FactorizedForest, widths: NormalWidths) -> FactorizedIntervals:
        return FactorizedIntervals(widths, forest.root_variance)

    def answer_errors(
        self, forest: FactorizedForest, widths: NormalWidths, rows: Callable[[range], pa.Table]
    ) -> FactorizedAnswerErrors:
        return FactorizedAnswerErrors(self.plan, widths)

    @property
    def strategy_in_words(self) -> str:
        """Description of the measurements, for a person."""
        if self.plan.strategy.kind == "optimum":
            return "weighted sums of cells, those of the least error that there are"
        return "weighted sums of cells, the square root of prefix sums with even columns"

    def entry(self, level_names: Sequence[str] | None) -> dict[str, object]:
        plan = self.plan
        return {
            "mechanism": self.kind,
            "strategy": self.strategy_in_words,
            "sums": plan.tree.leaves,
            "largest_weight": plan.strategy.largest,
            "column_norm_squared": plan.strategy.column_norm,
            "column_distance_squared": plan.strategy.column_distance,
            "noise": exact_scale(plan.law),
        } | self._repaired

    @property
    def _repaired(self) -> dict[str, object]:
        """The repair that makes counts consistent; earlier releases, from the root down, do not
        name it."""
        if self.consistency is Consistency.TOP_DOWN:
            return {}
        return {"consistency": self.consistency.value}


class FactorizedIntervals(SlopedIntervals):
    """Normal intervals from the variances of a plan.

    Args:
        widths: half-widths of intervals.
        root_variance: variance of the estimate of a whole tree, in rows^2.
    """

    def __init__(self, widths: NormalWidths, root_variance: float) -> None:
        super().__init__((widths.width, 0.0), root_variance, widths.quantile)
        self._width = widths.width

    def margins(self, solved: LevelSolution) -> Floats:
        return self._width * np.sqrt(solved.variance)


# From so many cells on, and so many rows, in parts of those assumed without a guess (about 500
# standard deviations of the noise), the counts of a strategy were closer in all that was measured.
_FEWEST_CELLS = 16
_FEWEST_ROWS = Fraction(7, 100)
# `planned` takes the best strategy of so many cells, which is found within some two seconds; of
# more, the strategy of the formula, whose error of prefixes is 2 % larger.
_SOON_OPTIMAL = 2**10
_NO_LEVELS = "is for trees; the mechanism factorised measures no levels"


class WeightedSums(Planner[OrderedWorkload]):
    """The strategy whose predicted error is the smallest, of weighted sums of cells.

    >>> from dptrees.dpcore.ordered.domain_kinds import make_domain
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget
    >>> ages = OrderedWorkload(name="age", domain=make_domain(
    ...     {"column": "age", "type": "integer", "lower": 0, "upper": 119}))
    >>> half = Setting(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.RHO, amount=Fraction(1, 2)))
    >>> sums = WeightedSums()
    >>> round(sums.predicted(ages, sums.mechanism(ages, half)), 2)
    2.29
    """

    makes = FactorizedMechanism
    refused: ClassVar[Reasons] = {
        "objective": "the mechanism factorised is planned for CDF, quantiles and ranges alone",
        **dict.fromkeys(
            ("fanouts", "level_weights", "level_budgets", "estimation", "consistency"), _NO_LEVELS
        ),
        "guess": "the mechanism factorised is planned for data that may lie anywhere",
        "optimize_for": "the mechanism factorised has one plan for counts and estimates",
        "intervals": FREE_INTERVALS,
    }
    allowed: ClassVar[Values] = {"objective": ("cdf", "quantiles", "ranges")}

    def ways(self, workload: OrderedWorkload) -> frozenset[Way]:
        return frozenset({Way.SHARED})

    def error_unit(self, workload: OrderedWorkload) -> str:
        return "rows"

    def check(self, workload: OrderedWorkload, measure: Measure, *, delta: bool) -> None:
        """Check that the mechanism serves the workload, as `Planner.check` does.

        Raises:
            Refusal: also of an objective that no strategy is made for, of cells without an order or
                too many of them.
        """
        cells, kind = workload.domain.cells, workload.objective.kind
        if measure is Measure.EPSILON and not delta:
            raise Refusal(
                "mechanism",
                "factorised needs rho, or epsilon with a delta: under epsilon alone trees have the "
                "smaller errors",
            )
        if workload.noise is Noise.LAPLACE:
            raise Refusal("noise", "the mechanism factorised has Gaussian noise")
        if not workload.domain.is_ordered:
            raise Refusal("mechanism", "factorised is for cells that have an order")
        if cells > MOST_LEAVES:
            raise Refusal(
                "mechanism",
                f"factorised measures at most {MOST_LEAVES:,} cells, and these are {cells:,}; "
                "planned measures any number",
            )
        if kind not in ("cdf", "quantiles", "ranges"):
            raise Refusal("objective", f"the mechanism factorised is not planned for {kind}")

    def mechanism(self, workload: OrderedWorkload, setting: Setting) -> FactorizedMechanism:
        return self._planned(workload, setting, MOST_OPTIMAL)

    def _planned(
        self, workload: OrderedWorkload, setting: Setting, most_optimal: int
    ) -> FactorizedMechanism:
        given = workload.tree_setting(setting)
        read = read_by(workload.objective, public_total=given.public_total)
        plan = FactorizedPlan(
            tree=listed_tree(given.leaves),
            unit=given.unit,
            budget=given.budget,
            strategy=plan_strategy(given.leaves, read, most_optimal),
            public_total=given.public_total,
            keyed=given.keyed,
        )
        _ = plan.law  # refuses a budget that is too small
        return FactorizedMechanism(plan=plan)

    def predicted(self, workload: OrderedWorkload, mechanism: FactorizedMechanism) -> float:
        """Return the error of what the strategy is for, in rows."""
        plan = mechanism.plan
        read = read_by(workload.objective, public_total=plan.public_total)
        return compute_errors(plan).rmse(read)

    def if_closer(self, workload: OrderedWorkload, setting: Setting, whole: OrderedWorkload) -> Any:
        """Return the tree under a rho that is stated without a delta: for counts where there are
        more than few rows, for estimates where its predicted error is below the tree's.

        Source: of the limit for counts, measurements on 64 to 4,096 cells (docs/factorised.md): at
        1,000 rows and rho 1/2 counts are off by 0.86 to 0.99 times as much as the counts of whole
        levels, at 10,000 by 0.83 to 0.91, at 300 by 0.87 to 1.04, at 100 by up to 1.07.
        """
        # Beside a delta trees may be better off: their composition is certified, and a strategy's
        # is converted.
        if setting.budget.measure is not Measure.RHO or setting.has_delta:
            return None
        if workload.domain.cells > MOST_LEAVES:
            return None
        for_estimates = workload.read_as is ReadAs.ESTIMATES
        if not for_estimates and not _is_better_for_counts(workload, setting, whole):
            return None
        sums = self._planned(workload, setting, _SOON_OPTIMAL)
        if for_estimates:
            tree = whole.planned(setting)
            if self.predicted(workload, sums) >= whole.predicted(tree):
                return None
        return workload.measured_by(sums, setting)


def _is_better_for_counts(
    workload: OrderedWorkload, setting: Setting, whole: OrderedWorkload
) -> bool:
    """Whether counts of a strategy are expected to be closer than counts of whole levels."""
    if workload.noise is Noise.LAPLACE or workload.domain.cells < _FEWEST_CELLS:
        return False
    assumed, guessed = assumed_rows(whole.tree_setting(setting)), whole.guess_of_counts
    return (assumed if guessed is None else guessed) >= _FEWEST_ROWS * assumed


def read_by(objective: Objective, *, public_total: bool) -> Read:
    """What the strategy is best for."""
    if isinstance(objective, RangeObjective):
        return Read(kind="ranges", widths=objective.widths)
    if public_total:
        return Read(kind="centred")
    if isinstance(objective, QuantileObjective):
        return Read(kind="quantiles", shares=objective.quantiles)
    return Read(kind="cdf")
