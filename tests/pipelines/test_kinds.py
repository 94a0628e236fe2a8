"""Kinds of trees: a new one is registered, and nothing else of the commands knows kinds."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.transforms.errors import ConservationError
from dptrees.transforms.keys import KeyReference
from tests import toy_kind
from tests.order import PROJECT
from tests.pipelines.conftest import Workspace, assert_refused
from tests.pipelines.report_page import parse_elements
from tests.transforms.eager import Change, EagerRelease

PIPELINES = PROJECT / "pipelines"
# What knows kinds and mechanisms by name: the packages of dpcore, the modules of pipelines, the
# registries, and what writes a configuration as a person does.
KINDS = ("ordered", "hierarchy", "sparse", "boxes", "tables", "exponential", "distinct", "mean")
MECHANISMS = ("adaptive", "factorised", "levels")
KNOWING = (
    "pipelines/kinds/",
    "pipelines/kind_pages/",
    *(f"pipelines/show/{name}.py" for name in ("adaptive", "levels", "irregular", "quantiles")),
    "pipelines/show/mechanisms.py",
    *("pipelines/config/registry.py", "pipelines/python/request.py"),
    *("dpcore/release/kinds.py", "dpcore/levels/mechanism_choice.py"),
)
# Names of kinds where they are names of nothing else: much is called a table or a mean.
NAMES = {"ordered", "hierarchy", "sparse", "hypercube", "exponential", "distinct", "factorised"}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    """Makes a configuration one of two trees, the first of a kind that only tests know."""
    toy_kind.register(monkeypatch)
    tree = {"name": "own", "domain": {"kind": "totals", "column": "place", "keys": list(KEYS)}}

    def change(settings: dict[str, Any]) -> None:
        settings.update(trees=[tree, settings["trees"][0]])

    return change


KEYS = ("north", "south")


def test_a_kind_is_planned_by_its_section_alone(workspace: Workspace, toy: Any) -> None:
    path = workspace.configure(toy)
    plan = load_configuration(path).plan()
    assert [question.kind for question in plan.questions] == ["totals", "ordered"]
    assert plan.questions[0].budget == plan.budget.share(Fraction(1, 2))
    assert plan_from_spec(plan.spec()) == plan
    outcome = workspace.run("plan", path)
    assert outcome.code == 0
    assert "own: a tree of kind totals of place, once for each of 2 keys" in outcome.out
    assert '"plan": {' in workspace.run("plan", path, "--json").out


def test_a_kind_that_is_not_registered_is_refused(workspace: Workspace, toy: Any) -> None:
    path = Path(workspace.configure(toy))
    path.write_text(path.read_text().replace("kind: totals", "kind: cube"))
    outcome = workspace.run("plan", str(path))
    assert outcome.code == 2
    kinds = "ordered, hierarchy, sparse, hypercube, table, distinct, sketch or totals"
    assert f"trees[0].domain.kind: 'cube' must be {kinds}" in outcome.err


def test_a_kind_is_released_on_beam_queried_and_reported(workspace: Workspace, toy: Any) -> None:
    outcome = workspace.release(toy)
    assert "own (place; ± is half of a 95 % confidence interval)" in outcome.out, outcome.err
    folder = workspace.made()
    assert folder.manifest["trees"][0]["law"] == "DiscreteLaplace(scale=Fraction(2, 1))"  # type: ignore[index]
    released = folder.release
    places = Counter(workspace.values()["place"].to_pylist())
    for key in KEYS:
        (answer,) = released.tree("own").top(1, 0, key)
        noise = answer.estimate - places[key]
        assert noise == round(noise) and abs(noise) < 60  # 1e-12 at scale 2
        assert answer.ci_high - answer.ci_low == 2 * 6
        found = workspace.run("query", workspace.output, "top", "--tree", "own", "--key", key)
        assert found.code == 0 and f"{answer.count}" in found.out.replace(",", "")
    page = parse_elements((workspace.output / "report.html").read_text())
    assert "Counts by place, with 95 % confidence intervals." in page.text
    assert "How it was planned" in page.text and "1/2 of the budget, epsilon = " in page.text
    cdf = ("query", workspace.output, "cdf", "3", "--tree", "own", "--key", "north")
    assert_refused(workspace, workspace.run(*cdf), "tree own has no order")
    # And the release is that in memory.
    key = ReleaseKey.from_text(workspace.key.read_text())
    nonce = bytes.fromhex(str(folder.manifest["nonce"]))
    release = release_rows(folder.plan, workspace.values().to_batches(), key, nonce=nonce)
    for question in folder.plan.questions:
        found = release._read("nodes", question.name, 0, 0)
        assert found.to_pylist() == folder.part("nodes", question.name, 0, 0).to_pylist()


def test_a_kind_loses_nothing_and_draws_once(
    workspace: Workspace, toy: Any, tmp_path: Path
) -> None:
    """The contract of every kind, by the job's own steps."""
    plan = load_configuration(workspace.configure(toy)).plan()
    key = KeyReference(reference=f"file:{workspace.key}").checked()
    bundles = [workspace.values().to_batches()]

    def drop_first(place: str) -> Change:
        return lambda name, elements: elements[1:] if name == place else elements

    for number, place in enumerate(("partial counts", "exact counts", "digests", "sent")):
        output = tmp_path / str(number)
        with pytest.raises(ConservationError):
            EagerRelease(plan, key, str(output), bytes(16), drop_first(place)).run(bundles)
        assert not (output / "manifest.json").exists()
    assert EagerRelease(plan, key, str(tmp_path / "whole"), bytes(16)).run(bundles)


