"""Adaptive hierarchies by the command: plan, release, query, verify, the page; when a
planned tree becomes one; every refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.adaptive import forest
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.specification import Refusal
from dptrees.pipelines.report.report import write_report_html
from dptrees.pipelines.sections.document import ConfigurationError
from dptrees.pipelines.show import mechanisms
from tests.pipelines.conftest import Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused
from tests.pipelines.report_page import parse_elements
from tests.pipelines.test_querying import query_json

# 3 areas of 8 groups of 20 blocks; all rows are in the first group but for a few.
CODES = [f"{number // 160}{number // 20 % 8}{number % 20:02}" for number in range(480)]
ADD, RHO = {"epsilon": 1, "neighbors": "add_remove"}, {"rho": 0.5, "neighbors": "add_remove"}
GUESS = {"rows": 700}


class Blocks(Workspace):
    """People of few blocks, and the table of all."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        pq.write_table(pa.table({"block": CODES}), folder / "blocks.parquet")
        rng = np.random.default_rng(4)
        places = np.concatenate([rng.integers(0, 20, 600), rng.integers(20, len(CODES), 100)])
        people = pa.table(
            {"block": [CODES[place] for place in places], "sex": ["f", "m"] * (len(places) // 2)}
        )
        self.write_table(people)

    @property
    def tree(self) -> dict[str, Any]:
        domain = {"kind": "hierarchy", "column": "block", "digits": [1, 1, 2]}
        domain |= {"levels": ["area", "group", "block"]}
        domain |= {"table": str(self.folder / "blocks.parquet")}
        return {"name": "people", "domain": domain, "mechanism": "adaptive"}

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {
            "privacy": ADD,
            "trees": [
                self.tree | {"guess": GUESS, "optimize_for": "counts"},
                self.tree | {"name": "unbiased", "weight": 3},
                self.tree | {"name": "keyed", "group_by": {"column": "sex", "keys": ["f", "m"]}},
            ],
        }


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A release. Tests only read it."""
    made = Blocks(tmp_path_factory.mktemp("blocks"))
    made.make()
    return made


def read_nodes(workspace: Workspace, tree: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = workspace.made().rows("nodes", tree).to_pylist()
    return rows


@pytest.mark.parametrize("tree", ["people", "unbiased", "keyed"])
def test_its_nodes_say_where_they_ended(blocks: Blocks, tree: str) -> None:
    rows = read_nodes(blocks, tree)
    inside = [row for row in rows if row["ended"] is not None and row["ended"] < row["level"]]
    assert inside and all(row["std_error"] is None and row["ci_low"] == 0 for row in inside)
    assert all(row["std_error"] > 0 for row in rows if row not in inside)
    totals = [row["count"] for row in rows if row["level"] == 0]
    blocks_ = [row["count"] for row in rows if row["level"] == 3]
    assert sum(totals) == sum(blocks_)


def test_its_nodes_are_queried(blocks: Blocks) -> None:
    rows = read_nodes(blocks, "people")
    held = next(row for row in rows if row["level"] == 3 and row["ended"] == 2)["label"]
    group, *children = query_json(
        blocks, "node", "--path", held[:2], "--children", "--tree", "people"
    )["answers"]
    assert len(children) == 20 and all(child["std_error"] is None for child in children)
    assert "remark" not in group
    assert all("inside a node that was not split" in child["remark"] for child in children)
    assert {child["ci_high"] for child in children} == {group["ci_high"]}
    (whole,) = query_json(
        blocks, "sum", "--tree", "people", "--paths", *[c["label"] for c in children]
    )["answers"]
    assert whole["std_error"] == pytest.approx(group["std_error"])
    (part,) = query_json(blocks, "sum", "--tree", "people", "--paths", "00", held)["answers"]
    assert part["std_error"] is None and part["ci_low"] <= part["estimate"] <= part["ci_high"]
    assert "is a bound" in part["remark"]
    top = query_json(blocks, "top", "-n", "2", "--level", "group", "--tree", "people")["answers"]
    assert top[0]["label"] == "00"
    narrow = query_json(blocks, "node", "--path", held, "--tree", "people", "--confidence", "0.5")
    assert narrow["answers"][0]["ci_high"] < group["ci_high"]
    assert "is a bound" in narrow["answers"][0]["remark"]


def test_its_page_shows_chosen_nodes_and_where_they_ended(blocks: Blocks) -> None:
    folder = blocks.made()
    page = parse_elements(write_report_html(folder, {"people": ["0000"]}))
    (people, *_) = page.data["trees"]
    levels = people["keys"][0]["levels"]
    assert people["asked"] == ["0000"] and len(levels) == 4
    assert all("ended" in level for level in levels)


def test_mechanisms_without_words_are_described_by_their_entries(
    blocks: Blocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanisms, "MECHANISMS", {})
    outcome = blocks.run("plan", str(blocks.folder / "release.yaml"))
    assert (
        "  level 3 block  nodes 480, " in outcome.out and "  mechanism: adaptive\n" in outcome.out
    )
    page = parse_elements(write_report_html(blocks.made()))
    assert "Measured again" in page.text and "Mechanismadaptive" in page.text


def planned(workspace: Blocks, privacy: dict[str, Any], **changes: Any) -> Any:
    tree = workspace.tree | changes
    kept = {key: value for key, value in tree.items() if value is not None}
    return plan_of(kept, **privacy).questions[0]


def test_a_planned_tree_is_adaptive_where_the_guess_says_so(blocks: Blocks) -> None:
    few = planned(blocks, ADD, mechanism=None, guess={"rows": 300})
    many = planned(blocks, ADD, mechanism=None, guess={"rows": 10**8})
    assert isinstance(few.mechanism, AdaptiveMechanism) and isinstance(
        many.mechanism, IrregularMechanism
    )
    assert many == planned(blocks, ADD, mechanism=None)
    assert isinstance(planned(blocks, ADD, guess={"rows": 10**8}).mechanism, AdaptiveMechanism)


def test_a_plan_says_why(blocks: Blocks, monkeypatch: pytest.MonkeyPatch) -> None:
    def reported(mechanism: str, rows: float) -> str:
        def change(settings: dict[str, Any]) -> None:
            tree = blocks.tree | {"mechanism": mechanism, "guess": {"rows": rows}}
            settings["trees"] = [tree]

        return blocks.run("plan", blocks.configure(change)).out

    few, many = reported("planned", 300), reported("planned", 10**8)
    assert "chosen for the guess of 300 rows: an adaptive tree, as its estimates" in few
    assert "chosen for the guess of 100,000,000 rows: every node is split, as estimates" in many
    assert "chosen for the guess" not in reported("adaptive", 300)

    def refused(*_: object, **__: object) -> None:
        raise Refusal("mechanism", "an adaptive tree has too many chunks")

    monkeypatch.setattr(forest, "_chunking", refused)
    words = "every node is split, as an adaptive tree cannot be had: an adaptive tree has too many"
    assert words in reported("planned", 300)


def test_it_is_for_estimates_unless_it_is_said_to_be_for_counts(blocks: Blocks) -> None:
    for mechanism in ("adaptive", None):
        chosen = {"mechanism": mechanism, "guess": {"rows": 300}}
        reported = planned(blocks, ADD, **chosen)
        assert reported.plan.decision_part > 0
        assert reported == planned(blocks, ADD, **chosen, optimize_for="estimates")
        assert planned(blocks, ADD, **chosen, optimize_for="counts").plan.decision_part == 0


def test_a_planned_tree_is_chosen_by_the_error_of_what_is_read(blocks: Blocks) -> None:
    """By the decisions that its estimates pay for, where nothing is said."""
    chosen = {"mechanism": None, "guess": {"rows": 1_000}}
    assert isinstance(
        planned(blocks, ADD, **chosen, optimize_for="counts").mechanism, AdaptiveMechanism
    )
    assert isinstance(planned(blocks, ADD, **chosen).mechanism, IrregularMechanism)


def test_every_guarantee_has_one(blocks: Blocks) -> None:
    substitute = {"epsilon": 1, "neighbors": "substitute"}
    for privacy in (ADD, RHO, ADD | {"delta": 1e-6}, substitute):
        question = planned(blocks, privacy, guess={"rows": 300})
        assert isinstance(question.mechanism, AdaptiveMechanism), privacy
        assert question.plan.budget == question.budget


ADAPTIVE = "does not go with the mechanism adaptive"


def test_refusals(blocks: Blocks) -> None:
    relative = {"objective": "relative", "alpha": 0.5}
    rows = [
        ({"invariants": "area"}, f"invariants: {ADAPTIVE}"),
        ({"estimation": "least_squares"}, f"estimation: {ADAPTIVE}"),
        ({"node_weights": {"": 1}}, f"node_weights: {ADAPTIVE}"),
        (relative, "mechanism: adaptive goes with the objective nodes"),
        ({"guess": {"rows": 0}}, "guess.rows: 0 must be"),
        ({"guess": {"rows": 1, "row": 2}}, "guess.row: unknown key; did you mean rows?"),
        ({"guess": [1]}, "guess: needs a section with rows"),
        ({"mechanism": None, "guess": [1]}, "guess: belongs to the objective relative"),
        ({"optimize_for": "people"}, "optimize_for: 'people' must be counts, estimates or leaves"),
        ({"mechanism": None, "optimize_for": "counts"}, "optimize_for: goes with the mechanism"),
        ({"mechanism": "tree", "guess": GUESS}, "guess: goes with the mechanisms planned and"),
        (
            {"mechanism": None, "guess": GUESS, "level_budgets": "equal"},
            "guess: does not go with level_budgets",
        ),
    ]
    assert not not_refused(
        lambda changes: planned(blocks, ADD, **changes),
        [(changes, f"x.yaml: trees[0].{words}") for changes, words in rows],
        ConfigurationError,
    )


def test_errors_are_predicted_for_the_guess_or_not_at_all(blocks: Blocks) -> None:
    def reported(tree: dict[str, Any], *options: str, split: str = "weights") -> Any:
        def change(settings: dict[str, Any]) -> None:
            settings["trees"] = [blocks.tree | tree, blocks.tree | {"name": "b", **tree}]
            settings["privacy"] = settings["privacy"] | {"split": split}

        return blocks.run("plan", blocks.configure(change), *options)

    guessed = reported({"guess": GUESS}, "--target-error", "people=3", split="least_error")
    assert guessed.code == 0, guessed.err
    for words in (
        "in all: ",
        "for 3 rows for 700 rows, spread evenly: epsilon",
        "predicted errors",
    ):
        assert words in guessed.out
    assert guessed.out.count(" rows for 700 rows, spread evenly") == 5
    without = reported({})
    last = without.out.splitlines()[-1]
    assert without.code == 0 and last.split() == ["b", "480", "1", "-"]
    refused = reported({}, "--target-error", "people=3")
    assert refused.code == 2 and "depends on the data; give it a guess with rows" in refused.err
    refused = reported({}, split="equal_errors")
    assert refused.code == 2 and "needs a predicted error of every tree" in refused.err
