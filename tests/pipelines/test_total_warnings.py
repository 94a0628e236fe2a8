"""What `dptrees release` warns of by its noisy totals."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dptrees
from tests.pipelines.conftest import ROWS, Workspace, put


def test_a_tree_whose_rows_are_dropped_is_reported(workspace: Workspace) -> None:
    workspace.write_rows(none=pa.nulls(ROWS, pa.float64()))
    change = put("trees.0.domain.column", "none")
    outcome = workspace.release(change)
    assert outcome.code == 0
    assert outcome.err.startswith("warning: tree all holds about 0 rows, tree places about 1,")
    assert outcome.err.count("\n") == 1 and "dptrees check" in outcome.err
    # And again of the release that is there.
    assert workspace.release(change).err == outcome.err
    outcome = workspace.release(change, "--json", "--log-format", "json")
    json.loads(outcome.out)
    events = [json.loads(line) for line in outcome.err.splitlines()]
    (remark,) = [each for each in events if each["event"] == "remark"]
    assert remark["level"] == "warning" and "tree all holds about 0 rows" in remark["message"]


def test_trees_of_the_same_rows_are_not(released: Workspace) -> None:
    outcome = released.release()
    assert (outcome.code, outcome.err) == (0, "")


def test_noise_that_hides_a_total_is_reported_as_such(workspace: Workspace) -> None:
    """Bounds of a unit far above what units have: nothing is dropped, and all is noise."""
    workspace.write_rows(who=pa.array(np.arange(ROWS) % 50))

    def change(settings: dict[str, Any]) -> None:
        settings["privacy"] |= {"unit": "who", "max_rows": 100_000}
        settings["trees"] = settings["trees"][:1]

    outcome = workspace.release(change)
    assert outcome.code == 0
    assert outcome.err.startswith("warning: the total of tree all is no larger than its noise")


# --- an end of a clamped tree that holds most rows ---


def _stars(**domain: object) -> dict[str, Any]:
    base = {"column": "x", "type": "integer", "lower": 0, "upper": 16}
    return {
        "privacy": {"epsilon": 1, "neighbors": "add_remove"},
        "trees": [{"name": "x", "domain": base | domain}],
    }


def test_an_end_that_holds_most_rows_is_remarked() -> None:
    """From released numbers alone: values at and above `upper` are counted in the last cell."""
    rows = {"x": [99] * 700 + [3] * 300}
    with pytest.warns(UserWarning, match=r"counted in the end cell 15 and above, .* check upper"):
        dptrees.release(rows, _stars())
    with pytest.warns(UserWarning, match=r"counted in the end cell below 1, .* check lower"):
        dptrees.release({"x": [-5] * 700 + [3] * 300}, _stars())


def test_quantiles_among_values_beyond_the_bounds_say_so() -> None:
    """The value, and each end of its interval: 15 would be an upper bound that nobody knows."""
    mechanisms = ("planned", "exponential")
    base: dict[str, Any] = _stars()["trees"][0] | {"objective": "quantiles", "quantiles": [0.5]}
    trees = [base | {"name": each, "mechanism": each} for each in mechanisms]
    config = {"privacy": {"epsilon": 200, "neighbors": "add_remove"}, "trees": trees}
    with pytest.warns(UserWarning) as caught:
        release = dptrees.release({"x": [99] * 700 + [3] * 300}, config)
    assert any("is above 10" in str(each.message) for each in caught)
    said = [release[each].quantiles(0.5).table["in_words"].to_pylist() for each in mechanisms]
    assert said == [["15 and above"], ["15 and above"]]


@pytest.mark.parametrize(
    ("rows", "domain"),
    [
        ([99] * 480 + [3] * 520, {}),  # fewer than half
        ([99] * 6 + [3] * 4, {}),  # which noise may explain
        ([99] * 700 + [3] * 300, {"out_of_range": "drop"}),
        ([15] * 700 + [3] * 300, {"upper": 4, "lower": 0}),  # of four cells
    ],
)
def test_no_remark(rows: list[int], domain: dict[str, object]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dptrees.release({"x": rows}, _stars(**domain))
    assert not [each for each in caught if "one end" in str(each.message)]
