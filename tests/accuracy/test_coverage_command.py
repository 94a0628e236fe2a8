"""benchmarks/coverage: its limit against the law of coverage, and an error that it must find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from scipy import stats

from benchmarks import coverage
from benchmarks.coverage import Queried

BRIEF = ["--releases", "40", "--trees", "hierarchy", "distinct", "--shapes", "skewed"]


def test_intervals_that_hold_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert coverage.main(BRIEF) == 0
    assert "too low" not in capsys.readouterr().out


def test_an_error_that_is_planted_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intervals that are wide enough for a third of the noise."""
    whole = coverage.answers

    def narrow(name: str, tree: Any, rows: dict[str, Any]) -> Iterator[Queried]:
        for what, error, low, high in whole(name, tree, rows):
            yield Queried(what, error, error + (low - error) / 3, error + (high - error) / 3)

    monkeypatch.setattr(coverage, "answers", narrow)
    assert coverage.main(BRIEF) == 1
    assert "hierarchy: nodes, skewed, 3,000 rows | 0." in (out := capsys.readouterr().out)
    assert "too low" in out


@pytest.mark.parametrize("releases", [40, 120, 1000])
def test_the_limit_is_rarely_reached_where_intervals_hold(releases: int) -> None:
    """The limit of ten lines is that of the binomial law of one answer a release."""
    limit = coverage.least_coverage(releases, 10)
    law = stats.binom(releases, coverage.CONFIDENCE)
    assert 0 < law.cdf(limit * releases) < coverage.FALSE_ALARM / 10
    assert law.cdf((limit + 0.06) * releases) > coverage.FALSE_ALARM / 10
