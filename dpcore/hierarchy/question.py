"""A question about a hierarchy: the counts, or bounded sums, of all nodes of a public universe.

Source: `dpcore.irregular.plan`, `dpcore.irregular.forest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import pyarrow as pa

from dpcore.arrays import Flags, Floats, Integers
from dpcore.hierarchy.domain import hierarchy_domain_from_spec
from dpcore.hierarchy.entry import hierarchy_levels_of
from dpcore.hierarchy.relative_objective import RelativeObjective, relative_objective_from_spec
from dpcore.hierarchy.universe import OTHER, Universe
from dpcore.hierarchy.universe_question import UniverseQuestion
from dpcore.irregular.as_measured import AsMeasuredForest
from dpcore.irregular.forest import IrregularForest
from dpcore.irregular.node_weights import NodeWeights
from dpcore.irregular.plan import IrregularPlan, sum_sensitivities
from dpcore.irregular.widths import IrregularWidths, irregular_widths, node_margins
from dpcore.noise.source import KeyedChoices, NoiseSource
from dpcore.privacy.budget import Budget, Measure
from dpcore.privacy.spending import MovedCounts, moved_of_levels
from dpcore.privacy.unit import PrivacyUnit
from dpcore.questions.entry import budget_entry, policies_of
from dpcore.questions.place import Counter, Drawn, Gathered, Increments, Matched, Place
from dpcore.questions.root_messages import (
    SentRoots,
    pack_measured,
    pack_roots,
    pack_solutions,
    unpack_measured,
    unpack_solutions,
)
from dpcore.questions.slot_counts import MOST_SLOTS, SlotCounter, Slots
from dpcore.rows.fates import MISSING, Fate, missing_flags
from dpcore.rows.keys import keys_from_spec
from dpcore.rows.packing import pack_many, unpack_many
from dpcore.rows.sums import MeasureColumn, measure_from_spec
from dpcore.trees.chunks import SPINE_LEAVES, Chunk, branch_index
from dpcore.trees.forest import LevelSolution

LEAST_SQUARES, NONE = "least_squares", "none"
TOP_DOWN, SMALLEST_FIRST = "top_down", "smallest_first"


@dataclass(frozen=True, kw_only=True)
class HierarchyQuestion(UniverseQuestion):
    """The counts of all nodes of a hierarchy.

    Args:
        weights: what the plan was made for; or
        objective: errors relative to counts.
        measure: the column that is summed, None where rows are counted.
        estimation: "least_squares", or "none": counts are read as they were measured.
        consistency: "top_down", or "smallest_first": what there is too much of is taken off the
            smallest nodes first, see `dpcore.trees.irregular_consistency`.
        spine_leaves: the most chunk roots that are solved together; a tree with more has branches.
            Streams of noise follow them.

    Raises:
        ValueError: parts that do not fit each other.

    >>> from dpcore.privacy.unit import ADD_REMOVE_ROW
    >>> from dpcore.hierarchy.domain import HierarchyDomain
    >>> from dpcore.irregular.planner import with_best_shares
    >>> from dpcore.hierarchy.leaves import universe_from_codes
    >>> places = HierarchyDomain(
    ...     universe=universe_from_codes(pa.array(["0101", "0102", "0201"]), (2, 2)),
    ...     columns=("place",))
    >>> plan = IrregularPlan(
    ...     tree=places.tree.shape, unit=ADD_REMOVE_ROW,
    ...     budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> question = HierarchyQuestion(
    ...     name="people", domain=places, plan=with_best_shares(plan))
    >>> question.node_labels(1, np.arange(2)).to_pylist()
    ['01', '02']
    """

    output_only = ("confidence", "weight", "weights", "objective", "estimation", "consistency")
    widths_kind = IrregularWidths
    plan: IrregularPlan
    weights: NodeWeights | None = None
    objective: RelativeObjective | None = None
    measure: MeasureColumn | None = None
    estimation: str = LEAST_SQUARES
    consistency: str = TOP_DOWN
    spine_leaves: int = SPINE_LEAVES

    def __post_init__(self) -> None:
        super().__post_init__()
        tree = self.plan.tree
        _ = self.plan.law(0, 0)  # refuses noise that is out of reach of 64-bit counts
        if self.estimation not in (LEAST_SQUARES, NONE):
            raise ValueError(f"estimation: {self.estimation} is neither least_squares nor none")
        if self.consistency not in (TOP_DOWN, SMALLEST_FIRST):
            raise ValueError(f"consistency: there is none of the name {self.consistency!r}")
        if self.plan.public_level is not None and self.measure is not None:
            raise ValueError("measure: the sums of public nodes are not supported")
        if self.measure is not None:
            needed = sum_sensitivities(
                tree,
                self.plan.unit,
                lower=self.measure.lower,
                upper=self.measure.upper,
                keyed=self.plan.keyed,
            )
            pairs = zip(self.plan.sensitivities, needed, strict=True)
            if any(has[0] < sum_[0] or has[1] < sum_[1] for has, sum_ in pairs):
                raise ValueError("plan: its noise is too small for the bounds of the measure")
        chunking = self.forest.chunking
        is_split = chunking.split_level < tree.height or not chunking.branches
        if chunking.spine.leaves > self.spine_leaves or not is_split:
            raise ValueError(
                f"domain: a node with more than {self.chunk_leaves} children, or with as many "
                "subtrees that no chunk holds together, needs a level in between"
            )

    @cached_property
    def forest(self) -> IrregularForest:
        """The trees in chunks."""
        kind = IrregularForest if self.estimation == LEAST_SQUARES else AsMeasuredForest
        return kind(
            self.plan,
            keys=self.key_count,
            chunk_leaves=self.chunk_leaves,
            spine_leaves=self.spine_leaves,
            signed=self.is_signed,
            smallest_first=self.consistency == SMALLEST_FIRST,
        )

    @cached_property
    def branches(self) -> Sequence[Place]:
        numbers = range(self.forest.chunking.branches)
        return [
            Place(key, branch_index(number)) for key in range(self.key_count) for number in numbers
        ]

    def branch_of(self, place: Place) -> Place:
        return Place(place.group, branch_index(self.forest.chunking.branch_of(place.number)))

    def _branch(self, place: Place) -> Chunk:
        return self.forest.chunking.branch(place.group, branch_index(place.number))

    def draw_branch(self, branch: Place, sent: Mapping[Place, bytes], noise: NoiseSource) -> Drawn:
        forest, chunk, told = self.forest, self._branch(branch), SentRoots.of(sent)
        measured = forest.measure_branch(self.name, chunk, told.totals, noise)
        known = [*measured, told.roots.reshape(chunk.rows, -1)]
        totals = forest.chunk_totals(chunk, told.totals)
        return Drawn(
            sent=pack_roots(forest.chunk_roots(chunk, known), totals),
            kept=pack_many([pack_measured(measured), told.roots.tobytes()]),
        )

    def finish_branch(self, branch: Place, kept: bytes, returned: bytes) -> Gathered:
        chunking, chunk, (levels, below) = (
            self.forest.chunking,
            self._branch(branch),
            unpack_many(kept),
        )
        roots = np.frombuffer(below).reshape(chunk.rows, -1)
        solutions, solved = self.forest.solve_branch(
            chunk, [*unpack_measured(levels, chunk.rows), roots], unpack_solutions(returned)
        )
        chunks = chunking.chunks_of(branch_index(branch.number))
        places = [Place(branch.group, index) for index in chunks]
        stops = np.cumsum([chunking[index].units for index in chunks]).tolist()
        returned_to = pack_solutions(solutions, places, stops)
        return Gathered(returned_to, [self._spine(branch, solutions, solved)])

    @cached_property
    def widths(self) -> IrregularWidths:
        """Half-widths of the confidence intervals."""
        return irregular_widths(self.plan, self.confidence)

    @property
    def public_total(self) -> bool:
        return self.plan.public_level is not None

    @property
    def is_signed(self) -> bool:
        return self.measure is not None and self.measure.signed

    @property
    def moved_counts(self) -> MovedCounts | None:
        """Counts that one unit can move, as `TreeQuestion.moved_counts` has them; None where levels
        are pooled."""
        plan, tree = self.plan, self.plan.tree
        if any((fanouts == 1).any() for fanouts in tree.fanouts):
            return None
        return moved_of_levels(
            (law, plan.sensitivities[level])
            for level in range(tree.height + 1)
            if (law := plan.law(level, 0)) is not None
        )

    @cached_property
    def _margins(self) -> list[Floats]:
        if isinstance(self.forest, AsMeasuredForest):
            return self.forest.margins(self.confidence)
        return node_margins(self.plan, self.widths)

    def margins(self, solved: LevelSolution) -> Floats:
        margins, tree = self._margins[solved.level], self.plan.tree
        nodes = np.arange(solved.first_node, solved.first_node + solved.estimate.shape[-1])
        if solved.level == tree.height > 0:
            nodes = np.searchsorted(tree.child_starts[-1], nodes, side="right") - 1
        return margins[nodes]

    @cached_property
    def slots(self) -> Slots | None:
        """Where rows are counted before their leaves are known; None where they are looked up."""
        tree, domain = self.plan.tree, self.domain
        if not (self.unit.is_row and domain.universe.is_parted):
            return None
        slots = Slots(
            chunking=self.forest.chunking,
            tree=tree,
            numbers=domain.tree.level_labels[-1].codes,
            radix=domain.radix,
            takes_unknown=domain.unknown == OTHER,
        )
        return slots if self.key_count * slots.of_key <= MOST_SLOTS else None

    @property
    def is_matched(self) -> bool:
        return self.slots is not None

    @property
    def dense_cells(self) -> int:
        return 0 if self.is_matched else super().dense_cells

    def counter(self, *, dense: bool, choices: KeyedChoices) -> Counter:
        if self.slots is not None:
            return SlotCounter(self.slots)
        return super().counter(dense=dense, choices=choices)

    def match(self, place: Place, partials: Iterable[bytes]) -> Matched:
        assert self.slots is not None
        return self.slots.match(place, partials)

    def _all_leaf_ids(self, columns: Mapping[str, pa.Array]) -> Integers:
        """(rows,) the global leaf id, or slot, of every row, below 0 where a policy drops it."""
        if self.slots is None:
            return super()._all_leaf_ids(columns)
        cells = self.domain.slots(columns)
        if self.keys is None:
            return cells
        codes = self.keys.row_codes(columns)
        slots = codes * self.slots.of_key + cells
        slots[(cells < 0) | (codes < 0)] = -1
        return slots

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        if self.measure is None:
            return super().increments(columns)
        return self.row_increments(columns).increments

    def _all_increments(self, columns: Mapping[str, pa.Array]) -> tuple[Increments, Flags | None]:
        if self.measure is None:
            return super()._all_increments(columns)
        ids = self._all_leaf_ids(columns)
        values, dropped = self.measure.values(columns[self.measure.column])
        return Increments(ids, values), ids >= 0 if dropped is None else (ids >= 0) & ~dropped

    def fates(self, columns: Mapping[str, pa.Array]) -> list[Fate]:
        found = super().fates(columns)
        if (bounds := self.measure) is not None:
            missing = missing_flags(columns[bounds.column])
            found.append(Fate(bounds.column, MISSING, bounds.missing, missing))
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        summed = () if self.measure is None else (self.measure.column,)
        return tuple(dict.fromkeys((*super().columns, *summed)))

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        types = super().value_types
        if self.measure is not None:
            self._add_type(types, self.measure.column, self.measure.value_type)
        return types

    def check_types(self, types: Mapping[str, pa.DataType]) -> None:
        super().check_types(types)
        if self.measure is not None:
            self.measure.check_type(types[self.measure.column])

    @property
    def counts_rows(self) -> bool:
        return self.measure is None

    @property
    def declared_public(self) -> str | None:
        level = self.plan.public_level
        if level is None or (level == 0 and not self.domain.drops_rows):
            return None
        return f"{self.domain.tree.level_names[level]} of {self.name}"

    @property
    def clamped(self) -> str | None:
        bounds = self.measure
        if bounds is None:
            return None
        return f"{bounds.column} of {self.name} into [{bounds.lower}, {bounds.upper}]"

    def entry(self) -> dict[str, object]:
        policies = policies_of(self)
        if (bounds := self.measure) is not None:
            policies.setdefault(bounds.column, {}).update(
                bounds=[bounds.lower, bounds.upper], outside="clamp", missing=bounds.missing
            )
        return (
            {"name": self.name}
            | budget_entry(self)
            | {
                "mechanism": "tree",
                "estimation": self.estimation,
                "consistency": self.consistency,
                "levels": hierarchy_levels_of(self),
                "policies": policies,
                "interval_widths": self.widths.spec(),
            }
        )

    def spec(self) -> dict[str, object]:
        """All that shapes the law of the answer, as plain JSON values; the universe by its digest.
        `hierarchy_question_from_spec` reads it back."""
        plan, weights = self.plan, self.weights
        # Of a tree without branches it shapes nothing.
        cut: dict[str, object] = {"spine_leaves": self.spine_leaves} if self.branches else {}
        repaired = {} if self.consistency == TOP_DOWN else {"consistency": self.consistency}
        return (
            cut
            | repaired
            | {
                "name": self.name,
                "domain": self.domain.spec(),
                "keys": None if self.keys is None else self.keys.spec(),
                "leaves": plan.tree.leaves,
                "level_amounts": [str(amount) for amount in plan.level_amounts],
                "budget": str(plan.budget.amount),
                "public_level": plan.public_level,
                "sensitivities": [list(pair) for pair in plan.sensitivities],
                "measure": None if self.measure is None else self.measure.spec(),
                "estimation": self.estimation,
                "confidence": self.confidence,
                "weight": str(self.weight),
                "weights": None if weights is None else weights.spec(),
                "objective": None if self.objective is None else self.objective.spec(),
                "chunk_leaves": self.chunk_leaves,
            }
        )


def hierarchy_question_from_spec(
    spec: Mapping[str, object], unit: PrivacyUnit, measure: Measure, universe: Universe
) -> HierarchyQuestion:
    """The question of a specification, as `HierarchyQuestion.spec` tells it, over its universe.

    Raises:
        ValueError: the universe is not the one that the specification names.
    """
    domain, keys, summed = spec["domain"], spec["keys"], spec["measure"]
    amounts, pairs, weights = spec["level_amounts"], spec["sensitivities"], spec["weights"]
    public_level, objective = spec["public_level"], spec["objective"]
    assert objective is None or isinstance(objective, dict)
    assert isinstance(domain, dict) and isinstance(amounts, list) and isinstance(pairs, list)
    assert isinstance(public_level, int | None)
    places = hierarchy_domain_from_spec(domain, universe)
    key_list = keys_from_spec(keys)
    plan = IrregularPlan(
        tree=places.tree.shape,
        unit=unit,
        budget=Budget(measure=measure, amount=Fraction(str(spec["budget"]))),
        level_amounts=tuple(Fraction(amount) for amount in amounts),
        public_level=public_level,
        keyed=key_list is not None,
        sensitivities=tuple((int(l1), int(l2)) for l1, l2 in pairs),
    )
    return HierarchyQuestion(
        name=str(spec["name"]),
        domain=places,
        plan=plan,
        chunk_leaves=int(str(spec["chunk_leaves"])),
        spine_leaves=int(str(spec.get("spine_leaves", SPINE_LEAVES))),
        keys=key_list,
        confidence=float(str(spec["confidence"])),
        weight=Fraction(str(spec["weight"])),
        weights=NodeWeights.from_spec(weights) if isinstance(weights, dict) else None,
        measure=measure_from_spec(summed) if isinstance(summed, dict) else None,
        objective=None if objective is None else relative_objective_from_spec(objective),
        estimation=str(spec["estimation"]),
        consistency=str(spec.get("consistency", TOP_DOWN)),
    )
