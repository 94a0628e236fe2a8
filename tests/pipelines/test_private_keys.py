"""Private keys by the command: which keys are selected, what is said of them, and what cannot be.

`test_first_stages.py` has what all releases of two stages promise.
"""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.config import configuration
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.run import first_stage
from tests.pipelines import first_stages
from tests.pipelines.conftest import NONCE, Workspace, assert_refused, both, put, read_files
from tests.pipelines.first_stages import BY, SIZES, stage_of
from tests.pipelines.first_stages import sold as change


@pytest.fixture
def shops(workspace: Workspace) -> Workspace:
    """A workspace whose rows have shops."""
    workspace.write_table(first_stages.shops())
    return workspace


def released_keys(workspace: Workspace) -> list[str]:
    question = workspace.made().plan.question("places")
    return [str(label) for label in question.key_labels]


def test_keys_are_selected_and_trees_made_of_them(shops: Workspace) -> None:
    folder = shops.make(change())
    assert {"big", "other"} <= set(released_keys(shops)) <= set(SIZES) - {"kumquat", "none"}
    stage, guarantee = stage_of(shops, "keys"), folder.manifest["guarantee"]
    assert stage.manifest["guarantee"]["epsilon"] == "1"  # type: ignore[index]
    assert guarantee["epsilon"] == "2" and guarantee["selection_epsilon"] == "1"  # type: ignore[index]
    delta, first = (Fraction(guarantee[name]) for name in ("delta", "selection_delta"))  # type: ignore[index]
    assert first <= delta <= Fraction(1, 10**4)
    # What the trees and the selection spend adds up to what is stated.
    assert folder.plan.spending.epsilon + stage.plan.spending.epsilon == 2
    for name in ("kumquat", "none"):
        files = read_files(shops.output, "report.html")
        assert not any(name.encode() in data for data in files.values())

    key, batches = ReleaseKey.from_text(shops.key.read_text()), first_stages.shops().to_batches()
    trees = release_rows(folder.plan, batches, key, nonce=bytes.fromhex(NONCE[1]))
    for tree in ("all", "places"):
        read = folder.part("nodes", tree, 0, 0)
        assert trees._read("nodes", tree, 0, 0).to_pylist() == read.to_pylist()

    query = ("query", shops.output, "quantile", "0.5", "--tree", "places", "--key")
    shops.succeed(*query, "big")
    refused = shops.run(*query, "kumquat")
    assert refused.code == 2 and "'kumquat' is not a listed key" in refused.err

    shutil.rmtree(shops.output / "keys")  # as in a published copy
    (table,) = shops.output.glob("keys-*.parquet")
    pq.write_table(pq.read_table(table).slice(1), table)
    outcome = shops.run("verify", shops.output)
    assert outcome.code == 2 and "does not match its checksum in the manifest" in outcome.err


def test_the_rest_is_one_more_key(shops: Workspace) -> None:
    folder = shops.make(change(BY | {"unknown": "other"}))
    labels = released_keys(shops)
    # A shop of that name is of the rest, since its rows could not be distinguished from it.
    assert labels[-1] == "other" and labels.count("other") == 1 and "big" in labels
    (total,) = folder.release.tree("places").top(1, 0, "other")
    assert abs(total.count - (1200 - sum(SIZES[name] for name in labels[:-1]))) < 100


def test_trees_of_the_same_keys_share_one_selection(shops: Workspace) -> None:
    def again(settings: dict[str, Any]) -> None:
        settings["trees"].append(settings["trees"][1] | {"name": "again"})

    two = both(change(), again)
    plan = shops.make(two).plan
    assert plan.selection is not None and len(plan.selection.questions) == 1
    assert plan.question("again").keys == plan.question("places").keys
    assert len([*shops.output.glob("keys-*")]) == 1

    apart = both(two, put("trees.2.group_by", BY | {"fraction": 0.2}))
    said = "trees[2].group_by: must have the fraction and the threshold of trees[1].group_by"
    assert_refused(shops, shops.run("plan", shops.configure(apart)), said)


def test_keys_of_several_columns(shops: Workspace) -> None:
    by = {"columns": ["shop", "year"], "type": ["text", "integer"], "keys": "private"}
    shops.make(change(by | {"fraction": 0.5, "threshold": 50}))
    labels = released_keys(shops)
    assert {"big/2013", "big/2014"} <= set(labels)
    assert not any(label.startswith(("few", "kumquat")) for label in labels)
    top = ("query", shops.output, "top", "-n", "1", "--level", "0", "--tree", "places")
    answered = json.loads(shops.succeed(*top, "--key", "big/2013", "--json").out)
    assert abs(answered["answers"][0]["count"] - 250) < 40


def test_nothing_is_selected_for_a_repair(shops: Workspace) -> None:
    refused = shops.release(change(), "--repair")
    assert_refused(shops, refused, "contains no finished release; run without it")
    assert not shops.output.exists()


def test_discarding_begins_with_the_stage_that_was_begun(shops: Workspace) -> None:
    stage = shops.output / "keys"
    stage.mkdir(parents=True)
    (stage / "nonce.json").write_text(json.dumps({"nonce": "00" * 16}))
    shops.succeed("release", shops.configure(change()), "--discard")
    assert json.loads((stage / "manifest.json").read_text())["nonce"] != "00" * 16


def test_no_selected_key_is_reported_in_one_sentence(shops: Workspace) -> None:
    unreachable = change(BY | {"threshold": 100_000})
    for _ in range(2):
        said = "trees[1].group_by: no keys of shop were selected"
        assert_refused(shops, shops.release(unreachable), said)
    assert (shops.output / "keys" / "manifest.json").exists()
    assert not (shops.output / "manifest.json").exists()


