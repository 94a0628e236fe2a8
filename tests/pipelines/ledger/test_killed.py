"""A release that is killed at any step goes on with its reservation: the same bytes, spent once."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dptrees.pipelines.ledger.ledger import Ledger, open_account
from dptrees.pipelines.sections.values import LedgerUrl
from dptrees.transforms.folder.files import TEMPORARY_SUFFIX
from tests import postgresql
from tests.pipelines.conftest import NONCE
from tests.pipelines.ledger.asked import account_of, opened
from tests.pipelines.ledger.killed import DISCARDING, STEPS, UNKNOWN
from tests.pipelines.ledger.ledgered import Ledgered
from tests.pipelines.ledger.program import reported

UNDISCARDED = [step for step in STEPS if step != DISCARDING]
# At the other steps no transaction begins or ends: PostgreSQL holds what it does at one of these.
OF_LEDGER = [step for step in UNDISCARDED if STEPS[step][0].startswith("dptrees.pipelines.ledger.")]
DISCARDED = ("after the reservation", DISCARDING, "after the nonce")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the release holds that nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    made = Ledgered(folder, f"sqlite:///{folder}/budget.db")
    made.make()
    made.check_once()
    return made.contents


def kill(cases: Iterable[tuple[Ledgered, str]], *options: str) -> None:
    """Kill the release of each workspace at its step."""
    requests = [
        {"configuration": made.configure(), "step": step, "options": options or NONCE}
        for made, step in cases
    ]
    ends = reported("killed", json.dumps(requests))
    assert ends == [{"step": case["step"], "status": signal.SIGKILL} for case in requests]


def killed(steps: dict[str, str], folder: Path, new: Callable[[Path], str]) -> dict[str, Ledgered]:
    """Workspaces, by a name of their own, whose release was killed at a step; one process kills
    all of them.

    Args:
        steps: by the name.
        folder: in which they are made.
        new: makes the database of a folder; returns its URL.
    """
    made = {}
    for number, name in enumerate(steps):
        place = folder / str(number)
        place.mkdir()
        made[name] = Ledgered(place, new(place))
    kill((made[name], step) for name, step in steps.items())
    return made


# Each is used once, and what follows a draw that was killed by one database: test_ledger has every
# answer of both.
@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ledgered]:
    """Killed at each step, and for what follows a draw."""
    steps = {f"at {step}": step for step in UNDISCARDED}
    steps |= dict.fromkeys(("wiped", "emptied", "elsewhere", *DISCARDED), "after the first part")
    folder = tmp_path_factory.mktemp("sqlite")
    return killed(steps, folder, lambda place: f"sqlite:///{place}/budget.db")


@pytest.fixture(scope="module")
def on_postgresql(
    server: postgresql.Server, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Ledgered]:
    """Killed at each step of the ledger, and for what follows a draw."""
    steps = {f"at {step}": step for step in OF_LEDGER}
    steps |= dict.fromkeys(("other data", "another ledger"), "after the first part")
    folder = tmp_path_factory.mktemp("postgresql")
    return killed(steps, folder, lambda _: server.new_database())


@pytest.mark.parametrize("step", UNDISCARDED)
def test_killed_and_run_again(
    on_sqlite: dict[str, Ledgered], undisturbed: dict[str, bytes], step: str
) -> None:
    check_run_again(on_sqlite[f"at {step}"], undisturbed, step)


@pytest.mark.parametrize("step", OF_LEDGER)
def test_killed_and_run_again_on_postgresql(
    on_postgresql: dict[str, Ledgered], undisturbed: dict[str, bytes], step: str
) -> None:
    check_run_again(on_postgresql[f"at {step}"], undisturbed, step)


def check_run_again(made: Ledgered, undisturbed: dict[str, bytes], step: str) -> None:
    """Run a release again that was killed at a step."""
    left = made.contents
    for name, data in left.items():
        if name.endswith(TEMPORARY_SUFFIX):  # of a part that another thread was writing
            assert any(whole.startswith(data) for whole in undisturbed.values()), name
        else:
            assert undisturbed[name] == data, name
    entry = made.ledger.active_entry("flights", "small")
    assert (entry is None) == (step in UNKNOWN)
    if not any(name.startswith(("nodes/", "cdf/")) for name in left):
        assert step in UNDISCARDED[:8]
    else:  # noise has left, so the ledger knows the data
        assert entry is not None and entry.record is not None

    nonce = NONCE if step in UNKNOWN else ()
    outcome = made.succeed("release", made.configure(), *nonce)
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


@pytest.mark.parametrize("clear", [wiped, emptied])
def test_a_folder_that_is_gone_gets_the_same_bytes(
    on_sqlite: dict[str, Ledgered],
    undisturbed: dict[str, bytes],
    clear: Callable[[Ledgered], None],
) -> None:
    drawn = on_sqlite[clear.__name__]
    clear(drawn)
    assert drawn.run("release", drawn.configure()).code == 0
    assert drawn.contents == undisturbed
    drawn.check_once()


def test_other_data_in_a_folder_that_is_gone_draws_nothing(
    on_postgresql: dict[str, Ledgered],
) -> None:
    drawn = on_postgresql["other data"]
    wiped(drawn)
    pq.write_table(pq.read_table(drawn.file(0)).slice(1), drawn.file(0))
    outcome = drawn.run("release", drawn.configure())
    assert outcome.code == 2
    assert "release small was made from other data before, and making it again" in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert set(drawn.contents) == {"nonce.json", "plan.json"}
    # What was drawn stays spent, and no more is left.
    refused = drawn.run("release", drawn.configure(), "--discard")
    assert refused.code == 2 and "would be exceeded: epsilon 1 of 1 is spent" in refused.err
    assert set(drawn.contents) == {"nonce.json", "plan.json"}


def test_the_same_id_elsewhere(on_sqlite: dict[str, Ledgered]) -> None:
    drawn = on_sqlite["elsewhere"]

    def elsewhere(settings: dict[str, Any]) -> None:
        settings["output"] = str(drawn.folder / "elsewhere")

    outcome = drawn.run("release", drawn.configure(elsewhere))
    assert outcome.code == 2
    assert f"small is reserved for {drawn.output} already, and this one has another" in outcome.err
    assert not (drawn.folder / "elsewhere").exists()


def test_a_ledger_that_is_new(on_postgresql: dict[str, Ledgered]) -> None:
    """The beginning of a release that another ledger paid for."""
    drawn = on_postgresql["another ledger"]
    other = f"sqlite:///{drawn.folder}/other.db"
    opened(other, account_of("1"))
    before = drawn.contents
    outcome = drawn.run("release", drawn.configure(lambda s: s.update(ledger=other)))
    assert outcome.code == 2 and "contains the beginning of a release that" in outcome.err
    assert drawn.contents == before
    assert Ledger(LedgerUrl(other)).account(None).spent.epsilon == 0


@pytest.fixture(scope="module")
def discarded(on_sqlite: dict[str, Ledgered]) -> dict[str, tuple[Ledgered, dict[str, bytes]]]:
    """Workspaces whose release was killed while it discarded, by the step, and what they held
    before."""
    made = {step: on_sqlite[step] for step in DISCARDED}
    for each in made.values():
        open_account(LedgerUrl(each.url), account_of("2"), change_total=True)
    before = {step: (each, each.contents) for step, each in made.items()}
    kill(((each, step) for step, each in made.items()), "--discard")
    return before


@pytest.mark.parametrize("step", DISCARDED)
def test_killed_while_it_discards(
    discarded: dict[str, tuple[Ledgered, dict[str, bytes]]],
    undisturbed: dict[str, bytes],
    step: str,
) -> None:
    """What was drawn is paid for, and the new attempt is, once."""
    drawn, old = discarded[step]
    assert drawn.ledger.account("flights").spent.epsilon == 2
    again: tuple[str, ...] = ()
    if step == "after the reservation":  # the folder is as it was, and no longer its own
        assert drawn.contents == old
        outcome = drawn.run("release", drawn.configure())
        assert outcome.code == 2 and "delete the unfinished release with --discard" in outcome.err
        assert drawn.contents == old
        again = ("--discard",)
    drawn.succeed("release", drawn.configure(), *again)
    assert drawn.ledger.account("flights").spent.epsilon == 2
    assert drawn.contents.keys().isdisjoint(name for name in undisturbed if "/" in name)
