"""A wide table: the choice of its pairs, their measurement and its plan once there is a budget.

All exact counts are in one place, since the choice of pairs looks at all of them. The score of a
pair, in whole rows, is || x - m ||_1 - s cells / 2: x its exact counts in groups, m the rounded
counts that the released numbers predict, s the mean size of the noise of a cell (at half of the
noise measuring a pair begins to pay). No further pair has the score 0. Weights are rounded to
less than 2^-45 of themselves, as if every score were off by 2^-45 / rate: a loss of 4 x 2^-45,
which `SLACK` pays for. Every number is a pure function of the exact counts and the key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dptrees.dpcore.arrays import Floats, Integers
from dptrees.dpcore.exponential.choice import FLOOR, cached_weights, flipped, weighed
from dptrees.dpcore.noise.randomness import RandomStream
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource, add_noise
from dptrees.dpcore.ordered.columns import ColumnsQuestion
from dptrees.dpcore.privacy.unit import Budget
from dptrees.dpcore.questions.messages import (
    ArrayCounts,
    Drawn,
    Gathered,
    Increments,
    Part,
    Partial,
    Place,
    ReleasedPart,
    RowIncrements,
)
from dptrees.dpcore.questions.planning import Setting, Workload
from dptrees.dpcore.questions.released import NODES
from dptrees.dpcore.questions.tree_question import budget_entry
from dptrees.dpcore.rows.columns import pack, pack_many, unpack, unpack_many
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.domain import (
    ALL_TABLES,
    TableCounter,
    TableDomain,
    row_texts,
)
from dptrees.dpcore.tables.estimates import (
    MOST_GROUPS,
    MeasuredTables,
    PairTable,
    grouped_estimates,
    grouped_table,
    pair_groups,
)
from dptrees.dpcore.tables.model import ChordalGraph, TableModel
from dptrees.dpcore.tables.noisy_tables import released_rows
from dptrees.dpcore.tables.plan import (
    MOST_CLIQUE_COLUMNS,
    MarginalsPlan,
    Pair,
    PairDesign,
    TableShape,
    cell_amounts,
    mean_size,
)

# The most pairs that are named, for each column but one.
MOST_NAMED = 3
# The most cells of the joint counts of a clique.
MOST_CLIQUE_CELLS = 2**18


def table_distance(counts: Integers, predicted: Integers) -> int:
    """The L1 distance of exact counts from a public table of whole numbers, in rows.

    `dpcore.privacy.sensitivity.distance_sensitivity` bounds how far it moves.
    """
    return int(np.abs(counts - predicted).sum())


def pair_score(counts: Integers, predicted: Floats, noise: float) -> int:
    """The score of a pair: its distance from what is predicted, less half of the noise.

    Args:
        counts: (g_i, g_j) exact.
        predicted: (g_i, g_j) from released numbers.
        noise: the mean size of the noise of a cell, in rows.
    """
    distance = table_distance(counts, np.rint(predicted).astype(np.int64))
    return distance - int(predicted.size * noise / 2)


def choose_pairs(
    scores: Mapping[Pair, int],
    graph: ChordalGraph,
    may_join: Callable[[Sequence[int]], bool],
    choose: Callable[[Integers, int], int],
    numbers: Sequence[int],
) -> list[Pair]:
    """The chosen pairs in their order; they are added to the graph.

    Args:
        scores: of all pairs that are not in the graph, exact.
        graph: of the pairs chosen before.
        may_join: whether some columns may be a clique.
        choose: gives the place of a score, from all scores and the number of the choice.
        numbers: of the choices.
    """
    chosen: list[Pair] = []
    for number in numbers:
        candidates = [
            pair
            for pair in scores
            if (clique := graph.new_clique(*pair)) is not None and may_join(clique)
        ]
        values = np.array([*(scores[pair] for pair in candidates), 0], np.int64)
        place = choose(values, number)
        if place == len(candidates):
            break
        chosen.append(candidates[place])
        graph.add(*candidates[place])
    return chosen


def choose_score(scores: Integers, rate: Fraction, stream: RandomStream, *, flips: bool) -> int:
    """The place of a score, chosen by permute-and-flip or the exponential mechanism.

    Args:
        scores: (n,) exact.
        rate: of the weights.
        stream: of this choice.
        flips: by permute-and-flip.
    """
    weights = cached_weights(rate).at(scores.max() - scores)
    choose = flipped if flips else weighed
    return choose(np.maximum(weights, FLOOR), stream).number


def is_small(clique: Sequence[int], cells: Sequence[int], most_columns: int) -> bool:
    """Whether some columns have few enough joint counts.

    Args:
        clique: the columns.
        cells: of each column, in a model.
        most_columns: of a clique.
    """
    joint = math.prod(cells[column] for column in clique)
    # Any two columns may: their counters are in memory anyway.
    return len(clique) <= most_columns and (len(clique) == 2 or joint <= MOST_CLIQUE_CELLS)


def named_pairs(shape: TableShape, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs that are measured without a choice, in an order in which a model can have them.

    The model's graph is chordal after each. If it is chordal with all, there is such an order, and
    any pair that may be next is the next of one (Rose, Tarjan, Lueker 1976).

    Args:
        shape: the columns.
        pairs: i < j, each once.

    Raises:
        Refusal: there are more than 3 (d - 1), or no model can have all of them: the graph of all
            is not chordal, or a clique of it has more than 4 columns, or more joint counts than a
            model may have.

    >>> named_pairs(TableShape(sizes=(2, 2, 2, 2)), [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)])
    ((0, 1), (1, 2), (2, 3), (0, 2), (0, 3))
    """
    graph, left, result = ChordalGraph(shape.columns), list(pairs), []
    if len(left) > MOST_NAMED * (shape.columns - 1):
        raise Refusal("pairs", f"{len(left)} are named; at most {MOST_NAMED} (columns - 1)")
    cells = [min(size, MOST_GROUPS) for size in shape.sizes]
    while left:
        cliques = ((each, graph.new_clique(*each)) for each in left)
        pair, clique = next((each for each in cliques if each[1] is not None), (left[0], None))
        if clique is None:
            raise Refusal("pairs", "they close a ring of four or more columns without a chord")
        if not is_small(clique, cells, MOST_CLIQUE_COLUMNS):
            raise Refusal("pairs", f"all of {len(clique)} columns; at most 4, of 2^18 joint cells")
        graph.add(*pair)
        left.remove(pair)
        result.append(pair)
    return tuple(result)


