"""A mechanism is added by its own files and a line in both tables of `dpcore.mechanisms`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dptrees.dpcore.levels.workload import OrderedWorkload
from dptrees.dpcore.noise.laws import DiscreteGaussian, ZeroNoise
from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.ordered.domain_kinds import make_domain
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW, Budget, Measure
from dptrees.dpcore.questions.planning import Setting
from dptrees.dpcore.release.plan import ReleasePlan, plan_from_spec
from dptrees.dpcore.release.released import release_counts
from dptrees.dpcore.rows.keys import KeyList
from dptrees.pipelines.config.configuration import load_configuration
from tests import toy_mechanism
from tests.pipelines.conftest import Workspace
from tests.pipelines.report_page import parse_elements

LEAVES, KEYS = 8, 4000
KEY = ReleaseKey(bytes(range(32)))
EXACT = np.random.default_rng(3).poisson(300, (KEYS, LEAVES))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    toy_mechanism.register(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> tuple[Workspace, str]:
    """A configuration of one tree, measured by the toy."""
    workspace = Workspace(tmp_path)
    tree = workspace.settings["trees"][0] | {"mechanism": "toy"}
    return workspace, workspace.configure(lambda settings: settings.update(trees=[tree]))


def release_plan() -> ReleasePlan:
    """One tree for each of many keys."""
    domain = {"column": "age", "type": "integer", "lower": 0, "upper": LEAVES}
    keys = KeyList(column="key", keys=tuple(f"k{code}" for code in range(KEYS)), unknown="drop")
    workload = OrderedWorkload(
        name="ages",
        domain=make_domain(domain | {"outside": "clamp", "missing": "first"}),
        keys=keys,
        mechanism="toy",
    )
    budget = Budget(measure=Measure.RHO, amount=Fraction(1, 50))
    question = workload.planned(Setting(unit=ADD_REMOVE_ROW, budget=budget))
    return ReleasePlan(name="toy", unit=ADD_REMOVE_ROW, budget=budget, questions=(question,))


def with_laws(plan: ReleasePlan, change: Callable[[Any], Any]) -> ReleasePlan:
    """The same plan, whose errors are predicted as before, but whose noise has other laws."""
    (question,) = plan.questions
    mechanism: Any = question.mechanism  # type: ignore[attr-defined]
    planted, variances = replace(mechanism.plan), mechanism.plan.variances
    vars(planted).update(laws=tuple(map(change, mechanism.plan.laws)), variances=variances)
    changed: Any = replace(question, mechanism=replace(mechanism, plan=planted))  # type: ignore[call-arg]
    return replace(plan, questions=(changed,))


def leaves(plan: ReleasePlan, *names: str) -> list[Any]:
    """Columns of the released leaves, (keys, leaves) each."""
    table = release_counts(plan, {"ages": EXACT}, KEY)._read("nodes", "ages", 0, 0)
    rows = table.filter(np.asarray(table["level"]) == 1)
    return [np.asarray(rows[name]).reshape(KEYS, LEAVES) for name in names]


def has_predicted_variance(plan: ReleasePlan) -> bool:
    """Whether the squared errors of a leaf of each key, which are independent, fit a closed form.

    Their sum is between the bounds with a probability above 1 - 1e-6: a discrete Gaussian is
    subgaussian (Laurent and Massart's lemma 1, above), and its fourth moment is at most
    3 sigma^4 (Bernstein's method, below).
    """
    root, leaf = (1 / (2 * part / 50) for part in (0.2, 0.8))
    variance = leaf - leaf**2 / (LEAVES * leaf + root)
    estimate, std_error = leaves(plan, "estimate", "std_error")
    assert std_error == pytest.approx(variance**0.5, rel=1e-6)
    squares, x = float(((estimate - EXACT)[:, 0] ** 2).sum() / variance), math.log(2e6)
    return -math.sqrt(6 * KEYS * x) < squares - KEYS < 2 * math.sqrt(KEYS * x) + 2 * x


def test_it_is_configured_and_described(path: tuple[Workspace, str]) -> None:
    workspace, file = path
    plan = load_configuration(file).plan()
    assert [question.kind for question in plan.questions] == ["toy"]
    assert plan_from_spec(json.loads(json.dumps(plan.spec()))) == plan
    outcome = workspace.run("plan", file)
    assert outcome.code == 0, outcome.err
    assert "all: 16 cells\n" in outcome.out and "  mechanism: toy\n" in outcome.out
    assert (
        "  level 1: nodes 16, epsilon 4/5, noise law discrete Laplace, scale 5/4\n" in outcome.out
    )
    (tree,) = json.loads(workspace.run("plan", file, "--json").out)["trees"]
    assert tree["mechanism"] == "toy" and [each["nodes"] for each in tree["levels"]] == [1, 16]


def test_its_entry_in_the_manifest_describes_it_on_the_page(path: tuple[Workspace, str]) -> None:
    workspace, file = path
    outcome = workspace.run("release", file)
    assert outcome.code == 0, outcome.err
    page = parse_elements((workspace.output / "report.html").read_text())
    for words in ("Noise per level, and how it was planned", "Mechanismtoy", "epsilon = 1"):
        assert words in page.text
    assert "1164/5law discrete Laplace, scale 5/4" in page.text


def test_an_error_that_it_does_not_predict_is_no_target(path: tuple[Workspace, str]) -> None:
    workspace, file = path
    for wanted in ("20", "0.5"):
        outcome = workspace.run("plan", file, "--target-error", wanted)
        assert outcome.code == 2 and "has no predicted error" in outcome.err, outcome


def test_keys_without_effect_are_refused(path: tuple[Workspace, str]) -> None:
    workspace, file = path
    text = Path(file).read_text()
    Path(file).write_text(text.replace("mechanism: toy", "mechanism: toy\n  fanouts: [4, 4]"))
    outcome = workspace.run("plan", file)
    assert outcome.code == 2 and "fanouts: the mechanism toy has its own" in outcome.err, outcome


def test_another_name_is_refused(path: tuple[Workspace, str]) -> None:
    workspace, file = path
    Path(file).write_text(Path(file).read_text().replace("mechanism: toy", "mechanism: toys"))
    outcome = workspace.run("plan", file)
    assert outcome.code == 2 and "factorised or toy" in outcome.err


def test_zero_noise_gives_the_true_counts() -> None:
    silent = with_laws(release_plan(), lambda law: ZeroNoise())
    estimate, counts = leaves(silent, "estimate", "count")
    assert estimate == pytest.approx(EXACT) and (counts == EXACT).all()


def test_estimates_have_the_predicted_variance() -> None:
    read = plan_from_spec(json.loads(json.dumps(release_plan().spec())))
    assert read == release_plan() and has_predicted_variance(read)


def test_too_little_noise_is_found() -> None:
    def less(law: DiscreteGaussian) -> DiscreteGaussian:
        return replace(law, sigma_squared=law.sigma_squared * Fraction(49, 100))

    assert not has_predicted_variance(with_laws(release_plan(), less))
