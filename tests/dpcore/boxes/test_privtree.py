"""PrivTree against a readable one, node by node, with the same keyed noise; its decay against exact
bounds of a logarithm; what is refused. The law of its splits is in tests/audit."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.dpcore.boxes.domain import HypercubeDomain
from dptrees.dpcore.boxes.partition import CodeCounts, GrownTree, NodeNoise
from dptrees.dpcore.boxes.plan import EstimatedTree, Estimation, Holding
from dptrees.dpcore.boxes.planner import PartitionChoices, PartitionSetting, plan_privtree
from dptrees.dpcore.boxes.privtree import PrivTreePlan
from dptrees.dpcore.boxes.question import mechanism_from_spec
from dptrees.dpcore.noise.laws import DiscreteLaplace, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.ordered.integers import IntegerDomain
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Budget,
    Measure,
    PrivacyUnit,
)
from dptrees.dpcore.sketches.sketch import SketchKind
from dptrees.dpcore.specification import Refusal

Node = tuple[int, int]
# ln 2 = sum_k 1 / (k 2^k); what follows k = 199 is less than its last term.
LN_2 = sum(Fraction(1, k << k) for k in range(1, 200))
LN_2_BOUNDS = (LN_2, LN_2 + Fraction(1, 199 << 199))
SOURCE = NoiseSource(key=ReleaseKey(bytes(32)), release="r", spec_digest=b"s", global_digest=b"g")
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
        dense=dense,
    )


@dataclass(kw_only=True)
class Box:
    """A box of whole numbers with rows in some of its cells, by brute force."""

    domain: HypercubeDomain
    cells: list[int]
    rows: dict[int, int]

    @classmethod
    def of(cls, sides: tuple[int, ...], rng: np.random.Generator) -> Box:
        domain = HypercubeDomain(
            axes=tuple(
                IntegerDomain(column=f"c{place}", lower=0, upper=side)
                for place, side in enumerate(sides)
            ),
            depths=tuple((side - 1).bit_length() for side in sides),
        )
        every = zip(*itertools.product(*map(range, sides)), strict=True)
        columns = {f"c{place}": pa.array(values) for place, values in enumerate(every)}
        cells = sorted(domain.codes(columns).tolist())
        # Few heavy cells, some of a row or two, most of none.
        counts = np.zeros(len(cells), np.int64)
        counts[rng.choice(len(cells), 40, replace=False)] += rng.geometric(0.4, 40)
        counts[rng.choice(len(cells), 4, replace=False)] += rng.integers(5, 60, 4)
        rows = {cell: many for cell, many in zip(cells, counts.tolist(), strict=True) if many}
        return cls(domain=domain, cells=cells, rows=rows)

    def below(self, depth: int, node: int) -> list[int]:
        """The cells of a node."""
        return [cell for cell in self.cells if cell >> (self.domain.bits - depth) == node]

    def count(self, depth: int, node: int) -> int:
        return sum(self.rows.get(cell, 0) for cell in self.below(depth, node))

    def measurement(self, plan: PrivTreePlan, source: NoiseSource = SOURCE) -> NodeNoise:
        codes = np.array(sorted(self.rows), np.uint64)
        counts = CodeCounts.from_codes(
            self.domain.bits, codes, np.array([self.rows[code] for code in sorted(self.rows)])
        )
        return NodeNoise(tree="t", counts=counts, laws=plan.laws, source=source)

    def grown(self, plan: PrivTreePlan, source: NoiseSource = SOURCE) -> EstimatedTree:
        return plan.estimated(self.domain, self.measurement(plan, source))


def noise_at(law: DiscreteLaplace, purpose: str, depth: int, node: int, source: NoiseSource) -> int:
    """The keyed noise of one node."""
    streams = source.node_streams("t", purpose, depth, np.array([node], np.uint64))
    return int(law.sample(streams, 1)[0])


def paper_splits(
    plan: PrivTreePlan, box: Box, source: NoiseSource = SOURCE, decay: int | None = None
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


def splits_by_node(tree: GrownTree) -> dict[Node, bool]:
    """Each node of a tree, and whether it is split."""
    ends = zip(tree.levels, tree.leaves(), strict=True)
    return {
        (level.depth, node): not end
        for level, own in ends
        for node, end in zip(level.nodes.tolist(), own.tolist(), strict=True)
    }


@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("fanout", BOXES)
def test_splits_are_the_papers(fanout: int, unit: PrivacyUnit) -> None:
    sides, apart, finest = BOXES[fanout]
    box = Box.of(sides, np.random.default_rng(fanout))
    sizes = set()
    for split in (Fraction(1, 2), 3, 9):
        plan = make_plan(bits_apart=apart, finest=finest, split=split, unit=unit)
        for nonce in range(3):
            source = replace(SOURCE, nonce=bytes([nonce]))
            found = splits_by_node(box.grown(plan, source).tree)
            assert found == paper_splits(plan, box, source)
            sizes.add(len(found))
    assert len(sizes) > 2 and max(sizes) > 2 * fanout


def test_another_decay_or_other_noise_is_seen() -> None:
    """The comparison above distinguishes them."""
    box = Box.of(BOXES[4][0], np.random.default_rng(4))
    plan = make_plan(finest=6, split=2)
    found = splits_by_node(box.grown(plan).tree)
    assert found == paper_splits(plan, box)
    assert found != paper_splits(plan, box, decay=plan.decay + 1)
    assert found != paper_splits(plan, box, decay=plan.decay - 1)
    assert found != paper_splits(plan, box, replace(SOURCE, nonce=b"other"))


@pytest.mark.parametrize("fanout", BOXES)
def test_parts_have_keyed_noise_and_counts_add_up(fanout: int) -> None:
    """Each part its own noise, the nodes above nothing but the sum of theirs."""
    sides, apart, finest = BOXES[fanout]
    box = Box.of(sides, np.random.default_rng(fanout))
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
    for place, above, level in grown.tree.pairs():
        split, counts = level.split(above), grown.counts[place]
        below = counts.reshape(len(split), -1).sum(axis=1)
        assert counts.min() >= 0 and below.tolist() == grown.counts[place - 1][split].tolist()
        sums = grown.estimates[place].estimate.reshape(len(split), -1).sum(axis=1)
        assert sums == pytest.approx(grown.estimates[place - 1].estimate[split], abs=1e-9)


@pytest.mark.parametrize("fanout", BOXES)
def test_no_node_is_below_an_unsplit_one_and_parts_tile_the_box(fanout: int) -> None:
    sides, apart, finest = BOXES[fanout]
    box = Box.of(sides, np.random.default_rng(fanout))
    tree = splits_by_node(box.grown(make_plan(bits_apart=apart, finest=finest, split=9)).tree)
    children = {(depth - apart, node >> apart) for depth, node in tree if depth}
    assert children == {node for node, split in tree.items() if split}
    parts = [cell for node, split in tree.items() if not split for cell in box.below(*node)]
    assert sorted(parts) == box.cells


@pytest.mark.parametrize("fanout", BOXES)
def test_without_noise_it_is_the_data(fanout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is split where it has more rows than its level requires; parts have their counts."""
    monkeypatch.setattr(
        DiscreteLaplace, "sample", lambda self, stream, size: ZeroNoise().sample(stream, size)
    )
    sides, apart, finest = BOXES[fanout]
    box = Box.of(sides, np.random.default_rng(fanout))
    plan = make_plan(bits_apart=apart, finest=finest, split=9)
    grown = box.grown(plan)
    for (depth, node), split in splits_by_node(grown.tree).items():
        able = depth < finest and len(box.below(depth, node)) > 1
        assert split == (able and box.count(depth, node) > depth // apart * plan.decay)
    for level, counts in zip(grown.tree.levels, grown.counts, strict=True):
        assert counts.tolist() == [box.count(level.depth, node) for node in level.nodes.tolist()]


def test_no_stream_is_drawn_from_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a part's count is not that by which it was not split."""
    seen: list[tuple[str, str, int, int]] = []
    node_streams = NoiseSource.node_streams

    def noted(self: NoiseSource, tree: str, purpose: str, level: int, nodes: Any) -> Any:
        seen.extend((tree, purpose, level, node) for node in nodes.tolist())
        return node_streams(self, tree, purpose, level, nodes)

    monkeypatch.setattr(NoiseSource, "node_streams", noted)
    Box.of(BOXES[4][0], np.random.default_rng(4)).grown(make_plan(finest=6, split=9))
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


@pytest.mark.parametrize("whole", [3, 47, 10**4, 10**9])
def test_the_decay_just_above_a_whole_number_is_not_rounded_down(whole: int) -> None:
    """lambda ln 2 = whole + 1e-25, which a float64 does not distinguish from whole."""
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
    assert once.state_bytes is None and replace(once, dense=True).state_bytes == 8 * 2**10


@pytest.mark.parametrize("unit", ROW_UNITS)
@pytest.mark.parametrize("dense", [False, True])
def test_a_specification_is_read_back(unit: PrivacyUnit, dense: bool) -> None:
    plan = make_plan(bits_apart=3, finest=9, split=Fraction(2, 7), unit=unit, dense=dense)
    spec = json.loads(json.dumps(plan.spec()))
    assert mechanism_from_spec(spec) == plan
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


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits_apart": 0}, "finest: 8 is no multiple of bits_apart 0, above 0"),
        ({"bits_apart": 3}, "finest: 8 is no multiple of bits_apart 3, above 0"),
        ({"finest": 0}, "finest: 0 is no multiple of bits_apart 2, above 0"),
        ({"finest": -2}, "finest: -2 is no multiple of bits_apart 2, above 0"),
        ({"split": 0}, "split_epsilon, count_epsilon: both must be above 0"),
        ({"split": -1}, "split_epsilon, count_epsilon: both must be above 0"),
        ({"count": 0}, "split_epsilon, count_epsilon: both must be above 0"),
    ],
)
def test_what_does_not_fit_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        make_plan(**wrong)
    assert str(caught.value) == message


