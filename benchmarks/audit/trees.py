"""Random questions of every kind, each with the palettes of the columns that it reads.

A draft makes its question from a budget, so that several trees can share one, and so that a budget
can be looked for that keeps an (epsilon, delta).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any

import pyarrow as pa

from benchmarks.audit.rows import (
    Palette,
    Palettes,
    category_palette,
    integer_palette,
    key_palette,
    measure_palette,
    moment_palette,
    number_palette,
)
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.irregular.node_weights import NodeWeights
from dptrees.dpcore.irregular.plan import IrregularPlan, sum_sensitivities
from dptrees.dpcore.irregular.planner import with_best_shares, with_equal_shares, with_shares
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.levels.planner import plan_mechanism, plan_tree
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.category import CategoryDomain
from dptrees.dpcore.ordered.date import DateDomain, TimestampDomain
from dptrees.dpcore.ordered.integer import IntegerDomain
from dptrees.dpcore.ordered.number import NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.privacy.budget import Budget
from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.sums import MeasureColumn
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.dpcore.trees.uniform import UniformTree
from dptrees.dpcore.uniform.forest import UniformForest
from dptrees.dpcore.uniform.plan import Consistency, Estimator, Measured, TreePlan
from dptrees.dpcore.uniform.setting import TreeSetting
from dptrees.dpcore.uniform.widths import IntervalWidths

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
        integers = IntegerDomain(column=column, lower=lower, upper=lower + cells, **policies)
        return integers, integer_palette(integers, floats=rng.random() < 0.5)
    if kind == 1:
        numbers = NumberDomain(column=column, lower=-0.3, upper=1.1, cells=cells, **policies)
        return numbers, number_palette(numbers)
    if kind == 2:
        days = DateDomain(
            column=column,
            lower=date(2013, 2, 25),
            upper=date(2013, 2, 25) + timedelta(days=cells),
            **policies,
        )
        return days, moment_palette(days)
    if kind == 3:
        start = datetime(2013, 1, 1)
        times = TimestampDomain(
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


def measures_prefixes(question: TreeQuestion) -> bool:
    """Whether what gets noise are prefixes."""
    plan = question.plan
    return isinstance(plan, TreePlan) and plan.measured is Measured.PREFIXES


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
