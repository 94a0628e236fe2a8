"""Who may read the files of a release, a series and a ledger, whatever the umask: from the first
byte on, and by one table of all their paths."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from dptrees.pipelines.ledger.database import Database, upgrade
from dptrees.pipelines.sections.values import LedgerUrl
from tests.pipelines.series.runs import People

# Of what commands write below the workspace: what may be published, and what is its owner's.
PUBLIC = re.compile(
    r"out(/period-\d+(/to-date)?(/nodes|/cdf)?)?"
    r"|out/period-\d+/((to-date/)?((nodes|cdf)/)?[^.][^/]*\.parquet"
    r"|(manifest|nonce|record|plan)\.json|quantiles\.parquet|report\.html)"
)
PRIVATE = re.compile(
    r"out/period-\d+/(units|state)(/[^/]+\.parquet)?|out\.period-\d+\.run\.json|budget\.db"
)
WRITTEN_BY_THE_TEST = re.compile(r"rows(/.*)?|release\.(key|yaml)")


class Booked(People):
    """Two periods of a series that remembers its people, in a ledger."""

    @property
    def ledger(self) -> str:
        return f"sqlite:///{self.folder / 'budget.db'}"

    def open_ledger(self) -> None:
        account = ("--dataset", "people", "--rho", str(2 * 10**9), "--unit", "person")
        self.succeed("ledger", "init", self.ledger, *account)

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | {"ledger": self.ledger, "dataset": "people"}


@pytest.fixture(params=[0o000, 0o022], ids=oct)
def mask(request: pytest.FixtureRequest) -> Any:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_only_public_files_are_readable_by_others(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary: dict[str, int] = {}
    for name in ("replace", "link"):
        finish = getattr(os, name)

        def seen(source: str, target: str, finish: Any = finish, **options: Any) -> None:
            temporary[str(target)] = mode(source)
            finish(source, target, **options)

        monkeypatch.setattr(os, name, seen)
    made = Booked(tmp_path)
    made.open_ledger()
    made.released_periods(2)

    found = {str(path.relative_to(tmp_path)): path for path in tmp_path.rglob("*")}
    kinds: dict[str, set[int]] = {"public": set(), "private": set()}
    for name, path in found.items():
        if WRITTEN_BY_THE_TEST.fullmatch(name):
            continue
        is_public, is_private = bool(PUBLIC.fullmatch(name)), bool(PRIVATE.fullmatch(name))
        assert is_public != is_private, f"{name} is in neither part of the table, or in both"
        full = 0o777 if path.is_dir() else 0o666
        expected = full & (~mask if is_public else 0o700)
        assert mode(path) == expected, name
        if is_private and path.is_file() and str(path) in temporary:
            assert temporary[str(path)] == 0o600, name
        kinds["public" if is_public else "private"].add(path.is_dir())
    assert kinds == {"public": {True, False}, "private": {True, False}}
    assert any("/units/" in name for name in temporary)


def test_the_journals_of_a_ledger_are_of_its_owner(mask: int, tmp_path: Path) -> None:
    url = LedgerUrl(f"sqlite:///{tmp_path / 'budget.db'}")
    with Database(url, create=True).transaction() as connection:
        assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
        upgrade(connection, url)
        modes = {path.name: mode(path) for path in tmp_path.iterdir()}
    assert len(modes) == 2 and set(modes.values()) == {0o600}, modes
