"""Errors relative to counts, thresholds and estimation none in a configuration: what is chosen,
what is spent, every refusal."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dptrees.dpcore.levels import hierarchy as hierarchy_plan
from dptrees.dpcore.levels.irregular import IrregularMechanism, ThresholdMechanism
from dptrees.dpcore.privacy.unit import ROW_UNITS, SUBSTITUTE_ROW, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.sections.document import ConfigurationError
from tests.pipelines.plans import plan_of
from tests.pipelines.refusals import not_refused

HEIGHT = 6
PURE = {"epsilon": 1, "neighbors": "add_remove"}
APPROXIMATE = PURE | {"delta": 1e-6}
# The bound of the rows keeps calibration short.
RELATIVE = {
    "objective": "relative",
    "metric": "alpha_mrmse",
    "alpha": 0.98,
    "rows_at_most": 10_000,
}
THRESHOLDS = RELATIVE | {"mechanism": "thresholds"}


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The leaves of a tall and narrow tree, and of one that is too large for thresholds."""
    made = tmp_path_factory.mktemp("tables")
    codes = ["".join(digits) for digits in itertools.product("01", repeat=HEIGHT)]
    pq.write_table(pa.table({"code": codes}), made / "tall.parquet")
    large = [f"{number:06d}" for number in range(2**17 + 1)]
    pq.write_table(pa.table({"code": large}), made / "large.parquet")
    return made


def tall(folder: Path) -> dict[str, Any]:
    """The domain of a tree with a level for each digit."""
    domain = {"kind": "hierarchy", "column": "code", "digits": [1] * HEIGHT}
    levels = [f"bit{number}" for number in range(HEIGHT)]
    return domain | {"levels": levels, "table": str(folder / "tall.parquet")}


