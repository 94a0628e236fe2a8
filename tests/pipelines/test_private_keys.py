"""Private keys by the command: two stages, one guarantee, and every way to succeed or fail."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.release.released import release_rows
from dptrees.pipelines.config import configuration
from dptrees.pipelines.config.configuration import load_configuration
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run import first_stage
from dptrees.pipelines.run.stage import Stage
from tests.pipelines.conftest import NONCE, Outcome, Workspace
from tests.pipelines.ledger.asked import account_of, opened

# Shops of 1,200 rows in all: some surely selected, some never, some in between.
SIZES = {"big": 500, "other": 400, "middle": 120, "few": 20, "kumquat": 1, "none": 159}
BY = {"column": "shop", "keys": "private", "fraction": 0.5}


def rows() -> pa.Table:
    shops = [name for name, size in SIZES.items() for _ in range(size)]
    values = [None if name == "none" else name for name in shops]
    random = np.random.default_rng(2)
    return pa.table(
        {
            "shop": pa.array(values, pa.string()),
            "year": pa.array(2013 + np.arange(len(shops)) % 2),
            "x": pa.array(random.normal(50, 20, len(shops))),
        }
    )


def write_shops(workspace: Workspace) -> Workspace:
    """Give a workspace rows that have shops; return it."""
    shutil.rmtree(workspace.rows)
    workspace.rows.mkdir()
    pq.write_table(rows(), workspace.file(0))
    return workspace


@pytest.fixture
def shops(workspace: Workspace) -> Workspace:
    """A workspace whose rows have shops."""
    return write_shops(workspace)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release of shops. Tests only read it."""
    workspace = write_shops(Workspace(tmp_path_factory.mktemp("shops")))
    outcome = workspace.release(change())
    assert outcome.code == 0, outcome.err
    return workspace.output


@pytest.fixture
def sold(shops: Workspace, made: Path) -> Workspace:
    """A workspace with shops whose output holds their release."""
    shutil.copytree(made, shops.output)
    return shops


def change(by: dict[str, Any] | None = None, **privacy: Any) -> Any:
    """One tree by shops, with a delta."""

    def apply(settings: dict[str, Any]) -> None:
        settings["privacy"] |= {"epsilon": 2, "delta": 1e-4} | privacy
        tree = settings["trees"][1] | {"group_by": dict(BY if by is None else by)}
        settings["trees"] = [settings["trees"][0], tree]

    return apply


def released_keys(workspace: Workspace) -> list[str]:
    question = ReleaseFolder(str(workspace.output)).plan.question("places")
    return [str(label) for label in question.key_labels]


def read_files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "report.html"
    }


def test_keys_are_selected_and_trees_made_of_them(shops: Workspace) -> None:
    outcome = shops.release(change())
    assert outcome.code == 0, outcome.err
    assert {"big", "other"} <= set(released_keys(shops)) <= set(SIZES) - {"kumquat", "none"}
    folder = ReleaseFolder(str(shops.output))
    guarantee = folder.manifest["guarantee"]
    stage = ReleaseFolder(str(shops.output / "keys"))
    assert stage.manifest["guarantee"]["epsilon"] == "1"  # type: ignore[index]
    assert guarantee["epsilon"] == "2" and guarantee["selection_epsilon"] == "1"  # type: ignore[index]
    whole = Fraction(guarantee["delta"])  # type: ignore[index]
    assert whole <= Fraction(1, 10**4)
    assert whole >= Fraction(guarantee["selection_delta"])  # type: ignore[index]
    words = guarantee["words"]  # type: ignore[index]
    assert "Which keys of shop there are was released first, for epsilon = 1" in words
    # What the trees and the selection spend adds up to what is stated.
    own, first = folder.plan.spending, stage.plan.spending
    assert own.epsilon + first.epsilon == 2
    page = (shops.output / "report.html").read_text()
    assert "which the selection of keys and the trees spend, added up" in page
    assert "small: epsilon = 2" in outcome.out
    for name in ("kumquat", "none"):
        assert not any(name.encode() in data for data in read_files(shops.output).values())


def test_the_stages_are_those_in_memory(sold: Workspace) -> None:
    key = ReleaseKey.from_text(sold.key.read_text())
    nonce = bytes.fromhex(NONCE[1])
    stage, folder = ReleaseFolder(str(sold.output / "keys")), ReleaseFolder(str(sold.output))
    found = release_rows(stage.plan, rows().to_batches(), key, nonce=nonce)
    assert found.tree("keys-0").table.equals(stage.release.tree("keys-0").table)  # type: ignore[attr-defined]
    trees = release_rows(folder.plan, rows().to_batches(), key, nonce=nonce)
    for tree in ("all", "places"):
        read = folder.part("nodes", tree, 0, 0)
        assert trees._read("nodes", tree, 0, 0).to_pylist() == read.to_pylist()


