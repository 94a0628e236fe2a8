"""What verify finds in the tables of adaptive trees: errors of another tree, shapes of none."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.adaptive.test_command import TREE, changed
from tests.pipelines.conftest import Workspace
from tests.pipelines.hierarchy.test_adaptive import ADD, GUESS, Blocks
from tests.pipelines.test_verify import replace_part

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """An ordered tree. Tests change copies of it."""
    made = Workspace(tmp_path_factory.mktemp("ordered"))
    made.make(changed(TREE))
    return made


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A hierarchy with keys, several in one file. Tests change copies of it."""
    made = Blocks(tmp_path_factory.mktemp("blocks"))
    keyed = {
        "group_by": {"column": "sex", "keys": ["f", "m"]},
        "guess": GUESS,
        "optimize_for": "counts",
    }
    made.make(lambda settings: settings.update(trees=[made.tree | keyed], privacy=ADD))
    made.succeed("verify", made.output)
    return made


def check_found(
    made: Workspace, kind: str, column: str, change: Callable[[Numbers], None], words: str
) -> None:
    """Change a column of a part, with its name and all checksums to suit: verify finds it."""
    output = made.folder / "edited"
    shutil.copytree(made.output, output)
    (path,) = (output / kind).iterdir()
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    values = table[column].to_numpy().copy()
    change(values)
    field = table.schema.field(place)
    new = pa.array(values, field.type, from_pandas=True)
    replace_part(output, path, table.set_column(place, field, new))
    outcome = made.run("verify", output)
    shutil.rmtree(output)
    assert outcome.code == 2 and words in outcome.err, outcome.out + outcome.err


def a_little(values: Numbers) -> None:
    """Change the last number that is above 0."""
    values[np.flatnonzero(np.nan_to_num(values) > 0)[-1]] *= 0.9999


def orphan(values: Numbers) -> None:
    """Let a node end below its parent's end."""
    values[np.flatnonzero(values == 1)[-1]] = 2


def invented(values: Numbers) -> None:
    """State an error where none is known."""
    values[np.flatnonzero(np.isnan(values))[0]] = 1.0


def test_one_wrong_error(ordered: Workspace, blocks: Workspace) -> None:
    words = "is not that of the resulting tree"
    for kind in ("nodes", "cdf"):
        for column in ("std_error", "ci_low", "ci_high"):
            check_found(ordered, kind, column, a_little, f"{kind} of tree delay: {column} {words}")
    for column in ("std_error", "ci_high"):
        check_found(blocks, "nodes", column, a_little, f"nodes of tree people: {column} {words}")


def test_shapes_that_no_tree_has_and_errors_where_none_is_known(ordered: Workspace) -> None:
    check_found(ordered, "nodes", "ended", orphan, "are those of no tree of the plan")
    words = "std_error is not that of the resulting tree"
    check_found(ordered, "nodes", "std_error", invented, words)
