"""PrivTree against a readable one, node by node, with the same keyed noise; its decay against exact
bounds of a logarithm; what is refused. The law of its splits is in tests/audit."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.plan import EstimatedTree, Estimation, Holding, PartitionMechanism
from dptrees.dpcore.boxes.planner import PartitionChoices, plan_privtree
from dptrees.dpcore.boxes.privtree import PrivTreePlan
from dptrees.dpcore.noise.laws import DiscreteLaplace
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.specification import Refusal
from tests.dpcore.boxes.boxes import make_setting
from tests.dpcore.boxes.counted_boxes import (
    SOURCE,
    CountedBox,
    Node,
    check_sums,
    list_nodes,
    noise_at,
    without_noise,
)
from tests.dpcore.refusals import check_refusals

# ln 2 = sum_k 1 / (k 2^k); what follows k = 199 is less than its last term.
LN_2 = sum(Fraction(1, k << k) for k in range(1, 200))
LN_2_BOUNDS = (LN_2, LN_2 + Fraction(1, 199 << 199))
# Cells of each column, bits apart, and the finest depth: fan-outs 2, 4 and 32; odd sides, so that
# some nodes have no cell, and some above the finest depth have one.
BOXES = {2: ((5, 13), 1, 7), 4: ((11, 9), 2, 6), 32: ((27, 30), 5, 10)}


def make_plan(
    *,
    bits_apart: int = 2,
    finest: int = 8,
    split: Fraction | int = 4,
    count: Fraction | int = 1,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    dense: bool = False,
) -> PrivTreePlan:
    return PrivTreePlan(
        bits_apart=bits_apart,
        finest=finest,
        split_epsilon=Fraction(split),
        count_epsilon=Fraction(count),
        unit=unit,
        holding=Holding.DENSE if dense else Holding.SPARSE,
    )


def make_box(fanout: int) -> CountedBox:
    return CountedBox.of(BOXES[fanout][0], fanout)


def paper_splits(
    plan: PrivTreePlan, box: CountedBox, source: NoiseSource = SOURCE, decay: int | None = None
) -> dict[Node, bool]:
    """Algorithm 2 with integer noise: each node that is visited, and whether it is split."""
    fanout = 2**plan.bits_apart
    moved = 2 * fanout - 1 if plan.unit == ADD_REMOVE_ROW else 3 * fanout - 2
    scale = Fraction(moved, fanout - 1) / plan.split_epsilon
    if decay is None:
        decay = -int(-scale * plan.bits_apart * LN_2_BOUNDS[1] // 1)
    visited, waiting = {}, [(0, 0)]
    while waiting:
        level, node = waiting.pop(0)
        depth = level * plan.bits_apart
        biased = max(-decay, box.count(depth, node) - level * decay)
        noisy = biased + noise_at(DiscreteLaplace(scale=scale), "split", depth, node, source)
        able = depth < plan.finest and len(box.below(depth, node)) > 1
        visited[depth, node] = able and noisy > 0
        if visited[depth, node]:
            waiting += [(level + 1, fanout * node + child) for child in range(fanout)]
    return visited


def splits_by_node(found: EstimatedTree) -> dict[Node, bool]:
    """Each node of a tree by depth, and whether it is split."""
    return {(depth, node): split for _, depth, node, split in list_nodes(found)}


@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("fanout", BOXES)
def test_splits_are_the_papers(fanout: int, unit: PrivacyUnit) -> None:
    _, apart, finest = BOXES[fanout]
    box = make_box(fanout)
    sizes = set()
    for split in (Fraction(1, 2), 3, 9):
        plan = make_plan(bits_apart=apart, finest=finest, split=split, unit=unit)
        for nonce in range(3):
            source = replace(SOURCE, nonce=bytes([nonce]))
            found = splits_by_node(box.grown(plan, source))
            assert found == paper_splits(plan, box, source)
            sizes.add(len(found))
    assert len(sizes) > 2 and max(sizes) > 2 * fanout


def test_another_decay_or_other_noise_is_seen() -> None:
    """The comparison above distinguishes them."""
    box = make_box(4)
    plan = make_plan(finest=6, split=2)
    found = splits_by_node(box.grown(plan))
    assert found == paper_splits(plan, box)
    assert found != paper_splits(plan, box, decay=plan.decay + 1)
    assert found != paper_splits(plan, box, decay=plan.decay - 1)
    assert found != paper_splits(plan, box, replace(SOURCE, nonce=b"other"))


@pytest.mark.parametrize("fanout", BOXES)
def test_parts_have_keyed_noise_and_counts_add_up(fanout: int) -> None:
    """Each part its own noise, the nodes above nothing but the sum of theirs."""
    _, apart, finest = BOXES[fanout]
    box = make_box(fanout)
    plan = make_plan(bits_apart=apart, finest=finest, split=9, unit=SUBSTITUTE_ROW)
    assert plan.count_law == DiscreteLaplace(scale=Fraction(2))
    grown = box.grown(plan)
    ends = grown.tree.leaves()
    for level, own, estimates in zip(grown.tree.levels, ends, grown.estimates, strict=True):
        for place, node in enumerate(level.nodes.tolist()):
            measured = level.value[place], level.variance[place]
            if not own[place]:
                assert measured == (0, np.inf)
                continue
            filled = bool(box.below(level.depth, node))
            noise = noise_at(plan.count_law, "count", level.depth, node, SOURCE)
            expected = (box.count(level.depth, node) + noise, plan.count_law.variance)
            assert measured == (expected if filled else (0, 0))
            assert estimates.estimate[place] == pytest.approx(measured[0], abs=1e-9)
    check_sums(grown)


@pytest.mark.parametrize("fanout", BOXES)
def test_no_node_is_below_an_unsplit_one_and_parts_tile_the_box(fanout: int) -> None:
    _, apart, finest = BOXES[fanout]
    box = make_box(fanout)
    tree = splits_by_node(box.grown(make_plan(bits_apart=apart, finest=finest, split=9)))
    children = {(depth - apart, node >> apart) for depth, node in tree if depth}
    assert children == {node for node, split in tree.items() if split}
    parts = [cell for node, split in tree.items() if not split for cell in box.below(*node)]
    assert sorted(parts) == box.cells


@pytest.mark.parametrize("fanout", BOXES)
def test_without_noise_it_is_the_data(fanout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is split where it has more rows than its level requires; parts have their counts."""
    without_noise(monkeypatch)
    _, apart, finest = BOXES[fanout]
    box = make_box(fanout)
    plan = make_plan(bits_apart=apart, finest=finest, split=9)
    grown = box.grown(plan)
    for (depth, node), split in splits_by_node(grown).items():
        able = depth < finest and len(box.below(depth, node)) > 1
        assert split == (able and box.count(depth, node) > depth // apart * plan.decay)
    box.check_counts(grown)


def test_no_stream_is_drawn_from_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a part's count is not that by which it was not split."""
    seen: list[tuple[str, str, int, int]] = []
    node_streams = NoiseSource.node_streams

    def noted(self: NoiseSource, tree: str, purpose: str, level: int, nodes: Any) -> Any:
        seen.extend((tree, purpose, level, node) for node in nodes.tolist())
        return node_streams(self, tree, purpose, level, nodes)

    monkeypatch.setattr(NoiseSource, "node_streams", noted)
    make_box(4).grown(make_plan(finest=6, split=9))
    assert len(seen) == len(set(seen)) > 20
    assert {purpose for _, purpose, _, _ in seen} == {"split", "count"}


@given(
    st.fractions(Fraction(1, 10**6), Fraction(100), max_denominator=10**9),
    st.integers(1, 8),
    st.sampled_from(ROW_UNITS),
)
@settings(deadline=None)
def test_the_decay_is_at_least_lambda_ln_beta(
    split: Fraction, bits_apart: int, unit: PrivacyUnit
) -> None:
    """Also where the logarithm is rounded; and not a row more, but for that."""
    plan = make_plan(bits_apart=bits_apart, finest=bits_apart, split=split, unit=unit)
    low, high = (plan.split_law.scale * bits_apart * bound for bound in LN_2_BOUNDS)
    assert isinstance(plan.decay, int)
    assert plan.decay >= high
    assert plan.decay - 1 < low * (1 + Fraction(1, 10**11))


def test_the_decay_just_above_a_whole_number_is_not_rounded_down() -> None:
    """lambda ln 2 = whole + 1e-25, which a float64 does not distinguish from whole."""
    for whole in (3, 47, 10**4, 10**9):
        scale = (whole + Fraction(1, 10**25)) / LN_2_BOUNDS[0]
        plan = make_plan(bits_apart=1, finest=1, split=3 / scale)
        assert plan.split_law.scale == scale and plan.decay == whole + 1


def test_laws_and_spending() -> None:
    """lambda = (2 beta - 1) / ((beta - 1) epsilon_1), and 3 beta - 2 under substitute."""
    once = make_plan(bits_apart=5, finest=10, split=Fraction(1, 3), count=Fraction(1, 7))
    assert once.split_law == DiscreteLaplace(scale=3 * Fraction(63, 31))
    assert once.laws == (DiscreteLaplace(scale=Fraction(7)),) * 3
    assert once.depths == (0, 5, 10) and once.height == 2
    twice = replace(once, unit=SUBSTITUTE_ROW)
    assert twice.split_law.scale == 3 * Fraction(94, 31)
    assert twice.count_law.scale == 2 * once.count_law.scale
    for plan in (once, twice):
        assert plan.spending == Spending(epsilon=Fraction(10, 21))
        assert plan.measure is Measure.EPSILON and not plan.public_total
    assert make_plan(bits_apart=1, finest=1).split_law.scale == Fraction(3, 4)
    assert once.state_bytes is None
    assert replace(once, holding=Holding.DENSE).state_bytes == 8 * 2**10


def test_a_specification_is_read_back() -> None:
    for unit, dense in ((ADD_REMOVE_ROW, False), (SUBSTITUTE_ROW, True)):
        plan = make_plan(bits_apart=3, finest=9, split=Fraction(2, 7), unit=unit, dense=dense)
        spec = json.loads(json.dumps(plan.spec()))
        assert PartitionMechanism.from_spec(spec) == plan
        changed: dict[str, Any] = {
            "decay": plan.decay - 1,
            "split_scale": str(plan.split_law.scale / 2),
            "split_epsilon": "1/7",
            "bits_apart": 1,
            "levels": [*spec["levels"][:-1], spec["levels"][-1] | {"scale": "1/2"}],
        }
        for name, value in changed.items():
            with pytest.raises(
                ValueError, match=r"^(levels: it does not follow|decay .* must|split_sc.* must)"
            ):
                PrivTreePlan.from_spec(spec | {name: value})


def test_what_does_not_fit_is_refused() -> None:
    above = "split_epsilon, count_epsilon: both must be above 0"
    rows: list[tuple[dict[str, Any], str]] = [
        ({"bits_apart": 0}, "finest: 8 is no multiple of bits_apart 0, above 0"),
        ({"bits_apart": 3}, "finest: 8 is no multiple of bits_apart 3, above 0"),
        ({"finest": 0}, "finest: 0 is no multiple of bits_apart 2, above 0"),
        ({"finest": -2}, "finest: -2 is no multiple of bits_apart 2, above 0"),
        ({"split": 0}, above),
        ({"split": -1}, above),
        ({"count": 0}, above),
    ]
    check_refusals(make_plan, rows)


def make_planned(*, bits: int = 12, dimensions: int = 2, **choices: Any) -> PrivTreePlan:
    setting = make_setting(
        bits=bits, dimensions=dimensions, amount=Fraction(3, 7), unit=SUBSTITUTE_ROW
    )
    return plan_privtree(setting, PartitionChoices.from_mechanism("privtree", **choices))


def test_planned() -> None:
    """All columns are halved at once, down to the cells; half the budget each."""
    for fields, shape in (
        ({}, (2, 12, True)),
        ({"holding": Holding.SPARSE}, (2, 12, False)),
        ({"depth": 4}, (2, 4, True)),
        ({"depth": 8, "bits_apart": 4}, (4, 8, True)),
        ({"bits": 13}, (2, 12, True)),
        ({"bits": 64, "dimensions": 1}, (1, 40, False)),
        ({"bits": 60, "dimensions": 20}, (8, 40, False)),
    ):
        found = make_planned(**fields)
        assert (found.bits_apart, found.finest) == shape[:2], fields
        assert (found.holding is Holding.DENSE) == shape[2], fields
        assert found.split_epsilon == found.count_epsilon == Fraction(3, 14)
        assert found.unit == SUBSTITUTE_ROW and found.spending.epsilon == Fraction(3, 7)


def test_what_privtree_does_not_have_is_refused() -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"most": 5}, "most: "),
        ({"parts": 5}, "parts: "),
        ({"split_errors": 0.0}, "split_errors: "),
        ({"shares": "equal"}, "shares: "),
        ({"estimation": Estimation.LEAST_SQUARES}, "estimation: "),
        ({"width": 64}, "width: "),
        ({"hash_rows": 1}, "hash_rows: "),
        ({"sketch": SketchKind.COUNT_SKETCH}, "sketch: "),
        ({"holding": Holding.SKETCH}, "holding: "),
        ({"depth": 13}, "depth: "),
        ({"depth": 2, "bits_apart": 3}, "depth: "),
        ({"memory": 10**4}, "memory: "),
        ({"memory": 10**4, "holding": Holding.DENSE}, "memory: "),
        ({"depth": 0}, "depth: "),
    ]
    check_refusals(make_planned, rows, Refusal)