def flat(folder: Path) -> dict[str, Any]:
    """The domain of a tree of few levels, planned in no time."""
    return tall(folder) | {"digits": [HEIGHT // 2] * 2, "levels": ["high", "low"]}


def make_plan(folder: Path, privacy: dict[str, Any], *trees: dict[str, Any]) -> ReleasePlan:
    named = [{"name": f"tree{n}", "domain": tall(folder)} | tree for n, tree in enumerate(trees)]
    return plan_of(*named, **privacy)


def make_question(folder: Path, privacy: dict[str, Any], **tree: Any) -> Question:
    (question,) = make_plan(folder, privacy, tree).questions
    return question


# --- what is chosen ---


def test_thresholds_are_chosen_where_their_bound_is_smaller_and_only_there(folder: Path) -> None:
    for alpha, is_better in ((0.98, True), (0.5, False)):
        tree = RELATIVE | {"alpha": alpha} | ({} if is_better else {"domain": flat(folder)})
        chosen = make_question(folder, APPROXIMATE, **tree)
        bound = make_question(folder, APPROXIMATE, **tree | {"mechanism": "thresholds"})
        noise = make_question(folder, APPROXIMATE, **tree | {"noise": "laplace"})
        assert isinstance(bound.mechanism, ThresholdMechanism) and isinstance(
            noise.mechanism, IrregularMechanism
        )
        errors = bound.mechanism.predicted_error, noise.mechanism.predicted_error
        assert (errors[0] < errors[1]) == is_better
        assert chosen == (bound if is_better else noise) or chosen.spec() == (
            bound.spec() if is_better else noise.spec()
        )
        # The requested plan is kept, however much worse it is.
        assert noise.spending.own == (1, 0) and bound.spending.own == (1, Fraction(1, 10**6))


def test_an_estimate_that_is_requested_is_not_weighed(folder: Path, monkeypatch) -> None:
    def worse(*given: Any) -> Any:
        found = hierarchy_plan_candidates(*given)
        return tuple(
            replace(each, predicted=1e9 if each.estimation == "least_squares" else 1.0)
            for each in found
        )

    hierarchy_plan_candidates = hierarchy_plan.noise_candidates
    monkeypatch.setattr(hierarchy_plan, "noise_candidates", worse)
    tree = RELATIVE | {"alpha": 0.4, "domain": flat(folder)}  # an objective of no other test
    question = make_question(folder, PURE, **tree, estimation="least_squares")
    assert (
        isinstance(question.mechanism, IrregularMechanism)
        and question.mechanism.estimation == "least_squares"
    )
    free = make_question(folder, PURE, **tree)
    assert isinstance(free.mechanism, IrregularMechanism) and free.mechanism.estimation == "none"


# --- what is spent ---


def test_what_trees_spend_adds_up_to_what_is_stated(folder: Path) -> None:
    trees = (
        THRESHOLDS | {"weight": 1},
        {"noise": "laplace", "weight": 1},
        {"noise": "gaussian", "mechanism": "tree", "weight": 2},
    )
    plan = make_plan(folder, APPROXIMATE | {"epsilon": 2}, *trees)
    thresholds, pure, shared = plan.questions
    assert plan.stated == (2, Fraction(1, 10**6))
    assert [each.name for each in plan.composed] == ["tree2"]
    assert thresholds.spending.own == (Fraction(1, 2), Fraction(1, 4 * 10**6))
    assert pure.spending.own == (Fraction(1, 2), 0)
    assert shared.budget is not None and shared.budget.measure is Measure.RHO
    for index in range(3):
        again = replace(plan.questions[index], name="again")
        with pytest.raises(ValueError, match=r"delta: the noise does not keep|budgets sum to"):
            replace(plan, questions=(*plan.questions, again))


# --- what is said ---


@pytest.mark.parametrize("by", [None, {"column": "sex", "keys": ["f", "m"]}])
@pytest.mark.parametrize("unit", ROW_UNITS)
def test_rounds_spend_what_a_row_may_cost(folder: Path, unit: PrivacyUnit, by: Any) -> None:
    """A row substituted is one removed and one added, in the tree of its key or of two."""
    privacy = APPROXIMATE | {"neighbors": unit.neighbors.value}
    question = make_question(folder, privacy, **THRESHOLDS | ({"group_by": by} if by else {}))
    assert isinstance(question.mechanism, ThresholdMechanism)
    plan, steps = question.plan.thresholds, 2 if unit == SUBSTITUTE_ROW else 1
    assert plan.group.steps == steps and question.plan.keyed == (by is not None)
    assert plan.group.row_epsilon == Fraction(1, steps)
    spent = sum((each.epsilon for each in plan.rounds), Fraction())
    assert 0.99 / steps < spent <= Fraction(1, steps)
    assert 0 < sum(each.delta for each in plan.rounds) <= plan.group.row_delta
    assert (plan.group.row_delta < Fraction(1, 2 * 10**6)) == (steps == 2)
    # The bound of the rows shapes the plan and its intervals, and no noise.
    assert question.plan.rows_at_most == max(question.widths.high) == 10_000
    assert question.spec()["rows_at_most"] == 10_000
    assert "rows_at_most" not in question.law_spec()


# --- what is refused ---

NO_DELTA = "privacy.delta: trees[0]: the mechanism thresholds needs one beside epsilon"


def test_refusals(folder: Path) -> None:
    rho = {"rho": 1, "neighbors": "add_remove"}
    unmeasured = {"mechanism": "tree", "estimation": "none", "level_budgets": [0] * HEIGHT + [1]}
    rows = [
        (PURE, THRESHOLDS, NO_DELTA),
        (rho, THRESHOLDS, NO_DELTA),
        (APPROXIMATE, THRESHOLDS | {"noise": "gaussian"}, "noise: does not go with the mechanism"),
        (
            APPROXIMATE,
            THRESHOLDS | {"alpha": 0},
            "mechanism: thresholds need a tree of at most 2^1",
        ),
        (
            APPROXIMATE,
            {"mechanism": "thresholds"},
            "mechanism: thresholds go with the objective re",
        ),
        *(
            (APPROXIMATE, THRESHOLDS | {key: value}, f"{key}: does not go with the mechanism thres")
            for key, value in (
                ("level_budgets", "equal"),
                ("estimation", "least_squares"),
                ("measure", {"column": "x", "lower": 0, "upper": 1}),
            )
        ),
        *(
            (PURE, {key: value}, f"trees[0].{key}: belongs to the objective relative")
            for key, value in (
                ("metric", "rel_kappa"),
                ("alpha", 0.5),
                ("kappa", 1),
                ("guess", [1] * (HEIGHT + 1)),
                ("rows_at_most", 100),
            )
        ),
        (PURE, {"estimation": "none"}, "trees[0].estimation: none goes with the mechanism tree"),
        (
            PURE,
            {"objective": "relative", "alpha": 1, "node_weights": {"": 1}},
            "trees[0].node_weights: belongs to the objective nodes",
        ),
        (PURE, RELATIVE | {"rows_at_most": 0}, "trees[0].rows_at_most: must be from 1 to 2^40"),
        (PURE, RELATIVE | {"guess": [20_000] * (HEIGHT + 1)}, "guess: is above rows_at_most"),
        (PURE, RELATIVE | {"guess": {"root": 5}}, "guess: must have a number for each level, also"),
        (PURE, unmeasured, "trees[0].estimation: none needs every level to be measured"),
    ]
    single = [
        ({}, "alpha: is required with the metric alpha_rmse"),
        ({"metric": "rel_kappa"}, "kappa: is required with the metric rel_kappa"),
        (
            {"metric": "rms_rel_kappa", "alpha": 1},
            "kappa: is required with the metric rms_rel_kappa",
        ),
        (
            {"metric": "median", "alpha": 1},
            "metric: 'median' must be alpha_rmse, alpha_mrmse, rel_kappa or",
        ),
        ({"metric": "rms_rel_kappa", "kappa": 1e-300}, "needs one of at least 1e-09"),
        ({"metric": "rel_kappa", "kappa": 0}, "needs one of at least 1e-09"),
        ({"alpha": -1}, "alpha: "),
        ({"alpha": 0.5, "mechanism": "privhp"}, "mechanism: 'privhp' must be planned, tree"),
        ({"alpha": 0.5, "estimation": "full"}, "estimation: 'full' must be least_squares"),
    ]
    rows += [(PURE, {"objective": "relative"} | tree, words) for tree, words in single]

    def attempt(privacy: dict[str, Any], tree: dict[str, Any]) -> None:
        make_plan(folder, privacy, tree)

    assert not not_refused(attempt, rows, ConfigurationError)


def test_a_tree_of_too_many_leaves(folder: Path) -> None:
    domain = {"kind": "hierarchy", "column": "code", "digits": [3, 3], "levels": ["high", "low"]}
    tree = {"domain": domain | {"table": str(folder / "large.parquet")}}
    with pytest.raises(ConfigurationError, match=r"trees\[0\]\.mechanism: thresholds need a tree"):
        make_plan(folder, APPROXIMATE, THRESHOLDS | tree)
    # Where the choice is free, it gets noise.
    assert isinstance(
        make_question(folder, APPROXIMATE, **RELATIVE | tree).mechanism, IrregularMechanism
    )
