"""Trees of so many chunks that branches lie between them and the spine."""

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes
from dptrees.dpcore.hierarchy.question import (
    HierarchyQuestion,
    ReleasedHierarchy,
    hierarchy_question_from_spec,
)
from dptrees.dpcore.levels.irregular import IrregularMechanism
from dptrees.dpcore.privacy.unit import Budget, Measure
from dptrees.dpcore.questions.messages import Place
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.series.question import SeriesQuestion
from dptrees.dpcore.series.temporal import TemporalTree
from dptrees.dpcore.trees.chunks import SPINE, branch_index
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.transforms.folder.layout import part_names
from tests.dpcore.hierarchy_questions import hierarchy_question, make_release_plan
from tests.transforms.eager import BRANCH_HAND_OVERS
from tests.transforms.hierarchy_releases import release_in_memory
from tests.transforms.losses import Planted, check_losses, drop, repeat

RNG = np.random.default_rng(8)
LEAVES = np.sort(RNG.choice(6**4, 400, replace=False))
CODES = pa.array([np.base_repr(code, 6).zfill(4) for code in LEAVES])
ROWS = pa.table(
    {
        "code": CODES.take(pa.array(RNG.integers(0, 400, 3000))),
        "race": pa.array(["white", "black", "red"]).take(pa.array(RNG.integers(0, 3, 3000))),
        "amount": pa.array(RNG.integers(-5, 31, 3000)),
    }
)
DOMAIN = HierarchyDomain(
    universe=universe_from_codes(CODES, (1, 1, 1, 1), levels=("a", "b", "c", "d")),
    columns=("code",),
)


BRANCHES = 18


def branched(**fields: object) -> HierarchyQuestion[IrregularMechanism]:
    return hierarchy_question(
        domain=DOMAIN,
        **{"chunk_leaves": 12, "spine_leaves": 36} | fields,  # type: ignore[arg-type]
    )


def plan() -> ReleasePlan:
    return make_release_plan(
        branched(name="counts"),
        branched(name="keys", keys=("white", "black", "nobody")),
        branched(name="whole", spine_leaves=2**20),
    )


def test_there_are_branches() -> None:
    question = branched()
    chunking = question.forest.chunking
    assert chunking.spine.height == 2 and chunking.split_level == 3
    assert question.branches == [Place(0, branch_index(number)) for number in range(BRANCHES)]
    assert max(question.branch_place(place).number for place in question.places) == -2
    assert not branched(spine_leaves=2**20).branches


def test_a_branch_is_part_of_the_specification_where_there_is_one() -> None:
    for question in (branched(), branched(spine_leaves=2**20)):
        spec = json.loads(json.dumps(question.spec()))
        assert ("spine_leaves" in spec) == bool(question.branches)
        plan = question.plan
        given = {"unit": plan.unit, "measure": plan.budget.measure, "tree": plan.tree}
        read = partial(IrregularMechanism.from_entries, keyed=question.is_keyed, **given)
        again = hierarchy_question_from_spec(
            spec, DOMAIN.universe, lambda left, _, read=read: read(left)
        )
        assert again.spec() == spec and again.branches == question.branches


def test_the_pipeline_releases_what_the_counts_in_memory_give(
    tmp_path, key, run, run_steps, release_tables, small_splits, monkeypatch
) -> None:
    """By dense and by sorted counts, and on Beam."""
    expected = release_in_memory(plan(), ROWS, key)
    assert sum("-branch-" in name for name in expected) == 4 * BRANCHES
    names = part_names(["counts", "keys", "whole"])
    assert all(names.fullmatch(name.split("/")[1]) for name in expected)
    run_steps(plan(), ROWS, tmp_path / "dense")
    assert release_tables(tmp_path / "dense") == expected
    pq.write_table(ROWS, tmp_path / "rows.parquet", row_group_size=700)
    run(plan(), str(tmp_path / "rows.parquet"), tmp_path / "beam")
    assert release_tables(tmp_path / "beam") == expected
    monkeypatch.setattr("dptrees.transforms.steps.counting.DENSE_CELLS", 0)
    run_steps(plan(), ROWS, tmp_path / "sorted")
    assert release_tables(tmp_path / "sorted") == expected


