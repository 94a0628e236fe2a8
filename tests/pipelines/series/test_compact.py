"""`dptrees series compact`: what no later run reads is deleted, and the series goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.series.runs import People


@pytest.fixture
def made(tmp_path: Path) -> People:
    own = People(tmp_path)
    own.released_periods(3)
    return own


def sealed(made: People, period: int) -> set[str]:
    folder = made.period_folder(period)
    return {kind for kind in ("state", "units") if list(folder.glob(f"{kind}/*"))}


def test_the_last_runs_keep_what_they_sealed_and_the_series_goes_on(made: People) -> None:
    assert sealed(made, 1) == {"state", "units"} and "units" in sealed(made, 2)
    before = made.run("query", made.output, "cdf", "50").out
    outcome = made.succeed("series", "compact", made.output)
    assert "sealed files of 1 run are deleted; the last 2 runs keep theirs" in outcome.out
    assert not sealed(made, 1) and sealed(made, 2) and sealed(made, 3)
    assert made.run("query", made.output, "cdf", "50").out == before
    for period in (1, 2):
        assert made.run("verify", made.period_folder(period)).code == 0
    made.write_period(3)
    (made.period_folder(3) / "units").rename(made.folder / "lost")
    assert made.period(3, "--repair").code == 0
    assert made.run("series", "compact", made.output, "--keep", "1").code == 0
    assert not sealed(made, 2) and sealed(made, 3)
    made.write_period(made.periods)
    assert made.period(made.periods).code == 0
    outcome = made.run("series", "compact", made.output, "--keep", "1")
    assert outcome.code == 0 and "the last run keeps its" in outcome.out


def test_nothing_is_deleted_where_the_last_run_is_damaged(made: People) -> None:
    path = sorted(made.period_folder(3).glob("units/*"))[5]
    path.write_bytes(path.read_bytes()[:-3])
    outcome = made.run("series", "compact", made.output)
    assert outcome.code == 2 and f"{path}: is missing or damaged" in outcome.err
    path.unlink()
    assert made.run("series", "compact", made.output).code == 2
    assert sealed(made, 1) == {"state", "units"}


def test_what_cannot_be_compacted(made: People) -> None:
    for place, keep, words in (
        ("out", "0", "--keep 0: at least the last run's must stay"),
        (".", "2", "holds no series"),
    ):
        outcome = made.run("series", "compact", made.folder / place, "--keep", keep)
        assert outcome.code == 2 and words in outcome.err
    assert sealed(made, 1) == {"state", "units"}
