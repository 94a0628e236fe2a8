"""The released tables: their columns, the order of their rows, and intervals that are possible."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dptrees.dpcore.levels.uniform import UniformMechanism
from dptrees.dpcore.noise.laws import ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices, NoiseSource
from dptrees.dpcore.ordered.domain_kinds import CategoryDomain
from dptrees.dpcore.ordered.question import OrderedQuestion, QuantileCells, quantiles_table
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, SUBSTITUTE_ROW, Budget, Measure
from dptrees.dpcore.questions.released import NODES_SCHEMA
from dptrees.dpcore.release.released import solve_tree
from dptrees.dpcore.trees.error_laws import prefix_margin
from dptrees.dpcore.trees.shapes import UniformTree
from dptrees.dpcore.uniform.plan import TreePlan

CHOICES = KeyedChoices(key=ReleaseKey(bytes(32)), release="release")

Make = Callable[..., Any]
LEAVES, QUANTILES = 11, (0.1, 0.5)
CDF_COLUMNS = [
    "tree",
    "key",
    "upper",
    "estimate",
    "std_error",
    "ci_low",
    "ci_high",
    "count",
    "fraction",
]


def tree_plan(*, keyed: bool = False, public: bool = False) -> TreePlan:
    return TreePlan(
        tree=UniformTree(leaves=LEAVES, fanouts=(3, 4)),
        unit=SUBSTITUTE_ROW if public else ADD_REMOVE_ROW,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(1)),
        level_amounts=(Fraction(0), Fraction(1, 2), Fraction(1, 2)),
        public_total=public,
        keyed=keyed,
    )


@pytest.fixture(params=[2**17, 25, 8, 4, 1], ids=lambda size: f"chunks of {size}")
def chunk_leaves(request: pytest.FixtureRequest) -> int:
    """Releases are cut into chunks of this size."""
    return int(request.param)


def solved(
    question: OrderedQuestion[UniformMechanism], counts: Any, key: ReleaseKey
) -> tuple[Any, Any]:
    noise = NoiseSource(key=key, release="r", spec_digest=b"s", global_digest=b"c")
    exact = {
        partial.place: question.merge(partial.place, [partial.data]).to_bytes()
        for partial in question.split_counts(counts, CHOICES)
    }
    parts = sorted(solve_tree(question, exact, noise))
    tables = {(each.part.kind, each.part.key, each.part.index): each.table for each in parts}
    concluded = question.conclude({each.part: each.note for each in parts if each.note})
    return tables, concluded.get("quantiles")


def all_rows(parts: dict[Any, pa.Table], kind: str) -> pa.Table:
    """All rows of a kind, the spine's first, then by key and chunk."""
    return pa.concat_tables(parts[part] for part in sorted(parts) if part[0] == kind)


def range_label(leaves: range) -> str:
    return str(leaves.start) if len(leaves) == 1 else f"[{leaves.start}, {leaves.stop})"


@pytest.mark.parametrize("keys", [0, 3])
def test_every_node_and_boundary_has_one_row(
    chunk_leaves: int, make_question: Make, release_key: ReleaseKey, keys: int
) -> None:
    plan = tree_plan(keyed=keys > 0)
    question = make_question(leaves=LEAVES, keys=keys, plan=plan, chunk_leaves=chunk_leaves)
    parts, cells = solved(question, np.arange(max(keys, 1) * LEAVES), release_key)
    assert cells is None
    nodes, cdf = all_rows(parts, "nodes"), all_rows(parts, "cdf")
    assert nodes.schema == NODES_SCHEMA and cdf.column_names == CDF_COLUMNS
    labels = [None] if keys == 0 else ["k0", "k1", "k2"]
    found = sorted(
        zip(*(nodes[name].to_pylist() for name in ("key", "level", "node", "label")), strict=True),
        key=str,
    )
    edges = [
        (level, node, question.plan.tree.leaf_range(level, node))
        for level, size in enumerate(question.plan.tree.level_sizes)
        for node in range(size)
    ]
    assert found == sorted(
        [(k, level, n, range_label(r)) for k in labels for level, n, r in edges], key=str
    )
    assert cdf["key"].to_pylist() == [key for key in labels for _ in range(LEAVES)]
    assert cdf["upper"].to_pylist() == list(range(1, LEAVES + 1)) * len(labels)
    assert cdf["upper"].type == pa.float64()
    assert set(nodes["tree"].to_pylist()) == set(cdf["tree"].to_pylist()) == {question.name}


