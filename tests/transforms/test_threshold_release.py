"""Thresholds, and hierarchies read as they were measured: what the pipeline releases is the release
of the same counts in memory."""

import json
from collections.abc import Callable
from fractions import Fraction

import pytest

from dptrees.dpcore.privacy.unit import SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.release.plan import ReleasePlan
from tests.dpcore.hierarchy_questions import hierarchy_question, make_release_plan, random_rows
from tests.dpcore.threshold_questions import make_stated_plan, threshold_question
from tests.transforms.hierarchy_releases import release_in_memory

ROWS = random_rows(5, 2600)
RACES = ("white", "black", "nobody")
RHO = Budget(measure=Measure.RHO, amount=Fraction(1, 3))


def add_remove() -> ReleasePlan:
    return make_stated_plan(
        threshold_question("digits", name="digits"),
        threshold_question("paths", name="paths"),
        threshold_question("columns", name="keys", keys=RACES),
        hierarchy_question("digits", name="measured", estimation="none"),
    )


def substitute() -> ReleasePlan:
    unit = SUBSTITUTE_ROW
    return make_stated_plan(
        threshold_question("paths", name="paths", unit=unit),
        threshold_question("bushy", name="keys", keys=RACES, unit=unit),
    )


def measured() -> ReleasePlan:
    return make_release_plan(
        hierarchy_question("digits", name="chains", estimation="none", budget=RHO),
        hierarchy_question("paths", name="keys", keys=RACES, estimation="none", budget=RHO),
    )


RELEASES: dict[str, Callable[[], ReleasePlan]] = {
    "add_remove": add_remove,
    "substitute": substitute,
    "measured": measured,
}


@pytest.mark.parametrize("name", RELEASES)
def test_the_pipeline_releases_what_the_counts_in_memory_give(
    name, tmp_path, key, run_steps, release_files
) -> None:
    plan = RELEASES[name]()
    run_steps(plan, ROWS, tmp_path / "out")
    found = release_files(tmp_path / "out")
    tables = {path: data for path, data in found.items() if "/" in path}
    assert tables == release_in_memory(plan, ROWS, key)
    assert json.loads(found["manifest.json"])["spec"] == plan.spec()