def test_the_first_stage_alone_has_keys_but_no_counts_and_no_page(sold: Workspace) -> None:
    for command, sentence in (
        (("report", sold.output / "keys"), "holds a selection of keys, which has no page"),
        (("query", sold.output / "keys", "top"), "is a selection of keys, which releases no"),
        (("query", sold.output / "keys", "cdf", "3"), "tree keys-0 has no order"),
        (("sample", sold.output / "keys", "--output", sold.folder / "a.csv"), "sample: "),
    ):
        outcome = sold.run(*command)
        assert outcome.code == 2 and outcome.err.count("\n") == 1
        assert sentence in outcome.err


def test_queries_take_the_keys(sold: Workspace) -> None:
    query = ("query", sold.output, "quantile", "0.5", "--tree", "places", "--key")
    assert sold.run(*query, "big").code == 0
    refused = sold.run(*query, "kumquat")
    assert refused.code == 2 and "'kumquat' is not a listed key" in refused.err


def test_a_second_run_reads_no_row_and_draws_nothing(sold: Workspace) -> None:
    before = read_files(sold.output)
    shutil.rmtree(sold.rows)
    sold.key.unlink()
    again = sold.release(change())
    assert again.code == 0 and "already there" in again.out
    assert read_files(sold.output) == before


def test_the_rest_is_one_more_key(shops: Workspace) -> None:
    shops.release(change(BY | {"unknown": "other"}))
    labels = released_keys(shops)
    # A shop of that name is of the rest, since its rows could not be distinguished from it.
    assert labels[-1] == "other" and labels.count("other") == 1 and "big" in labels
    (total,) = ReleaseFolder(str(shops.output)).release.tree("places").top(1, 0, "other")
    kept = [name for name in labels[:-1]]
    assert abs(total.count - (1200 - sum(SIZES[name] for name in kept))) < 100