# Purposes of streams, in place of chunks.
_COLUMNS, _CHOICES, _PAIRS = 0, 1, 2

Groups = tuple[Integers, Integers]


class _Round(NamedTuple):
    """Choices of pairs by one model.

    Attributes:
        first: the number of the first choice.
        pairs: the most that are chosen.
        amount: for the counts of all of them.
        clique_columns: the most columns of a clique.
        named: the pairs, where they are not chosen.
    """

    first: int
    pairs: int
    amount: Fraction
    clique_columns: int
    named: tuple[Pair, ...] = ()


def measure_tables(
    counts: Integers, plan: MarginalsPlan, source: NoiseSource, tree: str
) -> MeasuredTables:
    """Measure the columns, choose pairs and measure them.

    Args:
        counts: (length,) int64, exact counters in the layout of the plan's shape.
        plan: what each step spends.
        source: of the noise of these counts.
        tree: the name of the table in the release, part of the names of all streams.

    Raises:
        ValueError: counts of another length.
    """
    if counts.shape != (plan.shape.length,):
        raise ValueError(f"counts: {counts.shape} is not ({plan.shape.length},)")

    def noisy(column: int, design: PairDesign) -> Integers:
        law = plan.law(plan.column_amounts(design)[column])
        stream = source.stream(tree, 0, _COLUMNS, column)
        return add_noise(law, plan.shape.column_counts(counts, column), stream)

    first = {column: noisy(column, plan.designs[0]) for column in plan.first_columns}
    design = plan.design(list(first.values()))
    columns = (
        first[column] if column in first else noisy(column, design)
        for column in range(plan.shape.columns)
    )
    measured = MeasuredTables(plan=plan, columns=tuple(columns), pairs=())
    for each in _rounds(plan, design):
        measured = _extended(counts, measured, each, design, source, tree)
    return measured


