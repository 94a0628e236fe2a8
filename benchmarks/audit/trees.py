"""Random rows, and random questions of every kind that read them.

A palette lists the values that a column may take: inside, first and last, at and beyond bounds,
null, NaN, infinite, unknown, unreadable. A table reaches the counts as Arrow batches, through the
question's own maps, so that domains, policies, keys and clamping are part of what is audited.

A draft makes its question from a budget, so that several trees can share one, and so that a budget
can be looked for that keeps an (epsilon, delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.audit.recording import SECRET
from dptrees.dpcore.arrays import Integers
from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.domain import HypercubeDomain, cell_bits
from dptrees.dpcore.boxes.plan import (
    Estimation,
    GrowthRule,
    Holding,
    LevelSketches,
    PartitionMechanism,
    PartitionPlan,
)
from dptrees.dpcore.boxes.planner import PartitionChoices
from dptrees.dpcore.boxes.question import HypercubeQuestion, HypercubeWorkload
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.irregular.plan import IrregularPlan, sum_sensitivities
from dptrees.dpcore.irregular.planner import (
    NodeWeights,
    with_best_shares,
    with_equal_shares,
    with_shares,
)
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.levels.planner import plan_mechanism, plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    SUBSTITUTE_ROW,
    Budget,
    Neighbors,
    NullUnits,
    PrivacyUnit,
)
from dptrees.dpcore.questions.messages import Increments
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import _bounded_increments, _plain_increments
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.intervals import IntervalWidths
from dptrees.dpcore.uniform.plan import Consistency, Estimator, TreePlan, TreeSetting, UniformForest

Row = tuple[Any, ...]
NOT_NUMBERS = (None, math.nan, math.inf, -math.inf, 1e300, -1e300)


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The values of one column, and their type."""

    type: pa.DataType
    values: tuple[Any, ...]


Palettes = dict[str, Palette]


def number_palette(domain: NumberDomain) -> Palette:
    """Edges of cells, their neighbors in floating point, what is outside and what is no number."""
    edges = [domain.lower, domain.upper, *domain.lower_edges(0, domain.cells).to_pylist()]
    beside = [math.nextafter(edge, side) for edge in edges for side in (-math.inf, math.inf)]
    return Palette(type=pa.float64(), values=(*edges, *beside, *NOT_NUMBERS))


def integer_palette(domain: StepDomain, *, floats: bool) -> Palette:
    """All integers of the domain, those just outside and the largest; or floats at the same."""
    inside = range(domain.lower - 1, domain.upper + 1)
    if floats:
        return Palette(type=pa.float64(), values=(*inside, *inside, *NOT_NUMBERS))
    return Palette(type=pa.int64(), values=(*inside, 2**62, -(2**62), None))


def category_palette(domain: CategoryDomain) -> Palette:
    """The categories, another text and null."""
    return Palette(type=pa.string(), values=(*domain.categories, "unlisted", "", None))


def moment_palette(domain: StepDomain) -> Palette:
    """The first and last timestamps of cells, the timestamps just outside, and null."""
    if domain.kind == "date":
        days = [domain.lower + timedelta(days=n) for n in range(-1, domain.cells + 1)]
        return Palette(type=pa.date32(), values=(*days, date(1, 1, 1), date(9999, 12, 31), None))
    width = (domain.upper - domain.lower) / domain.cells
    edges = [domain.lower + n * width for n in range(domain.cells + 1)]
    before = [edge - timedelta(microseconds=1) for edge in edges]
    return Palette(type=pa.timestamp("us"), values=(*edges, *before, datetime(1700, 1, 1), None))


def key_palette(keys: KeyList) -> Palette:
    """The keys, another text and null."""
    return Palette(type=pa.string(), values=(*keys.keys, "unlisted", None))


def measure_palette(measure: MeasureColumn) -> Palette:
    """Values at, beside and far beyond the bounds; 0; and what is no number."""
    ends = [bound + step for bound in (measure.lower, measure.upper) for step in (-1, -0.5, 0, 1)]
    near = (measure.lower + 0.5, measure.upper + 0.5, 0.0, 0.5)
    return Palette(type=pa.float64(), values=(*map(float, ends), *near, *NOT_NUMBERS))


