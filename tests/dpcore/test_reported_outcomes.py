"""Questions report the actual outcomes of rows that are not simply counted."""

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.rows.key_tables import KeyTable, TableKeys, UnlistedKeys
from dptrees.dpcore.rows.keys import KeyList
from tests.dpcore.odd_rows import odd_rows
from tests.dpcore.test_row_fates import CASES, FORMS, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rows_reported_to_be_dropped_are_those_that_are(case: Case) -> None:
    for turn, type in enumerate([pa.null(), *case.types]):
        odd = odd_rows(type)
        column = FORMS[turn % len(FORMS)](odd) if len(odd) > 3 else odd
        others = {name: pa.repeat(one[0], len(odd)) for name, one in case.others.items()}
        columns = {case.column: column, **others}
        kept = case.question.row_increments(columns).rows
        expected = np.zeros(len(odd), np.bool_)
        expected[slice(None) if kept is None else kept] = True
        reported = [
            fate.rows for fate in case.question.row_outcomes(columns) if fate.policy == "drop"
        ]
        found = ~np.logical_or.reduce([np.zeros(len(odd), np.bool_), *reported])
        assert found.tolist() == expected.tolist(), type


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
        assert (
            reported(KeyList(column="k", keys=("a",), unknown=unknown).row_outcomes(rows))
            == expected
        )
        table = KeyTable(pa.table({"k": pa.array(["a"], pa.large_string())}))
        assert reported(TableKeys(table=table, unknown=unknown).row_outcomes(rows)) == expected
        assert (
            reported(UnlistedKeys(table=table, unknown=unknown).row_outcomes(rows)) == expected[:1]
        )
