"""What verify finds in the tables of adaptive trees: errors of another tree, shapes of none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.adaptive.test_command import TREE, changed
from tests.pipelines.conftest import Workspace
from tests.pipelines.hierarchy.test_adaptive import ADD, GUESS, Blocks
from tests.pipelines.test_verify import replace_part

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


@pytest.fixture
def ordered(workspace: Workspace) -> Workspace:
    workspace.make(changed(TREE))
    return workspace


@pytest.fixture
def blocks(tmp_path: Path) -> Workspace:
    """A hierarchy with keys, several in one file."""
    made = Blocks(tmp_path)
    keyed = {
        "group_by": {"column": "sex", "keys": ["f", "m"]},
        "guess": GUESS,
        "optimize_for": "counts",
    }

    def change(settings: dict[str, object]) -> None:
        settings.update(trees=[made.tree | keyed], privacy=ADD)

    assert made.release(change).code == 0
    return made


def rewrite(
    workspace: Workspace, kind: str, column: str, change: Callable[[Numbers], None]
) -> None:
    """Changes a column of a part, with its name and all checksums to suit."""
    (path,) = (workspace.output / kind).iterdir()
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    values = table[column].to_numpy().copy()
    change(values)
    field = table.schema.field(place)
    new = pa.array(values, field.type, from_pandas=True)
    replace_part(workspace.output, path, table.set_column(place, field, new))


def refused(workspace: Workspace, words: str) -> None:
    outcome = workspace.run("verify", workspace.output)
    assert outcome.code == 2 and words in outcome.err, outcome.out + outcome.err


def known(values: Numbers) -> int:
    """The last number that is above 0."""
    return int(np.flatnonzero(np.nan_to_num(values) > 0)[-1])


@pytest.mark.parametrize(
    ("kind", "column"),
    [(kind, column) for kind in ("nodes", "cdf") for column in ("std_error", "ci_low", "ci_high")],
)
def test_one_wrong_error_of_an_ordered_tree(ordered: Workspace, kind: str, column: str) -> None:
    def little(values: Numbers) -> None:
        values[known(values)] *= 0.9999

    rewrite(ordered, kind, column, little)
    refused(ordered, f"{kind} of tree delay: {column} is not that of the resulting tree")


@pytest.mark.parametrize("column", ["std_error", "ci_high"])
def test_one_wrong_error_of_a_hierarchy(blocks: Workspace, column: str) -> None:
    assert blocks.run("verify", blocks.output).code == 0

    def little(values: Numbers) -> None:
        values[known(values)] *= 0.9999

    rewrite(blocks, "nodes", column, little)
    refused(blocks, f"nodes of tree people: {column} is not that of the resulting tree")


def test_shapes_that_no_tree_has(ordered: Workspace) -> None:
    def orphan(values: Numbers) -> None:
        values[np.flatnonzero(values == 1)[-1]] = 2

    rewrite(ordered, "nodes", "ended", orphan)
    refused(ordered, "are those of no tree of the plan")


def test_an_error_where_none_is_known(ordered: Workspace) -> None:
    def invented(values: Numbers) -> None:
        values[np.flatnonzero(np.isnan(values))[0]] = 1.0

    rewrite(ordered, "nodes", "std_error", invented)
    refused(ordered, "std_error is not that of the resulting tree")