def make_setting(*, bits: int = 12, dimensions: int = 2) -> PartitionSetting:
    return PartitionSetting(
        bits=bits,
        diameters=lambda depth: 2.0 ** -(depth // dimensions),
        dimensions=dimensions,
        budget=Budget(measure=Measure.EPSILON, amount=Fraction(3, 7)),
        unit=SUBSTITUTE_ROW,
    )


@pytest.mark.parametrize(
    ("setting", "choices", "shape"),
    [
        (make_setting(), {}, (2, 12, True)),
        (make_setting(), {"holding": Holding.SPARSE}, (2, 12, False)),
        (make_setting(), {"depth": 4}, (2, 4, True)),
        (make_setting(), {"depth": 8, "bits_apart": 4}, (4, 8, True)),
        (make_setting(bits=13), {}, (2, 12, True)),
        (make_setting(bits=64, dimensions=1), {}, (1, 40, False)),
        (make_setting(bits=60, dimensions=20), {}, (8, 40, False)),
    ],
)
def test_planned(
    setting: PartitionSetting, choices: dict[str, Any], shape: tuple[int, int, bool]
) -> None:
    """All columns are halved at once, down to the cells; half the budget each."""
    plan = plan_privtree(setting, PartitionChoices.from_mechanism("privtree", **choices))
    assert (plan.bits_apart, plan.finest, plan.dense) == shape
    assert plan.split_epsilon == plan.count_epsilon == Fraction(3, 14)
    assert plan.unit == SUBSTITUTE_ROW
    assert plan.spending.epsilon == setting.budget.amount


@pytest.mark.parametrize(
    ("choices", "field"),
    [
        ({"most": 5}, "most"),
        ({"parts": 5}, "parts"),
        ({"split_errors": 0.0}, "split_errors"),
        ({"shares": "equal"}, "shares"),
        ({"estimation": Estimation.LEAST_SQUARES}, "estimation"),
        ({"width": 64}, "width"),
        ({"hash_rows": 1}, "hash_rows"),
        ({"sketch": SketchKind.COUNT_SKETCH}, "sketch"),
        ({"holding": Holding.SKETCH}, "holding"),
        ({"depth": 13}, "depth"),
        ({"depth": 2, "bits_apart": 3}, "depth"),
        ({"memory": 10**4}, "memory"),
        ({"memory": 10**4, "holding": Holding.DENSE}, "memory"),
        ({"depth": 0}, "depth"),
    ],
)
def test_what_privtree_does_not_have_is_refused(choices: dict[str, Any], field: str) -> None:
    with pytest.raises(Refusal) as caught:
        plan_privtree(make_setting(), PartitionChoices.from_mechanism("privtree", **choices))
    assert caught.value.field == field
