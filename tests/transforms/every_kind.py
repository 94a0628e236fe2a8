"""Small releases of every kind of tree over the same rows, and of all kinds together.

In chunks of a few leaves, but for mechanisms on whole trees.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa

from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.boxes.plan import Holding
from dptrees.dpcore.choices.key_selection import KeyColumns, SelectionPlan, SelectionQuestion
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.numbers import DistinctDomain, DistinctWorkload, MeanWorkload
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure, PrivacyUnit
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_rows
from dptrees.dpcore.rows.key_tables import TableKeys, product_table
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.dpcore.series.temporal import TemporalTree
from dptrees.dpcore.sketched.domain import SketchDomain
from dptrees.dpcore.sketched.question import SketchQuestion
from dptrees.dpcore.sketches.sketch import SketchKind, SketchShape
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import Estimator, TreePlan
from tests.dpcore.adaptive_hierarchies import adaptive_question
from tests.dpcore.hierarchy_questions import hierarchy_question, make_release_plan, random_rows
from tests.dpcore.series_runs import series_plan
from tests.dpcore.threshold_questions import make_stated_plan, threshold_question
from tests.transforms.box_questions import box_question, sketched, table_question
from tests.transforms.conftest import NONCE, table_files
from tests.transforms.hierarchy_releases import sparse_question


def numbered_rows(size: int) -> pa.Table:
    """Rows of every column that the trees read."""
    numbers = np.minimum(np.random.default_rng(4).geometric(0.05, size) - 3, 300)
    return random_rows(21, size).append_column("number", pa.array(numbers))


ROWS = numbered_rows(900)
SUMS = MeasureColumn(column="amount", lower=-5, upper=30)
RACES = ("white", "black", "nobody")
NUMBERS = StepDomain(kind="integer", column="number", lower=-5, upper=25)
EPSILON, RHO = (Budget(measure=each, amount=Fraction(1)) for each in (Measure.EPSILON, Measure.RHO))
ROW = Setting(unit=ADD_REMOVE_ROW, budget=EPSILON)


def ordered_question(
    name: str = "ordered",
    *,
    keyed: bool = False,
    measure: Measure = Measure.EPSILON,
    amount: Fraction = Fraction(1),
    estimator: Estimator = Estimator.FULL,
    chunk_leaves: int = 8,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
) -> OrderedQuestion[UniformMechanism]:
    """The CDF of the numbers: 30 leaves below 4, 16 and 32 nodes."""
    plan = TreePlan(
        tree=UniformTree(leaves=30, fanouts=(4, 4, 2)),
        unit=unit,
        budget=Budget(measure=measure, amount=amount),
        level_amounts=(amount / 4,) * 4,
        public_total=False,
        keyed=keyed,
        estimator=estimator,
    )
    return OrderedQuestion(
        name=name,
        domain=NUMBERS,
        mechanism=UniformMechanism(plan=plan),
        chunk_leaves=chunk_leaves,
        keys=KeyList(column="race", keys=RACES) if keyed else None,
        quantiles=(0.1, 0.5, 0.9),
    )


def _alone(question: Question) -> ReleasePlan:
    return make_release_plan(question)  # type: ignore[arg-type]


def _sparse() -> ReleasePlan:
    question = sparse_question("labels", name="sparse")
    epsilon, delta = question.spending.own
    return ReleasePlan(
        name="sparse",
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=(question,),
        stated=(epsilon, delta),
    )


def _adaptive() -> OrderedQuestion[AdaptiveMechanism]:
    plan = AdaptivePlan(
        tree=UniformTree(leaves=30, fanouts=(4, 4, 2)),
        unit=ADD_REMOVE_ROW,
        budget=EPSILON,
        level_amounts=(Fraction(1, 4),) * 4,
        thresholds=(10, 10, 10),
        decision_part=Fraction(1, 5),
    )
    return OrderedQuestion(
        name="adaptive",
        domain=NUMBERS,
        mechanism=AdaptiveMechanism(plan=plan),
        chunk_leaves=8,
        quantiles=(0.1, 0.5),
    )


def _factorized() -> Question:
    requested = OrderedWorkload(
        name="factorised", domain=NUMBERS, quantiles=(0.5,), mechanism="factorised"
    )
    return requested.planned(replace(ROW, budget=RHO))


def _exponential(chunk_leaves: int) -> Question:
    """Keys in places of their own, or the chunks of one tree that answer in rounds."""
    keys = KeyList(column="race", keys=RACES) if chunk_leaves >= 30 else None
    requested = OrderedWorkload(
        name="exponential",
        mechanism="exponential",
        domain=NUMBERS,
        keys=keys,
        quantiles=(0.1, 0.25, 0.5, 0.75, 0.9),
        interval_share=Fraction(1, 3),
    )
    # So little that no two releases find all quantiles alike.
    budget = replace(EPSILON, amount=Fraction(1, 10))
    return replace(requested.planned(replace(ROW, budget=budget)), chunk_leaves=chunk_leaves)


def _series() -> ReleasePlan:
    """The first of four periods: one node of time closes, and counts are carried on."""
    tree = ordered_question("series", measure=Measure.RHO)
    return series_plan(tree, TemporalTree.from_fanout(4, 2), 1)


def _selection() -> ReleasePlan:
    epsilon, delta = Fraction(1), Fraction(1, 10**4)
    unit = ADD_REMOVE_ROW
    plan = SelectionPlan(unit=unit, epsilon=epsilon / 2, delta=delta / 2)
    columns = {"one": KeyColumns(columns=("number",), types=("integer",))}
    columns["two"] = KeyColumns(columns=("race", "number"), types=("text", "integer"))
    questions = [
        SelectionQuestion(name=name, domain=each, plan=plan, shards=3)
        for name, each in columns.items()
    ]
    return ReleasePlan(
        name="selection",
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=epsilon),
        questions=tuple(questions),
        stated=(epsilon, delta),
    )


def _distinct() -> ReleasePlan:
    keys = {"number": None, "number-by-race": KeyList(column="race", keys=RACES)}
    # So little that no two releases have all numbers alike.
    amount = Fraction(1, 50)
    workloads = [
        DistinctWorkload(name=name, domain=DistinctDomain(column="number"), keys=each)
        for name, each in keys.items()
    ]
    half = replace(ROW, budget=Budget(measure=Measure.EPSILON, amount=amount / 2))
    questions = tuple(replace(each.planned(half), shards=3) for each in workloads)
    budget = Budget(measure=Measure.EPSILON, amount=amount)
    return ReleasePlan(name="distinct", unit=ADD_REMOVE_ROW, budget=budget, questions=questions)


def _mean() -> ReleasePlan:
    keys = {"mean": None, "mean-by-race": KeyList(column="race", keys=RACES)}
    workloads = [MeanWorkload(name=name, domain=NUMBERS, keys=each) for name, each in keys.items()]
    half = replace(ROW, budget=replace(EPSILON, amount=EPSILON.amount / 2))
    questions = tuple(each.planned(half) for each in workloads)
    return ReleasePlan(name="mean", unit=ADD_REMOVE_ROW, budget=EPSILON, questions=questions)


def _sketch() -> ReleasePlan:
    """Hashed values in a count sketch, and codes with prefixes in a count-min sketch."""
    shapes = {
        "values": SketchShape(kind=SketchKind.COUNT_SKETCH, rows=3, width=32),
        "codes": SketchShape(kind=SketchKind.COUNT_MIN, rows=2, width=16),
    }
    domains = {
        "values": SketchDomain(column="race"),
        "codes": SketchDomain(column="number", widths=(4, 5), notation="hex"),
    }
    # So little that no two releases have all cells of a place alike.
    amount = Fraction(1, 50)
    questions = tuple(
        SketchQuestion(
            name=name,
            domain=domains[name],
            release_unit=ADD_REMOVE_ROW,
            spent=Budget(measure=Measure.EPSILON, amount=amount / 2),
            shape=shape,
            chunk_cells=24,
        )
        for name, shape in shapes.items()
    )
    budget = Budget(measure=Measure.EPSILON, amount=amount)
    return ReleasePlan(name="sketch", unit=ADD_REMOVE_ROW, budget=budget, questions=questions)


def _keys_of_a_table() -> ReleasePlan:
    table = product_table({"race": RACES, "number": (0, 1, 2, 7)})
    keys = TableKeys(table=table, unknown="other")
    return _alone(replace(ordered_question(keyed=True, chunk_leaves=90), keys=keys))


def _mixed() -> ReleasePlan:
    amount = Fraction(1, 100)
    questions = (
        sparse_question("paths", name="paths"),
        box_question(measure=Measure.RHO, amount=amount, holding=Holding.SPARSE),
        ordered_question(keyed=True, measure=Measure.RHO, amount=amount, chunk_leaves=16),
        hierarchy_question(
            "digits", budget=Budget(measure=Measure.RHO, amount=amount), chunk_leaves=4
        ),
        threshold_question("paths", name="thresholds"),
    )
    epsilon, delta = (sum(own) for own in zip(*(q.spending.own for q in questions), strict=True))
    return ReleasePlan(
        name="mixed",
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.RHO, amount=3 * amount),
        questions=questions,
        stated=(epsilon + 1, delta + Fraction(1, 10**3)),
    )


_MADE: dict[str, Callable[[], ReleasePlan]] = {
    "ordered": lambda: _alone(ordered_question()),
    "ordered by key": lambda: _alone(ordered_question(keyed=True, chunk_leaves=16)),
    "as published": lambda: _alone(ordered_question(estimator=Estimator.NONE, chunk_leaves=30)),
    "hierarchy": lambda: _alone(hierarchy_question("digits", chunk_leaves=4)),
    "sums": lambda: _alone(hierarchy_question("columns", measure=SUMS, keys=RACES, chunk_leaves=4)),
    "as measured": lambda: _alone(hierarchy_question("digits", estimation="none", chunk_leaves=4)),
    "thresholds": lambda: make_stated_plan(threshold_question("paths", name="thresholds")),
    "sparse": _sparse,
    "selection": _selection,
    "distinct": _distinct,
    "mean": _mean,
    "sketch": _sketch,
    "keys of a table": _keys_of_a_table,
    "box, dense": lambda: _alone(box_question(holding=Holding.DENSE)),
    "box, sparse": lambda: _alone(box_question(holding=Holding.SPARSE)),
    "box, as in the paper": lambda: _alone(
        box_question(mechanism="privhp_paper", holding=Holding.SPARSE, depth=8, most=12)
    ),
    "box, all nodes": lambda: _alone(box_question(mechanism="pmm", depth=6)),
    "box, substitute": lambda: _alone(
        box_question(holding=Holding.SPARSE, unit=SUBSTITUTE_ROW, parts=20, root=True)
    ),
    "box, rho": lambda: _alone(box_question(measure=Measure.RHO, amount=Fraction(1, 10))),
    "box, count-min": lambda: _alone(sketched("sketches", SketchKind.COUNT_MIN, rows=1)),
    "box, three rows of count-min": lambda: _alone(
        sketched("sketches", SketchKind.COUNT_MIN, rows=3, unit=SUBSTITUTE_ROW)
    ),
    "box, count sketch": lambda: _alone(
        sketched("sketches", SketchKind.COUNT_SKETCH, rows=1, measure=Measure.RHO)
    ),
    "box, three rows of a count sketch": lambda: _alone(
        sketched("sketches", SketchKind.COUNT_SKETCH, rows=3, mechanism="privhp_paper", depth=7)
    ),
    "table": lambda: _alone(table_question()),
    "table, rho": lambda: _alone(table_question(measure=Measure.RHO, unit=SUBSTITUTE_ROW)),
    "adaptive": lambda: _alone(_adaptive()),
    "adaptive hierarchy": lambda: _alone(adaptive_question("bushy", chunk_leaves=4)),
    "factorised": lambda: _alone(_factorized()),
    "exponential": lambda: _alone(_exponential(30)),
    "exponential, in rounds": lambda: _alone(_exponential(8)),
    "series": _series,
    "mixed": _mixed,
}
# Each is made once: the widths of its intervals take longer than its release.
PLANS = {name: cache(made) for name, made in _MADE.items()}
# What does not happen: a mechanism on whole trees has no nodes above its chunks; a sparse tree and
# a box keep nothing at their places.
WHOLE = {"receipts of groups"}
GATHERED = {"kept", "returned", "receipts of places"}
ABSENT = {
    "as published": WHOLE,
    "thresholds": WHOLE,
    "sparse": GATHERED,
    "selection": GATHERED,
    "distinct": GATHERED,
    "mean": GATHERED,
    "keys of a table": WHOLE,
    "factorised": WHOLE,
    "exponential": WHOLE,
    "exponential, in rounds": WHOLE,
    **{name: GATHERED for name in PLANS if name.startswith(("box", "table"))},
}


def bundles() -> list[list[pa.RecordBatch]]:
    """The rows in three bundles, one of them empty."""
    batches = ROWS.combine_chunks().to_batches(max_chunksize=200)
    return [batches[:2], [], batches[2:]]


def tables_in_memory(plan: ReleasePlan, key: ReleaseKey, rows: pa.Table = ROWS) -> dict[str, bytes]:
    """The tables of the release of the rows in memory, by their paths within a folder."""
    return table_files(release_rows(plan, rows.to_batches(), key, nonce=NONCE))