def released_nodes(folder: Path) -> list[dict[str, Any]]:
    """The nodes of the counts."""
    nodes = pa.concat_tables(pq.read_table(path) for path in (folder / "nodes").iterdir())
    return [row for row in nodes.to_pylist() if row["tree"] == "counts"]


def test_without_noise_every_node_has_its_true_count(tmp_path, run_steps, without_noise) -> None:
    run_steps(plan(), ROWS, tmp_path / "out")
    codes, mine = ROWS["code"].to_pylist(), released_nodes(tmp_path / "out")
    assert len(mine) == sum(DOMAIN.universe.level_sizes)
    for row in mine:
        truth = sum(code.startswith(row["label"]) for code in codes)
        assert row["count"] == truth
        assert row["estimate"] == pytest.approx(truth, abs=1e-6)


def test_what_is_requested_is_read_where_it_lies(tmp_path: Path, run_steps) -> None:
    whole = plan()
    run_steps(whole, ROWS, tmp_path / "out")
    expected = {row["label"]: row["count"] for row in released_nodes(tmp_path / "out")}
    tree = ReleaseFolder(str(tmp_path / "out")).release.tree("counts")
    universe = DOMAIN.universe
    for level in range(universe.height + 1):
        labels = universe.paths(level, np.arange(universe.level_sizes[level])).to_pylist()
        for label in labels[:: max(1, len(labels) // 40)]:
            assert tree.at_path(label).count == expected[label]
            if level < universe.height:
                assert sum(each.count for each in tree.children(label)) == expected[label]
        best = tree.top(5, level)
        top = sorted((expected[label] for label in labels), reverse=True)[:5]
        assert [each.count for each in best] == top
    held = [_read_parts(tree, level) for level in range(universe.height + 1)]
    assert held[0] == held[1] == {SPINE} and held[2] == set(map(branch_index, range(BRANCHES)))
    assert min(held[3]) == 0


def _read_parts(tree: Any, level: int) -> set[int]:
    """The indices of the parts that are read for all nodes of a level."""
    read: set[int] = set()

    def part(kind: str, name: str, key: int, index: int) -> pa.Table:
        read.add(index)
        table: pa.Table = tree._read(kind, name, key, index)
        return table

    size = tree.question.plan.tree.level_sizes[level]
    ReleasedHierarchy(tree.question, part).rows_between(level, 0, size - 1, 0)
    return read


def test_branches_are_not_drawn_alike(tmp_path: Path, run_steps) -> None:
    """Check that no two branches have the same noise, within a tree and between its keys."""
    budget = Budget(measure=Measure.EPSILON, amount=Fraction(1, 1000))  # none agrees by chance
    measured = [
        branched(name=name, keys=keys, budget=budget, estimation="none")
        for name, keys in (("counts", ()), ("keys", ("white", "black", "nobody")))
    ]
    run_steps(make_release_plan(*measured), ROWS.slice(0, 0), tmp_path / "out")
    tables = {p.name: pq.read_table(p) for p in (tmp_path / "out" / "nodes").iterdir()}
    noises = [
        tuple(table["estimate"].to_pylist()) for name, table in tables.items() if "branch" in name
    ]
    assert len(noises) == 4 * BRANCHES and len(set(noises)) == len(noises)


def test_a_loss_at_every_hand_over(tmp_path, release_steps) -> None:
    own = make_release_plan(branched())

    def release(fault: Planted) -> Path:
        return release_steps(own, [ROWS.to_batches(), []], fault)

    check_losses(release, tmp_path, itertools.product(BRANCH_HAND_OVERS, [drop, repeat]))


def test_a_series_refuses_them() -> None:
    temporal = TemporalTree(periods=2, spans=(1, 2))
    levels = [replace(branched(), name=f"level {span}") for span in temporal.spans]
    with pytest.raises(ValueError, match="too large to be released in a series"):
        SeriesQuestion.from_trees(temporal, 1, levels, "counts")
