"""Weights of levels and nodes, and invariants, from a configuration; every refusal."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dptrees.dpcore.hierarchy.domain import HierarchyDomain
from dptrees.dpcore.hierarchy.leaves import universe_from_codes, universe_from_columns
from dptrees.dpcore.irregular.planner import NodeWeights
from dptrees.pipelines.kinds.hierarchy_domain import hierarchy_weights, invariant_level
from dptrees.pipelines.sections.document import RuleBroken, parse_document
from tests.pipelines.refusals import not_refused

TRACTS = ["0101001", "0101002", "0102001", "0203001", "0203002"]
WHERE = HierarchyDomain(
    universe=universe_from_codes(
        pa.array(TRACTS), (2, 2, 3), levels=("state", "county", "tract of land")
    ),
    columns=("code",),
    unknown="other",
)
# One county in each state.
CHAINS = HierarchyDomain(
    universe=universe_from_columns(
        {"state": pa.array(["RI", "CT"]), "county": pa.array(["Kent", "Hartford"])}
    ),
    columns=("state", "county"),
)


def section(text: str) -> object:
    return parse_document(text, "a test")


@pytest.mark.parametrize(
    ("levels", "nodes", "weights"),
    [
        ("{county: 1, tract of land: 2.5}", "~", NodeWeights(levels=(0, 0, 1, 2.5))),
        ("{root: 1}", "~", NodeWeights(levels=(1, 0, 0, 0))),
        ("[0, 1, 0, 2]", "~", NodeWeights(levels=(0, 1, 0, 2))),
        ("~", '{"0102": 3}', NodeWeights(levels=(1, 1, 1, 1), nodes=((2, 1, 3),))),
        (
            "[0, 0, 0, 0]",
            '{"": 1, "02": 0.5, other: 2, "0203001": 0}',
            NodeWeights(levels=(0,) * 4, nodes=((0, 0, 1), (1, 1, 0.5), (1, 2, 2), (3, 3, 0))),
        ),
    ],
)
def test_weights(levels: str, nodes: str, weights: NodeWeights) -> None:
    assert weights_of(levels, nodes) == weights


def weights_of(levels: str, nodes: str) -> NodeWeights | None:
    return hierarchy_weights(WHERE, section(levels), section(nodes))


def test_bad_weights() -> None:
    rows = [
        ("{contry: 1}", "~", ".level_weights: 'contry' is not a level; did you mean county?"),
        ("{x: 1}", "~", "'x' is not a level; known are root, state, county, tract of land"),
        ("{county: -1}", "~", ".level_weights.county: -1 must be a number from 0 to 1e15"),
        ("{county: many}", "~", ".level_weights.county: 'many' must be a number from 0 to 1e15"),
        ("{county: 0}", "~", ".level_weights: must contain a number above 0"),
        ("{}", "~", ".level_weights: must contain a number above 0"),
        ("[0, 0, 0, 0]", '{"01": 0}', ".level_weights: must contain a number above 0"),
        ("[1, 1]", "~", ".level_weights: must be 4 numbers, one for each of root, state, county"),
        ("[1, 1, .inf, 1]", "~", ".level_weights[2]: Infinity must be a number from 0 to 1e15"),
        ("county", "~", ".level_weights: 'county' must be a list"),
        ("~", '{"03": 1}', ".node_weights: '03' is not a path in the universe"),
        ("~", '{"01x": 1}', ".node_weights: '01x' is not a path in the universe"),
        ("~", '{"01": yes}', ".node_weights: '01': 'yes' must be a number from 0 to 1e15"),
        ("~", "[1]", ".node_weights: a list must be a section of keys and values"),
        ("~", "{}", ".node_weights: must hold at least one path"),
    ]
    assert not not_refused(weights_of, rows, RuleBroken)
    assert hierarchy_weights(WHERE, None, None) is None


def test_two_paths_of_one_node() -> None:
    row = (CHAINS, None, {"RI/Kent": 1, "\\RI/Kent": 1}, ".node_weights: ")
    assert not not_refused(hierarchy_weights, [row], RuleBroken)
    with pytest.raises(RuleBroken, match="is the path of an earlier node too"):
        hierarchy_weights(*row[:3])


def test_invariants() -> None:
    levels = {
        "~": None,
        "root": 0,
        "[root]": 0,
        "state": 1,
        "county": 2,
        "[state, county]": 2,
        "[county, root, state]": 2,
    }
    assert {text: invariant_level(WHERE, section(text)) for text in levels} == levels


def test_bad_invariants() -> None:
    rows = [
        (WHERE, "contry", ".invariants: 'contry' is not a level; did you mean county?"),
        (WHERE, "[state, contry]", ".invariants[1]: 'contry' is not a level; did you mean county?"),
        (WHERE, "1", ".invariants: 1 must be a string; put it in quotes"),
        (WHERE, "[]", ".invariants: must have at least one value"),
        (WHERE, "[state, state]", ".invariants[1]: state is listed twice"),
        (WHERE, "tract of land", ".invariants: 'tract of land' has the counts of the leaves"),
        (WHERE, "[county]", ".invariants: 'county' makes the counts of 'state' public as well"),
        (WHERE, "[root, county]", ".invariants: 'county' makes the counts of 'state' public"),
        # A level that repeats the leaves.
        (CHAINS, "state", "'state' has the counts of the leaves"),
    ]
    assert not not_refused(lambda d, text: invariant_level(d, section(text)), rows, RuleBroken)