def random_row(rng: Random, palettes: Palettes) -> Row:
    """A value of each column."""
    return tuple(rng.choice(palette.values) for palette in palettes.values())


def neighboring_rows(
    rng: Random, palettes: Palettes, unit: PrivacyUnit, size: int
) -> tuple[list[Row], list[Row]]:
    """Two tables of about ``size`` rows, the second with a row more or with one row exchanged."""
    rows = [random_row(rng, palettes) for _ in range(size)]
    place = rng.randrange(size + 1)
    if unit == ADD_REMOVE_ROW:
        return rows, [*rows[:place], random_row(rng, palettes), *rows[place:]]
    first, second = random_row(rng, palettes), random_row(rng, palettes)
    if rng.random() < 0.5:  # the same but for one column: another value in the same leaf, say
        column = rng.randrange(len(first))
        second = (*first[:column], second[column], *first[column + 1 :])
    return [*rows[:place], first, *rows[place:]], [*rows[:place], second, *rows[place:]]


def batches(rng: Random, palettes: Palettes, rows: Sequence[Row]) -> list[dict[str, pa.Array]]:
    """The rows as batches of columns: cut anywhere, some columns dictionary-encoded."""
    cut = rng.randrange(len(rows) + 1)
    found = []
    for part in (rows[:cut], rows[cut:]):
        columns = {
            name: pa.array([row[place] for row in part], palette.type)
            for place, (name, palette) in enumerate(palettes.items())
        }
        if rng.random() < 0.3:
            columns = {name: column.dictionary_encode() for name, column in columns.items()}
        found.append(columns)
    return found


COLUMN, HEAVY = "person", "heavy"
OTHERS = ("a", "b", "c", "d")
# Rows a key, keys and rows that meet each other in every way: one binds, or another, or all.
BOUNDS = (
    {"rows": 1},
    {"rows": 4},
    {"rows": 3, "keys": 1},
    {"rows": 6, "keys": 2, "rows_per_key": 3},
    {"rows": 5, "keys": 3, "rows_per_key": 2},
    {"rows": 3, "rows_per_key": 2},
    {"rows": 9, "keys": 1, "rows_per_key": 2},
    {"rows": 9, "keys": 2, "rows_per_key": 1},
)
UNITS = tuple(
    PrivacyUnit(neighbors=neighbors, columns=(COLUMN,), nulls=nulls, **bounds)
    for bounds in BOUNDS
    for neighbors in Neighbors
    for nulls in NullUnits
)


def heavy_rows(rng: Random, palettes: Palettes, unit: PrivacyUnit) -> list[Row]:
    """Rows of one unit, most often more than are counted of it, wherever they may do harm."""
    names = list(palettes)
    first = random_row(rng, palettes)
    kind = rng.randrange(5)
    if kind == 0:  # a row that has no unit, and is one of its own or none
        found = [_of(first, names, **{COLUMN: None})] if unit.nulls is NullUnits.OWN else []
        return found
    many = unit.rows + rng.randint(1, 3)
    if kind == 1:
        found = [first] * many
    elif kind == 2:
        found = [random_row(rng, palettes) for _ in range(rng.randint(1, 8))]
    else:  # under every key, alike but for it or not
        found = []
        for name in [each for each in names if each.endswith("_by") or each == "by"] or [COLUMN]:
            for value in palettes[name].values:
                row = first if kind == 3 else random_row(rng, palettes)
                found += [_of(row, names, **{name: value})] * many
    amounts = [name for name in names if name.endswith("_amount")]
    farthest = {name: rng.choice((-1e300, 1e300)) for name in amounts if rng.random() < 0.6}
    return [_of(row, names, **{COLUMN: HEAVY}, **farthest) for row in found]


def _of(row: Row, names: Sequence[str], **changed: object) -> Row:
    """A row with other values."""
    return tuple(changed.get(name, value) for name, value in zip(names, row, strict=True))


