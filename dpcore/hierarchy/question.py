"""A tree over a hierarchy: its counting or bounded sums, its plan and its released nodes.

The universe may be large, so a question travels without what follows from it: the shape of the
tree is taken from the universe again where the question arrives.
"""

from __future__ import annotations

import math
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
from dptrees.dpcore.questions.answer_errors import LeafRun
from dptrees.dpcore.questions.messages import (
    Counter,
    Drawn,
    Gathered,
    Increments,
    Matched,
    Place,
    SentRoots,
    pack_measured,
    pack_roots,
    pack_solutions,
    unpack_measured,
    unpack_solutions,
)
from dptrees.dpcore.questions.planning import ChunkAnswer, ChunkLayout
from dptrees.dpcore.questions.question import PublicTable
from dptrees.dpcore.questions.released import (
    NODES,
    Answer,
    NamedRun,
    check_apart,
    in_natural_order,
    named_level,
    sum_label,
)
from dptrees.dpcore.questions.released_tree import ReleasedTree
from dptrees.dpcore.questions.sparse_counts import MOST_SLOTS, SlotCounter, Slots
from dptrees.dpcore.questions.tree_question import M, TreeQuestion, budget_entry, column_policies
from dptrees.dpcore.rows.columns import pack_many, unpack_many
from dptrees.dpcore.rows.keys import keys_from_spec
from dptrees.dpcore.rows.numbers import TimeLine, time_line
from dptrees.dpcore.rows.policies import (
    MISSING_VALUE,
    MeasureColumn,
    RowOutcome,
    measure_from_spec,
    missing_flags,
)
from dptrees.dpcore.trees.chunks import SPINE_LEAVES, Chunk, branch_index
from dptrees.dpcore.trees.forests import Measurements, RootSolutions


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
        return TreeQuestion.with_public_tables(copy, shared)

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
            result.append(RowOutcome(bounds.column, MISSING_VALUE, bounds.missing, missing))
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


