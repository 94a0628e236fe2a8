"""Kinds of trees: a new one is registered, and nothing else of the commands knows kinds.

The rooms of pipelines are kept here too: no circle of imports, and none grows too large.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import PlainValidator

from dpcore.noise.randomness import ReleaseKey
from dpcore.ordered.make import OrderedDomain, make_domain
from dpcore.ordered.planner import plan_tree, predicted_cdf_rmse
from dpcore.ordered.question import OrderedQuestion
from dpcore.ordered.released import ReleasedCdf
from dpcore.questions.workload import Share, Terms, Workload
from dpcore.release.in_memory import release_counts
from dpcore.release.plan import ReleasePlan
from dpcore.uniform.setting import TreeSetting
from pipelines.configuration import load_configuration
from pipelines.kinds import KINDS, Kind
from pipelines.report import write_report_html
from pipelines.sections.section import Amount
from pipelines.sections.tree import TreeSection
from tests.pipelines.conftest import Workspace
from tests.pipelines.report_page import ReleaseTables, elements_of
from tests.rooms import LARGEST_ROOM, PROJECT, imports_of
from tests.test_rooms import circles

PIPELINES = PROJECT / "pipelines"
ROOMS_OF_KINDS = ("ordered", "hierarchy", "sparse")


class ToyQuestion(OrderedQuestion):
    """Counts of cells, of a kind of its own."""

    kind = "toy"


@dataclass(frozen=True, kw_only=True)
class ToyWorkload(Workload[ToyQuestion]):
    """What a toy tree asks."""

    domain: OrderedDomain

    def planned(self, share: Share, terms: Terms) -> ToyQuestion:
        plan = plan_tree(
            TreeSetting(leaves=self.domain.cells, budget=share.budget, neighbors=terms.neighbors)
        )
        return ToyQuestion(name=self.name, domain=self.domain, plan=plan, weight=self.weight)

    def predicted(self, question: ToyQuestion) -> float:
        return predicted_cdf_rmse(question.plan)


def toy_domain(value: Any) -> OrderedDomain:
    column = {"type": "integer", "column": value["column"]}
    return make_domain(column | {"lower": 0, "upper": value["size"]})


class ToyTree(TreeSection):
    """The section of a toy tree."""

    domain: Annotated[Any, PlainValidator(toy_domain)]
    weight: Amount = Fraction(1)

    def workload(self) -> ToyWorkload:
        return ToyWorkload(name=self.name, domain=self.domain, weight=self.weight)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> str:
    """The path of a configuration with a tree of a kind that says nothing but its section."""
    monkeypatch.setitem(KINDS, "toy", Kind(section=ToyTree))
    domain = {"kind": "toy", "column": "x", "size": 9}
    trees = [{"name": "own", "domain": domain, "weight": 3}]

    def change(settings: dict[str, Any]) -> None:
        settings.update(trees=[*trees, settings["trees"][0]])

    return str(workspace.configure(change))


def test_a_kind_is_planned_by_its_section_alone(workspace: Workspace, toy: str) -> None:
    plan = load_configuration(toy).plan()
    assert [question.kind for question in plan.questions] == ["toy", "ordered"]
    assert plan.questions[0].budget == plan.budget.share(Fraction(3, 4))
    outcome = workspace.run("plan", toy, "--target-error", "2")
    assert outcome.code == 0
    assert "own: a tree of kind toy of x" in outcome.out
    assert "  for 2 rows: " in outcome.out.split("\n\n")[1]
    assert '"plan": {' in workspace.run("plan", toy, "--json").out


def test_a_kind_that_is_not_registered_is_refused(workspace: Workspace, toy: str) -> None:
    text = Path(toy).read_text().replace("kind: toy", "kind: cube")
    Path(toy).write_text(text)
    outcome = workspace.run("plan", toy)
    assert outcome.code == 2
    sentence = "trees[0].domain.kind: 'cube' must be ordered, hierarchy, sparse or toy"
    assert sentence in outcome.err


def test_a_kind_has_a_page_and_a_summary_of_its_own_accord(toy: str) -> None:
    question = load_configuration(toy).plan().questions[0]
    assert isinstance(question, ToyQuestion) and question.budget is not None
    plan = ReleasePlan(
        name="toys",
        neighbors=question.neighbors,
        budget=question.budget,
        questions=(question,),
    )
    key = ReleaseKey(bytes(range(32)))
    release = release_counts(plan, {"own": np.arange(9)}, key)
    page = elements_of(write_report_html(ReleaseTables(release)))
    assert "Of x; intervals of 95 %." in page.text
    rows = sum(len(batch) for batch in ReleaseTables(release).batches("nodes", "own"))
    assert sum(tag == "td" for tag, _ in page.tags) >= rows
    lines = list(KINDS["toy"].summary_lines(ReleasedCdf(question, release._read, None)))
    assert lines[1] == "own (x, 95 % intervals)" and lines[2].startswith("  rows ")


# --- the rooms ---


def modules() -> dict[str, Path]:
    """The modules of pipelines by their dotted names."""
    found = {}
    for path in PIPELINES.rglob("*.py"):
        name = path.relative_to(PROJECT).with_suffix("").as_posix().replace("/", ".")
        found[name.removesuffix(".__init__")] = path
    return found


def test_no_imports_go_in_a_circle() -> None:
    """Not even those within functions, and those for annotations alone."""
    names = modules()
    uses = {
        name: {module for module, _ in imports_of(path.read_text()) if module in names}
        for name, path in names.items()
    }
    assert uses["pipelines.planning"] and circles(uses) == []


def test_no_room_is_too_large() -> None:
    for folder in [PIPELINES, *(path.parent for path in PIPELINES.glob("*/__init__.py"))]:
        files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        assert len(files) <= LARGEST_ROOM, folder


def knows_kinds(path: str, source: str) -> Iterator[str]:
    """What a source says of a single kind of trees: its rooms, its name, its class."""
    place = PurePosixPath(path).parts
    if place[1] in (*ROOMS_OF_KINDS, "kinds.py"):
        return
    for module, name in imports_of(source):
        parts = module.split(".")
        shared = (module, name) in SHARED
        if len(parts) > 1 and parts[1] in ROOMS_OF_KINDS and not shared:
            yield f"imports {module}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in ROOMS_OF_KINDS:
            yield f"names the kind {node.value}"


# What stands in a kind's room of dpcore and speaks of no kind.
SHARED = {
    ("dpcore.ordered.planner", "budget_for_target"),
    ("dpcore.hierarchy.universe", "Universe"),
    ("dpcore.hierarchy.universe_table", "universe_from_table"),
}


@pytest.mark.parametrize("path", sorted(path for path in modules().values()))
def test_kinds_are_known_to_their_rooms_alone(path: Path) -> None:
    where = path.relative_to(PROJECT).as_posix()
    assert list(knows_kinds(where, path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from dpcore.sparse.question import SparseQuestion",
        "from pipelines.hierarchy.page import hierarchy_tree",
        "def late():\n    from dpcore.ordered.released import ReleasedCdf",
        "if question.kind == 'sparse':\n    pass",
    ],
)
def test_planted_knowledge_of_kinds_is_found(source: str) -> None:
    assert list(knows_kinds("pipelines/planning.py", source))
    assert not list(knows_kinds("pipelines/sparse/page.py", source))
