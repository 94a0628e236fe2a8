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

import dptrees
from dptrees.dpcore.release.guarantee import guarantee_in_words
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.run import releasing
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.conftest import Workspace
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused
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
    found: list[dict[str, Any]] = workspace.made().rows("nodes", "prefixes").to_pylist()
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
    manifest = (addresses.output / "manifest.json").read_text()
    assert not any(word in manifest for word in (*HEAVY, "kumquat", "61.7313"))


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


BAD_QUESTIONS = [
    ("node --path 77.0.0.1/32", "no node of this path was published, so it has from 0"),
    ("node --path kumquat", "it is no prefix of a code, as 1.0.0.0/8 is"),
    ("node --path 0.0.0.0/1", "its length /1 is none of /0, /8, /16, /24, /32"),
    ("node --path 1.2.3.4/32 --children", "no node of this path was published"),
    ("node --path 192.168.1.1/32 --children", "no node of this path with children was published"),
    ("node --level 1 --node 0", "in tree prefixes nodes are found by --path"),
    ("node --level 1 --value 10.1.0.7", "nodes are found by --path"),
    ("node --path 10.0.0.0/8 --level 1", "level: a path already identifies a node"),
    ("node --path 10.0.0.0/8 --key a", "key: tree prefixes has no keys"),
    ("top --level /9", "level: '/9' is none of root, /8, /16, /24, /32"),
    ("top -n 0", "n: 0 is not above 0"),
    ("top --key a", "key: tree prefixes has no keys"),
    ("range 1 2", "range: tree prefixes is sparse, and has no order"),
    ("quantile 0.5", "quantile: tree prefixes is sparse, and has no order"),
]


def test_bad_questions(addresses: Addresses) -> None:
    for question, words in BAD_QUESTIONS:
        options = [*question.split(), "--tree", "prefixes"]
        outcome = addresses.run("query", addresses.output, *options)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"dptrees: {addresses.output}: ") and words in outcome.err
        assert outcome.err.count("\n") == 1
        assert addresses.run("query", addresses.output, *options, "--json") == outcome


def test_what_is_not_there_has_no_more_rows_than_is_said(addresses: Addresses) -> None:
    """Also what was published and then folded into its parent."""
    plan = ReleaseFolder(str(addresses.output)).plan.questions[0].plan
    for level, path in enumerate(["9.0.0.0/8", "9.9.0.0/16", "9.9.9.0/24", "9.9.9.9/32"], 1):
        outcome = addresses.run(
            "query", addresses.output, "node", "--path", path, "--tree", "prefixes"
        )
        most = 2 * plan.radius(level) + 99
        assert outcome.err.endswith(f"so it has from 0 to {most} rows\n")


def test_the_plan_states_thresholds(addresses: Addresses) -> None:
    path = addresses.configure()
    prefixes = json.loads(addresses.run("plan", path, "--json").out)["trees"][0]
    assert [level["level"] for level in prefixes["levels"]] == ["root", "/8", "/16", "/24", "/32"]
    for level in prefixes["levels"][1:]:
        assert level["threshold"] < level["heavy_count"] < level["suppressed_most"] + 100
    outcome = addresses.run("plan", path, "--target-error", "5")
    assert outcome.code == 2 and "is sparse; its thresholds are its errors" in outcome.err


PURE = {"epsilon": 1, "neighbors": "add_remove"}
LABELS = {"kind": "sparse", "columns": ["a", "b"]}
BITS = {"kind": "sparse", "column": "c", "bits": [60]}
PATHS = {"kind": "sparse", "column": "c", "depth": 2, "separator": "::"}
WHOLE = {"kind": "sparse", "column": "c", "separator": ","}
AN_ADDRESS = BITS | {"bits": [16], "notation": "ipv4"}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (PURE, {"domain": LABELS}, "privacy.delta: trees[0]: no list of its"),
    (PURE, {"domain": BITS}, "every one of them must get noise"),
    (PURE, {}, "privacy.delta: trees[0]: a sparse tree needs one"),
    ({"rho": 1, "neighbors": "add_remove"}, {}, "privacy.delta: trees[0]: "),
    (APPROXIMATE, {"measure": {"column": "k"}}, "needs a domain whose leaves are public"),
    (APPROXIMATE, {"invariants": "/8"}, "needs a domain whose leaves are public"),
    (APPROXIMATE, {"level_budgets": "equal"}, "whose leaves are public"),
    (APPROXIMATE, {"quantiles": [0.5]}, "belongs to an ordered domain"),
    (APPROXIMATE, {"fanouts": [2]}, "belongs to an ordered domain"),
    (APPROXIMATE, {"objective": "cdf"}, "objective: 'cdf' must be nodes"),
    (APPROXIMATE, {"mechanism": "tree"}, "mechanism: 'tree' must be planned"),
    (APPROXIMATE, {"prune_below": 1.5}, "prune_below: 1.5 must be a whole"),
    (APPROXIMATE, {"level_weights": [1]}, "must be 4 numbers, one for each of"),
    (APPROXIMATE, {"level_weights": {"/8": 0}}, "level_weights./8: 0 must"),
    (APPROXIMATE, {"level_weights": {"/9": 1}}, "'/9' is not a level below the root"),
    (APPROXIMATE, {"level_weights": [1, 1, 1, 0]}, "must be a number above 0"),
    (APPROXIMATE, {"domain": LABELS | {"column": "c"}}, "domain.column: does not go with columns"),
    (APPROXIMATE, {"domain": {"kind": "sparse"}}, "domain: needs column or columns"),
    (APPROXIMATE, {"domain": WHOLE}, "domain.separator: does not go with a column of whole values"),
    (APPROXIMATE, {"domain": ADDRESSES | {"depth": 2}}, "domain.depth: does not go with bits"),
    (APPROXIMATE, {"domain": BITS | {"bits": [65]}}, "domain.bits: "),
    (APPROXIMATE, {"domain": AN_ADDRESS}, "domain.bits: "),
    (APPROXIMATE, {"domain": PATHS}, "domain.separator: is '::'; it must be one ASCII character"),
    (APPROXIMATE, {"domain": LABELS | {"columns": ["a", "root"]}}, "a column is called root"),
    (APPROXIMATE | {"epsilon": 1e-15}, {}, "cannot be planned with its fraction of the budget"),
    (APPROXIMATE | {"delta": 0.75}, {}, "it is 3/4, and must be above 0 and below 1/2"),
    (APPROXIMATE, {"domain": ADDRESSES | {"table": "x"}}, "domain.table: unknown key"),
]


def test_configurations_that_are_refused() -> None:
    def attempt(privacy: dict[str, Any], changes: dict[str, Any]) -> None:
        tree = {"name": "prefixes", "domain": ADDRESSES} | changes
        plan_of(tree, **privacy)

    assert not not_refused(attempt, REFUSED, ConfigurationError)


def test_shares_of_epsilon_and_delta_add_up_exactly() -> None:
    sparse = {"name": "a", "domain": ADDRESSES, "weight": 3}
    other = {"name": "b", "domain": LABELS, "weight": 2}
    plan = plan_of(sparse, other, **APPROXIMATE)
    spent = [question.spending.own for question in plan.questions]
    assert sum(each[0] for each in spent) == Fraction(2)
    assert sum(each[1] for each in spent) == Fraction(1, 10**6)
    assert spent[0][0] == Fraction(6, 5)
    ordered = {"name": "c", "domain": SIZES, "weight": 5}
    mixed = plan_of(sparse, other, ordered, **APPROXIMATE)
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
