"""Small tables of made-up people, and their releases in memory."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain, make_domain
from dptrees.dpcore.ordered.numbers import NumberDomain
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.tables.domain import TableDomain
from dptrees.dpcore.tables.question import TableQuestion, TableWorkload
from dptrees.dpcore.tables.released import ReleasedTable

KEY = ReleaseKey(bytes(range(32)))
# Noise of this budget is 0 but for one draw of 10^12.
EXACT = Fraction(500)


def people_domain() -> TableDomain:
    """Ages in groups of 4, hours, education (ordered), towns (not ordered) and days in weeks."""
    towns = CategoryDomain(column="town", categories=("oslo", "rome", "lima"), ordered=False)
    return TableDomain(
        axes=(
            StepDomain(kind="integer", column="age", lower=16, upper=80, outside="clamp"),
            NumberDomain(column="hours", lower=0.0, upper=100.0, cells=10),
            CategoryDomain(column="education", categories=("none", "school", "college")),
            towns,
            make_domain({"type": "date", **DAYS}),
        ),
        cells=16,
    )


DAYS = {"column": "day", "lower": "2020-01-01", "upper": "2021-01-01"}


def people(rows: int, seed: int = 0) -> pa.Table:
    """Rows whose columns go together: the older, the more education and the fewer hours."""
    random = np.random.default_rng(seed)
    age = np.clip(random.gamma(6, 7, rows), 16, 79.9)
    level = np.clip((age / 30 + random.normal(0, 0.5, rows)).astype(int), 0, 2)
    names = np.array(["none", "school", "college"])
    days = np.datetime64("2020-01-01") + random.integers(0, 366, rows).astype("timedelta64[D]")
    return pa.table(
        {
            "age": age.astype(np.int64),
            "hours": np.clip(60 - age / 2 + random.normal(0, 10, rows), 0, 99),
            "education": names[level],
            "town": np.array(["oslo", "rome", "lima"])[random.choice(3, rows, p=[0.6, 0.3, 0.1])],
            "day": days,
        }
    )


def people_question(amount: Fraction, measure: Measure = Measure.EPSILON) -> TableQuestion:
    workload = TableWorkload(name="people", domain=people_domain())
    budget = Budget(measure=measure, amount=amount)
    return workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=budget))


def released_people(rows: pa.Table, amount: Fraction = EXACT, nonce: bytes = b"") -> ReleasedTable:
    """The answers about a release of rows in memory."""
    question = people_question(amount)
    plan = ReleasePlan(
        name="people",
        unit=ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=amount),
        questions=(question,),
    )
    columns = {name: rows[name].combine_chunks() for name in question.columns}
    counts = {"people": question.domain.leaf_counts(columns)}
    found = release_counts(plan, counts, KEY, nonce=nonce).tree("people")
    assert isinstance(found, ReleasedTable)
    return found
