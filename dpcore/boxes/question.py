"""A box of columns, released as a partition that grows where rows are: its counting and its plan.

Places hold exact counts, of codes or of levels; all are gathered where the partition grows, which
looks at noisy counts alone. Where no mechanism is named, public facts decide, never the data: an
adaptive partition, or PrivHP where exact counts may not fit memory or where only PrivHP has a
requested choice (docs/synthetic.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arithmetic.elementary import exp, log, log2
from dptrees.dpcore.arrays import Floats
from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan, plan_adaptive
from dptrees.dpcore.boxes.domain import HypercubeDomain, Nodes, cell_bits
from dptrees.dpcore.boxes.held_counts import HeldCodes, HeldCounts, HeldTables
from dptrees.dpcore.boxes.partition import Measurement, measured_variance, selection_biases
from dptrees.dpcore.boxes.parts import collided_interval
from dptrees.dpcore.boxes.plan import (
    EstimatedTree,
    Estimation,
    Holding,
    PartitionMechanism,
    PartitionPlan,
)
from dptrees.dpcore.boxes.planner import (
    CODE_BYTES,
    DEFAULT_MEMORY,
    GUESSED_ROWS,
    SPLIT_ERRORS,
    PartitionChoices,
    PartitionSetting,
    plan_partition,
    plan_privtree,
)
from dptrees.dpcore.noise.randomness import RandomStream, ReleaseKey, public_stream
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.ordered.columns import ColumnsQuestion, uniform
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.questions.messages import (
    Counter,
    Counts,
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.planning import Noise, Setting, Way, Workload
from dptrees.dpcore.questions.released import NODES, NODES_SCHEMA, number_column
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.questions.tree_question import AccumulatedTree, Measured, budget_entry
from dptrees.dpcore.specification import Refusal


def plan_closest(
    setting: PartitionSetting, choices: PartitionChoices
) -> AdaptivePartitionPlan | PartitionPlan:
    """The plan for a setting: adaptive, or PrivHP's.

    Raises:
        Refusal: a choice that neither has, or `decided_apart` where PrivHP is taken.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> setting = PartitionSetting(
    ...     bits=24, diameters=lambda depth: 2.0 ** -(depth // 2), dimensions=2,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)), unit=ADD_REMOVE_ROW)
    >>> choices = PartitionChoices.from_mechanism("planned", rows=10**4)
    >>> plan_closest(setting, choices).mechanism
    'adaptive'
    >>> plan_closest(setting, replace(choices, holding=Holding.SKETCH)).mechanism
    'partition'
    """
    if privhp_choice(choices) is None:
        try:
            plan = plan_adaptive(setting, choices)
        except Refusal as refusal:
            if refusal.field != "memory":
                raise
        else:
            if _fits(plan, choices):
                return plan
    if choices.decided_apart:
        raise Refusal(
            "decided_apart",
            "estimates apart from decisions need an adaptive partition, and here PrivHP is taken "
            "(for its sketches, or a choice that it alone has)",
        )
    return plan_partition(setting, privhp_choices(choices))


def privhp_choice(choices: PartitionChoices) -> str | None:
    """A choice that PrivHP has and an adaptive partition has not, by its name; None where there is
    none."""
    made = {
        "holding": choices.holding is Holding.SKETCH,
        "parts": choices.parts is not None,
        "shares": choices.shares == "lemma_5",
        "estimation": choices.estimation is Estimation.EVEN_SHARES,
    }
    return choices.sketch_choice or next((name for name, is_made in made.items() if is_made), None)


def privhp_choices(choices: PartitionChoices) -> PartitionChoices:
    """The same choices for PrivHP."""
    errors = SPLIT_ERRORS if choices.split_errors is None else choices.split_errors
    return replace(choices, split_errors=errors)


def _fits(plan: AdaptivePartitionPlan, choices: PartitionChoices) -> bool:
    """Whether exact counts are expected to fit memory, as PrivHP's planner expects it."""
    chosen = choices.holding is not None or choices.memory is not None
    if chosen or plan.holding is Holding.DENSE:
        return True
    rows = choices.rows_at_most or choices.rows or GUESSED_ROWS
    return 2 * CODE_BYTES * min(rows, 1 << plan.depths[-1]) <= DEFAULT_MEMORY


@dataclass(frozen=True, kw_only=True)
class HypercubeQuestion(ColumnsQuestion, AccumulatedTree):
    """The partition of a box.

    Args:
        domain: the columns, and how their box is divided.
        plan: how counts are measured and which parts are divided.

    Raises:
        ValueError: parts that do not fit each other, or a budget whose noise is out of range.
    """

    kind = "hypercube"

    domain: HypercubeDomain
    plan: PartitionMechanism

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan.depths[-1] > self.domain.bits:
            raise ValueError(
                f"plan: it is {self.plan.depths[-1]} bits deep, the domain {self.domain.bits}"
            )
        if self.plan.public_total and self.domain.drops_rows:
            raise ValueError("plan: the total is not public where rows may be dropped")
        try:
            _ = self.plan.laws
        except ValueError as error:
            raise ValueError(f"plan: no noise fits the budget of a level, as the {error}") from None

    @cached_property
    def held(self) -> HeldCounts:
        """The form in which exact counts are held."""
        if isinstance(self.plan, PartitionPlan) and self.plan.holding is Holding.SKETCH:
            return HeldTables(tree=self.name, plan=self.plan, bits=self.domain.bits)
        return HeldCodes(tree=self.name, plan=self.plan, bits=self.domain.bits)

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return Increments(pa.array(self.domain.codes(columns)))

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        codes, rows = self.domain.row_codes(columns)
        return RowIncrements(Increments(pa.array(codes)), rows)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        return self.held.counter(dense=dense, choices=choices)

    @property
    def dense_cells(self) -> int:
        return (self.plan.state_bytes or 0) // 8

    @property
    def places(self) -> list[Place]:
        return self.held.places

    def place_balance(self, place: Place) -> int:
        """The level's: a row counts in each, and in a sketch once a hash row."""
        return place.group

    def merge(self, place: Place, partials: Iterable[bytes]) -> Counts:
        return self.held.merge(place, partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Cut the exact counts of codes, as `HypercubeDomain.leaf_counts` gives them, into partial
        counts.

        Raises:
            ValueError: they are no counts of codes.
        """
        if not isinstance(counts, NodeCounts):
            raise ValueError(f"counts: those of tree {self.name} are no counts of codes")
        return self.held.split_counts(counts, choices)

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        return Drawn(sent=self.held.draw(place, counts, noise), kept=None)

    def gathered_by(self, place: Place) -> int:
        """All together: the partition grows level by level over the whole box."""
        return 0

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        return Gathered({}, self._released(self.held.measurement(sent, noise)))

    def _released(self, measurement: Measurement) -> list[ReleasedPart]:
        """Parts of the partition that grows from noisy counts."""
        found = self.plan.estimated(self.domain, measurement)
        tables = zip(self.parts(), partition_tables(self, found), strict=True)
        return [ReleasedPart(part, table) for part, table in tables]

    @property
    def accumulates(self) -> bool:
        """Whether it is a partition of whole levels: nodes that end are measured again in an
        adaptive one, and PrivTree's noise hides the path to a node and no more."""
        return isinstance(self.plan, PartitionPlan)

    @property
    def node_variance(self) -> float:
        law = self.plan.laws[-1]
        assert law is not None
        return measured_variance(law.variance)

    def with_budget(self, budget: Budget) -> HypercubeQuestion:
        assert isinstance(self.plan, PartitionPlan)
        return replace(self, plan=self.plan.with_budget(budget))

    def together(self, trees: Sequence[HypercubeQuestion]) -> HypercubeQuestion:
        assert isinstance(self.plan, PartitionPlan)
        plans = [tree.plan for tree in trees if isinstance(tree.plan, PartitionPlan)]
        return replace(self, plan=self.plan.together(plans))

    def gather_together(self, measured: Sequence[Measured]) -> Sequence[ReleasedPart]:
        own = [each.tree.held.measurement(each.sent, each.noise) for each in measured]
        return self._released(self.held.together(own))

    def parts(self) -> Iterator[Part]:
        for depth in self.plan.depths:
            yield Part(kind=NODES, tree=self.name, key=0, index=depth)

    @property
    def budget(self) -> Budget | None:
        spent = self.plan.spending
        amount = spent.epsilon if self.plan.measure is Measure.EPSILON else spent.rho
        return Budget(measure=self.plan.measure, amount=amount)

    def entry(self) -> dict[str, object]:
        """The mechanism, each level's noise, and the policies."""
        spec = self.plan.spec()
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": spec["mechanism"],
            "levels": self.plan.levels,
            "plan": {name: value for name, value in spec.items() if name != "levels"},
            "policies": self.domain.policies,
        }


def partition_tables(question: HypercubeQuestion, found: EstimatedTree) -> list[pa.Table]:
    """Return the released rows of each depth of the plan, root first, as `NODES_SCHEMA`; empty
    where the partition did not come so deep.

    Where sketches state errors of sums there are two columns more: ``measured_error``, the standard
    error of what was measured of the node, as the noisy table shows it, from which variances of
    sums follow; and ``collision_error``, the part of ``std_error`` that is of collisions.

    ``level`` is the depth, in halvings of the box; ``node`` the number of the node among the
    2^level of its depth, as a signed 64-bit integer. Standard errors and intervals are null where a
    mechanism states none.

    Args:
        question: the tree.
        found: what was estimated.
    """
    ends = partial(collided_interval, question.plan.measure, question.confidence)
    most = float(found.counts[0][0]) if question.plan.public_total else math.inf
    tables: list[pa.Table] = []
    estimates = [each.estimate for each in found.estimates]
    biases = selection_biases(found.tree, question.plan.selection_bias, estimates)
    for place, depth in enumerate(question.plan.depths):
        if place >= len(found.tree.levels):
            tables.append(tables[0].slice(0, 0))
            continue
        level, running = found.tree.levels[place], found.estimates[place]
        filled = question.domain.has_cells(depth, level.nodes)
        spread = np.sqrt(running.variance + np.square(biases[place]))
        collided = None if found.collisions is None else np.sqrt(found.collisions[place])
        low, high = ends(running.estimate, spread, collided, most)
        if np.isnan(spread).all():
            # Of counts that were shared out the error is not known; of those measured it is.
            low, high = ends(level.value, np.sqrt(level.variance), None, most)
        columns: list[Floats] = [running.estimate, spread, low, high]
        table = pa.Table.from_arrays(
            [
                pa.DictionaryArray.from_arrays(
                    pa.array(np.zeros(len(level), np.int32)), pa.array([question.name])
                ),
                pa.nulls(len(level), NODES_SCHEMA.field("key").type),
                pa.array(np.full(len(level), depth, np.int32)),
                pa.array(level.nodes.view(np.int64)),
                question.domain.labels(depth, level.nodes),
                *map(number_column, columns),
                pa.array(found.counts[place]),
            ],
            schema=NODES_SCHEMA,
        )
        if collided is not None:
            measured = np.where(np.isinf(level.variance), np.nan, np.sqrt(level.variance))
            table = table.append_column(MEASURED_ERROR, number_column(measured))
            table = table.append_column(COLLISION_ERROR, number_column(collided))
        tables.append(table if filled.all() else table.filter(pa.array(filled)))
    return tables


MEASURED_ERROR, COLLISION_ERROR = "measured_error", "collision_error"

PLANNERS: Mapping[str, Callable[[PartitionSetting, PartitionChoices], PartitionMechanism]] = {
    "planned": plan_closest,
    "privhp": plan_partition,
    "privtree": plan_privtree,
    "adaptive": plan_adaptive,
}


# More rows, cells of sketches, or nodes of a partition without a threshold are not simulated: it
# would take longer than the rest of a plan.
MOST_SIMULATED, _MOST_CELLS, _MOST_WHOLE = 2**19, 2**20, 2**18
# Rows of all releases of a shape, and at most so many releases.
_SIMULATED, _MOST_RELEASES = 2**17, 4
# Cells at whose edges distribution functions of one column are compared.
_LINE_BITS = 16
# Everybody knows it: it protects nothing, and makes a prediction the same in every run.
_PUBLIC_KEY = ReleaseKey(bytes(32))
_SHAPES = ("heaps", "skewed", "clusters")


class PredictedDistance(NamedTuple):
    """W1 of synthetic rows from the data, of each column's range, over public shapes.

    Attributes:
        rows: of the data.
        typical: the geometric mean over the shapes.
        least, most: of a shape.
    """

    rows: int
    typical: float
    least: float
    most: float


@lru_cache(maxsize=64)
def predicted_distance(
    held: HeldCounts, domain: HypercubeDomain, rows: int
) -> PredictedDistance | None:
    """The distance by releases of public rows under a public key, as a release makes them.

    A column's sides are taken as powers of two of parts. Of one column W1 is the integral of the
    difference of both distribution functions. Of more it is an upper bound in l-infinity: points
    whose last common node has the diameter delta_{t-1} move by at most that, so

        W1 <= sum_t (delta_{t-1} - delta_t) 1/2 sum_cells |P(cell) - Q(cell)| + delta_T,

    over depths t up to T, from where on there are more cells than rows.

    Args:
        held: with the plan.
        domain: of the tree.
        rows: a public guess; of more than 2^19, 2^19.

    Returns:
        None where sketches, or partitions whose nodes are split whatever the noise, are too large.
    """
    rows, plan = min(rows, MOST_SIMULATED), held.plan
    if plan.holding is Holding.SKETCH and (plan.state_bytes or 0) > 8 * _MOST_CELLS:
        return None
    rule = plan.rule if isinstance(plan, PartitionPlan) else None
    if rule and rule.errors is None and min(2 ** plan.depths[-1], 8 * rule.most) > _MOST_WHOLE:
        return None
    axes = len(domain.axes)
    finest = axes * (1 + math.ceil(log2(rows) / axes)) if axes > 1 else _LINE_BITS
    bits = min(domain.bits, max(plan.depths[-1], finest))
    sides = tuple(side for side in domain.axis_bits.halvings(bits) if side)
    public = HypercubeDomain(
        axes=tuple(
            StepDomain(kind="integer", column=str(axis), lower=0, upper=2**side)
            for axis, side in enumerate(sides)
        ),
        depths=sides,
    )
    extents = np.array([_widest(domain, depth) for depth in range(min(finest, bits) + 1)])
    public_held, logs = replace(held, bits=bits), []
    for shape in _SHAPES:
        found = []
        for release in range(min(_MOST_RELEASES, max(1, _SIMULATED // rows))):
            stream = public_stream("box", shape, axes, rows, release)
            codes = _public_codes(shape, public, rows, stream)
            grown = _grown(public_held, public, codes, release)
            found.append(_distance(grown, codes, bits, extents, axes))
        logs.append(log(max(1e-300, math.fsum(found) / len(found))))
    return PredictedDistance(rows, exp(math.fsum(logs) / len(logs)), exp(min(logs)), exp(max(logs)))


def _widest(domain: HypercubeDomain, depth: int) -> float:
    """Return the diameter of the nodes of a depth; columns of one cell have none."""
    halvings = domain.axis_bits.halvings(depth)
    axes = zip(domain.axes, domain.extents(depth), halvings, strict=True)
    return max(own if halved < cell_bits(axis) else 0.0 for axis, own, halved in axes)


def _public_codes(shape: str, domain: HypercubeDomain, rows: int, stream: RandomStream) -> Nodes:
    """The rising codes of rows of independent bell-shaped columns, of skewed ones, or in 16 small
    clusters."""
    cluster, positions = stream.uint64(rows) >> np.uint64(60), []
    for place, side in enumerate(domain.depths):
        if shape == "heaps":
            own = (uniform(stream, rows) + uniform(stream, rows) + uniform(stream, rows)) / 3
        elif shape == "skewed":
            first = uniform(stream, rows)
            own = first * first * first
        else:
            center = (cluster * np.uint64(2 * place + 1) % np.uint64(16) + 0.5) / 16
            own = center + (uniform(stream, rows) + uniform(stream, rows) - 1) / 64
        positions.append((own * 2.0**side).astype(np.int64))
    return np.sort(domain.axis_bits.codes(positions))


def _grown(held: HeldCounts, domain: HypercubeDomain, codes: Nodes, release: int) -> EstimatedTree:
    """Return the partition of public rows."""
    noise = NoiseSource(
        key=_PUBLIC_KEY, release=str(release), spec_digest=b"", global_digest=b"", nonce=b"model"
    )
    sent = {
        place: held.draw(place, held.merge(place, [data]).to_bytes(), noise)
        for place, data, *_ in held.split_counts(NodeCounts.grouped(pa.array(codes)), noise.choices)
    }
    return held.plan.estimated(domain, held.measurement(sent, noise))


def _distance(grown: EstimatedTree, codes: Nodes, bits: int, extents: Floats, axes: int) -> float:
    """Return the distance of a partition's counts from rows, by their sorted codes."""
    leaves = list(zip(grown.tree.levels, grown.tree.leaves(), grown.counts, strict=True))
    start = np.concatenate([level.nodes[ends] * 2.0**-level.depth for level, ends, _ in leaves])
    mass = np.concatenate([counts[ends] for _, ends, counts in leaves])
    order = np.argsort(start, kind="stable")
    edges, shares = np.append(start[order], 1.0), mass[order] / max(1, int(mass.sum()))
    below, density = np.append(0.0, np.cumsum(shares)), shares / np.diff(edges)

    def share_below(at: Floats) -> Floats:
        place = np.minimum(np.searchsorted(edges, at, side="right"), len(density)) - 1
        shares: Floats = below[place] + (at - edges[place]) * density[place]
        return shares

    points = codes.astype(np.float64) * 2.0**-bits
    if axes == 1:
        at = np.arange(2**_LINE_BITS) * 2.0**-_LINE_BITS
        known = np.searchsorted(points, at) / len(points)
        return float(np.abs(share_below(at) - known).mean())
    total = float(extents[-1])
    for depth in np.flatnonzero(np.diff(extents)) + 1:
        cells = np.floor(points * 2.0**depth)
        first = np.flatnonzero(np.diff(cells, prepend=-1.0))
        real = np.diff(first, append=len(cells)) / len(cells)
        at = cells[first] * 2.0**-depth
        given = share_below(at + 2.0**-depth) - share_below(at)
        apart = float(np.abs(given - real).sum()) + max(0.0, 1 - float(given.sum()))
        total += float(extents[depth - 1] - extents[depth]) * apart / 2
    return total


@dataclass(frozen=True, kw_only=True)
class HypercubeWorkload(Workload[HypercubeQuestion]):
    """A partition of a box, to query and to sample rows from.

    Args:
        domain: the columns.
        mechanism: "planned", "privhp", "privtree" or "adaptive"; what the paper's mechanisms
            choose is in the choices.
        choices: of the plan.
    """

    domain: HypercubeDomain
    mechanism: str = "privhp"
    choices: PartitionChoices = field(default_factory=PartitionChoices)

    @property
    def ways(self) -> frozenset[Way]:
        """PrivTree has Laplace noise."""
        return frozenset({Way.LAPLACE}) if self.mechanism == "privtree" else self.noise.ways

    def check(self, measure: Measure, *, delta: bool) -> None:
        if self.mechanism == "privtree":
            if measure is not Measure.EPSILON:
                raise Refusal("mechanism", "privtree needs epsilon")
            if self.noise is Noise.GAUSSIAN:
                raise Refusal("noise", "privtree has Laplace noise")
        super().check(measure, delta=delta)

    def under(self, measure: Measure, *, delta: bool) -> HypercubeWorkload:
        """Return PrivHP's workload beside a delta, where none is named and no estimates requested:
        its composition is certified, and an adaptive partition's is converted."""
        if not delta or self.mechanism != "planned" or self.choices.decided_apart:
            return self
        return replace(self, mechanism="privhp", choices=privhp_choices(self.choices))

    @property
    def may_accumulate(self) -> bool:
        return self.mechanism == "privhp"

    def linear(self) -> HypercubeWorkload:
        """Return PrivHP's workload where no mechanism is named: the noise of its nodes does not
        depend on the partition. Estimates apart from decisions it has not."""
        if self.mechanism != "planned" or self.choices.decided_apart:
            return self
        return replace(self, mechanism="privhp", choices=privhp_choices(self.choices))

    def public_total(self, setting: Setting) -> bool:
        """Whether the number of rows that are counted is public: under substitute, where nothing
        drops rows."""
        return (
            setting.unit == SUBSTITUTE_ROW and not self.domain.drops_rows and not setting.drops_rows
        )

    def partition_setting(self, setting: Setting) -> PartitionSetting:
        """The setting that the plan is made for."""
        return PartitionSetting(
            bits=self.domain.bits,
            diameters=lambda depth: max(self.domain.extents(depth)),
            dimensions=len(self.domain.axes),
            budget=setting.budget,
            unit=setting.unit,
            public_total=self.public_total(setting),
        )

    def planned(self, setting: Setting) -> HypercubeQuestion:
        return HypercubeQuestion(
            name=self.name,
            domain=self.domain,
            plan=PLANNERS[self.mechanism](self.partition_setting(setting), self.choices),
            confidence=setting.confidence,
            weight=self.weight,
        )

    def why(self, question: HypercubeQuestion) -> str | None:
        """Return why a mechanism was taken, where none was named."""
        if self.mechanism != "planned":
            return None
        if isinstance(question.plan, AdaptivePartitionPlan):
            if question.plan.decision_part:
                return "chosen for estimates: an adaptive partition, whose intervals are exact"
            return (
                "chosen for counts: an adaptive partition, as its counts are expected to be the "
                "closest; for intervals use optimize_for: estimates"
            )
        choice = privhp_choice(self.choices)
        because = "only it has that choice"
        if choice is None:
            because = "exact counts may not fit memory, or by the kept plan of an earlier version"
        return f"chosen for counts: PrivHP, as {because}"

    def predicted(self, question: HypercubeQuestion) -> float:
        """About the standard error of a range of cells, in rows, were every node of the plan's
        levels there: of each level half the children of a node at either end."""
        plan, total, above = question.plan, 0.0, 0
        for depth, law in zip(plan.depths[1:], plan.laws[1:], strict=True):
            if law is None:
                continue
            total += ((1 << (depth - above)) - 1) * law.variance
            above = depth
        return math.sqrt(total)

    def error_in_rows(self, question: HypercubeQuestion) -> float:
        return self.predicted(question)

    def reported_error(self, question: HypercubeQuestion) -> tuple[float, str, str | None] | None:
        found = predicted_distance(question.held, question.domain, self.choices.guessed_rows)
        if found is None:
            return None
        rows, typical, least, most = found
        span = f"between {least:.2g} and {most:.2g}"
        holds = f"in synthetic rows, if {rows:,} rows look like public shapes: {span}"
        return float(f"{typical:.2g}"), "column ranges (W1)", holds
