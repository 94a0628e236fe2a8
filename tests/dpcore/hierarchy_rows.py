"""What the tests of hierarchies' domains share: rows against what is expected, small universes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import date, datetime, timezone

import numpy as np
import pyarrow as pa

from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import Universe

NUMBERED = universe_from_columns({"a": pa.array(["x", "y"]), "b": pa.array([1, 2])})
CODED = universe_from_codes(pa.array(["0102", "0203"]), (2, 2), levels=("state", "county"))
SPLIT = universe_from_paths(pa.array(["a/b", "c"]), "/")
DAYS = universe_from_calendar(("day",), date(2013, 1, 1), date(2014, 1, 1))
HOURS = universe_from_calendar(
    ("hour",),
    datetime(2013, 1, 1, tzinfo=timezone.utc),
    datetime(2014, 1, 1, tzinfo=timezone.utc),
)


def hierarchy_domain(universe: Universe, **policies: str) -> HierarchyDomain:
    columns = ("a", "b") if universe is NUMBERED else ("x",)
    return HierarchyDomain(universe=universe, columns=columns, **policies)


def fate(found: int | None, missing: bool, domain: HierarchyDomain) -> int:
    """The leaf of one row: found, or as a policy says."""
    if missing or found is None:
        policy = domain.missing if missing else domain.unknown
        return domain.universe.leaves if policy == "other" else -1
    return found


def check_rows(domain: HierarchyDomain, columns: dict[str, pa.Array], expected: list[int]) -> None:
    """Compare with what is expected, however the columns are cut and encoded, and row by row."""
    found = domain.leaf_ids(columns)
    assert found.dtype == np.int64 and found.tolist() == expected
    assert domain.drops_rows or -1 not in expected
    assert all(leaf < domain.cells for leaf in expected)
    changes: list[Callable[[pa.Array], pa.Array]] = [
        lambda column: column.dictionary_encode(),
        lambda column: pa.chunked_array([column[:2], column[2:]]),
        lambda column: pa.concat_arrays([column[:1], column])[len(column[:1]) :],
    ]
    for change in changes:
        changed = {name: change(column) for name, column in columns.items()}
        assert domain.leaf_ids(changed).tolist() == expected
    for row in range(min(3, len(expected))):
        alone = {name: column.slice(row, 1) for name, column in columns.items()}
        assert domain.leaf_ids(alone).tolist() == expected[row : row + 1]
    restored = pickle.loads(pickle.dumps(domain))
    assert restored == domain and restored.leaf_ids(columns).tolist() == expected
