"""Tables that are no universe; that a universe is restored is checked wherever one is made."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.leaf_codes import universe_from_table
from tests.dpcore.universe_reference import fleet


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: universe_from_table(pa.table({"level": [1]})), "not made by this program"),
        (lambda: universe_from_table(fleet().to_table().slice(1)), "rows are missing"),
    ],
)
def test_refusals(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        make()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_that_was_tampered_with() -> None:
    table = fleet().to_table()
    children = pa.array([2, 2, 2, 0, 0, 0])
    with pytest.raises(ValueError, match="do not add up"):
        universe_from_table(table.set_column(1, "children", children))
    metadata = {
        k: v.replace(b'"version": 1', b'"version": 0') for k, v in table.schema.metadata.items()
    }
    with pytest.raises(ValueError, match="version 0 is not 1"):
        universe_from_table(table.replace_schema_metadata(metadata))
