"""Missing values as a category: their cell, apart from the order of the others, and their rows."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.noise.randomness import public_stream
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain, make_domain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.specification import Refusal
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.estimates import column_estimate, column_groups
from dptrees.dpcore.tables.plan import TableShape
from dptrees.dpcore.tables.question import TableWorkload
from dptrees.dpcore.tables.released import ReleasedTable
from tests.dpcore.tables.tables import EXACT, KEY

AGE = StepDomain(kind="integer", column="age", lower=0, upper=40, missing="category")
TOWN = CategoryDomain(column="town", categories=("oslo", "rome"), ordered=False, missing="category")
DOMAIN = TableDomain(axes=(AGE, TOWN), cells=20)
ROWS = 4_000


def data() -> dict[str, pa.Array]:
    """Towns are missing where ages are below 10, mostly; ages are missing anywhere."""
    random = np.random.default_rng(5)
    age = random.integers(0, 40, ROWS)
    unknown = random.random(ROWS) < np.where(age < 10, 0.9, 0.05)
    town = np.array(["oslo", "rome"])[random.integers(0, 2, ROWS)]
    return {
        "age": pa.array(age, mask=random.random(ROWS) < 0.25),
        "town": pa.array(town, mask=unknown),
    }


@pytest.fixture(scope="module")
def released() -> ReleasedTable:
    """A release whose noise is 0."""
    budget = Budget(measure=Measure.EPSILON, amount=EXACT)
    setting = Setting(unit=ADD_REMOVE_ROW, budget=budget)
    question = TableWorkload(name="t", domain=DOMAIN).planned(setting)
    plan = ReleasePlan(name="t", unit=ADD_REMOVE_ROW, budget=budget, questions=(question,))
    found = release_counts(plan, {"t": DOMAIN.leaf_counts(data())}, KEY).tree("t")
    assert isinstance(found, ReleasedTable)
    return found


def test_null_nan_and_fractions_have_the_last_cell_and_no_other_row_has() -> None:
    columns = [
        (AGE, pa.array([3, None]), [1, 20]),
        (AGE, pa.array([3.0, 3.5, np.nan, None, 39.0]), [1, 20, 20, 20, 19]),
        (AGE, pa.array([Decimal("3.5"), Decimal("4")]), [20, 2]),
        (replace(AGE, outside="drop"), pa.array([None, 40, -1, 0]), [20, -1, -1, 0]),
        (AGE, pa.nulls(2), [20, 20]),
        (TOWN, pa.array(["rome", None, "paris", "", "missing"]), [1, 2, -1, -1, -1]),
        (TOWN, pa.array(["rome", None]).dictionary_encode(), [1, 2]),
        (replace(TOWN, unknown="last"), pa.array(["paris", None]), [1, 2]),
        (
            NumberDomain(column="x", lower=0.0, upper=1.0, cells=8, missing="category"),
            pa.array([0.5, np.nan, None, np.inf]),
            [4, 8, 8, 7],
        ),
        (
            make_domain(
                {"type": "date", "column": "d", "lower": "2020-01-01", "upper": "2020-01-09"}
                | {"missing": "category"}
            ),
            pa.array(["2020-01-03", None, "2030-01-01"]).cast(pa.date32()),
            [2, 8, 7],
        ),
    ]
    other = StepDomain(kind="integer", column="other", lower=0, upper=2)
    for axis, values, cells in columns:
        domain = TableDomain(axes=(axis, other), cells=20)
        rows = {axis.column: values, "other": pa.array([1] * len(values))}
        codes, kept = domain.row_codes(rows)
        counted = [cell for cell in cells if cell >= 0]
        assert codes[0].tolist() == counted, values
        assert kept is None or kept.tolist() == [n for n, cell in enumerate(cells) if cell >= 0]
    assert not DOMAIN.axes[0].is_missing(pa.array([1])).any()
    # Only a table has the cell, so anywhere else such a policy may drop a row.
    assert AGE.drops_rows and TOWN.drops_rows and DOMAIN.drops_rows
    assert not TableDomain(axes=(AGE, replace(TOWN, unknown="last"))).drops_rows


def test_a_table_without_the_category_has_the_specification_of_before() -> None:
    plain = TableDomain(axes=(replace(AGE, missing="drop"), TOWN))
    assert "apart" not in plain.shape.spec() and DOMAIN.shape.spec()["apart"] == [True, False]
    assert TableDomain.from_spec(DOMAIN.spec()) == DOMAIN
    assert TableShape.from_spec(DOMAIN.shape.spec()) == DOMAIN.shape
    with pytest.raises(Refusal, match="'town' lists 'missing', which is the category of its"):
        TableDomain(axes=(AGE, replace(TOWN, categories=("missing", "rome"))))
    with pytest.raises(Refusal, match="unknown 'category' must be one of drop, first, last"):
        replace(TOWN, unknown="category")


def test_the_cell_of_missing_values_is_no_neighbor_of_the_largest() -> None:
    counts = np.array([0, 3, 1, 2, 0, 1, 2, 30])
    apart = column_estimate(counts, 100.0, 39.0, ordered=True, apart=True)
    alone = column_estimate(counts[:-1], 100.0, 9.0, ordered=True)
    np.testing.assert_allclose(apart, [*alone, 30.0])
    assert column_estimate(counts, 100.0, 39.0, ordered=True)[-1] < 25
    for groups in range(1, 9):
        labels = column_groups(counts.astype(float), groups, ordered=True, apart=True)
        assert np.flatnonzero(labels == labels[-1]).tolist() == [7]
        assert labels.max() + 1 <= max(2, groups)


def test_counts_and_quantiles_leave_missing_values_apart(released: ReleasedTable) -> None:
    rows = data()
    age, none = rows["age"], rows["age"].is_null().to_numpy(zero_copy_only=False)
    known = age.drop_null().to_numpy()
    assert released.box({}).count == ROWS
    missing = released.box({"age": ("missing", "missing")})
    assert (missing.estimate, missing.label, missing.remark) == (none.sum(), "age missing", None)
    for sides, truth in ((("", 20), (known < 20).sum()), (("", ""), len(known))):
        answer = released.box({"age": sides})
        assert answer.estimate == truth
        assert answer.remark is not None and "age missing" in answer.remark
    both = released.box({"age": ("missing", "missing"), "town": ("missing", "missing")})
    assert both.estimate == (none & ~rows["town"].is_valid().to_numpy(zero_copy_only=False)).sum()
    column = released.select_column("age")
    assert column.has_missing and not released.select_column("town").has_missing
    assert column.cdf(20).estimate == (known < 20).sum()
    found = column.quantile(0.9)
    assert abs(float(str(found["value"])) - np.quantile(known, 0.9)) <= 2
    assert float(str(found["ci_high"])) <= 40 and "age missing" in str(found["remark"])
    assert released.at_path("town missing").estimate == rows["town"].null_count


def test_rows_have_missing_values_at_the_rate_and_with_the_association_of_the_data(
    released: ReleasedTable,
) -> None:
    batches = released.sampler().batches(ROWS, public_stream("sample", 1))
    drawn, truth = pa.Table.from_batches(batches), pa.table(data())
    assert drawn.schema == truth.schema
    for column in ("age", "town"):
        assert abs(drawn[column].null_count - truth[column].null_count) <= 2
    rates = []
    for each in (drawn, truth):
        young = np.asarray(each["age"].fill_null(99)) < 10
        rates.append(np.asarray(each["town"].is_null())[young].mean())
    assert rates[1] > 0.85 and abs(rates[0] - rates[1]) < 0.03
