"""The examples: each configuration plans unchanged, and the census runs on blocks of a file."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest

from dptrees.dpcore.hierarchy.question import ReleasedHierarchy
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.dpcore.tables.question import TableQuestion
from dptrees.pipelines.cli.command import main
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.query.release_folder import ReleaseFolder
from tests.pipelines.conftest import PROJECT

EXAMPLES = PROJECT / "examples"
BLOCKS = """\
GEOID,pop,pop_white,pop_black,pop_hisp,pop_aian,pop_asian,pop_nhpi,pop_other,pop_two
440010301001000,5,3,1,0,0,1,0,0,0
440010301001001,0,0,0,0,0,0,0,0,0
440030201011000,4000,2500,700,600,0,100,0,0,100
"""


def test_flights_are_planned_without_any_data() -> None:
    assert len(load_configuration(str(EXAMPLES / "flights.yaml")).plan().questions) == 3


def test_wide_is_a_table_whose_tables_fit() -> None:
    (flights,) = load_configuration(str(EXAMPLES / "wide.yaml")).plan().questions
    assert isinstance(flights, TableQuestion)
    assert flights.domain.sizes == (12, 16, 3, 24, 128, 128, 128, 128)


def test_routes_are_a_calendar_and_a_sparse_tree() -> None:
    hours, routes = load_configuration(str(EXAMPLES / "routes.yaml")).plan().questions
    assert isinstance(hours.mechanism, IrregularMechanism) and isinstance(routes, SparseQuestion)
    assert hours.plan.tree.level_sizes == (1, 2, 13, 366, 366 * 24)
    assert routes.domain.names == ("origin", "dest", "carrier", "tailnum")


def test_days_are_a_series() -> None:
    plan = load_configuration(str(EXAMPLES / "daily.yaml"), {"date": "2013-01-03"}).plan()
    assert plan.run == (3, 14, 10) and plan.unit.columns == ("tailnum",)
    (days,) = plan.questions
    # Few periods, each at the whole epsilon, add up better than a tree.
    assert isinstance(days, SeriesQuestion) and days.temporal.spans == (1,)


def test_census(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("blocks.csv").write_text(BLOCKS, encoding="ascii")
    write_census = runpy.run_path(str(EXAMPLES / "census.py"))["write_census"]
    write_census(Path("blocks.csv"), Path("data/census"))
    shutil.copy(EXAMPLES / "census.yaml", "census.yaml")
    key = Path("release.key")
    key.write_text(ReleaseKey(bytes(range(32))).to_text(), encoding="ascii")
    key.chmod(0o600)
    assert main(["release", "census.yaml"]) == 0
    release = ReleaseFolder("out/census-blocks").release
    population, by_race = release.tree("population"), release.tree("population_by_race")
    assert isinstance(population, ReleasedHierarchy) and isinstance(by_race, ReleasedHierarchy)
    # Noise of scales below 40: beyond 1,000 once in e^25.
    assert population.at_path("44").estimate == pytest.approx(4005, abs=1000)
    assert by_race.at_path("44003", "white").estimate == pytest.approx(2500, abs=1000)
    blocks = population.children("44001030100" + "1")
    assert [block.label for block in blocks] == ["440010301001000", "440010301001001"]
    assert sum(block.count for block in blocks) == population.at_path("440010301001").count