def test_trees_of_the_same_keys_share_one_selection(shops: Workspace) -> None:
    def two(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["trees"].append(settings["trees"][1] | {"name": "again"})

    outcome = shops.release(two)
    assert outcome.code == 0, outcome.err
    folder = ReleaseFolder(str(shops.output))
    assert folder.plan.selection is not None and len(folder.plan.selection.questions) == 1
    assert folder.plan.question("again").keys == folder.plan.question("places").keys
    assert len([name for name in read_files(shops.output) if name.startswith("keys-")]) == 1

    def apart(settings: dict[str, Any]) -> None:
        two(settings)
        settings["trees"][2] = settings["trees"][2] | {"group_by": BY | {"fraction": 0.2}}

    refused = shops.run("plan", shops.configure(apart))
    assert refused.code == 2
    assert (
        "trees[2].group_by: must have the fraction and the threshold of trees[1].group_by"
        in refused.err
    )


def test_keys_of_several_columns(shops: Workspace) -> None:
    by = {"columns": ["shop", "year"], "type": ["text", "integer"], "keys": "private"}
    outcome = shops.release(change(by | {"fraction": 0.5, "threshold": 50}))
    assert outcome.code == 0, outcome.err
    labels = released_keys(shops)
    assert {"big/2013", "big/2014"} <= set(labels)
    assert not any(label.startswith(("few", "kumquat")) for label in labels)
    answered = shops.run(
        "query", shops.output, "top", "-n", "1", "--level", "0", "--tree", "places",
        "--key", "big/2013", "--json",
    )  # fmt: skip
    assert abs(json.loads(answered.out)["answers"][0]["count"] - 250) < 40


@pytest.mark.parametrize("stop", ["count", "commit"])
def test_a_killed_first_stage_is_finished(
    shops: Workspace, made: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """Killed before its draw, or between the two stages: the same bytes as at one go."""
    make = Stage.make
    calls: list[str] = []

    def killed(stage: Stage) -> None:
        calls.append(stage.plan.name)
        if stop == "commit":
            make(stage)
        if len(calls) == 1:
            raise KeyboardInterrupt
        make(stage)

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "make", killed)
        assert shops.release(change()).code == 130
    assert shops.release(change()).code == 0
    assert read_files(shops.output) == read_files(made)


def test_a_first_stage_is_never_drawn_twice_for_existing_trees(sold: Workspace) -> None:
    shutil.rmtree(sold.output / "keys")
    refused = sold.release(change())
    assert refused.code == 2 and "not the selection of its keys in keys" in refused.err
    (sold.output / "manifest.json").unlink()
    assert sold.release(change()).code == 2
    assert not (sold.output / "keys").exists()


def test_other_shares_are_another_release(sold: Workspace) -> None:
    refused = sold.release(change(BY | {"fraction": 0.25}))
    assert (
        refused.code == 2
        and "another configuration: trees[1].group_by.fraction was 0.5, now 0.25" in refused.err
    )


def test_a_lost_part_of_the_keys_is_made_again(sold: Workspace) -> None:
    before = read_files(sold.output)
    (part,) = (sold.output / "keys" / "nodes").iterdir()
    part.unlink()
    refused = sold.release(change())
    assert refused.code == 2 and "--repair makes them again" in refused.err
    assert sold.release(change(), "--repair").code == 0
    assert read_files(sold.output) == before


def test_nothing_is_selected_for_a_repair(shops: Workspace) -> None:
    refused = shops.release(change(), "--repair")
    assert refused.code == 2 and "contains no finished release; run without it" in refused.err
    assert not shops.output.exists()


def test_discarding_begins_with_the_stage_that_was_begun(shops: Workspace) -> None:
    path = shops.configure(change())
    stage = shops.output / "keys"
    stage.mkdir(parents=True)
    (stage / "nonce.json").write_text(json.dumps({"nonce": "00" * 16}))
    outcome = shops.run("release", path, "--discard")
    assert outcome.code == 0, outcome.err
    assert json.loads((stage / "manifest.json").read_text())["nonce"] != "00" * 16


def test_no_selected_key_is_reported_in_one_sentence(shops: Workspace) -> None:
    unreachable = change(BY | {"threshold": 100_000})
    for _ in range(2):
        outcome = shops.release(unreachable)
        assert outcome.code == 2 and outcome.err.count("\n") == 1
        assert "trees[1].group_by: no keys of shop were selected" in outcome.err
    assert (shops.output / "keys" / "manifest.json").exists()
    assert not (shops.output / "manifest.json").exists()


def test_a_mistake_of_the_trees_is_reported_before_keys_are_paid_for(shops: Workspace) -> None:
    def wrong(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["trees"][0]["domain"]["column"] = "y"

    refused = shops.release(wrong)
    assert refused.code == 2 and "y" in refused.err
    assert not shops.output.exists() or not read_files(shops.output)


def test_integers_are_said_to_be_integers(shops: Workspace) -> None:
    by = {"column": "year", "keys": "private", "fraction": 0.5}
    refused = shops.release(change(by))
    assert refused.code == 2 and "unless by says type: integer" in refused.err
    assert shops.release(change(by | {"type": "integer"})).code == 0
    assert released_keys(shops) == ["2013", "2014"]


def test_the_plan_reports_from_how_many_units_on(shops: Workspace) -> None:
    path = shops.configure(change())
    reported = shops.run("plan", path)
    assert reported.code == 0, reported.err
    law = load_configuration(path).selection.questions[0].plan.law  # type: ignore[union-attr]
    assert (
        f"a key is released with probability 1/2 from {law.least_units(0.5)} units on, with 0.99 "
        f"from {law.least_units(0.99)}, and for certain from {law.certain_units}" in reported.out
    )
    assert "once for each key of shop that is selected" in reported.out
    entries = json.loads(shops.run("plan", path, "--json").out)
    assert entries["trees"][1]["keys"] is None
    (selection,) = entries["selections"]
    assert selection["columns"] == ["shop"] and selection["epsilon"] == 1
    assert selection["units"]["0.99"] == law.least_units(0.99)
    assert not shops.output.exists()


@pytest.mark.parametrize(
    ("by", "privacy", "sentence"),
    [
        (BY, {"delta": None}, "privacy.delta: is required next to epsilon if keys are private"),
        (
            BY,
            {"delta": None, "epsilon": None, "rho": 1},
            "privacy.delta: is required next to epsilon",
        ),
        (BY | {"fraction": 1}, {}, "trees[1].group_by.fraction: 1 must be below 1"),
        (BY | {"fraction": 0}, {}, "trees[1].group_by.fraction: 0 must be a number above 0"),
        (BY | {"threshold": 0}, {}, "trees[1].group_by.threshold: 0 must be a whole number from 1"),
        (BY | {"type": "date"}, {}, "trees[1].group_by.type: 'date' must be text or integer"),
        (
            BY | {"type": ["text", "text"]},
            {},
            "trees[1].group_by.type: must be one for all columns",
        ),
        (BY | {"fraction": 1e-9}, {"delta": 1e-20}, "trees[1].group_by.fraction: "),
        (
            {"column": "shop", "keys": ["a"], "fraction": 0.1},
            {},
            "fraction: belongs to keys: private",
        ),
        ({"columns": ["shop"], "column": "x", "keys": "private"}, {}, "exactly one of column and"),
        ({"columns": ["shop", "shop"], "keys": "private"}, {}, "columns[1]: shop is listed twice"),
        ({"columns": ["shop", "year"], "keys": ["a"]}, {}, "keys: must be"),
        (
            {"columns": ["shop", "year"], "keys": {"shop": ["a"]}},
            {},
            "keys: must be private, or a list",
        ),
        ({"columns": ["shop"], "keys": {"shop": ["a", "a"]}}, {}, "hold 'a' more than once"),
    ],
)
def test_private_keys_that_cannot_be_are_refused(
    shops: Workspace, by: dict[str, Any], privacy: dict[str, Any], sentence: str
) -> None:
    def apply(settings: dict[str, Any]) -> None:
        change(by)(settings)
        given = settings["privacy"] | privacy
        settings["privacy"] = {name: each for name, each in given.items() if each is not None}

    refused: Outcome = shops.run("plan", shops.configure(apply))
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert sentence in refused.err


@pytest.mark.parametrize(
    ("module", "limit", "sentence"),
    [
        (configuration, "MAX_LEAVES", "trees[1].domain: 16 cells times "),
        (first_stage, "MOST_KEYS", "trees[1].group_by: more than 1 keys of shop were selected"),
    ],
)
def test_more_keys_than_a_release_can_hold(
    shops: Workspace, monkeypatch: pytest.MonkeyPatch, module: Any, limit: str, sentence: str
) -> None:
    """The selected keys reveal it, so the sentence spends nothing more."""
    monkeypatch.setattr(module, limit, 17 if limit == "MAX_LEAVES" else 1)
    outcome = shops.release(change())
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert sentence in outcome.err
    assert not (shops.output / "manifest.json").exists()


@pytest.mark.parametrize("guessed", [None, 10, 10**8])
def test_hierarchies_have_private_keys_too(shops: Workspace, guessed: int | None) -> None:
    """Their universe and their keys both travel by reference; adaptive ones, and those that a guess
    may have chosen."""
    leaves = shops.folder / "years.parquet"
    pq.write_table(pa.table({"year": [2013, 2014, 2015]}), leaves)

    def hierarchy(settings: dict[str, Any]) -> None:
        change()(settings)
        domain = {"kind": "hierarchy", "columns": ["year"], "table": str(leaves)}
        settings["trees"] = [
            {"name": "years", "domain": domain, "group_by": BY | {"unknown": "other"}}
        ]
        if guessed is not None:
            settings["trees"][0]["guess"] = {"rows": guessed}

    outcome = shops.release(hierarchy)
    assert outcome.code == 0, outcome.err
    released = ReleaseFolder(str(shops.output)).release.tree("years")
    assert abs(released.at_path("2013", "big").count - 250) < 60
    assert abs(released.at_path("2015", "other").count) < 60


def test_a_reservation_of_both_stages_goes_on_at_no_cost(shops: Workspace) -> None:
    """In a ledger that admits one such release, though its folder is gone meanwhile."""
    url = f"sqlite:///{shops.output.parent}/budget.db"
    ledger = opened(url, account_of("2", "0.0001"))

    def counted(settings: dict[str, Any]) -> None:
        change()(settings)
        settings["ledger"] = url

    assert shops.release(counted).code == 0
    before = read_files(shops.output)
    shutil.rmtree(shops.output)
    outcome = shops.release(counted)
    assert outcome.code == 0, outcome.err
    assert read_files(shops.output) == before
    assert ledger.account("flights").spent.epsilon == 2


def test_both_stages_are_verified_and_replayed(sold: Workspace) -> None:
    config = sold.configure(change())
    outcome = sold.run("verify", sold.output, "--data", config)
    assert outcome.code == 0, outcome.err
    assert "selection: keys is complete, matches this specification" in outcome.out
    assert "replay: parts, tables and record are the same, bit for bit" in outcome.out

    stage = sold.output / "keys"
    (part,) = (stage / "nodes").iterdir()
    kept = part.read_bytes()
    part.write_bytes(kept + b"x")
    outcome = sold.run("verify", sold.output)
    assert outcome.code == 2 and "selection: keys: files: " in outcome.err
    part.write_bytes(kept)

    shutil.rmtree(stage)  # as in a published copy
    outcome = sold.run("verify", sold.output)
    assert outcome.code == 0 and "selection: keys is missing" in outcome.out
    (table,) = sold.output.glob("keys-*.parquet")
    pq.write_table(pq.read_table(table).slice(1), table)
    outcome = sold.run("verify", sold.output)
    assert outcome.code == 2 and "does not match its checksum in the manifest" in outcome.err


def test_keys_of_another_selection_are_found(shops: Workspace) -> None:
    """A whole first stage, but of another draw."""
    assert shops.release(change(BY | {"fraction": 0.9, "threshold": 1}, epsilon=9)).code == 0
    many = read_files(shops.output / "keys")
    shutil.rmtree(shops.output)
    assert shops.release(change(BY | {"threshold": 300}, epsilon=9)).code == 0
    for name, data in many.items():
        (shops.output / "keys" / name).write_bytes(data)
    outcome = shops.run("verify", shops.output)
    assert outcome.code == 2 and "selection: " in outcome.err
