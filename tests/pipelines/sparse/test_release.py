"""Sparse trees by the command: release, plan and query, the manifest, every refusal."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import dptrees
from dptrees.dpcore.release.guarantee import guarantee_in_words
from dptrees.pipelines.config.configuration import Configuration, parse_configuration
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run import releasing
from tests.pipelines.conftest import Workspace
from tests.pipelines.test_bad_input import assert_refused
from tests.pipelines.test_querying import query_json

HEAVY = {"10.1.0.7": 900, "10.1.0.8": 700, "10.2.5.5": 600, "192.168.1.1": 500}
LIGHT = {f"77.0.{n // 250}.{n % 250}": 1 for n in range(300)}
APPROXIMATE = {"epsilon": 2, "delta": 1e-6, "neighbors": "add_remove"}
ADDRESSES = {"kind": "sparse", "column": "address", "bits": [8, 8, 8, 8]}
SIZES = {"column": "size", "type": "integer", "lower": 0, "upper": 8}


class Addresses(Workspace):
    """A CSV file of addresses, a few of them heavy, some of them none; and sizes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        rows = [address for address, many in (HEAVY | LIGHT).items() for _ in range(many)]
        rows += ["kumquat", "10.1.0.07", "10.1.0", "10.1.0.256", "", "61.7313"] * 20
        np.random.default_rng(0).shuffle(rows)
        lines = [f"{address},{place % 8}" for place, address in enumerate(rows)]
        (folder / "rows" / "rows.csv").write_text("address,size\n" + "\n".join(lines) + "\n")

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {
            "input": {"format": "csv", "path": str(self.rows / "*.csv")},
            "privacy": dict(APPROXIMATE),
            "trees": [
                {"name": "prefixes", "domain": ADDRESSES, "prune_below": 100},
                {"name": "sizes", "domain": SIZES, "weight": 0.5},
            ],
        }


