"""Each row's outcome depends on that row alone: odd rows of every type among ordinary ones.

For every kind of question and every type of column that it accepts: what a batch adds is what its
rows add one by one, nothing raises and nothing warns, wherever the odd row is and however the
column is cut and encoded; and the ordinary rows mean the same in every type.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.question import HierarchyQuestion
from dptrees.dpcore.hierarchy.universe import Universe
from dptrees.dpcore.irregular.plan import IrregularPlan, sum_sensitivities
from dptrees.dpcore.irregular.planner import with_best_shares
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.ordered.domain import OrderedDomain
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain, make_domain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.question import OrderedQuestion
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.questions.tree_question import TreeQuestion
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys, UnlistedKeys
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.rows.policies import MeasureColumn
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseCounter, SparseQuestion
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan
from tests.dpcore.odd_rows import (
    DAYS,
    NUMBERS,
    TEXTS,
    TIMES,
    TYPES,
    hidden_rows,
    odd_rows,
    ordinary_rows,
)

BUDGET = Budget(measure=Measure.EPSILON, amount=Fraction(1))
ADD_REMOVE = ADD_REMOVE_ROW
# Enough rows that a dictionary of 128 values is small beside them.
ORDINARY = (3, 7, 1, 3, 100, 5, 9, 3, 0) * 4
DATES = tuple(datetime(2013, 1, 1 + day) for day in (3, 7, 1, 3, 27, 5, 9, 3, 2) * 4)
Columns = dict[str, pa.Array | pa.ChunkedArray]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A question, the column of it that is varied, and its ordinary rows.

    Args:
        text: how an ordinary number is written where the column holds strings.
        types: the ones that the question must accept, beside nulls of no type.
    """

    name: str
    question: Question
    column: str = "x"
    values: Sequence[int | datetime] = ORDINARY
    text: Callable[[int], str] = str
    types: Sequence[pa.DataType]
    others: Columns = field(default_factory=dict)


def ordered(name: str, domain: OrderedDomain, types: Sequence[pa.DataType], **fields) -> Case:
    return Case(name=name, question=ordered_question(domain), types=types, **fields)


def ordered_question(
    domain: OrderedDomain, keys: KeyList | None = None
) -> OrderedQuestion[UniformMechanism]:
    plan = TreePlan(
        tree=UniformTree(leaves=domain.cells, fanouts=(domain.cells,)),
        unit=ADD_REMOVE,
        budget=BUDGET,
        level_amounts=(Fraction(1, 2), Fraction(1, 2)),
        public_total=False,
        keyed=keys is not None,
    )
    return OrderedQuestion(
        name="tree", domain=domain, mechanism=UniformMechanism(plan=plan), keys=keys
    )


def keyed(name: str, keys: KeyList, types: Sequence[pa.DataType]) -> Case:
    domain = StepDomain(kind="integer", column="y", lower=0, upper=20)
    question = ordered_question(domain, keys)
    return Case(name=name, question=question, types=types, others={"y": pa.array([2])})


def hierarchy(name: str, universe: Universe, types: Sequence[pa.DataType], **fields) -> Case:
    columns = fields.pop("columns", ("x",))
    policies = fields.pop("policies", {})
    domain = HierarchyDomain(universe=universe, columns=columns, **policies)
    return Case(name=name, question=hierarchy_question(domain), types=types, **fields)


def hierarchy_question(
    domain: HierarchyDomain, measure: MeasureColumn | None = None
) -> HierarchyQuestion[IrregularMechanism]:
    tree = domain.tree.shape
    summed = {}
    if measure is not None:
        bounds = {"lower": measure.lower, "upper": measure.upper, "keyed": False}
        summed = {"sensitivities": sum_sensitivities(tree, ADD_REMOVE, **bounds)}
    plan = with_best_shares(IrregularPlan(tree=tree, budget=BUDGET, unit=ADD_REMOVE, **summed))
    return HierarchyQuestion(
        name="tree", domain=domain, mechanism=IrregularMechanism(plan=plan), measure=measure
    )