def neighboring_units(
    rng: Random, palettes: Palettes, unit: PrivacyUnit, size: int
) -> tuple[list[Row], list[Row]]:
    """Two tables; the second has one unit more, or one unit with other rows."""
    others = [random_row(rng, palettes) for _ in range(size)]
    before = heavy_rows(rng, palettes, unit) if unit.substitutes else []
    tables = [*others, *before], [*others, *heavy_rows(rng, palettes, unit)]
    for table in tables:
        rng.shuffle(table)
    return tables


def neighbors(
    rng: Random, palettes: Palettes, unit: PrivacyUnit, size: int
) -> tuple[list[Row], list[Row]]:
    """Two tables that differ in a row, or in one unit of many."""
    pair = neighboring_rows if unit.is_row else neighboring_units
    return pair(rng, palettes, unit, size)


def with_units(palettes: Palettes) -> Palettes:
    """Columns with one that names the unit of each row, null for some."""
    return palettes | {COLUMN: Palette(type=pa.string(), values=(*OTHERS, None))}


Counted = Integers | NodeCounts


def exact_counts(plan: ReleasePlan, parts: Sequence[Mapping[str, pa.Array]]) -> dict[str, Counted]:
    """The exact counts of every tree, by the release's own steps: of what stays of each unit."""
    choices = KeyedChoices(key=ReleaseKey(SECRET), release=plan.name)
    added: dict[str, list[Increments]] = {question.name: [] for question in plan.questions}
    rows = [pa.RecordBatch.from_pydict(dict(columns)) for columns in parts]
    reading = _plain_increments if plan.unit.is_row else _bounded_increments
    for question, increments, _ in reading(plan, rows, choices):
        added[question.name].append(increments)
    return {question.name: _counts(question, added[question.name]) for question in plan.questions}


def _counts(question: Question, added: Sequence[Increments]) -> Counted:
    if not isinstance(question, TreeQuestion):
        parts = [NodeCounts.grouped(each.cells, each.values) for each in added if len(each.cells)]
        return NodeCounts.merged(parts or [question.domain.leaf_counts(_no_rows(question))])
    counts = np.zeros(question.forest.chunking.cells, np.int64)
    for cells, values in added:
        np.add.at(counts, np.asarray(cells), 1 if values is None else values)
    return counts


def _no_rows(question: Question) -> dict[str, pa.Array]:
    return {name: pa.array([], question.value_types[name]) for name in question.columns}


