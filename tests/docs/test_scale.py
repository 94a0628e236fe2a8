"""The page of sizes says what its commands compute and print."""

from pathlib import Path

from benchmarks.cluster_costs import BOUNDED, HEADING, TREES, predicted
from tests.pipelines.conftest import Outcome, Workspace

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_predictions_of_larger_releases_are_as_computed() -> None:
    written = PAGE.split("<!-- predicted: begin -->\n")[1].split("<!-- predicted: end -->")[0]
    command = "python -m benchmarks.cluster_costs --predict --write docs/scale.md"
    assert written.strip() == "\n".join(predicted()), command


def test_the_plan_of_a_cluster_is_as_printed(tmp_path: Path) -> None:
    path = PROJECT / "examples" / "flights.yaml"
    made: Outcome = Workspace(tmp_path).run("plan", path, "--workers", 100, "--rows", 1e10)
    printed = made.out[made.out.index("on 100 workers") :].strip()
    assert printed in PAGE


def test_every_release_of_the_command_was_measured() -> None:
    written = PAGE.split("<!-- measured: begin -->\n")[1].split("<!-- measured: end -->")[0]
    heading, _, *lines = written.strip().splitlines()
    assert heading == HEADING.splitlines()[0]
    trees = [*TREES, *(f"{tree}, of people" for tree in BOUNDED)]
    assert [line.split(" | ")[0] for line in lines] == 2 * [f"| {tree}" for tree in trees]