# --- the packages ---


def knows_kinds(path: str, source: str) -> Iterator[str]:
    """What a source says of a single kind of trees: its packages, its name, its class."""
    if path.startswith(KNOWING):
        return
    for module, name in find_imports(source):
        parts = module.removeprefix("dptrees.").split(".")
        known = parts[0] == "dpcore" and parts[1:] and parts[1] in (*KINDS, *MECHANISMS)
        if known and module not in PUBLIC_TABLES and (module, name) not in SHARED:
            yield f"imports {module} {name}"
        if parts[:2] == ["pipelines", "kind_pages"] or "/".join(parts) + ".py" in KNOWING[2:6]:
            yield f"imports {module} {name}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield f"names the kind {node.value}"


def find_imports(source: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every ``from module import name`` of a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((node.module, alias.name) for alias in node.names)


# Public tables of labels and keys are made before trees.
PUBLIC_TABLES = tuple(
    f"dptrees.dpcore.hierarchy.{name}" for name in ("universe", "leaf_codes", "leaves")
)
# What is in a kind's package of dpcore and speaks of no kind.
SHARED = {
    ("dptrees.dpcore.levels.planner", "budget_for_target"),
    # Of ordered trees and of quantiles alone.
    ("dptrees.dpcore.ordered.lookup", "QuantileLookup"),
    # Each column of a box is an ordered domain.
    ("dptrees.dpcore.ordered.domain_kinds", "OrderedDomain"),
    ("dptrees.pipelines.kinds.domains", "read_domain"),
    ("dptrees.pipelines.kinds.domains", "ordered_schema"),
}
# All modules above, beside or below the kinds.
FOLDERS = ("transforms", "pipelines", "dpcore/release", "dpcore/questions")


def test_kinds_are_known_to_their_modules_alone() -> None:
    paths = [path for each in FOLDERS for path in (PROJECT / each).rglob("*.py")]
    sources = {path.relative_to(PROJECT).as_posix(): path.read_text() for path in paths}
    found = [f"{path} {each}" for path, text in sources.items() for each in knows_kinds(path, text)]
    assert not found, "\n".join(found)


PLANTED = (
    "from dptrees.dpcore.sparse.question import SparseQuestion",
    "from dptrees.pipelines.show.adaptive import adaptive_description",
    "from dptrees.pipelines.kind_pages.hierarchy_page import hierarchy_tree",
    "def late():\n    from dptrees.dpcore.ordered.released import ReleasedCdf",
    "if question.kind == 'sparse':\n    pass",
)


def test_planted_knowledge_of_kinds_is_found() -> None:
    for source in PLANTED:
        assert list(knows_kinds("pipelines/report/planning.py", source))
        assert not list(knows_kinds("pipelines/kind_pages/sparse_page.py", source))