Make = Callable[[Budget], Question]
KEYS = ("AA", "DL", "UA")
PUBLISHED = ("tree", "binary", "histogram", "independent")
_OF_PAPERS = (Consistency.TOP_DOWN, Consistency.L1, Consistency.L2)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A question that waits for its budget.

    Args:
        make: the question of a budget.
        palettes: of the columns that it reads.
    """

    make: Make
    palettes: Palettes


def random_keys(rng: Random, name: str) -> KeyList:
    """One to three keys, with or without the one for all others."""
    listed = KEYS[: rng.randint(1, len(KEYS))]
    return KeyList(column=f"{name}_by", keys=listed, unknown=rng.choice(["drop", "other"]))


# --- ordered trees --------------------------------------------------------------------------------


def ordered_domain(rng: Random, column: str, *, drops: bool) -> tuple[Any, Palette]:
    """A domain of any kind, of few cells; one that drops no row unless it may."""
    outside = rng.choice(["clamp", "drop"]) if drops else "clamp"
    missing = rng.choice(["drop", "first", "last"] if drops else ["first", "last"])
    policies = {"outside": outside, "missing": missing}
    cells, kind = rng.randint(1, 14), rng.randrange(5)
    if kind == 0:
        lower = rng.randint(-5, 5)
        integers = StepDomain(
            kind="integer", column=column, lower=lower, upper=lower + cells, **policies
        )
        return integers, integer_palette(integers, floats=rng.random() < 0.5)
    if kind == 1:
        numbers = NumberDomain(column=column, lower=-0.3, upper=1.1, cells=cells, **policies)
        return numbers, number_palette(numbers)
    if kind == 2:
        days = StepDomain(
            kind="date",
            column=column,
            lower=date(2013, 2, 25),
            upper=date(2013, 2, 25) + timedelta(days=cells),
            **policies,
        )
        return days, moment_palette(days)
    if kind == 3:
        start = datetime(2013, 1, 1)
        times = StepDomain(
            kind="timestamp",
            column=column,
            lower=start,
            upper=start + timedelta(hours=cells),
            cells=cells,
            **policies,
        )
        return times, moment_palette(times)
    texts = tuple(f"c{number}" for number in range(cells))
    categories = CategoryDomain(column=column, categories=texts, unknown=missing, missing=missing)
    return categories, category_palette(categories)


def _by_hand(rng: Random, leaves: int) -> Callable[..., TreePlan]:
    """A plan with fan-outs and level budgets that no planner would choose."""
    fanouts: tuple[int, ...] = ()
    left = leaves
    while left > 1:
        fanout = rng.randint(2, min(5, left))
        fanouts, left = (*fanouts, fanout), -(-left // fanout)
    units = [rng.choice([0, 0, 1, 3, 8]) for _ in fanouts] + [rng.randint(1, 8)]

    def make(setting: TreeSetting) -> TreePlan:
        public = setting.public_total
        own = [0 if public and level == 0 else unit for level, unit in enumerate(units)]
        parts = [Fraction(unit, max(1, sum(own))) for unit in own]
        amounts = tuple(setting.budget.amount * part for part in parts)
        return TreePlan.from_amounts(setting, UniformTree(leaves=leaves, fanouts=fanouts), amounts)

    return make


def _published(rng: Random, *, public_total: bool) -> Callable[..., TreePlan]:
    """One of the papers' mechanisms with one of their estimates."""
    name = rng.choice(PUBLISHED)
    estimators = [Estimator.NONE, Estimator.BELOW, Estimator.FULL]
    if public_total:
        estimators += [Estimator.ABOVE, Estimator.REFINED]
    estimator = Estimator.FULL if name == "independent" else rng.choice(estimators)
    return lambda setting: plan_mechanism(name, setting, estimator=estimator)


def ordered_draft(rng: Random, name: str, unit: PrivacyUnit, *, published: bool = False) -> Draft:
    """An ordered tree: planned, planned by hand, or as the papers have it."""
    keys = random_keys(rng, name) if rng.random() < 0.4 else None
    public = keys is None and unit == SUBSTITUTE_ROW and rng.random() < 0.5
    domain, palette = ordered_domain(rng, f"{name}_value", drops=not public)
    hand = _by_hand(rng, domain.cells) if rng.random() < 0.5 else plan_tree
    planner = _published(rng, public_total=public) if published else hand
    consistency = rng.choice(_OF_PAPERS) if published else Consistency.TOP_DOWN
    quantiles, chunk = rng.choice([(), (0.5,), (0, 0.1, 1)]), rng.choice([3, 6, 100])

    def make(budget: Budget) -> OrderedQuestion[UniformMechanism]:
        plan = planner(
            TreeSetting(
                leaves=domain.cells,
                budget=budget,
                unit=unit,
                public_total=public,
                keyed=keys is not None,
            )
        )
        question = OrderedQuestion(
            name=name,
            domain=domain,
            mechanism=UniformMechanism(plan=plan, consistency=consistency),
            keys=keys,
            quantiles=quantiles,
        )
        # Public, and of no matter here; to compute them takes most of a small tree's time.
        levels = (2.0,) * (plan.tree.height + 1)
        question.remember_widths(IntervalWidths(confidence=0.95, levels=levels, prefix=2.0))
        if type(question.forest) is UniformForest:  # in small chunks, as if the tree were large
            question.__dict__["forest"] = UniformForest(plan, question.key_count, chunk)
        return question

    listed = {} if keys is None else {keys.column: key_palette(keys)}
    return Draft(make=make, palettes={domain.column: palette} | listed)


# --- hierarchies ----------------------------------------------------------------------------------

