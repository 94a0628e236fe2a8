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
import yaml

from dptrees.dpcore.irregular.forest import AsMeasuredForest
from dptrees.dpcore.levels import irregular as hierarchy_plan
from dptrees.dpcore.levels.irregular import IrregularMechanism, ThresholdMechanism
from dptrees.dpcore.noise.laws import DiscreteGaussian, DiscreteLaplace
from dptrees.dpcore.noise.source import MAX_COUNT
from dptrees.dpcore.privacy.unit import ROW_UNITS, SUBSTITUTE_ROW, Measure, PrivacyUnit
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.pipelines.config.configuration import parse_configuration
from dptrees.pipelines.kind_pages.hierarchy_page import hierarchy_description
from dptrees.pipelines.sections.document import ConfigurationError
from dptrees.pipelines.show.description import plan_entry
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


def settings_text(folder: Path, privacy: dict[str, Any], *trees: dict[str, Any]) -> str:
    domain = {"kind": "hierarchy", "column": "code", "digits": [1] * HEIGHT}
    domain |= {
        "levels": [f"bit{n}" for n in range(HEIGHT)],
        "table": str(folder / "tall.parquet"),
    }
    whole = [
        {"name": f"tree{number}", "domain": domain} | tree for number, tree in enumerate(trees)
    ]
    return yaml.safe_dump(
        {
            "release": "relative",
            "input": {"format": "parquet", "path": "rows.parquet"},
            "output": "out",
            "key_file": "release.key",
            "privacy": privacy,
            "trees": whole,
        }
    )


def flat(folder: Path) -> dict[str, Any]:
    """The domain of a tree of few levels, planned in no time."""
    domain = {
        "kind": "hierarchy",
        "column": "code",
        "digits": [HEIGHT // 2] * 2,
        "levels": ["high", "low"],
    }
    return domain | {"table": str(folder / "tall.parquet")}


def make_plan(folder: Path, privacy: dict[str, Any], *trees: dict[str, Any]) -> ReleasePlan:
    return parse_configuration(settings_text(folder, privacy, *trees), "a.yaml").plan()


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


@pytest.mark.parametrize("estimation", ["least_squares", None])
def test_a_hierarchy_that_requests_an_estimate_gets_it(
    folder: Path, estimation: str | None
) -> None:
    settings = {} if estimation is None else {"estimation": estimation}
    question = make_question(folder, PURE, **RELATIVE | settings, domain=flat(folder))
    assert (
        isinstance(question.mechanism, IrregularMechanism)
        and question.mechanism.estimation == "least_squares"
    )
    assert question.mechanism.objective is not None and question.mechanism.objective.alpha == 0.98


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


@pytest.mark.parametrize(
    ("privacy", "noise", "law"),
    [
        (PURE, "best", DiscreteLaplace),
        ({"rho": 1, "neighbors": "add_remove"}, "best", DiscreteGaussian),
        (APPROXIMATE, "gaussian", DiscreteGaussian),
        (APPROXIMATE, "laplace", DiscreteLaplace),
    ],
)
def test_the_laplace_and_the_gaussian_tree(
    folder: Path, privacy: dict[str, Any], noise: str, law: type
) -> None:
    question = make_question(folder, privacy, mechanism="tree", estimation="none", noise=noise)
    assert isinstance(question.mechanism, IrregularMechanism)
    assert isinstance(question.forest, AsMeasuredForest)
    plan = question.plan
    share = float(plan.budget.amount) / (HEIGHT + 1)
    assert [float(amount) for amount in plan.level_amounts] == pytest.approx(
        [share] * (HEIGHT + 1), rel=1e-3
    )
    assert sum(plan.level_amounts) <= plan.budget.amount
    laws = [plan.law(level, 0) for level in range(HEIGHT + 1)]
    assert {type(each) for each in laws} == {law}
    # No estimate is better than its own measurement.
    own = [each.variance**0.5 for each in laws if each is not None]
    entry = plan_entry(question, hierarchy_description(question))
    assert entry["predicted"]["level_rmse"] == pytest.approx(own)
    assert question.mechanism.predicted_error == pytest.approx(own[0], rel=1e-3)


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


@pytest.mark.parametrize("by", [None, {"column": "sex", "keys": ["f", "m"]}])
@pytest.mark.parametrize("unit", ROW_UNITS)
def test_rounds_spend_what_a_row_may_cost(folder: Path, unit: PrivacyUnit, by: Any) -> None:
    """A row substituted is one removed and one added, in the tree of its key or of two."""
    privacy = APPROXIMATE | {"neighbors": unit.neighbors.value}
    tree = THRESHOLDS if by is None else THRESHOLDS | {"group_by": by}
    question = make_question(folder, privacy, **tree)
    assert isinstance(question.mechanism, ThresholdMechanism)
    plan, steps = question.plan.thresholds, 2 if unit == SUBSTITUTE_ROW else 1
    assert plan.group.steps == steps and question.plan.keyed == (by is not None)
    assert plan.group.row_epsilon == Fraction(1, steps)
    spent = sum((each.epsilon for each in plan.rounds), Fraction())
    assert 0.99 / steps < spent <= Fraction(1, steps)
    assert 0 < sum(each.delta for each in plan.rounds) <= plan.group.row_delta
    assert (plan.group.row_delta < Fraction(1, 2 * 10**6)) == (steps == 2)


def test_a_bound_of_the_rows_shapes_the_plan_and_its_intervals(folder: Path) -> None:
    question = make_question(folder, APPROXIMATE, **THRESHOLDS)
    assert isinstance(question.mechanism, ThresholdMechanism)
    assert question.plan.rows_at_most == 10_000 < MAX_COUNT
    assert max(question.widths.high) == 10_000
    assert question.spec()["rows_at_most"] == 10_000
    assert "rows_at_most" not in question.law_spec()


# --- what is said ---


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
        ({"metric": "median", "alpha": 1}, "metric: 'median' must be alpha_rmse, alpha_mrmse or"),
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
