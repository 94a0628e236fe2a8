"""CDFs and quantiles of adaptive trees: read back, in chunks, with intervals that hold."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from dptrees.dpcore.adaptive.drawn_trees import DrawnTree
from dptrees.dpcore.adaptive.mechanism import AdaptiveMechanism
from dptrees.dpcore.adaptive.plan import AdaptivePlan
from dptrees.dpcore.adaptive.planner import if_all_split, noise_if_all_split
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.question import OrderedQuestion, ordered_question_from_spec
from dptrees.dpcore.ordered.released import ReleasedCdf
from dptrees.dpcore.ordered.steps import StepDomain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, ROW_UNITS, Budget, Measure, PrivacyUnit
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.dpcore.trees.shapes import UniformTree
from tests.dpcore.mechanisms import changed, drawn_tree, take_mechanism

Integers = npt.NDArray[np.int64]
QUANTILES = (0.05, 0.5, 0.99)
CELLS = 48
CONFIDENCE = 0.9
FALSE_ALARM = 1e-7


def make_question(
    *,
    measure: Measure = Measure.EPSILON,
    unit: PrivacyUnit = ADD_REMOVE_ROW,
    counts: bool = False,
    **fields: Any,
) -> OrderedQuestion[AdaptiveMechanism]:
    plan = AdaptivePlan(
        keyed="keys" in fields,
        tree=UniformTree(leaves=CELLS, fanouts=(3, 4, 4)),
        unit=unit,
        budget=Budget(measure=measure, amount=Fraction(1)),
        level_amounts=tuple(Fraction(each, 10) for each in (0, 3, 3, 4)),
        thresholds=(0, 30, 20),
        decision_part=Fraction(0) if counts else Fraction(1, 5),
        public_total=unit.substitutes,
    )
    domain = StepDomain(
        kind="integer", column="x", lower=0, upper=CELLS, outside="clamp", missing="first"
    )
    named = {"name": "t", "domain": domain, "quantiles": QUANTILES}
    mechanism = take_mechanism(AdaptiveMechanism, fields, plan=plan)
    return OrderedQuestion(**(named | {"confidence": CONFIDENCE} | fields), mechanism=mechanism)


def exact(seed: int = 3) -> Integers:
    rng = np.random.default_rng(seed)
    found: Integers = rng.poisson(np.exp(-np.arange(CELLS) / 9.0) * 60).astype(np.int64)
    return found


def released(
    question: OrderedQuestion[AdaptiveMechanism],
    counts: Integers,
    number: int = 1,
) -> ReleasedCdf:
    assert question.budget is not None
    plan = ReleasePlan(name="r", unit=question.unit, budget=question.budget, questions=(question,))
    release = release_counts(plan, {"t": counts}, ReleaseKey(number.to_bytes(32, "big")))
    tree = release.tree("t")
    assert isinstance(tree, ReleasedCdf)
    return tree


def read_mechanism(given: Any, left: Any, unit: PrivacyUnit) -> AdaptiveMechanism:
    return AdaptiveMechanism.from_entries(left, unit=unit, **given)


def test_a_specification_reads_back() -> None:
    for measure, unit, counts in product(Measure, ROW_UNITS, (False, True)):
        question = make_question(measure=measure, unit=unit, counts=counts, guessed_rows=12.0)
        spec = question.spec()
        given = {"measure": measure, "keyed": question.is_keyed}
        again = ordered_question_from_spec(spec, unit, partial(read_mechanism, given))
        assert again == question
        assert again.law_spec() == changed(question, quantiles=(), guessed_rows=None).law_spec()


def test_a_released_quantile_is_the_one_requested() -> None:
    question = make_question()
    for number in range(20):
        tree = released(question, exact(), number + 1)
        reported = tree.quantiles()
        assert [row["q"] for row in reported] == list(QUANTILES)
        for row in reported:
            found = tree.computed_quantile(row["q"], None)
            assert {name: found[name] for name in ("value", "ci_low", "ci_high")} == {
                name: row[name] for name in ("value", "ci_low", "ci_high")
            }


@pytest.mark.parametrize("chunk_leaves", [2**17, 2 * CELLS, 12])
def test_quantiles_of_all_keys_are_those_of_each(chunk_leaves: int) -> None:
    keys = KeyList(column="k", keys=("a", "b", "c"))
    question = make_question(keys=keys, chunk_leaves=chunk_leaves)
    tree = released(question, np.stack([exact(seed) for seed in range(3)]))
    quantiles = (0.5, 0.3, 0.8)
    found = [tree.quantile(each, key) for key in keys.labels for each in quantiles]
    assert tree.quantiles_by_key(quantiles) == found


def test_cdf_of_the_table_is_what_is_requested() -> None:
    tree = released(make_question(), exact())
    rows = tree._cdf_rows(0).to_pylist()
    inside = 0
    for cell, row in enumerate(rows):
        answer = tree.cdf(cell + 1)
        inside += row["std_error"] is None
        assert (answer.std_error is None) == (row["std_error"] is None)
        assert (answer.remark is None) == (row["std_error"] is not None)
        assert answer.count == row["count"]
        for name in ("estimate", "ci_low", "ci_high"):
            assert getattr(answer, name) == pytest.approx(row[name], abs=1e-6)
    assert 0 < inside < CELLS


def test_bounds_and_errors_are_those_of_the_drawn_tree() -> None:
    tree = released(make_question(), exact())
    drawn = drawn_tree(tree)
    assert isinstance(drawn, DrawnTree)
    for start in range(0, CELLS + 1, 5):
        for stop in range(start, CELLS + 1, 7):
            answer, variance = tree.range(start, stop), drawn.run(start, stop)
            if start == stop:
                assert (answer.ci_low, answer.ci_high) == (0, 0)
            elif np.isnan(variance):
                assert answer.std_error is None and answer.remark is not None
            else:
                assert answer.std_error == pytest.approx(np.sqrt(variance), rel=1e-9)
            assert answer.ci_low <= answer.ci_high


def test_another_confidence_widens_bounds() -> None:
    tree = released(make_question(), exact())
    wider = tree.at_confidence(0.99)
    for node in range(CELLS):
        one, other = tree.node(3, node), wider.node(3, node)
        assert other.ci_low <= one.ci_low and one.ci_high <= other.ci_high
        assert (one.std_error is None) == (other.std_error is None)
        assert other.estimate == pytest.approx(one.estimate)


def test_no_band_at_all_values_at_once() -> None:
    with pytest.raises(ValueError, match="no band"):
        released(make_question(), exact()).cdf(3, simultaneous=True)


def test_a_sum_of_parts_has_the_error_of_the_drawn_tree() -> None:
    tree = released(make_question(), exact())
    edges = drawn_tree(tree).edges
    runs = [(int(edges[0]), int(edges[1])), (int(edges[2]), int(edges[3]))]
    answer = tree.sum(runs)
    assert answer.std_error == pytest.approx(np.sqrt(drawn_tree(tree).runs(runs)))
    everything = tree.sum([(0, 1), (2, CELLS)])
    assert everything.ci_low <= exact().sum() <= everything.ci_high + exact()[1] + 60


@pytest.mark.parametrize("chunk_leaves", [4, 16])
def test_chunks_hold_the_same_tables_and_quantiles(chunk_leaves: int) -> None:
    """Noise follows the chunks, so what is compared is what a chunk says of itself."""
    tree = released(make_question(chunk_leaves=chunk_leaves), exact())
    rows = tree._cdf_rows(0)
    assert len(rows) == CELLS
    counts = rows["count"].to_numpy()
    assert (np.diff(counts, prepend=0) >= 0).all()
    sums = np.cumsum([tree.node(3, node).count for node in range(CELLS)])
    assert (sums == counts).all()
    for row in tree.quantiles():
        found = tree.computed_quantile(row["q"], None)
        assert (found["value"], found["ci_low"], found["ci_high"]) == (
            row["value"],
            row["ci_low"],
            row["ci_high"],
        )


def covered(
    question: OrderedQuestion[AdaptiveMechanism], releases: int, factor: int = 1
) -> dict[str, int]:
    """How often intervals of many releases hold the truth, each in its least favorable place."""
    truth = exact()
    prefix = np.cumsum(truth)
    held = {"prefixes": np.zeros(CELLS, int), "leaves": np.zeros(CELLS, int)}
    for number in range(releases):
        tree = released(question, truth * factor, number + 1)
        rows = tree._cdf_rows(0)
        low, high = (rows[name].to_numpy() for name in ("ci_low", "ci_high"))
        held["prefixes"] += (low <= prefix * factor) & (prefix * factor <= high)
        nodes = next(iter(tree._parts_at(3, 0)))
        low, high = (nodes[name].to_numpy() for name in ("ci_low", "ci_high"))
        held["leaves"] += (low <= truth * factor) & (truth * factor <= high)
    return {name: int(each.min()) for name, each in held.items()}


RELEASES = 250
LEAST = int(stats.binom.ppf(FALSE_ALARM / (2 * CELLS), RELEASES, CONFIDENCE))


@pytest.mark.parametrize("measure", Measure)
def test_intervals_hold_at_edges_and_inside(measure: Measure) -> None:
    found = covered(make_question(measure=measure, quantiles=()), RELEASES)
    assert min(found.values()) >= LEAST


def test_a_margin_of_half_the_width_is_found_out() -> None:
    question = make_question(quantiles=())
    widths = question.widths
    question.remember_widths(replace(widths, slope=widths.slope / 2.5, offset=0.0))
    assert min(covered(question, RELEASES).values()) < LEAST


def test_noise_if_all_split_is_that_of_whole_levels() -> None:
    question = make_question(quantiles=())
    plan = replace(question.plan, thresholds=(-(10**6),) * 3)
    assert if_all_split(plan).laws[1:] == plan.laws[1:]
    split, truth, errors = changed(question, plan=plan), exact(), []
    for number in range(200):
        rows = released(split, truth, number + 1)._cdf_rows(0)
        assert rows["std_error"].null_count == 0
        errors.append(rows["estimate"].to_numpy() - np.cumsum(truth))
    rmse = float(np.sqrt(np.mean(np.square(errors))))
    assert rmse == pytest.approx(noise_if_all_split(plan), rel=0.2)


@pytest.mark.parametrize("counts", [False, True])
def test_no_interval_has_its_low_end_above_its_high_one(counts: bool) -> None:
    """Where noise is larger than what is there, and intervals are short."""
    question = make_question(counts=counts, confidence=0.5)
    for number in range(1, 31):
        rng = np.random.default_rng(number)
        rows = rng.integers(0, 40, CELLS) * (rng.random(CELLS) < 0.1)
        tree = released(question, rows, number)
        table = tree._cdf_rows(0).to_pydict()
        assert (np.array(table["ci_low"]) <= np.array(table["ci_high"])).all()
        for start, stop in ((0, 47), (3, 31), (5, 46), (13, 29)):
            answer = tree.range(start, stop)
            assert answer.ci_low <= answer.ci_high
        assert all(row["ci_low"] <= row["ci_high"] for row in tree.quantiles())