def sparse(name: str, domain: SparseDomain, types: Sequence[pa.DataType], **fields) -> Case:
    plan = plan_sparse(domain.names, Fraction(1), Fraction(1, 10**6), ADD_REMOVE)
    question = SparseQuestion(name="tree", domain=domain, plan=plan)
    return Case(name=name, question=question, types=types, **fields)


def number(lower: float, upper: float, cells: int, **policies: str) -> NumberDomain:
    return NumberDomain(column="x", lower=lower, upper=upper, cells=cells, **policies)


def ordered_cases() -> Iterator[Case]:
    dropping = {"outside": "drop", "missing": "first"}
    yield ordered("numbers", number(0, 10, 10), NUMBERS)
    yield ordered("numbers dropped", number(0, 10, 10, **dropping), NUMBERS)
    yield ordered("many cells", number(0, 10, 2**18, missing="last"), NUMBERS)
    yield ordered("narrow cells", number(3, 3 + 2**-48, 4), NUMBERS)
    yield ordered("integers", StepDomain(kind="integer", column="x", lower=-2, upper=18), NUMBERS)
    wide = StepDomain(
        kind="integer", column="x", lower=-(2**61), upper=2**61, cells=2**4, **dropping
    )
    yield ordered("wide integers", wide, NUMBERS)
    dates = {"values": DATES}
    days = StepDomain(kind="date", column="x", lower=date(2013, 1, 1), upper=date(2013, 1, 29))
    utc = [pa.timestamp(unit, "UTC") for unit in ("s", "ms", "us", "ns")]
    naive = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]
    yield ordered("days", days, [*DAYS, *TIMES], **dates)
    ever = StepDomain(
        kind="date",
        column="x",
        lower=date.min,
        upper=date(9999, 12, 31),
        days_per_cell=1826029,
        **dropping,
    )
    yield ordered("all days", ever, [*DAYS, *TIMES], **dates)
    hours = StepDomain(
        kind="timestamp",
        column="x",
        lower=datetime(2013, 1, 1),
        upper=datetime(2013, 1, 11),
        cells=240,
    )
    yield ordered("times", hours, [*DAYS, *naive], **dates)
    ever_utc = StepDomain(
        kind="timestamp",
        column="x",
        lower=datetime.min.replace(tzinfo=timezone.utc),
        upper=datetime(9999, 1, 1, tzinfo=timezone.utc),
        cells=2,
        **dropping,
    )
    yield ordered("times of a zone", ever_utc, [*utc, pa.timestamp("us", "Asia/Tokyo")], **dates)


def listed_cases() -> Iterator[Case]:
    few, many = ("3", "5", "100", "1"), tuple(map(str, range(5000)))
    near, far = (3, 5, 100, 1), (3, 5, 100, 1, -(2**63), 2**63 - 1, 2**53, 2**53 + 1)
    policies = {"unknown": "first", "missing": "last"}
    for name, texts in (("few", few), ("many", many)):
        yield ordered(f"{name} categories", CategoryDomain(column="x", categories=texts), TEXTS)
        categories = CategoryDomain(column="x", categories=texts, **policies)
        yield ordered(f"{name} categories kept", categories, TEXTS)
        yield keyed(f"{name} keys", KeyList(column="x", keys=texts), TEXTS)
        yield keyed(f"{name} keys, other", KeyList(column="x", keys=texts, unknown="other"), TEXTS)
    for name, numbers in (("near", near), ("far", far)):
        categories = CategoryDomain(column="x", categories=numbers, **policies)
        yield ordered(f"{name} integer categories", categories, NUMBERS)
        yield keyed(f"{name} integer keys", KeyList(column="x", keys=numbers), NUMBERS)
        other = KeyList(column="x", keys=numbers, unknown="other")
        yield keyed(f"{name} integer keys, other", other, NUMBERS)


