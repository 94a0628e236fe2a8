"""A release that is killed at any step goes on with its reservation: the same bytes, spent once."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.ledger.ledger import Ledger
from pipelines.ledger.opening import open_account
from pipelines.ledger.url import LedgerUrl
from tests.pipelines.conftest import NONCE
from tests.pipelines.ledger.asked import account_of, opened
from tests.pipelines.ledger.killed import DISCARDING, STEPS, UNKNOWN
from tests.pipelines.ledger.ledgered import Ledgered
from tests.pipelines.ledger.program import told

DATABASES = ("sqlite", "postgresql")
UNDISCARDED = [step for step in STEPS if step != DISCARDING]


def database(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """The URL of a new database."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/budget.db"
    return str(request.getfixturevalue("server").new_database())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the release holds that nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    made = Ledgered(folder, f"sqlite:///{folder}/budget.db")
    outcome = made.release()
    assert outcome.code == 0, outcome.err
    made.check_once()
    return made.contents


def killed(cases: dict[str, Ledgered], *options: str) -> None:
    """Kills the release of each workspace at its step."""
    asked = [
        {"configuration": made.configure(), "step": step, "options": options or NONCE}
        for step, made in cases.items()
    ]
    ends = told("killed", json.dumps(asked))
    assert ends == [{"step": step, "status": signal.SIGKILL} for step in cases]


@pytest.fixture(scope="module", params=DATABASES)
def stopped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Ledgered]:
    """Workspaces whose release was killed, by the step."""
    folder = tmp_path_factory.mktemp("killed")
    cases = {}
    for number, step in enumerate(UNDISCARDED):
        place = folder / str(number)
        place.mkdir()
        cases[step] = Ledgered(place, database(request, request.param, place))
    killed(cases)
    return cases


@pytest.mark.parametrize("step", UNDISCARDED)
def test_killed_and_run_again(
    stopped: dict[str, Ledgered], undisturbed: dict[str, bytes], step: str
) -> None:
    made = stopped[step]
    left = made.contents
    assert all(undisturbed[name] == data for name, data in left.items())
    entry = made.ledger.standing("flights", "small")
    assert (entry is None) == (step in UNKNOWN)
    if not any(name.startswith(("nodes/", "cdf/")) for name in left):
        assert step in UNDISCARDED[:8]
    else:  # noise has left, so the ledger knows of which data
        assert entry is not None and entry.record is not None

    nonce = NONCE if step in UNKNOWN else ()
    outcome = made.run("release", made.configure(), *nonce)
    assert outcome.code == 0, outcome.err
    assert "ledger: data set flights: epsilon 1 of 1 spent" in outcome.out.splitlines()
    assert made.contents == undisturbed
    made.check_once()


def wiped(made: Ledgered) -> None:
    """What somebody does who takes the folder for waste."""
    shutil.rmtree(made.output)


def emptied(made: Ledgered) -> None:
    """What a careful person leaves."""
    for path in made.output.rglob("*"):
        if path.is_file() and path.name != "nonce.json":
            path.unlink()


@pytest.fixture(params=DATABASES)
def drawn(request: pytest.FixtureRequest, tmp_path: Path) -> Ledgered:
    """A workspace whose release was killed once noise had left."""
    made = Ledgered(tmp_path, database(request, request.param, tmp_path))
    killed({"after the first part": made})
    return made


@pytest.mark.parametrize("clear", [wiped, emptied])
def test_a_folder_that_is_gone_gets_the_same_bytes(
    drawn: Ledgered, undisturbed: dict[str, bytes], clear: Callable[[Ledgered], None]
) -> None:
    clear(drawn)
    assert drawn.run("release", drawn.configure()).code == 0
    assert drawn.contents == undisturbed
    drawn.check_once()


def test_other_data_in_a_folder_that_is_gone_draws_nothing(drawn: Ledgered) -> None:
    wiped(drawn)
    pq.write_table(pq.read_table(drawn.file(0)).slice(1), drawn.file(0))
    outcome = drawn.run("release", drawn.configure())
    assert outcome.code == 2
    assert "release small was drawn from other data before, and a second draw" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert set(drawn.contents) == {"nonce.json", "plan.json"}
    # What was drawn stays spent, and there is room for no more.
    refused = drawn.run("release", drawn.configure(), "--discard")
    assert refused.code == 2 and "would be passed: epsilon 1 of 1 is spent" in refused.err
    assert set(drawn.contents) == {"nonce.json", "plan.json"}


def test_the_same_id_elsewhere(drawn: Ledgered) -> None:
    def elsewhere(settings: dict[str, Any]) -> None:
        settings["output"] = str(drawn.folder / "elsewhere")

    outcome = drawn.run("release", drawn.configure(elsewhere))
    assert outcome.code == 2
    assert f"small is reserved for {drawn.output} already, and this one has another" in outcome.err
    assert not (drawn.folder / "elsewhere").exists()


def test_a_ledger_that_is_new(drawn: Ledgered) -> None:
    """The beginning of a release that another ledger paid for."""
    other = f"sqlite:///{drawn.folder}/other.db"
    opened(other, account_of("1"))
    before = drawn.contents
    outcome = drawn.run("release", drawn.configure(lambda s: s.update(ledger=other)))
    assert outcome.code == 2 and "holds the beginning of a release that" in outcome.err
    assert drawn.contents == before
    assert Ledger(LedgerUrl(other)).account(None).spent.epsilon == 0


@pytest.mark.parametrize("step", ["after the reservation", DISCARDING, "after the nonce"])
def test_killed_while_it_discards(
    drawn: Ledgered, undisturbed: dict[str, bytes], step: str
) -> None:
    """What was drawn is paid for, and the new attempt is, once."""
    open_account(LedgerUrl(drawn.url), account_of("2"), change_total=True)
    old = drawn.contents
    killed({step: drawn}, "--discard")
    assert drawn.ledger.account("flights").spent.epsilon == 2
    again: tuple[str, ...] = ()
    if step == "after the reservation":  # the folder is as it was, and no longer its own
        assert drawn.contents == old
        outcome = drawn.run("release", drawn.configure())
        assert outcome.code == 2 and "give up what was begun with --discard" in outcome.err
        assert drawn.contents == old
        again = ("--discard",)
    outcome = drawn.run("release", drawn.configure(), *again)
    assert outcome.code == 0, outcome.err
    assert drawn.ledger.account("flights").spent.epsilon == 2
    assert drawn.contents.keys().isdisjoint(name for name in undisturbed if "/" in name)