CODES = ("0100", "0101", "0110", "0111", "0112", "1200", "1201", "1310", "1400", "9001")
PATHS = ("etc", "usr/bin/vi", "usr/bin/ed", "usr/lib", "var")
ORIGINS, DESTINATIONS = ("EWR", "EWR", "JFK", "JFK", "LGA"), ("MCO", "ORD", "A/B", "ORD", "ORD")
FORMS = ("digits", "paths", "columns")


def hierarchy_domain(
    rng: Random, name: str, *, drops: bool = True
) -> tuple[HierarchyDomain, Palettes]:
    """A small universe of codes (with a chain), of paths of all lengths, or of two columns."""
    policies = {
        policy: rng.choice(["drop", "other"]) if drops else "other"
        for policy in ("unknown", "missing")
    }
    form = rng.choice(FORMS)
    if form == "columns":
        columns = (f"{name}_origin", f"{name}_dest")
        listed = (ORIGINS, DESTINATIONS)
        made = {column: pa.array(own) for column, own in zip(columns, listed, strict=True)}
        universe = universe_from_columns(made)
        values: Sequence[tuple[Any, ...]] = [(*sorted(set(own)), "SFO", None) for own in listed]
    elif form == "paths":
        columns, universe = (f"{name}_path",), universe_from_paths(pa.array(PATHS), "/")
        values = [(*PATHS, "usr", "usr/bin", "/usr/lib", "x/y", "", None)]
    else:
        columns = (f"{name}_code",)
        universe = universe_from_codes(pa.array(CODES), (1, 1, 2), levels=("s", "c", "b"))
        values = [(*CODES, "0199", "01", "77777", "abcd", "", None)]
    palettes = {
        column: Palette(type=pa.string(), values=own)
        for column, own in zip(columns, values, strict=True)
    }
    return HierarchyDomain(universe=universe, columns=columns, **policies), palettes


BOUNDS = ((0, 10), (1, 4), (-5, 5), (-1, 1), (-3, 8), (-7, -2), (-4, 0), (6, 6))


def _split(rng: Random, height: int) -> Callable[[IrregularPlan], IrregularPlan]:
    """How the budget is split: equally, for named weights, or at random with empty levels."""
    kind = rng.randrange(3)
    if kind == 0:
        return with_equal_shares
    if kind == 1:
        nodes = ((height, 0, 3.0),) if rng.random() < 0.5 else ()
        levels = (*(float(rng.choice([0, 1, 4])) for _ in range(height)), 1.0)
        return lambda plan: with_best_shares(plan, NodeWeights(levels=levels, nodes=nodes))
    units = [rng.choice([0, 1, 3]) for _ in range(height)] + [rng.randint(1, 4)]

    def shared(plan: IrregularPlan) -> IrregularPlan:
        public = -1 if plan.public_level is None else plan.public_level
        own = [0 if level <= public else unit for level, unit in enumerate(units)]
        return with_shares(plan, [unit / sum(own) for unit in own])

    return shared


def hierarchy_draft(
    rng: Random,
    name: str,
    unit: PrivacyUnit,
    *,
    sums: bool = False,
    invariants: bool = False,
) -> Draft:
    """A hierarchy of counts, of bounded sums, or below public counts."""
    domain, palettes = hierarchy_domain(rng, name, drops=not invariants)
    shape = domain.tree.shape
    keys = random_keys(rng, name) if not invariants and rng.random() < 0.4 else None
    lower, upper = rng.choice(BOUNDS)
    measure = (
        MeasureColumn(
            column=f"{name}_amount", lower=lower, upper=upper, missing=rng.choice(["drop", "zero"])
        )
        if sums
        else None
    )
    estimation = "none" if rng.random() < 0.3 else "least_squares"
    split = with_equal_shares if estimation == "none" else _split(rng, shape.height)
    public = rng.randrange(shape.height) if invariants else None
    chunk = rng.choice([2, 4, 100])

    def make(budget: Budget) -> HierarchyQuestion[IrregularMechanism]:
        keyed = keys is not None
        sensitivities = (
            ()
            if measure is None
            else sum_sensitivities(
                shape, unit, lower=measure.lower, upper=measure.upper, keyed=keyed
            )
        )
        plan = IrregularPlan(
            tree=shape,
            unit=unit,
            budget=budget,
            public_level=public,
            keyed=keyed,
            sensitivities=sensitivities,
        )
        question = HierarchyQuestion(
            name=name,
            domain=domain,
            mechanism=IrregularMechanism(plan=split(plan), estimation=estimation),
            keys=keys,
            measure=measure,
        )
        forest = type(question.forest)  # in small chunks, as if the tree were large
        question.__dict__["forest"] = forest(
            question.plan, question.key_count, chunk, signed=question.is_signed
        )
        return question

    if keys is not None:
        palettes[keys.column] = key_palette(keys)
    if measure is not None:
        palettes[measure.column] = measure_palette(measure)
    return Draft(make=make, palettes=palettes)