def hierarchy_cases() -> Iterator[Case]:
    other: dict[str, object] = {"policies": {"unknown": "other", "missing": "other"}}
    unknown: dict[str, object] = {"policies": {"unknown": "other"}}
    letters, numbers = pa.array(list("abcde")), pa.array([3, 5, 100, 1, 7])
    pairs = universe_from_columns({"a": letters, "x": numbers})
    beside = {"columns": ("a", "x"), "others": {"a": pa.array(["b"])}}
    yield hierarchy("columns of integers", pairs, NUMBERS, **beside, **other)
    words = universe_from_columns({"a": letters, "x": pa.array(["3", "5", "100", "1x", "7"])})
    yield hierarchy("columns of texts", words, TEXTS, **beside, **unknown)
    many = universe_from_columns({"x": pa.array([str(n) for n in range(1, 5001)])})
    yield hierarchy("many texts of integers", many, [*TEXTS, *NUMBERS], **unknown)
    digits = universe_from_codes(pa.array(["0003", "0105", "0100", "0001"]), (2, 2))
    coded = {"text": lambda n: f"{n:04}"}
    yield hierarchy("digits", digits, [*TEXTS, *NUMBERS], **coded, **other)
    wide = universe_from_codes(pa.array([f"{n:018}" for n in (3, 10**17)]), (9, 9))
    yield hierarchy("wide digits", wide, [*TEXTS, *NUMBERS], text=lambda n: f"{n:018}")
    paths = universe_from_paths(pa.array(["a/3", "a/5/1", "b"]), "/")
    yield hierarchy("paths", paths, TEXTS, text=lambda n: f"a/{n}", **unknown)
    roots, nodes = pa.nulls(2, pa.int64()), pa.array([3, 5, 7, 100])
    parents = universe_from_parents(nodes, pa.concat_arrays([roots, pa.array([3, 3])]))
    yield hierarchy("parents", parents, NUMBERS, **other)
    bounds = (date(2012, 1, 1), date(2014, 1, 1))
    naive = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]
    for unit in ("year", "month", "day", "hour"):
        calendar = universe_from_calendar((unit,), *bounds)
        yield hierarchy(unit, calendar, [*DAYS, *naive], values=DATES, **unknown)
    aware = (datetime(2013, 1, day, tzinfo=timezone.utc) for day in (1, 20))
    zoned = [kind for kind in TIMES if kind.tz] + [pa.timestamp("us", "Asia/Tokyo")]
    yield hierarchy(
        "hours of a zone", universe_from_calendar(("hour",), *aware), zoned, values=DATES
    )
    for missing in ("drop", "zero"):
        measure = MeasureColumn(column="x", lower=-5, upper=50, missing=missing)
        domain = HierarchyDomain(universe=paths, columns=("path",))
        question = hierarchy_question(domain, measure)
        others: Columns = {"path": pa.array(["a/5/1"])}
        yield Case(name=f"sums, {missing}", question=question, types=NUMBERS, others=others)


def sparse_cases() -> Iterator[Case]:
    addresses = CodeDomain(column="x", widths=(8, 24))
    whole = [*NUMBERS, *TEXTS]
    yield sparse("addresses", addresses, whole, text=lambda n: f"0.0.0.{n}")
    for name, bits in (("codes", (4, 4)), ("codes of 64 bits", (32, 32))):
        yield sparse(name, CodeDomain(column="x", widths=bits, notation="hex"), NUMBERS)
    labels, beside = LabelDomain(label_columns=("x", "y")), {"y": pa.array(["a/\\b"])}
    yield sparse("labels", labels, whole, others=beside)
    last = LabelDomain(label_columns=("y", "x"))
    yield sparse("last labels", last, whole, others={"y": pa.array([7])})
    yield sparse("paths of labels", PathDomain(column="x", depth=3), TEXTS, text=lambda n: f"a/{n}")


CASES = [*ordered_cases(), *listed_cases(), *hierarchy_cases(), *sparse_cases()]