def _rounds(plan: MarginalsPlan, design: PairDesign) -> list[_Round]:
    further = plan.pair_amount * (1 - design.moved_part) * design.further_part
    own, tree = plan.first_amounts(design)
    named, first = len(plan.named), plan.first_pairs(design)
    rounds = [
        _Round(0, named, own, MOST_CLIQUE_COLUMNS, plan.named),
        _Round(named, first, tree, 2),
        _Round(named + first, design.further_pairs, further, design.clique_columns),
    ]
    return [each for each in rounds if each.pairs]


def _extended(
    counts: Integers,
    measured: MeasuredTables,
    each: _Round,
    design: PairDesign,
    source: NoiseSource,
    tree: str,
) -> MeasuredTables:
    """The numbers released so far, and the pairs of one round more."""
    plan = measured.plan
    model = TableModel.fitted(measured)
    noise = mean_size(plan.law(each.amount / each.pairs))
    groups = _groups(measured, model, noise)
    exact = {
        pair: grouped_table(plan.shape.pair_counts(counts, *pair), *labels)
        for pair, labels in groups.items()
    }
    scores = {
        pair: pair_score(table, grouped_estimates(model.pair(*pair), *groups[pair]), noise)
        for pair, table in exact.items()
        if not each.named
    }

    def choose(values: Integers, number: int) -> int:
        stream = source.stream(tree, 0, _CHOICES, number)
        return choose_score(values, plan.choice_rate(design), stream, flips=plan.flips)

    chosen = each.named or choose_pairs(
        scores,
        model.graph,
        lambda clique: is_small(clique, measured.base_sizes, each.clique_columns),
        choose,
        range(each.first, each.first + each.pairs),
    )
    whole = Budget(measure=plan.budget.measure, amount=each.amount)
    amounts = cell_amounts([exact[pair].size for pair in chosen], whole)
    tables = [
        PairTable(
            first=pair[0],
            second=pair[1],
            rows=groups[pair][0],
            columns=groups[pair][1],
            counts=add_noise(
                plan.law(amount), exact[pair], source.stream(tree, 0, _PAIRS, each.first + number)
            ),
            amount=amount,
        )
        for number, (pair, amount) in enumerate(zip(chosen, amounts, strict=True))
    ]
    return replace(measured, pairs=(*measured.pairs, *tables))


def _groups(measured: MeasuredTables, model: TableModel, noise: float) -> dict[Pair, Groups]:
    """The groups of the cells of all pairs that are not measured yet."""
    shape, bases = measured.plan.shape, measured.base_groups
    return {
        (first, second): pair_groups(
            (bases[first], bases[second]),
            (model.column(first), model.column(second)),
            (shape.is_ordered(first), shape.is_ordered(second)),
            noise,
            (shape.is_apart(first), shape.is_apart(second)),
        )
        for first, second in shape.pairs
        if second not in model.graph.neighbors[first]
    }