# --- sparse trees ---------------------------------------------------------------------------------

ADDRESSES = ("10.1.0.7", "10.1.0.8", "10.2.0.0", "0.0.0.0", "255.255.255.255")
URLS = ("a", "a/b", "a/b/c", "/a/b", "a//b", "b", "/", "", "a/c", None)


def sparse_draft(
    rng: Random, name: str, unit: PrivacyUnit, epsilon: Fraction, delta: Fraction
) -> tuple[SparseQuestion, Palettes]:
    """A sparse tree of addresses, paths or labels, and its columns."""
    domain: SparseDomain
    kind = rng.randrange(3)
    if kind == 0:
        domain = CodeDomain(column=f"{name}_ip", widths=rng.choice([(8, 24), (8, 8, 16), (32,)]))
        values = [(*ADDRESSES, "10.1", "256.1.1.1", "", None)]
    elif kind == 1:
        domain, values = PathDomain(column=f"{name}_url", depth=rng.randint(1, 3)), [URLS]
    else:
        domain = LabelDomain(label_columns=(f"{name}_one", f"{name}_two"))
        values = [("x", "y", "x/y", "", None), ("u", "v", None)]
    plan = plan_sparse(domain.names, epsilon, delta, unit, root_weight=Fraction(1, 4))
    question = SparseQuestion(name=name, domain=domain, plan=plan, shards=rng.choice([1, 2]))
    palettes = {
        column: Palette(type=pa.string(), values=tuple(own))
        for column, own in zip(domain.columns, values, strict=True)
    }
    return question, palettes


def shared(budget: Budget, parts: Sequence[int]) -> list[Budget]:
    """The budget in parts of these sizes."""
    return [replace(budget, amount=budget.amount * Fraction(n, sum(parts))) for n in parts]


def box_draft(rng: Random, name: str, unit: PrivacyUnit, *, sketches: bool = False) -> Draft:
    """A box of one to three columns, of counts held exactly or in sketches."""
    domain, palettes = _domain(rng, name, unit)
    planner = _planned if rng.random() < 0.3 else _box_by_hand
    make = planner(rng, domain, unit, sketches=sketches)
    return Draft(
        make=lambda budget: HypercubeQuestion(name=name, domain=domain, plan=make(budget)),
        palettes=palettes,
    )


def adaptive_draft(rng: Random, name: str, unit: PrivacyUnit) -> Draft:
    """A box of one to three columns, with levels, budgets and thresholds that no planner would
    choose."""
    domain, palettes = _domain(rng, name, unit)
    public, levels = _is_public(domain, unit), _levels(rng, domain.bits)
    root = not public and rng.random() < 0.5
    units = [rng.randint(1, 4) if root else 0, *(rng.randint(1, 5) for _ in levels[1:])]
    thresholds = tuple(rng.choice([0, 1, 3, 30]) for _ in levels[1:])
    part, most = rng.choice([Fraction(0), Fraction(1, 3)]), rng.choice([1, 2, 2**16])

    def make(budget: Budget) -> HypercubeQuestion:
        plan = AdaptivePartitionPlan(
            depths=levels,
            amounts=tuple(budget.amount * Fraction(each, sum(units)) for each in units),
            thresholds=thresholds,
            most=most,
            measure=budget.measure,
            unit=unit,
            decision_part=part,
            public_total=public,
        )
        return HypercubeQuestion(name=name, domain=domain, plan=plan)

    return Draft(make=make, palettes=palettes)