def test_a_mistake_of_the_trees_is_reported_before_keys_are_paid_for(shops: Workspace) -> None:
    wrong = both(change(), put("trees.0.domain.column", "y"))
    assert_refused(shops, shops.release(wrong), "no column 'y'")
    assert not shops.output.exists() or not read_files(shops.output)


def test_integers_are_said_to_be_integers(shops: Workspace) -> None:
    by = {"column": "year", "keys": "private", "fraction": 0.5}
    assert_refused(shops, shops.release(change(by)), "unless by says type: integer")
    shops.make(change(by | {"type": "integer"}))
    assert released_keys(shops) == ["2013", "2014"]


def test_the_plan_reports_from_how_many_units_on(shops: Workspace) -> None:
    path = shops.configure(change())
    law = load_configuration(path).selection.questions[0].plan.law  # type: ignore[union-attr]
    assert (
        f"a key is released with probability 1/2 from {law.least_units(0.5)} units on, with 0.99 "
        f"from {law.least_units(0.99)}, and for certain from {law.certain_units}"
    ) in shops.succeed("plan", path).out
    entries = json.loads(shops.succeed("plan", path, "--json").out)
    assert entries["trees"][1]["keys"] is None
    (selection,) = entries["selections"]
    assert selection["columns"] == ["shop"] and selection["epsilon"] == 1
    assert selection["units"]["0.99"] == law.least_units(0.99)
    assert not shops.output.exists()


NO_DELTA = "privacy.delta: is required next to epsilon if keys are private"
TWO = {"columns": ["shop", "year"]}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (BY, {"delta": None}, NO_DELTA),
    (BY, {"delta": None, "epsilon": None, "rho": 1}, "privacy.delta: is required next to epsilon"),
    (BY | {"fraction": 1}, {}, "trees[1].group_by.fraction: 1 must be below 1"),
    (BY | {"fraction": 0}, {}, "trees[1].group_by.fraction: 0 must be a number above 0"),
    (BY | {"threshold": 0}, {}, "trees[1].group_by.threshold: 0 must be a whole number from 1"),
    (BY | {"type": "date"}, {}, "trees[1].group_by.type: 'date' must be text or integer"),
    (BY | {"type": ["text", "text"]}, {}, "trees[1].group_by.type: must be one for all columns"),
    (BY | {"fraction": 1e-9}, {"delta": 1e-20}, "trees[1].group_by.fraction: "),
    ({"columns": ["shop"], "column": "x", "keys": "private"}, {}, "exactly one of column and"),
    (TWO | {"keys": {"shop": ["a"]}}, {}, "keys: must be private, or a list"),
    ({"columns": ["shop"], "keys": {"shop": ["a", "a"]}}, {}, "hold 'a' more than once"),
]


@pytest.mark.parametrize(("by", "privacy", "sentence"), REFUSED)
def test_private_keys_that_cannot_be_are_refused(
    workspace: Workspace, by: dict[str, Any], privacy: dict[str, Any], sentence: str
) -> None:
    outcome = workspace.run("plan", workspace.configure(change(by, **privacy)))
    assert_refused(workspace, outcome, sentence)


@pytest.mark.parametrize(
    ("module", "limit", "most", "sentence"),
    [
        (configuration, "MAX_LEAVES", 17, "trees[1].domain: 16 cells times "),
        (first_stage, "MOST_KEYS", 1, "trees[1].group_by: more than 1 keys of shop were selected"),
    ],
)
def test_more_keys_than_a_release_can_hold(
    shops: Workspace, monkeypatch: pytest.MonkeyPatch, module: Any, limit: str, most: int,
    sentence: str,
) -> None:  # fmt: skip
    """The selected keys reveal it, so the sentence spends nothing more."""
    monkeypatch.setattr(module, limit, most)
    assert_refused(shops, shops.release(change()), sentence)
    assert not (shops.output / "manifest.json").exists()


@pytest.mark.parametrize("guessed", [None, 10, 10**8])
def test_hierarchies_have_private_keys_too(shops: Workspace, guessed: int | None) -> None:
    """Their universe and their keys both travel by reference; adaptive ones, and those that a guess
    may have chosen."""
    leaves = shops.folder / "years.parquet"
    pq.write_table(pa.table({"year": [2013, 2014, 2015]}), leaves)
    domain = {"kind": "hierarchy", "columns": ["year"], "table": str(leaves)}
    tree: dict[str, Any] = {"name": "years", "domain": domain}
    tree["group_by"] = BY | {"unknown": "other"}
    if guessed is not None:
        tree["guess"] = {"rows": guessed}
    released = shops.make(both(change(), put("trees", [tree]))).release.tree("years")
    assert abs(released.at_path("2013", "big").count - 250) < 60
    assert abs(released.at_path("2015", "other").count) < 60


def test_keys_of_another_selection_are_found(shops: Workspace) -> None:
    """A whole first stage, but of another draw."""
    shops.make(change(BY | {"fraction": 0.9, "threshold": 1}, epsilon=9))
    many = read_files(shops.output / "keys")
    shutil.rmtree(shops.output)
    shops.make(change(BY | {"threshold": 300}, epsilon=9))
    for name, data in many.items():
        (shops.output / "keys" / name).write_bytes(data)
    outcome = shops.run("verify", shops.output)
    assert outcome.code == 2 and "selection: " in outcome.err
