"""The adaptive partition against a readable one, node by node, with the same keyed noise; what its
paths spend, and rows move, by enumeration; what is refused. Its whole law is in tests/audit."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.boxes.adaptive import AdaptivePartitionPlan
from dptrees.dpcore.boxes.partition import NodeNoise
from dptrees.dpcore.boxes.plan import EstimatedTree, Holding, PartitionMechanism
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace, NoiseLaw
from dptrees.dpcore.noise.source import NoiseSource
from dptrees.dpcore.privacy.composition import Spending
from dptrees.dpcore.privacy.sensitivity import level_sensitivity
from dptrees.dpcore.privacy.unit import (
    ADD_REMOVE_ROW,
    ROW_UNITS,
    SUBSTITUTE_ROW,
    Measure,
    Neighbors,
    PrivacyUnit,
)
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

# Odd sides, so that some nodes have no cell, and some above the last level have one.
BOX = CountedBox.of((11, 9), 7)
DEPTHS = (0, 2, 5, 8)
PERSON = PrivacyUnit(neighbors=Neighbors.ADD_REMOVE, columns=("user",), rows=3)
UNITS = (*ROW_UNITS, PERSON, replace(PERSON, neighbors=Neighbors.SUBSTITUTE))


def make_plan(**given: Any) -> AdaptivePartitionPlan:
    plain: dict[str, Any] = {
        "depths": DEPTHS,
        "amounts": (Fraction(0), Fraction(1), Fraction(3, 2), Fraction(2)),
        "thresholds": (0, 8, 5),
        "most": 2**14,
        "measure": Measure.EPSILON,
        "unit": ADD_REMOVE_ROW,
    }
    return AdaptivePartitionPlan(**plain | given)


PLANS = {
    "as measured": make_plan(),
    "decided apart": make_plan(decision_part=Fraction(1, 4)),
    "with a root": make_plan(amounts=(Fraction(1), Fraction(1), Fraction(3, 2), Fraction(1))),
    "a root that is a part": make_plan(
        amounts=(Fraction(1), Fraction(1), Fraction(1), Fraction(1)), thresholds=(9999, 8, 5)
    ),
    "of a rho": make_plan(measure=Measure.RHO, decision_part=Fraction(1, 5)),
    "substituted": make_plan(unit=SUBSTITUTE_ROW),
    "of a public number of rows": make_plan(unit=SUBSTITUTE_ROW, public_total=True),
    "of persons": make_plan(unit=PERSON, amounts=tuple(map(Fraction, (3, 4, 5, 6)))),
}

# Levels between those that are measured.
BETWEEN: dict[str, Any] = {
    "depths": (0, 2, 3, 5, 6, 7, 8),
    "amounts": tuple(map(Fraction, (0, 1, 0, 2, 0, 0, 3))),
    "thresholds": (0, 8, 5, 4, 3, 2),
}
PLANS |= {
    "with levels between": make_plan(**BETWEEN),
    "with levels between, decided apart": make_plan(**BETWEEN, decision_part=Fraction(1, 4)),
    "with nothing but a root above": make_plan(
        amounts=(Fraction(2), Fraction(0), Fraction(0), Fraction(3)), thresholds=(8, 4, 2)
    ),
    "with levels between, of a rho": make_plan(**BETWEEN, measure=Measure.RHO, unit=SUBSTITUTE_ROW),
}


SOURCES = [replace(SOURCE, nonce=bytes([number])) for number in range(3)]


def number(law: NoiseLaw, purpose: str, depth: int, node: int, source: NoiseSource) -> int:
    """A noisy count of one node."""
    return BOX.count(depth, node) + noise_at(law, purpose, depth, node, source)


def splits_by_node(found: EstimatedTree) -> dict[Node, bool]:
    """Each node of a tree by level, and whether it is split."""
    return {(level, node): split for level, _, node, split in list_nodes(found)}


def decided(
    plan: AdaptivePartitionPlan, found: EstimatedTree, source: NoiseSource
) -> dict[Node, tuple[float, float]]:
    """The estimates that decide, node by node from the root down, and their variances."""
    apart = plan.decision_part > 0
    laws, purpose = (plan.decision_laws, "decision") if apart else (plan.laws, "count")
    running: dict[Node, tuple[float, float]] = {}

    def measure(level: int, node: int) -> tuple[float, float]:
        depth, law = plan.depths[level], laws[level]
        if not BOX.below(depth, node):
            return 0.0, 0.0
        if law is None:
            return (float(BOX.count(0, 0)), 0.0) if plan.public_total else (0.0, math.inf)
        return float(number(law, purpose, depth, node, source)), law.variance

    running[0, 0] = measure(0, 0)
    for (level, node), split in splits_by_node(found).items():
        if not split or level + 1 == plan.height:
            continue
        fanout = 2 ** (plan.depths[level + 1] - plan.depths[level])
        family = [measure(level + 1, node * fanout + child) for child in range(fanout)]
        total, spread = (sum(column) for column in zip(*family, strict=True))
        known, variance = running[level, node]
        if math.isinf(spread):
            for child, (_, own) in enumerate(family):
                running[level + 1, node * fanout + child] = known / fanout, own
            continue
        if math.isinf(variance):
            best, left = total, spread
        else:
            weight = variance / (variance + spread)
            best, left = known + weight * (total - known), variance * (1 - weight)
        for child, (value, own) in enumerate(family):
            share = own / spread
            running[level + 1, node * fanout + child] = (
                value + share * (best - total),
                own * (1 - share) + share**2 * left,
            )
    return running


@pytest.mark.parametrize("name", PLANS)
def test_what_is_split_exceeds_its_threshold(name: str) -> None:
    plan = PLANS[name]
    for source in SOURCES:
        found = BOX.grown(plan, source)
        running = decided(plan, found, source)
        for (level, node), split in splits_by_node(found).items():
            able = level < plan.height and len(BOX.below(plan.depths[level], node)) > 1
            if not able:
                assert not split
                continue
            estimate, variance = running[level, node]
            unknown = level == 0 and math.isinf(variance)
            assert split == (unknown or estimate > plan.thresholds[level])


@pytest.mark.parametrize("name", PLANS)
def test_what_is_not_split_is_measured_again(name: str) -> None:
    plan = PLANS[name]
    found = BOX.grown(plan)
    for (level, node), split in splits_by_node(found).items():
        own, depth = found.tree.levels[level], plan.depths[level]
        (place,) = np.flatnonzero(own.nodes == node)
        value, variance = own.value[place], own.variance[place]
        if not BOX.below(depth, node) or (level == 0 and plan.public_total):
            assert variance == 0 and value == BOX.count(depth, node)
            continue
        numbers = []
        for laws, purpose in ((plan.laws, "count"), (plan.last_laws, "last")):
            law = laws[level]
            if law is not None and not (split and purpose == "last"):
                numbers.append((number(law, purpose, depth, node, SOURCE), law.variance))
        if not numbers:
            assert math.isinf(variance)
            continue
        weights = [1 / spread for _, spread in numbers]
        best = sum(weight * noisy for weight, (noisy, _) in zip(weights, numbers, strict=True))
        assert value == pytest.approx(best / sum(weights))
        assert variance == pytest.approx(1 / sum(weights))
        stated = plan.variances.split if split else plan.variances.ended
        assert variance == pytest.approx(stated[level])


@dataclass(frozen=True, kw_only=True, eq=False)
class Noted(NodeNoise):
    """Noise that notes the requests for each node."""

    def at(self, level: int, depth: int, nodes: Any) -> Any:
        for node in nodes.tolist():
            NOTED.append((self.purpose, level, node, self.laws[level]))
        return super().at(level, depth, nodes)


NOTED: list[tuple[str, int, int, NoiseLaw | None]] = []


def spent(law: NoiseLaw | None, sensitivity: tuple[int, int]) -> Fraction:
    """What a number with this noise reveals about a count that moves as much as that."""
    if isinstance(law, DiscreteLaplace):
        return sensitivity[0] / law.scale
    if isinstance(law, DiscreteGaussian):
        return sensitivity[1] / (2 * law.sigma_squared)
    return Fraction(0)


@pytest.mark.parametrize("name", PLANS)
def test_every_path_spends_the_budget(name: str) -> None:
    """And nothing is drawn twice from one stream."""
    plan = PLANS[name]
    for source in SOURCES:
        NOTED.clear()
        found = BOX.grown(plan, source, Noted)
        assert len({each[:3] for each in NOTED}) == len(NOTED)
        paid: dict[Node, Fraction] = {}
        for _, level, node, law in NOTED:
            sensitivity = level_sensitivity(plan.unit, single_node=level == 0)
            paid[level, node] = paid.get((level, node), Fraction(0)) + spent(law, sensitivity)
        for (level, node), split in splits_by_node(found).items():
            if split or not BOX.below(plan.depths[level], node):
                continue
            path = [
                (above, node >> (plan.depths[level] - plan.depths[above]))
                for above in range(level + 1)
            ]
            assert sum(paid.get(each, Fraction(0)) for each in path) == sum(plan.amounts)


@pytest.mark.parametrize("measure", Measure)
@pytest.mark.parametrize("unit", UNITS)
def test_no_unit_moves_more_than_the_budget(unit: PrivacyUnit, measure: Measure) -> None:
    """All units of few rows on all trees of a small shape, by brute force; some move just that."""
    plan = AdaptivePartitionPlan(
        depths=(0, 1, 2),
        amounts=(Fraction(1, 2), Fraction(1), Fraction(3, 2)),
        thresholds=(0, 0),
        most=4,
        measure=measure,
        unit=unit,
    )
    rows = range(unit.rows + 1)
    units = [each for each in itertools.product(rows, repeat=4) if sum(each) <= unit.rows]
    others = units if unit.substitutes else [(0, 0, 0, 0)]
    most = Fraction(0)
    for splits in itertools.product([False, True], repeat=3):
        weights = _weights(plan, splits)
        for one, two in itertools.product(units, others):
            moved = np.subtract(one, two)
            loss = Fraction(0)
            for (level, node), laws in weights.items():
                change = abs(int(moved[node << (2 - level) : (node + 1) << (2 - level)].sum()))
                for law in laws:
                    own = change if measure is Measure.EPSILON else change**2
                    loss += own * spent(law, (1, 1))
            most = max(most, loss)
    assert most == sum(plan.amounts)


def _weights(
    plan: AdaptivePartitionPlan, splits: tuple[bool, ...]
) -> dict[Node, list[NoiseLaw | None]]:
    """The laws of all numbers of each node of the tree in which some nodes are split."""
    found = {(0, 0): [plan.laws[0]]}
    if not splits[0]:
        return {(0, 0): [plan.laws[0], plan.last_laws[0]]}
    for node in range(2):
        found[1, node] = [plan.laws[1]]
        if splits[1 + node]:
            found |= {(2, 2 * node + child): [plan.laws[2]] for child in range(2)}
        else:
            found[1, node].append(plan.last_laws[1])
    return found


def test_without_noise_it_is_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    without_noise(monkeypatch)
    for plan in PLANS.values():
        BOX.check_counts(BOX.grown(plan))


def test_counts_and_estimates_add_up() -> None:
    for plan in PLANS.values():
        check_sums(BOX.grown(plan))


def test_at_most_so_many_nodes_of_a_level_are_split() -> None:
    found = BOX.grown(make_plan(most=2, thresholds=(0, 0, 0)))
    sizes = [len(level) for level in found.tree.levels]
    assert sizes == [1, 4, 16, 16]


def test_of_a_level_between_as_many_are_split_as_its_families_have() -> None:
    plan = make_plan(**BETWEEN | {"thresholds": (0, 0, 0, 0, 0, 0)}, most=2)
    split = [int((~ends).sum()) for ends in BOX.grown(plan).tree.leaves()]
    assert split[1] == split[3] == 2 and 2 < split[2] <= 4 and 2 < split[4] <= 4


def test_trees_differ_from_draw_to_draw() -> None:
    plan = make_plan(amounts=(0, Fraction(1, 3), Fraction(1, 3), Fraction(1, 3)))
    sources = [replace(SOURCE, nonce=bytes([number])) for number in range(5)]
    sizes = {len(splits_by_node(BOX.grown(plan, source))) for source in sources}
    assert len(sizes) > 2 and min(sizes) > 1


def test_spending_and_state() -> None:
    plan = make_plan()
    assert plan.spending == Spending(epsilon=Fraction(9, 2))
    assert make_plan(measure=Measure.RHO).spending == Spending(rho=Fraction(9, 2), moved=None)
    assert plan.state_bytes is None and make_plan(holding=Holding.DENSE).state_bytes == 8 * 2**8


def test_a_specification_is_read_back() -> None:
    for plan in PLANS.values():
        spec = json.loads(json.dumps(plan.spec()))
        assert PartitionMechanism.from_spec(spec) == plan
        first, *rest = spec["levels"][1:]
        key = "last_scale" if plan.measure is Measure.EPSILON else "last_sigma_squared"
        for changed in (first | {key: "1/100"}, {**first, "decision_scale": "1/100"}):
            with pytest.raises(ValueError, match=r"^levels: it does not follow from the other"):
                PartitionMechanism.from_spec(spec | {"levels": [spec["levels"][0], changed, *rest]})


def test_what_does_not_fit_is_refused() -> None:
    amounts = "amounts: at least 0; the last, and one of the first two, above 0"
    rows: list[tuple[dict[str, Any], str]] = [
        ({"depths": (1, 2, 3, 4)}, "depths: (1, 2, 3, 4) do not begin with 0 and go on"),
        ({"depths": (0, 2, 2, 4)}, "depths: (0, 2, 2, 4) do not rise"),
        ({"depths": (0, 2, 4)}, "amounts: 4 for 3 levels"),
        ({"amounts": (0, 0, 1, 1)}, amounts),
        ({"amounts": (0, 1, 1, 0)}, amounts),
        ({"amounts": (0, 1, -1, 1)}, amounts),
        ({"amounts": (-1, 1, 1, 1)}, amounts),
        ({"public_total": True}, "public_total: under substitute only, and the root then costs"),
        ({"thresholds": (0, 1)}, "thresholds: (0, 1) are not 3 of at least 0"),
        ({"thresholds": (0, -1, 2)}, "thresholds: (0, -1, 2) are not 3 of at least 0"),
        ({"most": 0}, "most: 0 is not at least 1"),
        ({"decision_part": Fraction(1)}, "decision_part: 1 is not at least 0 and below 1"),
    ]
    check_refusals(make_plan, rows)
