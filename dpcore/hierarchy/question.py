"""A question about a hierarchy: the counts, or bounded sums, of all nodes of a public universe.

The universe may be large, so a question travels without what follows from it: the shape of the tree
is taken from the universe again where the question arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Flags, Integers
from dptrees.dpcore.hierarchy.domain import HierarchyDomain, hierarchy_domain_from_spec
from dptrees.dpcore.hierarchy.universe import OTHER, Universe
from dptrees.dpcore.irregular.plan import sum_sensitivities
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.questions.entry import budget_entry, column_policies
from dptrees.dpcore.questions.mechanism import ChunkLayout
from dptrees.dpcore.questions.parts import ChunkAnswer
from dptrees.dpcore.questions.place import Counter, Drawn, Gathered, Increments, Matched, Place
from dptrees.dpcore.questions.question import PublicTable
from dptrees.dpcore.questions.root_messages import (
    SentRoots,
    pack_measured,
    pack_roots,
    pack_solutions,
    unpack_measured,
    unpack_solutions,
)
from dptrees.dpcore.questions.slot_counts import MOST_SLOTS, SlotCounter, Slots
from dptrees.dpcore.questions.tables import NODES
from dptrees.dpcore.questions.tree_question import M, TreeQuestion
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.rows.packing import pack_many, unpack_many
from dptrees.dpcore.rows.row_outcomes import MISSING, RowOutcome, missing_flags
from dptrees.dpcore.rows.sums import MeasureColumn, measure_from_spec
from dptrees.dpcore.trees.chunks import SPINE_LEAVES, Chunk, branch_index
from dptrees.dpcore.trees.forest import Measurements, RootSolutions


@dataclass(frozen=True, kw_only=True)
class HierarchyQuestion(TreeQuestion[M]):
    """The counts, or bounded sums, of all nodes of a hierarchy.

    Args:
        domain: the universe, and how rows fall into its leaves.
        measure: the column that is summed, None where rows are counted.
        spine_leaves: the most chunk roots that are solved together; a tree with more has branches.
            Streams of noise follow them.

    Raises:
        ValueError: parts that do not fit each other.
    """

    written = (
        *("spine_leaves", "name", "domain", "keys", "measure", "confidence"),
        *("weight", "chunk_leaves", "mechanism"),
    )
    leading = ("spine_leaves", "kind")
    tables = (NODES,)
    output_only = ("confidence", "weight")

    domain: HierarchyDomain
    measure: MeasureColumn | None = None
    spine_leaves: int = SPINE_LEAVES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.measure is None:
            return
        plan: Any = self.plan
        if not self.mechanism.measures_sums:
            raise ValueError(f"measure: sums do not go with the mechanism {self.kind}")
        if self.mechanism.public_level is not None:
            raise ValueError("measure: the sums of public nodes are not supported")
        needed = sum_sensitivities(
            plan.tree,
            plan.unit,
            lower=self.measure.lower,
            upper=self.measure.upper,
            keyed=plan.keyed,
        )
        pairs = zip(plan.sensitivities, needed, strict=True)
        if any(has[0] < sum_[0] or has[1] < sum_[1] for has, sum_ in pairs):
            raise ValueError("plan: its noise is too small for the bounds of the measure")

    @property
    def layout(self) -> ChunkLayout:
        return replace(super().layout, spine_leaves=self.spine_leaves)

    def node_labels(self, level: int, nodes: Integers) -> pa.StringArray:
        """The paths of nodes."""
        return self.domain.tree.paths(level, nodes)

    def listed(self, level: int, nodes: Integers) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """All but those that only continue a leaf of an upper level."""
        return self.domain.tree.is_named(level, nodes)

    def chunk_answer(
        self, chunk: Chunk, measured: Measurements, roots: RootSolutions
    ) -> ChunkAnswer:
        levels, _ = self.forest.solve(chunk, measured, roots)
        total = self.released_total(roots)
        return ChunkAnswer({NODES: self.nodes_table(chunk.key, levels, total)})

    @property
    def public_tables(self) -> tuple[PublicTable, ...]:
        return (self.domain.universe, *super().public_tables)

    def with_public_tables(
        self, shared: Callable[[PublicTable], PublicTable]
    ) -> HierarchyQuestion[M]:
        universe = shared(self.domain.universe)
        assert isinstance(universe, Universe)
        copy = replace(self, domain=replace(self.domain, universe=universe))
        if "widths" in self.__dict__:
            copy.remember_widths(self.widths)
        return TreeQuestion.with_public_tables(copy, shared)  # type: ignore[return-value]

    @property
    def is_signed(self) -> bool:
        return self.measure is not None and self.measure.signed

    @cached_property
    def branches(self) -> Sequence[Place]:
        numbers = range(self.forest.chunking.branches)
        return [
            Place(key, branch_index(number)) for key in range(self.key_count) for number in numbers
        ]

    def branch_place(self, place: Place) -> Place:
        return Place(place.group, branch_index(self.forest.chunking.chunk_branch(place.number)))

    def _branch(self, place: Place) -> Chunk:
        return self.forest.chunking.branch(place.group, branch_index(place.number))

    def draw_branch(self, branch: Place, sent: Mapping[Place, bytes], noise: NoiseSource) -> Drawn:
        forest: Any = self.forest
        chunk, received = self._branch(branch), SentRoots.from_messages(sent)
        measured = forest.measure_branch(self.name, chunk, received.totals, noise)
        known = [*measured, received.roots.reshape(chunk.rows, -1)]
        totals = forest.chunk_totals(chunk, received.totals)
        return Drawn(
            sent=pack_roots(forest.chunk_roots(chunk, known), totals),
            kept=pack_many([pack_measured(measured), received.roots.tobytes()]),
        )

    def finish_branch(self, branch: Place, kept: bytes, returned: bytes) -> Gathered:
        chunking, chunk, (levels, below) = (
            self.forest.chunking,
            self._branch(branch),
            unpack_many(kept),
        )
        roots = np.frombuffer(below).reshape(chunk.rows, -1)
        forest: Any = self.forest
        solutions, solved = forest.solve_branch(
            chunk, [*unpack_measured(levels, chunk.rows), roots], unpack_solutions(returned)
        )
        chunks = chunking.branch_chunks(branch_index(branch.number))
        places = [Place(branch.group, index) for index in chunks]
        stops = np.cumsum([chunking[index].units for index in chunks]).tolist()
        returned_to = pack_solutions(solutions, places, stops)
        return Gathered(returned_to, [self._spine(branch, solutions, solved)])

    @cached_property
    def slots(self) -> Slots | None:
        """Slots that count rows before their leaves are known; None where leaves are looked up."""
        domain = self.domain
        tree = domain.tree.shape
        may_wait = self.mechanism.counts_in_slots and self.unit.is_row
        if not (may_wait and domain.universe.is_parted):
            return None
        slots = Slots(
            chunking=self.forest.chunking,
            tree=tree,
            numbers=domain.tree.level_labels[-1].codes,
            radix=domain.radix,
            takes_unknown=domain.unknown == OTHER,
        )
        return slots if self.key_count * slots.per_key <= MOST_SLOTS else None

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
        slots = codes * self.slots.per_key + cells
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

    def row_outcomes(self, columns: Mapping[str, pa.Array]) -> list[RowOutcome]:
        result = super().row_outcomes(columns)
        if (bounds := self.measure) is not None:
            missing = missing_flags(columns[bounds.column])
            result.append(RowOutcome(bounds.column, MISSING, bounds.missing, missing))
        return result

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
        level = self.mechanism.public_level
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
        policies = column_policies(self)
        if (bounds := self.measure) is not None:
            policies.setdefault(bounds.column, {}).update(
                bounds=[bounds.lower, bounds.upper], outside="clamp", missing=bounds.missing
            )
        return (
            {"name": self.name}
            | budget_entry(self)
            | self.mechanism.entry(self.domain.tree.level_names)
            | {"policies": policies, "interval_widths": self.widths.spec()}
        )

    # By hand: what an entry says may shape nothing.
    def spec(self) -> dict[str, Any]:
        """Return the specification: the spine where there are branches, the measure where the
        mechanism measures sums."""
        is_shown = {"spine_leaves": bool(self.branches), "measure": self.mechanism.measures_sums}
        return {key: each for key, each in super().spec().items() if is_shown.get(key, True)}

    def __getstate__(self) -> dict[str, object]:
        mechanism = self.mechanism
        own = {f.name: getattr(mechanism, f.name) for f in fields(mechanism) if f.name != "plan"}
        plan: Any = self.plan
        parts = {f.name: getattr(plan, f.name) for f in fields(plan) if f.name != "tree"}
        kept = {f.name: getattr(self, f.name) for f in fields(self)}
        kept |= {"mechanism": (type(mechanism), own, type(plan), parts)}
        if "widths" in self.__dict__:
            kept["widths"] = self.widths
        return kept

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)
        kind, own, plan, parts = self.__dict__["mechanism"]
        self.__dict__["mechanism"] = kind(plan=plan(tree=self.domain.tree.shape, **parts), **own)


def hierarchy_question_from_spec(
    spec: Mapping[str, Any],
    universe: Universe,
    read: Callable[[dict[str, Any], HierarchyDomain], M],
) -> HierarchyQuestion[M]:
    """Return the question of a specification, as `HierarchyQuestion.spec` writes it.

    Args:
        spec: plain JSON values.
        universe: the one that it names by its digest.
        read: takes the mechanism of a specification, for a domain.

    Raises:
        ValueError: the universe is not the one that the specification names.
    """
    domain, left = hierarchy_domain_from_spec(spec["domain"], universe), dict(spec)
    summed = spec.get("measure")
    return HierarchyQuestion.from_spec(
        left,
        domain=domain,
        mechanism=read(left, domain),
        spine_leaves=spec.get("spine_leaves", SPINE_LEAVES),
        keys=keys_from_spec(spec["keys"]),
        measure=None if summed is None else measure_from_spec(summed),
    )