def added(case: Case, column: pa.Array | pa.ChunkedArray) -> Counter[object]:
    """What the rows of a column add, by leaf."""
    others = {name: pa.repeat(one[0], len(column)) for name, one in case.others.items()}
    columns = {case.column: column, **others}
    if isinstance(case.question, SparseQuestion):
        counts = case.question.domain.leaf_counts(columns)
        return Counter(dict(zip(counts.keys.to_pylist(), counts.counts.tolist(), strict=True)))
    assert isinstance(case.question, TreeQuestion)
    increments = case.question.increments(columns)
    ids, values = np.asarray(increments.cells), increments.values
    assert ids.size == 0 or 0 <= ids.min() <= ids.max() < case.question.forest.chunking.cells
    return Counter(
        ids.tolist() if values is None else zip(ids.tolist(), values.tolist(), strict=True)
    )


def sliced(rows: pa.Array) -> pa.Array:
    return pa.concat_arrays([rows[:3], rows, rows[:1]]).slice(3, len(rows))


def chunked(rows: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([rows[:2], rows[:0], rows[2:]])


def encoded(rows: pa.Array, *, index: pa.DataType, beside: int = 0, full: bool = False) -> pa.Array:
    """A dictionary of the rows and of others that no row has; nulls among the indices, or in it."""
    places = np.arange(len(rows))
    nulls = np.asarray(rows.is_null()) if full else None
    size = 2 ** (index.bit_width - 1) if full else len(rows) + beside
    values = pa.concat_arrays([rows] * (size // len(rows)) + [rows[: size % len(rows)]])
    return pa.DictionaryArray.from_arrays(pa.array(places, mask=nulls).cast(index), values)


FORMS: list[Callable[[pa.Array], pa.Array | pa.ChunkedArray]] = [
    lambda rows: rows,
    sliced,
    chunked,
    lambda rows: encoded(rows, index=pa.int32()),
    lambda rows: encoded(rows, index=pa.int8(), full=True),
    lambda rows: encoded(rows, index=pa.uint64(), beside=5 * len(rows)),
    lambda rows: encoded(pa.concat_arrays([rows[:3], rows]), index=pa.int16()).slice(3),
    lambda rows: chunked(encoded(rows, index=pa.uint8())),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_row_by_itself(case: Case) -> None:
    turn = itertools.count()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        meaning = None
        for type in accepted(case):
            ordinary = ordinary_rows(case.values, type, case.text)
            expected = added(case, ordinary)
            if type != pa.null():
                meaning = expected if meaning is None else meaning
                assert expected == meaning, type
            check_odd_rows(case, ordinary, odd_rows(type), expected, turn)
            check_reported_drops(case, odd_rows(type), next(turn))


def accepted(case: Case) -> list[pa.DataType]:
    """The types that a question accepts, which are those that the case names."""
    found = []
    others = {name: one.type for name, one in case.others.items()}
    for type in TYPES:
        try:
            for kind in (type, pa.dictionary(pa.int8(), type)):
                case.question.check_types({case.column: kind, **others})
        except ValueError:
            continue
        found.append(type)
    assert found == [type for type in TYPES if type == pa.null() or type in case.types]
    return found


def check_odd_rows(
    case: Case, ordinary: pa.Array, odd: pa.Array, expected: Counter[object], turn: Iterator[int]
) -> None:
    together = expected.copy()
    for place in range(len(odd)):
        row = odd[place : place + 1]
        alone = added(case, row)
        assert alone.total() <= 1 or isinstance(next(iter(alone)), tuple), row
        together += alone
        number = next(turn)
        form, at = FORMS[number % len(FORMS)], number % (len(ordinary) + 1)
        rows = pa.concat_arrays([ordinary[:at], row, ordinary[at:]])
        assert added(case, form(rows)) == expected + alone, (rows.type, form, row)
    check_hidden_rows(case, ordinary, odd, expected)
    every = pa.concat_arrays([odd, ordinary])
    for form in FORMS:
        assert added(case, form(every)) == together, (every.type, form)
    check_counter(case, every, together)


def check_hidden_rows(
    case: Case, ordinary: pa.Array, odd: pa.Array, expected: Counter[object]
) -> None:
    """A null is one null, whatever lies below it, also as an index that no dictionary has."""
    alone = added(case, odd[:1])
    hidden = pa.concat_arrays([hidden_rows(odd), ordinary])
    together = expected + Counter({leaf: len(odd) * many for leaf, many in alone.items()})
    for form in FORMS:
        assert added(case, form(hidden)) == together, (odd.type, form)
    places = hidden_rows(pa.array([-1, 127, -128] * len(odd), pa.int8())[: len(odd)])
    indices = pa.concat_arrays([places, pa.array(range(len(ordinary)), pa.int8())])
    rows = pa.DictionaryArray.from_arrays(indices, ordinary)
    assert added(case, rows) == together, odd.type


def check_counter(case: Case, rows: pa.Array, expected: Counter[object]) -> None:
    if not isinstance(case.question, SparseQuestion):
        return
    others = {name: pa.repeat(one[0], len(rows)) for name, one in case.others.items()}
    counter = SparseCounter(case.question.domain, shards=2)
    increments = case.question.increments({case.column: rows, **others})
    assert counter.add(increments, len(rows)) == expected.total()
    totals: Counter[int] = Counter()
    for partial in counter.take():
        level, key_type = partial.place.group, case.question.domain.key_type
        merged = NodeCounts.from_partials(key_type, [partial.data])
        assert merged.total == partial.total
        case.question.domain.paths(level, merged.keys).validate(full=True)
        totals[level] += partial.total
    assert totals[0] == totals[1] == expected.total()


def check_reported_drops(case: Case, odd: pa.Array, turn: int) -> None:
    """The rows that are reported to be dropped are those that are."""
    column = FORMS[turn % len(FORMS)](odd) if len(odd) > 3 else odd
    others = {name: pa.repeat(one[0], len(odd)) for name, one in case.others.items()}
    columns = {case.column: column, **others}
    kept = case.question.row_increments(columns).rows
    dropped = np.ones(len(odd), np.bool_)
    dropped[slice(None) if kept is None else kept] = False
    fates = case.question.row_outcomes(columns)
    drops = [each.rows for each in fates if each.policy == "drop"]
    found = np.logical_or.reduce([np.zeros(len(odd), np.bool_), *drops])
    assert found.tolist() == dropped.tolist(), odd.type


def reported(fates) -> list[tuple[str, str, str, int]]:
    return [(*fate[:3], int(fate.rows.sum())) for fate in fates if fate.rows.any()]


def test_causes_and_policies_are_reported() -> None:
    age = {"column": "age", "type": "integer", "lower": 0, "upper": 100}
    rows = {"age": pa.array([-1, None, 5, 100, 200])}
    assert reported(make_domain(age).row_outcomes(rows)) == [
        ("age", "missing", "drop", 1),
        ("age", "below lower", "clamp", 1),
        ("age", "at or above upper", "clamp", 2),
    ]
    sizes = make_domain({"column": "s", "type": "category", "categories": ["a"], "unknown": "last"})
    assert reported(sizes.row_outcomes({"s": pa.array(["a", "b", None])})) == [
        ("s", "missing", "drop", 1),
        ("s", "unknown", "last", 1),
    ]
    box = HypercubeDomain(axes=(make_domain(age),), depths=(3,))
    assert reported(box.row_outcomes(rows)) == reported(make_domain(age).row_outcomes(rows))
    assert make_domain({"column": "u", "type": "unit_rows", "most": 5}).row_outcomes({}) == []


def test_keys_report_what_is_not_listed() -> None:
    rows = {"k": pa.array(["a", "b", None, "other"])}
    for unknown in ("drop", "other"):
        expected = [("k", "missing", unknown, 1), ("k", "unknown", unknown, 2)]
        table = KeyTable(pa.table({"k": pa.array(["a"], pa.large_string())}))
        listed = KeyList(column="k", keys=("a",), unknown=unknown)
        unlisted = UnlistedKeys(table=table, unknown=unknown)
        assert reported(listed.row_outcomes(rows)) == expected
        assert reported(TableKeys(table=table, unknown=unknown).row_outcomes(rows)) == expected
        assert reported(unlisted.row_outcomes(rows)) == expected[:1]
