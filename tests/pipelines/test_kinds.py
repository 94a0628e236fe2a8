"""Kinds of trees: a new one is registered, and nothing else of the commands knows kinds.

The packages of pipelines are kept here too: no circle of imports, and none grows too large.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.plan import plan_from_spec
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.transforms.errors import ConservationError
from dptrees.transforms.keys import KeyReference
from tests import toy_kind
from tests.pipelines.conftest import Workspace
from tests.pipelines.report_page import parse_elements
from tests.rooms import LARGEST_ROOM, PROJECT, find_imports
from tests.test_rooms import circles
from tests.transforms.eager import Change, EagerRelease

PIPELINES = PROJECT / "pipelines"
ROOMS_OF_KINDS = (
    *("ordered", "hierarchy", "sparse", "hypercube", "table", "exponential", "distinct", "mean"),
)
# Packages of dpcore that are mechanisms, and the one of pipelines that describes them.
MECHANISM_ROOMS = ("adaptive", "factorised", "levels", "mechanisms")
ROOMS = (*ROOMS_OF_KINDS, *MECHANISM_ROOMS)
# Where they are names of nothing else: adaptive trees are mechanisms of other kinds too, and
# much else is called a table or a mean.
NAMES = {*ROOMS_OF_KINDS, "adaptive_hierarchy", "factorised"} - {"table", "mean"}
# The registries: kinds.py of dpcore and of pipelines, and this file.
MECHANISMS = "dpcore/release/kinds.py"
# It writes a configuration, as a person does.
REQUESTS = "pipelines/python/request.py"
# Kinds that are parts of a release as well, and the files that handle them there.
FILES_OF_PARTS = {
    "selection": {
        "dpcore/release/plan.py",
        "pipelines/config/configuration.py",
        "pipelines/report/planning.py",
        "pipelines/proof/tables.py",
        "pipelines/proof/verified.py",
        "pipelines/check/verifying.py",
        "pipelines/run/first_stage.py",
        "pipelines/run/output.py",
        "pipelines/run/planned_once.py",
        "pipelines/sections/tree.py",
        "pipelines/sections/first_stages.py",
    },
    "series": {
        "dpcore/release/guarantee.py",
        "dpcore/release/released.py",
        "pipelines/cli/release_commands.py",
        "pipelines/cli/command.py",
        "pipelines/config/configuration.py",
        "pipelines/check/dry_run.py",
        "pipelines/check/places.py",
        "pipelines/proof/tables.py",
        "pipelines/proof/manifest.py",
        "pipelines/proof/verified.py",
        "pipelines/python/calls.py",
        "pipelines/python/making.py",
        "pipelines/python/release.py",
        "pipelines/python/tree.py",
        "pipelines/query/querying.py",
        "pipelines/run/releasing.py",
        "pipelines/report/report.py",
        "pipelines/run/planned_once.py",
        "pipelines/config/release_section.py",
        "transforms/steps/carry.py",
        "transforms/steps/kept_plan.py",
    },
}


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
    sentence = (
        "trees[0].domain.kind: 'cube' must be ordered, hierarchy, sparse, hypercube, table, "
        "distinct or totals"
    )
    assert sentence in outcome.err


def test_a_kind_is_released_on_beam_queried_and_reported(workspace: Workspace, toy: Any) -> None:
    outcome = workspace.release(toy)
    assert outcome.code == 0, outcome.err
    assert (
        "own (place; ± is half of a 95 % confidence interval)" in outcome.out
        and "north" in outcome.out
    )
    folder = ReleaseFolder(str(workspace.output))
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
    refused = workspace.run(
        "query", workspace.output, "cdf", "3", "--tree", "own", "--key", "north"
    )
    assert refused.code == 2 and "tree own has no order" in refused.err


def test_a_kind_is_released_in_memory_as_on_beam(workspace: Workspace, toy: Any) -> None:
    workspace.release(toy)
    folder = ReleaseFolder(str(workspace.output))
    key = ReleaseKey.from_text(workspace.key.read_text())
    nonce = bytes.fromhex(str(folder.manifest["nonce"]))
    release = release_rows(folder.plan, workspace.values().to_batches(), key, nonce=nonce)
    for name in [question.name for question in folder.plan.questions]:
        found = release._read("nodes", name, 0, 0)
        assert found.to_pylist() == folder.part("nodes", name, 0, 0).to_pylist()


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


def modules() -> dict[str, Path]:
    """The modules of pipelines by their dotted names."""
    found = {}
    for path in PIPELINES.rglob("*.py"):
        name = ".".join(["dptrees", *path.relative_to(PROJECT).with_suffix("").parts])
        found[name.removesuffix(".__init__")] = path
    return found


def test_no_imports_go_in_a_circle() -> None:
    """Not even those within functions, and those for annotations alone."""
    names = modules()
    uses = {
        name: {module for module, _ in find_imports(path.read_text()) if module in names}
        for name, path in names.items()
    }
    assert uses["dptrees.pipelines.report.planning"] and circles(uses) == []


def test_no_room_is_too_large() -> None:
    for folder in [PIPELINES, *(path.parent for path in PIPELINES.glob("*/__init__.py"))]:
        files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        assert len(files) <= LARGEST_ROOM, folder


def knows_kinds(
    path: str, source: str, rooms: Collection[str] = ROOMS, names: set[str] = NAMES
) -> Iterator[str]:
    """What a source says of a single kind of trees: its packages, its name, its class."""
    place = PurePosixPath(path).parts
    if place[1] in (*ROOMS, *rooms) or place[-1] == "kinds.py" or path in (MECHANISMS, REQUESTS):
        return
    for module, name in find_imports(source):
        parts = module.removeprefix("dptrees.").split(".")
        shared = (module, name) in SHARED
        if parts[0] in LAYERS and len(parts) > 1 and parts[1] in rooms and not shared:
            yield f"imports {module}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in names:
            yield f"names the kind {node.value}"


LAYERS = ("dpcore", "transforms", "pipelines")
# What is in a kind's package of dpcore and speaks of no kind.
SHARED = {
    ("dptrees.dpcore.hierarchy.universe", "Universe"),
    ("dptrees.dpcore.hierarchy.leaf_codes", "leaf_picture"),
    ("dptrees.dpcore.hierarchy.leaf_codes", "parted_universe"),
    ("dptrees.dpcore.hierarchy.leaf_codes", "universe_from_table"),
    ("dptrees.dpcore.hierarchy.leaf_codes", "universe_tables"),
    ("dptrees.dpcore.hierarchy.universe", "read_labels"),
    ("dptrees.dpcore.levels.planner", "budget_for_target"),
    # Each column of a box is an ordered domain.
    ("dptrees.dpcore.ordered.domain_kinds", "OrderedDomain"),
    ("dptrees.pipelines.kinds.domains", "read_domain"),
    ("dptrees.pipelines.kinds.domains", "ordered_schema"),
}


# All modules above, beside or below the kinds.
ELSEWHERE = ("transforms", "dpcore/release", "dpcore/questions")
FILES = [
    *modules().values(),
    *(path for each in ELSEWHERE for path in (PROJECT / each).rglob("*.py")),
]


def sources() -> Iterator[tuple[str, str]]:
    return ((path.relative_to(PROJECT).as_posix(), path.read_text()) for path in FILES)


def test_kinds_are_known_to_their_rooms_alone() -> None:
    found = [f"{path} {each}" for path, source in sources() for each in knows_kinds(path, source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("kind", FILES_OF_PARTS)
def test_parts_of_a_release_are_known_to_few_files(kind: str) -> None:
    found = {path for path, source in sources() if any(knows_kinds(path, source, {kind}, {kind}))}
    own = {path for path in found if PurePosixPath(path).parts[1] in FILES_OF_PARTS}
    assert found - own == FILES_OF_PARTS[kind]


@pytest.mark.parametrize(
    "source",
    [
        "from dptrees.dpcore.sparse.question import SparseQuestion",
        "from dptrees.pipelines.show.adaptive import adaptive_description",
        "from dptrees.pipelines.kind_pages.hierarchy_page import hierarchy_tree",
        "def late():\n    from dptrees.dpcore.ordered.released import ReleasedCdf",
        "if question.kind == 'sparse':\n    pass",
    ],
)
def test_planted_knowledge_of_kinds_is_found(source: str) -> None:
    assert list(knows_kinds("pipelines/report/planning.py", source))
    assert not list(knows_kinds("pipelines/kind_pages/sparse_page.py", source))
