"""The black-box audit in its short form: only released numbers of releases, each with its own key.

False alarms. A bound is too large only if one of two limits of Clopper and Pearson fails on the
judging half, whatever event the other half chose. Each limit fails with a probability of at most
1e-6 / (2 n) for the n kinds, so all correct releases pass but for 1e-6. So few releases show a
budget that is counted twenty times, whose events have probabilities above 0.9 and below 0.1: with
these keys, which are the same in every run, the bound is 1.1 times the claim or more.
The faults that `make audit` plants need thousands.
"""

from __future__ import annotations

import doctest
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from benchmarks.audit import __main__ as audits
from benchmarks.audit import attack, published, targets
from benchmarks.audit.attack import (
    FAULTS,
    NOTHING,
    TWENTY_BUDGETS,
    TWO_ROWS,
    Attack,
    limits,
    lower_bound,
    released,
)
from benchmarks.audit.exact import Finding
from benchmarks.audit.stored import Findings
from benchmarks.audit.targets import ONE, TARGETS, Claim, Target
from dptrees.dpcore.privacy.budget import Neighbors
from dptrees.dpcore.questions.node_counts import NodeCounts
from dptrees.dpcore.table.counter import table_number
from dptrees.dpcore.table.question import TableQuestion

FALSE_ALARM = 1e-6
RELEASES = 180
# Choices have larger claims, so that the fault shows in more releases; others take longer.
OWN_RELEASES = {
    "quantile": 300,
    "bound of a unit": 1000,
    "wide table": 130,
    "adaptive, averaged counts": 130,
    "box, adaptive, averaged counts": 130,
}


def bound(kind: str, fault: str) -> float:
    """What an attack finds of a kind in a few hundred releases."""
    releases = OWN_RELEASES.get(kind, RELEASES)
    one, two = (released(kind, fault, which, releases) for which in ("one", "two"))
    return lower_bound(TARGETS[kind]().claim, one, two, FALSE_ALARM / len(TARGETS))


@pytest.mark.parametrize("kind", TARGETS)
def test_what_is_released_keeps_its_claim_and_too_little_noise_is_found(kind: str) -> None:
    claim = TARGETS[kind]().claim
    assert bound(kind, NOTHING) <= claim.amount < bound(kind, TWENTY_BUDGETS)


@pytest.mark.parametrize("kind", TARGETS)
def test_the_data_sets_are_neighbours(kind: str) -> None:
    """They differ by one unit: a row, or as many as are counted; of a sum, within its bounds."""
    target = TARGETS[kind]()
    (question,) = target.plan.questions
    assert target.plan.unit.neighbors is Neighbors.ADD_REMOVE
    if isinstance(target.one, tuple):
        differences = np.subtract(target.two, target.one)
    else:
        differences = np.array([n - target.one[path] for path, n in target.two.items()])
    measure = getattr(question, "measure", None)
    rows = target.plan.unit.rows
    least, most = (rows, rows) if measure is None else (measure.lower, measure.upper)
    assert np.count_nonzero(differences) == 1 and least <= differences.sum() <= most
    one, two, twice = (_total(target, which) for which in ("one", "two", "twice"))
    assert twice - two == two - one == differences.sum()


def _total(target: Target, which: str) -> int:
    """The number of rows of a data set; a wide table counts each in every one of its tables."""
    counts = target.data(which)["counts"]["tree"]
    if isinstance(counts, NodeCounts):
        return counts.total
    (question,) = target.plan.questions
    tables = table_number(len(question.columns)) if isinstance(question, TableQuestion) else 1
    return int(counts.sum()) // tables


def test_bounds_of_known_laws() -> None:
    """A normal variable moved by mu = 1 has rho 1/2; randomized response of ln 3 its epsilon."""
    rng = np.random.default_rng(0)
    one, two = (rng.normal(mean, 1, (20_000, 1)) for mean in (0, 1))
    found = lower_bound(Claim(measure="rho", amount=ONE), one, two, FALSE_ALARM)
    assert 0.3 < found <= 0.5
    one, two = (rng.binomial(1, p, (20_000, 1)).astype(float) for p in (0.25, 0.75))
    found = lower_bound(Claim(measure="epsilon", amount=ONE), one, two, FALSE_ALARM)
    assert 0.9 * math.log(3) < found <= math.log(3)


@pytest.mark.parametrize("module", [attack, published, targets])
def test_the_examples_of_the_audits_hold(module: ModuleType) -> None:
    tried = doctest.testmod(module)
    assert tried.attempted and not tried.failed


