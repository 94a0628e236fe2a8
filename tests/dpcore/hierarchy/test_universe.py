"""The digest of a universe, the leaf "other", the search for a path, nodes that are not there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.calendar import universe_from_calendar
from dptrees.dpcore.hierarchy.leaf_codes import universe_from_table
from dptrees.dpcore.hierarchy.leaves import (
    universe_from_codes,
    universe_from_columns,
    universe_from_parents,
    universe_from_paths,
)
from dptrees.dpcore.hierarchy.universe import Universe
from tests.dpcore.cases import for_each
from tests.dpcore.universe_reference import check_refused, check_restored, fleet


def test_the_digest_is_of_the_leaves_and_not_of_their_order() -> None:
    assert fleet() == fleet((2, 0, 1))
    text = {"carrier": pa.array(["UA", "AA", "UA"]), "tail": pa.array(["7", "30", "5"])}
    others = [fleet((0, 1)), fleet().extended, universe_from_columns(text)]
    renamed = {"airline": pa.array(["UA", "AA", "UA"]), "tail": pa.array([7, 30, 5])}
    others.append(universe_from_columns(renamed))
    digests = {universe.digest for universe in [fleet(), *others]}
    assert len(digests) == 5
    assert fleet() != "fleet"


def test_the_digest_stays() -> None:
    # Releases name their universe by it.
    assert fleet().digest == "fa8d42ca04752513ee0f9aa0b0c81f1c374eafc0b072be5afdd726d42eb5d74d"


@for_each(
    "universe",
    [
        fleet(),
        universe_from_codes(pa.array(["0102", "0203"]), (2, 2)),
        universe_from_paths(pa.array(["a/b", "c"]), "/"),
        universe_from_calendar(("year", "month"), date(2013, 1, 1), date(2014, 1, 1)),
        universe_from_parents(pa.array(["a", "b"]), pa.array([None, "a"])),
    ],
)
def test_other_is_the_last_leaf_below_the_root(universe: Universe) -> None:
    wider = universe.extended
    assert wider.level_sizes == (1, *(size + 1 for size in universe.level_sizes[1:]))
    for level in range(1, universe.height + 1):
        ids = np.arange(wider.level_sizes[level])
        assert wider.paths(level, ids)[-1].as_py() == "other"
        assert wider.paths(level, ids)[:-1] == universe.paths(level, ids[:-1])
        path = universe.paths(level, ids[:1])[0].as_py()
        assert wider.find(path) == universe.find(path)
    assert wider.find("other") == (1, universe.level_sizes[1])
    assert wider.depths(np.array([universe.leaves])).tolist() == [1]
    assert wider.has_other and not universe.has_other
    check_restored(wider)
    with pytest.raises(ValueError, match="no node"):
        universe.find("other")


def test_other_must_not_be_there_already() -> None:
    for universe in (universe_from_paths(pa.array(["other/a", "b"]), "/"), fleet().extended):
        with pytest.raises(ValueError, match="must not have the label 'other'"):
            _ = universe.extended


@for_each("path", ["UA/8", "XX", "UA/7/1", "UA/07", "ua", "//", "UA/", "other", "AA\\/30"])
def test_no_node_of_a_path(path: str) -> None:
    with pytest.raises(ValueError, match="has no node of this path"):
        fleet().find(path)


def test_a_separator_at_the_beginning_is_passed_over() -> None:
    assert fleet().find("/UA/7") == fleet().find("UA/7") and fleet().find("/") == (0, 0)
    digits = universe_from_codes(pa.array(["0101"]), (2, 2))
    with pytest.raises(ValueError, match="has no node of this path"):
        digits.find("/01")


@for_each(
    ("make", "message"),
    [
        (lambda: fleet().labels(3, np.arange(1)), "level 3 must be from 0 to 2"),
        (lambda: fleet().paths(2, np.array([3])), "nodes must be from 0 to 2"),
        (lambda: universe_from_table(pa.table({"level": [1]})), "not made by this program"),
        (lambda: universe_from_table(fleet().to_table().slice(1)), "rows are missing"),
    ],
)
def test_refusals(make: Callable[[], object], message: str) -> None:
    check_refused(make, message)


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