class ReleasedHierarchy(ReleasedTree):
    """The answers about one hierarchy."""

    unordered = "is a hierarchy, not ordered"

    question: HierarchyQuestion[Any]

    def at_confidence(self, confidence: float) -> ReleasedHierarchy:
        if not self.question.mechanism.has_other_confidences:
            super().at_confidence(confidence)  # refuses
        return ReleasedHierarchy(self.question, self._read, confidence)

    def find_level(self, name: str) -> int:
        return named_level(self.question.domain.tree.level_names, name)

    def find(self, path: str) -> tuple[int, int]:
        """The level and the node that a path leads to; "" is the root. A separator before the first
        label is passed over.

        Raises:
            ValueError: there is none.
        """
        return self.question.domain.tree.find(path)

    def find_node(self, value: object, level: int) -> int:
        """The node of a level that lies on a path.

        Raises:
            ValueError: there is no such path or level.
        """
        self._check_level(level)
        found, node = self.find(str(value))
        if found < level:
            raise ValueError(f"path {value!r}: leads to level {found}, above level {level}")
        for above in range(found, level, -1):
            node = int(self.question.domain.tree.parents(above, np.array([node]))[0])
        return node

    def at_path(self, path: str, key: object = None) -> Answer:
        level, node = self.find(path)
        return self.node(level, node, key)

    def children(self, path: str, key: object = None) -> list[Answer]:
        """Return the children of a node, as `Released.children` does, in their order."""
        level, node = self.find(path)
        tree = self.question.mechanism.plan.tree
        nodes = [] if level == tree.height else tree.children(level, node)
        if not len(nodes) or not self.question.listed(level + 1, np.array(nodes)).all():
            raise ValueError(f"path {path!r}: leads to a leaf, which has no children")
        code, total = self._code(key), self._total_count(self._code(key))
        rows = self.rows_between(level + 1, nodes[0], nodes[-1], code)
        answers = [self._answer(row, total) for row in rows.to_pylist()]
        return answers if self._is_calendar else _other_last(in_natural_order(answers))

    def top_below(
        self, path: str, count: int, level: int | None, key: object = None
    ) -> list[Answer]:
        """Return the largest nodes below a path, as `Released.top_below` does."""
        found, node = self.find(path)
        level = found + 1 if level is None else level
        self._check_level(level)
        if level <= found:
            names = self.question.domain.tree.level_names
            raise ValueError(f"level: {names[level]} is not below path {path!r}")
        first, stop = self.question.mechanism.plan.tree.node_ranges(found, node, node + 1)[
            level - found
        ]
        return self._largest_between(level, first, stop - 1, count, self._code(key))

    def sum(self, paths: Sequence[object], key: object = None) -> Answer:
        """Return the sum of the nodes that paths lead to, as `Released.sum` does."""
        tree, names = self.question.mechanism.plan.tree, [str(path) for path in paths]
        nodes = [self.find(name) for name in names]
        runs = [
            NamedRun(name, below.start, below.stop)
            for name, below in zip(names, (tree.leaf_range(*node) for node in nodes), strict=True)
        ]
        check_apart(runs)
        return self._sum_nodes(nodes, sum_label(names), key)

    def cdf(self, value: object, key: object = None, *, simultaneous: bool = False) -> Answer:
        """Return the number of rows before a timestamp, for a calendar.

        Raises:
            ValueError: it is no calendar, or no such moment or key; bands are of ordered trees.
        """
        if simultaneous:
            raise ValueError(f"cdf: tree {self._name} has no simultaneous band")
        time = self._time("cdf")
        asked = None if time.is_exact(value) else f"before {value}"
        return self._between(0, time.find_boundary(value), key, asked)

    def range(self, lower: object, upper: object, key: object = None) -> Answer:
        """Return the number of rows from one timestamp to before another, for a calendar.

        It is the sum of the fewest and largest nodes that lie inside; timestamps within one of
        the smallest nodes are rounded down to its beginning.

        Raises:
            ValueError: it is no calendar; lower after upper, or no such timestamps or key.
        """
        time = self._time("range")
        start, stop = time.find_boundary(lower), time.find_boundary(upper)
        if start > stop:
            raise ValueError(f"range: {lower} is after {upper}")
        exact = time.is_exact(lower) and time.is_exact(upper)
        return self._between(start, stop, key, None if exact else f"[{lower}, {upper})")

    @property
    def _is_calendar(self) -> bool:
        return self.question.domain.universe.form == "calendar"

    def _time(self, query: str) -> TimeLine:
        """The leaves of a calendar in time."""
        universe = self.question.domain.universe
        if not self._is_calendar:
            raise self._has_no_order(query)
        name, leaves = universe.levels[-1], universe.leaves
        first, last = universe.paths(universe.height, np.array([0, leaves - 1])).to_pylist()
        result = time_line(name, (first, last), leaves, utc=universe.utc)
        if result is None:
            raise ValueError(
                f"{query}: tree {self._name} is a calendar by {name}, which is no line of time"
            )
        return result

    def _between(self, start: int, stop: int, key: object, asked: str | None) -> Answer:
        """The leaves ``start`` to ``stop`` - 1 of a calendar."""
        time = self._time("range")
        label = "nothing" if start == stop else f"[{time.text(start)}, {time.text(stop)})"
        nodes = self.question.domain.tree.shape.covering(start, stop)
        return replace(self._sum_nodes(nodes, label, key), asked=asked)

    def _sum_nodes(self, nodes: Sequence[tuple[int, int]], label: str, key: object) -> Answer:
        """Return the sum of the counts of some nodes; none is below another."""
        if len(nodes) == 1:
            return replace(self.node(*nodes[0], key), label=label)
        code = self._code(key)
        error = self.errors.sum_of_nodes(nodes, code)
        return self._sum_answer(label, self._together(nodes, code), error, code)

    def _counted(self, runs: Sequence[LeafRun], code: int) -> tuple[float, int]:
        tree = self.question.domain.tree.shape
        return self._together([node for run in runs for node in tree.covering(*run)], code)

    def _together(self, nodes: Sequence[tuple[int, int]], code: int) -> tuple[float, int]:
        """The sums of the estimates and of the counts of some nodes."""
        estimates, count = list[float](), 0
        for level in sorted({level for level, _ in nodes}):
            own = [node for at, node in nodes if at == level]
            rows = self.select_rows(level, own, code)
            assert len(rows) == len(own)
            estimates += rows["estimate"].to_pylist()
            count += sum(rows["count"].to_pylist())
        return math.fsum(estimates), count


def _other_last(answers: list[Answer]) -> list[Answer]:
    """The leaf of rows that are nowhere else, if it is there, after all others."""
    return sorted(answers, key=lambda answer: answer.label == OTHER)