def true_count(label: str) -> int:
    """The rows below a prefix."""
    address, _, bits = label.rpartition("/")
    octets = address.split(".")[: int(bits) // 8]
    everything = (HEAVY | LIGHT).items()
    return sum(n for each, n in everything if each.split(".")[: len(octets)] == octets)


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A release. Tests only read it."""
    made = Addresses(tmp_path_factory.mktemp("addresses"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releasing, "write_report", lambda output: None)  # tested elsewhere
        outcome = made.release()
    assert outcome.code == 0, outcome.err
    assert "nodes that passed their thresholds: 1 root, 3 /8," in outcome.out
    return made


def nodes(workspace: Workspace) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        ReleaseFolder(str(workspace.output)).rows("nodes", "prefixes").to_pylist()
    )
    return found


def test_heavy_prefixes_are_found_and_light_ones_are_not(addresses: Addresses) -> None:
    found = {row["label"]: row for row in nodes(addresses)}
    for address in HEAVY:
        octets = address.split(".")
        for level in range(1, 5):
            label = ".".join([*octets[:level], *["0"] * (4 - level)]) + f"/{8 * level}"
            row = found[label]
            assert row["ci_low"] <= row["estimate"] <= row["ci_high"]
            assert abs(row["estimate"] - true_count(label)) < 12 * row["std_error"] < 300
    assert not any(label.startswith("77.0.") and label.endswith("/32") for label in found)


def test_a_node_and_its_children(addresses: Addresses) -> None:
    answers = query_json(
        addresses, "node", "--path", "10.0.0.0/8", "--children", "--tree", "prefixes"
    )
    node, *children = answers["answers"]
    assert [child["label"] for child in children] == ["10.1.0.0/16", "10.2.0.0/16"]
    assert sum(child["count"] for child in children) <= node["count"]
    (root,) = query_json(addresses, "node", "--path", "", "--tree", "prefixes")["answers"]
    assert root["fraction"] == 1
    (same,) = query_json(addresses, "node", "--path", "0.0.0.0/0", "--tree", "prefixes")["answers"]
    assert same == root


def test_the_largest_of_a_level(addresses: Addresses) -> None:
    rows = nodes(addresses)
    for level, name in enumerate(["root", "/8", "/16", "/24", "/32"]):
        mine = sorted((row["count"] for row in rows if row["level"] == level), reverse=True)
        requested = query_json(addresses, "top", "--level", name, "--tree", "prefixes")["answers"]
        assert [row["count"] for row in requested] == mine[:10]
        number = query_json(addresses, "top", "-n", 1, "--level", level, "--tree", "prefixes")[
            "answers"
        ]
        assert number == requested[:1]
    leaves = query_json(addresses, "top", "--tree", "prefixes")["answers"]
    assert all(row["label"].endswith("/32") for row in leaves)


def test_nothing_below_is_reported_in_words(addresses: Addresses) -> None:
    requested = ("node", "--path", "192.168.1.1/32", "--children", "--tree", "prefixes")
    outcome = addresses.run("query", addresses.output, *requested)
    assert outcome.code == 2 and "no node of this path with children was published" in outcome.err


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (("node", "--path", "77.0.0.1/32"), "no node of this path was published, so it has from 0"),
        (("node", "--path", "kumquat"), "it is no prefix of a code, as 1.0.0.0/8 is"),
        (("node", "--path", "0.0.0.0/1"), "its length /1 is none of /0, /8, /16, /24, /32"),
        (("node", "--path", "1.2.3.4/32", "--children"), "no node of this path was published"),
        (("node", "--level", "1", "--node", "0"), "in tree prefixes nodes are found by --path"),
        (("node", "--level", "1", "--value", "10.1.0.7"), "nodes are found by --path"),
        (
            ("node", "--path", "10.0.0.0/8", "--level", "1"),
            "level: a path already identifies a node",
        ),
        (("node", "--path", "10.0.0.0/8", "--key", "a"), "key: tree prefixes has no keys"),
        (("node", "--path", "", "--confidence", "0.9"), "are those of the release"),
        (("top", "--level", "/9"), "level: '/9' is none of root, /8, /16, /24, /32"),
        (("top", "-n", "0"), "n: 0 is not above 0"),
        (("top", "--key", "a"), "key: tree prefixes has no keys"),
        (("cdf", "10.1.0.7"), "cdf: tree prefixes is sparse, and has no order"),
        (("range", "1", "2"), "range: tree prefixes is sparse, and has no order"),
        (("quantile", "0.5"), "quantile: tree prefixes is sparse, and has no order"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_bad_questions(
    addresses: Addresses, question: tuple[str, ...], words: str, form: tuple[str, ...]
) -> None:
    outcome = addresses.run("query", addresses.output, *question, "--tree", "prefixes", *form)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"dptrees: {addresses.output}: ") and words in outcome.err
    assert outcome.err.count("\n") == 1


def test_what_is_not_there_has_no_more_rows_than_is_said(addresses: Addresses) -> None:
    """Also what was published and then folded into its parent."""
    plan = ReleaseFolder(str(addresses.output)).plan.questions[0].plan
    for level, path in enumerate(["9.0.0.0/8", "9.9.0.0/16", "9.9.9.0/24", "9.9.9.9/32"], 1):
        outcome = addresses.run(
            "query", addresses.output, "node", "--path", path, "--tree", "prefixes"
        )
        most = 2 * plan.radius(level) + 99
        assert outcome.err.endswith(f"so it has from 0 to {most} rows\n")


def test_the_other_tree_is_queried_as_ever(addresses: Addresses) -> None:
    (row,) = query_json(addresses, "cdf", "4", "--tree", "sizes")["answers"]
    total = sum((HEAVY | LIGHT).values()) + 120
    assert abs(row["estimate"] - total / 2) < 10 * row["std_error"]


def test_the_manifest(addresses: Addresses) -> None:
    manifest = json.loads((addresses.output / "manifest.json").read_text())
    prefixes = manifest["trees"][0]
    assert prefixes["mechanism"] == "threshold"
    assert Fraction(prefixes["epsilon"]) == Fraction(4, 3)
    assert Fraction(prefixes["delta"]) <= Fraction(1, 10**6)
    assert [level["name"] for level in prefixes["levels"]] == ["root", "/8", "/16", "/24", "/32"]
    assert sum(Fraction(level["epsilon"]) for level in prefixes["levels"]) == Fraction(4, 3)
    pruning = prefixes["pruning"]
    assert (pruning["rule"], pruning["rows"]) == ("interval", 100)
    assert "begins at 100 rows or more" in pruning["words"]
    assert "before this folding, which selects by the intervals" in pruning["words"]
    assert set(prefixes["policies"]) == {"address"}
    text = (addresses.output / "manifest.json").read_text()
    assert not any(word in text for word in (*HEAVY, "kumquat", "61.7313"))
    words = manifest["guarantee"]["words"]
    assert "epsilon = 2, delta = 1e-06" in words and "zCDP" not in words


def test_the_plan_in_words_and_json(addresses: Addresses) -> None:
    path = addresses.configure()
    text = addresses.succeed("plan", path)
    assert "prefixes: 4,294,967,296 leaves, only heavy nodes" in text.out
    assert text.out.count("published above a noisy count of") == 4
    prefixes = json.loads(addresses.run("plan", path, "--json").out)["trees"][0]
    assert [level["level"] for level in prefixes["levels"]] == ["root", "/8", "/16", "/24", "/32"]
    for level in prefixes["levels"][1:]:
        assert level["threshold"] < level["heavy_count"] < level["suppressed_most"] + 100
    outcome = addresses.run("plan", path, "--target-error", "5")
    assert outcome.code == 2 and "is sparse; its thresholds are its errors" in outcome.err


def test_the_same_again_is_a_no_op(addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releasing, "write_report", lambda output: None)
    before = (addresses.output / "manifest.json").read_bytes()
    outcome = addresses.release()
    assert outcome.code == 0 and "already there" in outcome.out
    assert (addresses.output / "manifest.json").read_bytes() == before


PURE = {"epsilon": 1, "neighbors": "add_remove"}
LABELS = {"kind": "sparse", "columns": ["a", "b"]}
BITS = {"kind": "sparse", "column": "c", "bits": [60]}
DELTA = {"delta": 1e-6}
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "pure epsilon, labels": (PURE, {"domain": LABELS}, "privacy.delta: trees[0]: no list of its"),
    "pure epsilon, 2^60": (PURE, {"domain": BITS}, "every one of them must get noise"),
    "pure epsilon, 2^32": (PURE, {}, "privacy.delta: trees[0]: a sparse tree needs one"),
    "rho": ({"rho": 1, "neighbors": "add_remove"}, {}, "privacy.delta: trees[0]: "),
    "group_by": (
        APPROXIMATE,
        {"group_by": {"column": "k", "keys": ["a"]}},
        "make the key its first label",
    ),
    "measure": (
        APPROXIMATE,
        {"measure": {"column": "k"}},
        "needs a domain whose leaves are public",
    ),
    "invariants": (APPROXIMATE, {"invariants": "/8"}, "needs a domain whose leaves are public"),
    "level_budgets": (APPROXIMATE, {"level_budgets": "equal"}, "whose leaves are public"),
    "quantiles": (APPROXIMATE, {"quantiles": [0.5]}, "belongs to an ordered domain"),
    "fanouts": (APPROXIMATE, {"fanouts": [2]}, "belongs to an ordered domain"),
    "another objective": (APPROXIMATE, {"objective": "cdf"}, "objective: 'cdf' must be nodes"),
    "another mechanism": (APPROXIMATE, {"mechanism": "tree"}, "mechanism: 'tree' must be planned"),
    "pruning below 0": (APPROXIMATE, {"prune_below": -1}, "prune_below: -1 must be a whole number"),
    "pruning of a part": (APPROXIMATE, {"prune_below": 1.5}, "prune_below: 1.5 must be a whole"),
    "too few weights": (APPROXIMATE, {"level_weights": [1]}, "must be 4 numbers, one for each of"),
    "no weight of a level": (APPROXIMATE, {"level_weights": {"/8": 0}}, "level_weights./8: 0 must"),
    "no such level": (
        APPROXIMATE,
        {"level_weights": {"/9": 1}},
        "'/9' is not a level below the root",
    ),
    "a weight of 0": (APPROXIMATE, {"level_weights": [1, 1, 1, 0]}, "must be a number above 0"),
    "columns and column": (
        APPROXIMATE,
        {"domain": LABELS | {"column": "c"}},
        "domain.column: does not go with columns",
    ),
    "neither": (APPROXIMATE, {"domain": {"kind": "sparse"}}, "domain: needs column or columns"),
    "a column twice": (APPROXIMATE, {"domain": LABELS | {"columns": ["a", "a"]}}, "listed twice"),
    "a separator of whole values": (
        APPROXIMATE,
        {"domain": {"kind": "sparse", "column": "c", "separator": ","}},
        "domain.separator: does not go with a column of whole values; say bits for codes or depth",
    ),
    "bits and depth": (
        APPROXIMATE,
        {"domain": ADDRESSES | {"depth": 2}},
        "domain.depth: does not go with bits",
    ),
    "65 bits": (APPROXIMATE, {"domain": BITS | {"bits": [65]}}, "domain.bits: "),
    "16 bits of an address": (
        APPROXIMATE,
        {"domain": BITS | {"bits": [16], "notation": "ipv4"}},
        "domain.bits: ",
    ),
    "a long separator": (
        APPROXIMATE,
        {"domain": {"kind": "sparse", "column": "c", "depth": 2, "separator": "::"}},
        "domain.separator: is '::'; it must be one ASCII character",
    ),
    "a column called root": (
        APPROXIMATE,
        {"domain": LABELS | {"columns": ["a", "root"]}},
        "trees[0].domain.columns: a column is called root",
    ),
    "too little epsilon": (
        APPROXIMATE | {"epsilon": 1e-15},
        {},
        "privacy.epsilon: trees[0] cannot be planned with its fraction of the budget: plan: "
        "no noise",
    ),
    "a delta of a half": (
        APPROXIMATE | {"delta": 0.75},
        {},
        "privacy.delta: trees[0]: it is 3/4, and must be above 0 and below 1/2",
    ),
    "a table": (APPROXIMATE, {"domain": ADDRESSES | {"table": "x"}}, "domain.table: unknown key"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_configurations_that_are_refused(name: str, tmp_path: Path) -> None:
    privacy, changes, words = REFUSED[name]
    workspace = Addresses(tmp_path)

    def change(settings: dict[str, Any]) -> None:
        tree = {"name": "prefixes", "domain": ADDRESSES}
        settings.update(privacy=privacy, trees=[tree | changes])

    outcome = workspace.run("plan", workspace.configure(change))
    assert_refused(workspace, outcome, f"dptrees: {workspace.folder}/release.yaml: ", words)


def make_configuration(*trees: dict[str, Any], **privacy: Any) -> Configuration:
    settings = {
        "release": "shares",
        "input": {"format": "csv", "path": "x.csv"},
        "output": "out",
        "key_file": "release.key",
        "privacy": APPROXIMATE | privacy,
        "trees": list(trees),
    }
    return parse_configuration(yaml.safe_dump(settings))


def test_shares_of_epsilon_and_delta_add_up_exactly() -> None:
    sparse = {"name": "a", "domain": ADDRESSES, "weight": 3}
    other = {"name": "b", "domain": LABELS, "weight": 2}
    plan = make_configuration(sparse, other).plan()
    spent = [question.spending.own for question in plan.questions]
    assert sum(each[0] for each in spent) == Fraction(2)
    assert sum(each[1] for each in spent) == Fraction(1, 10**6)
    assert spent[0][0] == Fraction(6, 5)
    ordered = {"name": "c", "domain": SIZES, "weight": 5}
    mixed = make_configuration(sparse, other, ordered).plan()
    own = [question.spending.own for question in mixed.questions]
    assert sum(each[0] for each in own) <= Fraction(2) and own[0][0] == Fraction(3, 5)
    assert sum(each[1] for each in own) <= Fraction(1, 10**6)
    words = guarantee_in_words(mixed)
    assert "epsilon = 2, delta = 1e-06" in words and "zCDP" not in words


# --- rows that are none -------------------------------------------------------------------------


GOOD = [str(5 * 2**40)] * 500
# No codes, and no strings of codes; a CSV file's fields are all read as strings.
BAD = ["", str(2**63), str(2**64 - 1), "-5", "kumquat", "1.5", str(2**64)]


@pytest.fixture
def coded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Addresses:
    monkeypatch.setattr(releasing, "write_report", lambda output: None)
    return Addresses(tmp_path)


def test_values_of_a_column_are_found_whole() -> None:
    rows = {"product": ["salt/iodized"] * 400 + ["tea"] * 900 + [f"order {n}" for n in range(200)]}
    tree = {"name": "p", "domain": {"kind": "sparse", "column": "product"}}
    released = dptrees.release(rows, {"privacy": APPROXIMATE, "trees": [tree]})
    assert [row["label"] for row in released["p"].top(20).to_dicts()] == [
        "tea",
        r"salt\/iodized",
    ]


def test_texts_that_are_no_codes_are_dropped(coded: Addresses) -> None:
    """Whether a row can be read must not decide over the whole release."""
    (coded.rows / "rows.csv").write_text("\n".join(["code", *GOOD, *BAD]) + "\n")
    domain = {"kind": "sparse", "column": "code", "bits": [24, 40]}
    coded.make(lambda s: s.update(trees=[{"name": "codes", "domain": domain}]))


def test_texts_that_are_not_utf8_are_dropped(coded: Addresses) -> None:
    """Readers of Parquet files do not check strings; one of them must not end the release."""
    names = pa.array([b"a"] * 500 + [b"\xff\xfe"] * 400 + [b"b"] * 300)
    texts = pa.Array.from_buffers(pa.string(), len(names), names.buffers())
    rows = pa.table({"a": texts, "b": pa.array([1] * len(texts))})
    pq.write_table(rows, coded.folder / "texts.parquet")
    trees = [
        {"name": "pairs", "domain": LABELS},
        {"name": "paths", "domain": {"kind": "sparse", "column": "a", "depth": 1}},
    ]
    source = {"format": "parquet", "path": str(coded.folder / "texts.parquet")}
    coded.make(lambda s: s.update(trees=trees, input=source))
    for tree in ("pairs", "paths"):
        found = ReleaseFolder(str(coded.output)).rows("nodes", tree).to_pylist()
        assert [row["label"] for row in found if row["level"] == 1] == ["a", "b"]
        assert abs(found[0]["estimate"] - 800) < 250
    policies = json.loads((coded.output / "manifest.json").read_text())["trees"][0]["policies"]
    assert policies["a, b"]["not UTF-8"] == policies["a, b"]["an empty label"] == "drop"
    assert policies["a, b"]["a number that is no integer"] == "drop"