def test_equal_laws_reveal_nothing() -> None:
    rng = np.random.default_rng(1)
    one, two = (rng.laplace(0, 1, (3000, 3)).round() for _ in range(2))
    assert lower_bound(Claim(measure="epsilon", amount=ONE), one, two, FALSE_ALARM) == 0


def test_limits_are_those_of_clopper_and_pearson() -> None:
    low, high = limits(30, 100, 0.025)
    assert stats.binom.sf(29, 100, low) == pytest.approx(0.025)
    assert stats.binom.cdf(30, 100, high) == pytest.approx(0.025)


def test_the_page_says_what_was_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the audits themselves left out."""
    claim = Claim(measure="epsilon", amount=ONE)
    found = [
        Attack(
            kind="sparse",
            fault=fault,
            claim=claim,
            found=0.7 + (fault != NOTHING),
            releases=2000,
            alarm=1e-5,
        )
        for fault in FAULTS
    ]
    monkeypatch.setattr(audits, "attacks", lambda releases, alarm, kinds: found)
    exact = [("hierarchies", "rho", Finding(pairs=3, ratio=ONE))]
    monkeypatch.setattr(audits, "exact_findings", lambda plans: exact)
    written = tmp_path / "audit.md"
    assert audits.main(["--quick", "--write", str(written)]) == 0
    text = written.read_text()
    assert "| hierarchies | rho | 3 | 1.0000 | 0 |" in text
    assert "| sparse | epsilon 1 | nothing | 2,000 | 0.7000 | not found |" in text
    assert "| sparse | epsilon 1 | one row counted twice | 2,000 | 1.700 | found |" in text
    assert "**no**" not in text
    found[0] = replace(found[0], found=1.2)
    assert "**no**" in audits.attack_section(found)


def test_a_part_replaces_its_own_findings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page has the findings of earlier runs too, read back unchanged."""
    stored = tmp_path / "findings.json"
    monkeypatch.setattr(audits, "STORED", stored)
    claim = Claim(measure="epsilon", amount=ONE, delta=ONE / 7)
    bounds = {"sparse": 0.5, "series": 0.25}

    def attacked(releases: int, alarm: float, kinds: list[str]) -> list[Attack]:
        return [
            Attack(
                kind=each,
                fault=NOTHING,
                claim=claim,
                found=bounds[each],
                releases=releases,
                alarm=1e-5,
            )
            for each in kinds
        ]

    exact = [
        ("hierarchies", "rho", Finding(pairs=3, ratio=ONE / 3)),
        ("sparse trees", "epsilon, delta", Finding(pairs=4, ratio=0.1)),
    ]
    monkeypatch.setattr(audits, "attacks", attacked)
    monkeypatch.setattr(audits, "exact_findings", lambda plans: exact)
    audits.main(["--only", "exact", "sparse", "series"])
    bounds["series"] = 0.75
    page = tmp_path / "audit.md"
    audits.main(["--only", "series", "--releases", "500", "--write", str(page)])
    found = Findings.read(stored)
    assert [(*key, each) for key, each in found.exact.items()] == exact
    assert [(each.kind, each.releases, each.found) for each in found.attacks.values()] == [
        ("series", 500, 0.75),
        ("sparse", audits.RELEASES, 0.5),
    ]
    assert all(each.claim == claim for each in found.attacks.values())
    text = page.read_text()
    assert "| sparse | epsilon 1, delta 0.142857 | nothing | 20,000 | 0.5000 |" in text
    assert "| series | epsilon 1, delta 0.142857 | nothing | 500 | 0.7500 |" in text


def test_the_committed_page_was_drawn_from_the_findings() -> None:
    """Both are written by one command, and neither by hand; it names what was left out."""
    found = Findings.read(audits.STORED)
    attacked = {kind for kind, _ in found.attacks}
    assert attacked <= set(TARGETS) and len(found.attacks) == len(FAULTS) * len(attacked)
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    assert text == audits.document(found, quick=False)
    for kind in TARGETS:
        assert (f"| {kind} |" in text) == (kind in attacked)
    words = " ".join(text.split())
    assert ("Not attacked for this page" in words) == (attacked < set(TARGETS))


def test_both_data_sets_of_every_fault_are_attacked() -> None:
    """A row that is not there is not counted twice: those releases serve two faults."""
    sources = {attack._source("sparse", fault, which) for fault in FAULTS for which in attack.SIDES}
    assert len(sources) == 7 and ("sparse", TWO_ROWS, "one") not in sources