def _domain(rng: Random, name: str, unit: PrivacyUnit) -> tuple[HypercubeDomain, Palettes]:
    """One to three columns, and what their cells are made of."""
    public = unit == SUBSTITUTE_ROW and rng.random() < 0.3
    axes, palettes = [], {}
    while len(axes) < rng.randint(1, 3):
        column = f"{name}_{len(axes)}"
        axis, palette = ordered_domain(rng, column, drops=not public)
        if axis.cells > 1:
            axes.append(axis)
            palettes[column] = palette
    depths = tuple(rng.randint(1, min(3, cell_bits(axis))) for axis in axes)
    return HypercubeDomain(axes=tuple(axes), depths=depths), palettes


def _box_by_hand(
    rng: Random, domain: HypercubeDomain, unit: PrivacyUnit, *, sketches: bool
) -> Callable[[Budget], PartitionMechanism]:
    """Levels and their budgets that no planner would choose."""
    public = _is_public(domain, unit)
    levels = _levels(rng, domain.bits)
    estimation, parts = rng.choice(list(Estimation)), rng.choice([None, None, 3])
    needed = estimation is Estimation.EVEN_SHARES or parts is not None
    root = not public and (needed or rng.random() < 0.5)
    units = [rng.randint(1, 4) if root else 0, *(rng.randint(1, 5) for _ in levels[1:])]
    rule = GrowthRule(most=rng.choice([1, 2, 2**16, 2**16]), parts=parts)
    shape = _shape(rng) if sketches else None
    counters = rng.randrange(len(levels) - 1)
    return lambda budget: PartitionPlan(
        depths=levels,
        amounts=tuple(budget.amount * Fraction(unit, sum(units)) for unit in units),
        measure=budget.measure,
        unit=unit,
        public_total=public,
        rule=rule,
        estimation=estimation,
        holding=Holding.SPARSE if shape is None else Holding.SKETCH,
        sketches=None if shape is None else LevelSketches(shape=shape, counters=counters),
    )


def _planned(
    rng: Random, domain: HypercubeDomain, unit: PrivacyUnit, *, sketches: bool
) -> Callable[[Budget], PartitionMechanism]:
    """Return a planner of a random mechanism, as a section would describe it, with splits where
    counts exceed their noise."""
    given: dict[str, Any] = {"holding": rng.choice([Holding.DENSE, Holding.SPARSE])}
    if sketches:
        shape = _shape(rng)
        own = {"sketch": shape.kind, "hash_rows": shape.rows, "width": shape.width}
        given = {"holding": Holding.SKETCH, "most": 1} | own
    choices = PartitionChoices(
        depth=rng.randint(1, domain.bits),
        bits_apart=rng.randint(1, 2),
        split_errors=rng.choice([0.0, 0.5, 3.0]),
        root=rng.random() < 0.5,
        **given,
    )
    workload = HypercubeWorkload(name="planned", domain=domain, choices=choices)
    return lambda budget: workload.planned(Setting(unit=unit, budget=budget)).plan


def _is_public(domain: HypercubeDomain, unit: PrivacyUnit) -> bool:
    """Whether the number of rows is public."""
    return unit == SUBSTITUTE_ROW and not domain.drops_rows


def _levels(rng: Random, bits: int) -> tuple[int, ...]:
    """The depths of one to four levels below the root."""
    depths = range(1, bits + 1)
    return (0, *sorted(rng.sample(depths, min(bits, rng.randint(1, 4)))))


def _shape(rng: Random) -> SketchShape:
    """So narrow that both ends of a moved row often share a cell."""
    return SketchShape(
        kind=rng.choice(list(SketchKind)), rows=rng.choice([1, 1, 3]), width=rng.choice([2, 4, 16])
    )