LEVELS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class TableQuestion(ColumnsQuestion):
    """The counts of a wide table.

    Args:
        domain: the columns and their cells.
        plan: how counts are measured, and how pairs are chosen.

    Raises:
        ValueError: keys, or a plan for other tables.
    """

    kind = "table"

    domain: TableDomain
    plan: MarginalsPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.plan.shape != self.domain.shape:
            raise ValueError("plan: it is for tables of other sizes")
        if named_pairs(self.plan.shape, self.plan.named) != self.plan.named:
            raise ValueError("plan: named pairs are in an order that no model can have")

    def increments(self, columns: Mapping[str, pa.Array]) -> Increments:
        return self.row_increments(columns).increments

    def row_increments(self, columns: Mapping[str, pa.Array]) -> RowIncrements:
        codes, kept = self.domain.row_codes(columns)
        return RowIncrements(Increments(row_texts(codes, self.domain.sizes)), kept)

    def counter(self, *, dense: bool, choices: KeyedChoices) -> TableCounter:
        return TableCounter(self.domain.shape)

    @property
    def dense_cells(self) -> int:
        return self.domain.shape.length

    @property
    def places(self) -> list[Place]:
        return [ALL_TABLES]

    def merge(self, place: Place, partials: Iterable[bytes]) -> ArrayCounts:
        return self.domain.shape.merged(partials)

    def split_counts(self, counts: object, choices: KeyedChoices) -> Iterator[Partial]:
        """Give the exact counts of all tables, laid out as `TableShape` says, as partial counts.

        Raises:
            ValueError: they are no counts of these tables.
        """
        shape = (self.domain.shape.length,)
        if not isinstance(counts, np.ndarray) or counts.shape != shape:
            raise ValueError(f"counts: those of tree {self.name} are no counts of its tables")
        yield Partial(ALL_TABLES, pack(counts.astype(np.int64)))

    def draw(self, place: Place, counts: bytes, noise: NoiseSource) -> Drawn:
        exact = unpack(counts)
        measured = measure_tables(exact, self.plan, noise.for_counts(exact), self.name)
        tables = map(_ipc_bytes, released_rows(self.name, self.domain, measured, self.confidence))
        return Drawn(sent=pack_many(list(tables)), kept=None)

    def gather(self, group: int, sent: Mapping[Place, bytes], noise: NoiseSource) -> Gathered:
        tables = map(_ipc_table, unpack_many(sent[ALL_TABLES]))
        return Gathered({}, list(map(ReleasedPart, self.parts(), tables)))

    def parts(self) -> Iterator[Part]:
        """The number of rows, the columns, and the pairs of columns that were chosen."""
        for level in LEVELS:
            yield Part(kind=NODES, tree=self.name, key=0, index=level)

    @property
    def budget(self) -> Budget:
        return self.plan.budget

    def entry(self) -> dict[str, object]:
        """The mechanism, its noise, and the policies."""
        return {
            "name": self.name,
            **budget_entry(self),
            "mechanism": "marginals",
            "cells": dict(zip(self.columns, self.domain.sizes, strict=True)),
            "plan": self.plan.spec(),
            "policies": self.domain.policies,
        }


def _ipc_bytes(table: pa.Table) -> bytes:
    """A table as bytes, which `_ipc_table` reads."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _ipc_table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


@dataclass(frozen=True, kw_only=True)
class TableWorkload(Workload[TableQuestion]):
    """A wide table, to query one or two columns of and to sample rows from.

    Args:
        domain: the columns.
        target: a column whose pairs with all others are measured without a choice; or none.
        pairs: of columns, which are measured without a choice too.

    Raises:
        Refusal: of `target` or `pairs`: a column that is not there, a pair of one column or twice
            there, too many pairs, or such that no model can have all of them.

    >>> from fractions import Fraction
    >>> from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
    >>> from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
    >>> columns = (CategoryDomain(column=name, categories=("no", "yes")) for name in "abc")
    >>> answers = TableWorkload(name="answers", domain=TableDomain(axes=tuple(columns)))
    >>> budget = Setting(
    ...     unit=ADD_REMOVE_ROW, budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)))
    >>> answers.planned(budget).spending.epsilon
    Fraction(1, 1)
    """

    domain: TableDomain
    target: str | None = None
    pairs: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.named

    @cached_property
    def named(self) -> tuple[Pair, ...]:
        """The pairs that are measured without a choice, in their order."""
        columns, shape = self.domain.columns, self.domain.shape
        if self.target is not None and self.target not in columns:
            raise Refusal("target", f"{self.target!r} is none of the columns")
        found = [pair for pair in shape.pairs if self.target in [columns[each] for each in pair]]
        for names in self.pairs:
            if missing := [each for each in names if each not in columns]:
                raise Refusal("pairs", f"{missing[0]!r} is none of the columns")
            first, second = sorted(columns.index(each) for each in names)
            if first == second:
                raise Refusal("pairs", f"{names[0]!r} is no pair with itself")
            if (first, second) in found:
                raise Refusal("pairs", f"{names[0]!r} and {names[1]!r} are a named pair already")
            found.append((first, second))
        return named_pairs(shape, found)

    def planned(self, setting: Setting) -> TableQuestion:
        shape, unit, budget = self.domain.shape, setting.unit, setting.budget
        return TableQuestion(
            name=self.name,
            domain=self.domain,
            plan=MarginalsPlan.planned(shape=shape, unit=unit, budget=budget, named=self.named),
            confidence=setting.confidence,
            weight=self.weight,
        )