@pytest.mark.parametrize("public", [False, True], ids=["N private", "N public"])
def test_the_columns_agree_with_each_other(
    chunk_leaves: int, make_question: Make, release_key: ReleaseKey, public: bool
) -> None:
    question = make_question(
        leaves=LEAVES,
        plan=tree_plan(public=public),
        public_total=public,
        quantiles=QUANTILES,
        chunk_leaves=chunk_leaves,
    )
    counts = np.random.default_rng(0).poisson(3, LEAVES)
    parts, _ = solved(question, counts, release_key)
    nodes, cdf = all_rows(parts, "nodes"), all_rows(parts, "cdf")
    top = float(counts.sum()) if public else np.inf
    level_widths = np.asarray(question.widths.levels)[nodes["level"].to_numpy()]
    kinds = [(cdf, prefix_margin(question.widths.sloped, cdf["std_error"].to_numpy() ** 2))]
    kinds.append((nodes, level_widths * nodes["std_error"].to_numpy()))
    for table, margin in kinds:
        estimate, low, high = (table[name].to_numpy() for name in ("estimate", "ci_low", "ci_high"))
        np.testing.assert_allclose(low, np.clip(estimate - margin, 0, top), atol=1e-9)
        np.testing.assert_allclose(high, np.clip(estimate + margin, 0, top), atol=1e-9)
        assert (table["count"].to_numpy() >= 0).all()
    leaf_rows = nodes.filter(pc.equal(nodes["level"], 2))
    for name in ("estimate", "count"):
        sums = np.cumsum(leaf_rows[name].to_numpy())
        np.testing.assert_allclose(cdf[name].to_numpy(), sums, atol=1e-9)
    total = cdf["count"].to_numpy()[-1]
    np.testing.assert_allclose(cdf["fraction"].to_numpy(), cdf["count"].to_numpy() / total)
    if public:
        assert total == counts.sum()
        np.testing.assert_allclose(cdf["std_error"].to_numpy()[-1], 0, atol=1e-6)


def test_no_fraction_of_no_rows(
    make_question: Make, replace_laws: Make, release_key: ReleaseKey
) -> None:
    nothing = replace_laws(tree_plan(), lambda law: ZeroNoise())
    question = make_question(leaves=LEAVES, plan=nothing, quantiles=(0.5,))
    parts, quantiles = solved(question, np.zeros(LEAVES, np.int64), release_key)
    cdf = all_rows(parts, "cdf")
    assert cdf["fraction"].null_count == LEAVES and cdf["count"].to_pylist() == [0] * LEAVES
    row = quantiles.to_pylist()[0]
    assert row["value"] is None and row["value_text"] is None


def some_cells() -> QuantileCells:
    """Quantile cells of 2 keys and 2 quantiles."""
    return QuantileCells(
        cell=np.array([[0, 5], [-1, 10]]),
        share=np.array([[0.0, 0.5], [0.0, 1.0]]),
        low=np.array([[0, 4], [0, 9]]),
        high=np.array([[1, 6], [10, 10]]),
    )


def test_quantiles_are_numbers_and_texts(make_question: Make) -> None:
    question = make_question(leaves=LEAVES, keys=2, plan=tree_plan(keyed=True), quantiles=QUANTILES)
    rows = quantiles_table(question, some_cells()).to_pylist()
    assert [(row["tree"], row["key"], row["q"]) for row in rows] == [
        ("delay", key, q) for key in ("k0", "k1") for q in QUANTILES
    ]
    assert [row["ci_low"] for row in rows] == [0.0, 4.0, 0.0, 9.0]
    assert [row["ci_high"] for row in rows] == [1.0, 6.0, 10.0, 10.0]
    assert rows[2]["value"] is None and rows[2]["value_text"] is None
    for row in (rows[0], rows[1], rows[3]):
        assert float(row["value_text"]) == row["value"]
        assert row["ci_low"] <= row["value"] <= row["ci_high"]


def test_quantiles_of_categories_are_texts_only() -> None:
    names = tuple("abcdefghijk")
    question = OrderedQuestion(
        name="grade",
        domain=CategoryDomain(column="grade", categories=names),
        mechanism=UniformMechanism(plan=tree_plan()),
        quantiles=QUANTILES,
    )
    cells = QuantileCells.from_array(some_cells().to_array()[:, :1])
    rows = quantiles_table(question, cells).to_pylist()
    assert [row["value"] for row in rows] == [None, None]
    assert [row["value_text"] for row in rows] == ["a", "f"]
    assert [(row["ci_low_text"], row["ci_high_text"]) for row in rows] == [("a", "b"), ("e", "g")]


def test_labels_of_the_trimmed_edge_end_with_the_domain() -> None:
    question = OrderedQuestion(
        name="age",
        domain=StepDomain(kind="integer", column="age", lower=0, upper=LEAVES),
        mechanism=UniformMechanism(plan=tree_plan()),
    )
    assert question.node_labels(1, np.arange(3)).to_pylist() == ["[0, 4)", "[4, 8)", "[8, 11)"]
