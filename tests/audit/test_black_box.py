"""A short form of the black box: every configuration is made, and half of the noise is found; and
the page of the audits."""

from __future__ import annotations

import doctest
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from benchmarks.audit import __main__ as audits
from benchmarks.audit import black_box
from benchmarks.audit.black_box import Claim, limits, lower_bound
from benchmarks.audit.exact import Finding

EPSILON = Claim(measure="epsilon", amount=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(black_box.KINDS))
def test_a_correct_release_keeps_its_claim(name: str) -> None:
    assert black_box.bound(name, None, 20) <= 1


@pytest.mark.parametrize("name", ["means", "categories"])
def test_half_of_the_noise_is_found(name: str) -> None:
    assert black_box.bound(name, black_box.half, 2500) > 1


def test_the_section_replaces_an_earlier_one(tmp_path: Path) -> None:
    page = tmp_path / "audit.md"
    page.write_text("# A\n\n## Limits of these audits\n\nNone.\n")
    entry = {"claim": "epsilon 1", "releases": 10, "correct": 0.9, "half": 1.5}
    for _ in range(2):
        black_box.write(page, black_box.page({"means": entry}))
    text = page.read_text()
    assert text.count("## 2. A black box") == 1 and text.endswith("None.\n")
    assert "| means | epsilon 1 | 10 | 0.9000 | 1.500 | found |" in text
    assert "Not run: ordered, epsilon" in text


def test_bounds_of_known_laws() -> None:
    """A normal variable moved by 1 has rho 1/2; randomized response of ln 3 its epsilon; and equal
    laws reveal nothing."""
    rng = np.random.default_rng(0)
    one, two = (rng.normal(mean, 1, (20_000, 1)) for mean in (0, 1))
    rho = Claim(measure="rho", amount=1)  # type: ignore[arg-type]
    assert 0.3 < lower_bound(rho, one, two, 1e-6) <= 0.5
    one, two = (rng.binomial(1, p, (20_000, 1)).astype(float) for p in (0.25, 0.75))
    assert 0.9 * math.log(3) < lower_bound(EPSILON, one, two, 1e-6) <= math.log(3)
    one, two = (rng.laplace(0, 1, (3000, 3)).round() for _ in range(2))
    assert lower_bound(EPSILON, one, two, 1e-6) == 0


def test_limits_are_those_of_clopper_and_pearson() -> None:
    low, high = limits(30, 100, 0.025)
    assert stats.binom.sf(29, 100, low) == pytest.approx(0.025)
    assert stats.binom.cdf(30, 100, high) == pytest.approx(0.025)
    tried = doctest.testmod(black_box)
    assert tried.attempted and not tried.failed


def test_a_part_replaces_its_own_findings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page has the findings of earlier runs too, read back unchanged."""
    monkeypatch.setattr(audits, "STORED", tmp_path / "findings.json")
    made = {"one": Finding(pairs=3, ratio=0.5), "two": Finding(pairs=4, ratio=1.25, leaks=1)}
    parts = {name: lambda own, plans: iter([(own, "rho", made[own])]) for name in made}
    monkeypatch.setattr(audits, "PARTS", parts)
    audits.main(["--only", "one", "two"])
    made["one"] = Finding(pairs=5, ratio=0.75)
    page = tmp_path / "audit.md"
    audits.main(["--only", "one", "--write", str(page)])
    assert audits.read_findings() == {(name, "rho"): each for name, each in made.items()}
    text = page.read_text()
    assert "| one | rho | 5 | 0.7500 | 0 |" in text and "| two | rho | 4 | 1.2500 | 1 |" in text
    assert "**no**" in text


def test_the_committed_page_was_drawn_from_the_findings() -> None:
    """Both are written by one command, and neither by hand."""
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    assert text == audits.document(audits.read_findings(), quick=False)
