"""``dptrees plan --units``: what bounds of a unit's rows cut off, from a release of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.pipelines.conftest import FILES, ROWS, Workspace

UNIT = {"epsilon": 2, "neighbors": "add_remove", "unit": "person", "max_rows": 4}
PERSONS = np.repeat(np.arange(100), 4)


@pytest.fixture
def people(workspace: Workspace) -> Workspace:
    """Persons of 12 rows each, 4 in every file."""
    workspace.write_rows(person=pa.array(PERSONS))
    return workspace


def units_released(workspace: Workspace, **changes: Any) -> str:
    """A nearly exact release of how many rows persons have; its folder."""

    def change(settings: dict[str, Any]) -> None:
        domain = {"type": "unit_rows", "column": "person", "most": 20}
        settings["trees"] = [{"name": "rows", "domain": domain}]
        settings["privacy"] = UNIT | {"epsilon": 10**6} | changes
        settings["output"] = str(workspace.folder / "units")

    workspace.succeed("release", workspace.configure(change))
    return str(workspace.folder / "units")


def test_bounds_show_what_they_cut_off_and_cost(people: Workspace) -> None:
    folder = units_released(people)
    path = people.configure(lambda settings: settings.update(privacy=UNIT))
    outcome = people.succeed("plan", path, "--units", folder, "--json")
    units = json.loads(outcome.out)["units"]
    assert units["most"] == 20 and FILES * ROWS == 12 * 100
    found = {each["max_rows"]: each for each in units["bounds"]}
    assert set(found) == {4, 6, 9, 11, 12}  # 12 rows each: half are 6, nine tenths 11
    assert found[12]["rows_left_out"] == found[12]["units_cut"] == 0
    for rows, each in found.items():
        assert each["rows_left_out"] == pytest.approx(1 - rows / 12)
        assert each["units_cut"] == (rows < 12)
        # Noise of pure epsilon grows with the rows.
        expected = found[4]["errors"]["all"] * rows / 4
        assert each["errors"]["all"] == pytest.approx(expected, rel=1e-3)
    reported = people.run("plan", path, "--units", folder).out
    assert "max_rows  rows left out  units cut" in reported and "66.7%" in reported


def test_what_cannot_be_shown_is_refused(people: Workspace) -> None:
    folder = units_released(people)
    row = people.configure()
    reported = people.run("plan", row, "--units", folder)
    assert reported.code == 2 and "the unit of the configuration is the row" in reported.err
    other = people.configure(
        lambda settings: settings.update(privacy=UNIT | {"unit": ["person", "place"]})
    )
    reported = people.run("plan", other, "--units", folder)
    assert (
        reported.code == 2
        and "is about person, but the privacy unit is person, place" in reported.err
    )
    path = people.configure(lambda settings: settings.update(privacy=UNIT))
    assert people.release(lambda settings: settings.update(privacy=UNIT)).code == 0
    reported = people.run("plan", path, "--units", people.output)
    assert reported.code == 2 and "has no tree whose domain has the type unit_rows" in reported.err
    reported = people.run("plan", path, "--units", people.folder / "nowhere")
    assert reported.code == 2 and reported.err.count("\n") == 1


def test_a_tree_of_units_needs_a_unit(people: Workspace) -> None:
    def change(settings: dict[str, Any]) -> None:
        domain = {"type": "unit_rows", "column": "person", "most": 20}
        settings["trees"] = [{"name": "rows", "domain": domain}]

    reported = people.run("plan", people.configure(change))
    assert reported.code == 2
    assert "trees[0].domain.column: person is no column of the privacy unit, row" in reported.err
