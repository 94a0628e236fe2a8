"""``dptrees ledger``, and releases with one: what is said, and one sentence for each mistake."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dptrees.pipelines.ledger import database
from dptrees.pipelines.ledger.accounts import locked_account
from dptrees.pipelines.ledger.database import LedgerError
from dptrees.pipelines.ledger.ledger import open_account
from dptrees.pipelines.sections.values import LedgerUrl
from tests.pipelines.conftest import Outcome, Workspace, search_path
from tests.pipelines.ledger.asked import account_of
from tests.pipelines.ledger.ledgered import Ledgered

SECRET = "kumquat"  # which no message may show


@pytest.fixture
def made(url: str, tmp_path: Path) -> Ledgered:
    """A workspace with a ledger that admits one release."""
    return Ledgered(tmp_path / "made", url)


@pytest.fixture
def plain(tmp_path: Path) -> Ledgered:
    """The same, of SQLite alone: the requests do not depend on the database."""
    return Ledgered(tmp_path / "made", f"sqlite:///{tmp_path}/budget.db")


def refused(outcome: Outcome, *words: str, code: int = 2) -> None:
    """Sees that a command was refused in one sentence that has these words."""
    assert outcome.code == code, outcome
    assert len(outcome.err.splitlines()) == 1 and SECRET not in outcome.err
    for word in words:
        assert word in outcome.err


def test_a_finished_release_costs_nothing_nor_does_its_repair(made: Ledgered) -> None:
    assert made.release().code == 0
    before = made.contents
    shutil.copytree(made.rows, made.folder / "kept")
    shutil.rmtree(made.rows)
    again = made.run("release", made.configure())
    assert (
        again.code == 0 and "no rows were read, and no noise was added or budget spent" in again.out
    )
    shutil.move(made.folder / "kept", made.rows)
    next((made.output / "nodes").iterdir()).unlink()
    assert made.run("release", made.configure(), "--repair").code == 0
    assert made.contents == before
    made.check_once()


def test_a_second_release_is_refused_before_a_row_is_read(
    made: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert made.release().code == 0
    path = made.configure(lambda s: s.update(release="more", output=str(made.folder / "more")))
    monkeypatch.delattr("dptrees.pipelines.run.stage.Stage._run")  # no job is even built
    outcome = made.run("release", path)
    refused(outcome, "the total of data set flights would be exceeded: epsilon 1 of 1 is spent")
    assert not (made.folder / "more").exists()


def test_discarding_needs_budget_once_noise_was_drawn(plain: Ledgered) -> None:
    assert plain.release().code == 0
    (plain.output / "manifest.json").unlink()
    url = LedgerUrl(plain.url)
    with sqlite3.connect(
        plain.folder.parent / "budget.db"
    ) as connection:  # as a killed run left it
        connection.execute("UPDATE dptrees_releases SET state = 'reserved'")
    before = plain.contents
    refused(plain.run("release", plain.configure(), "--discard"), "would be exceeded")
    assert plain.contents == before
    open_account(url, account_of("2"), change_total=True)
    outcome = plain.succeed("release", plain.configure(), "--discard")
    assert "ledger: data set flights: epsilon 2 of 2 spent" in outcome.out
    assert not {name for name in before if "/" in name} & plain.contents.keys()


def test_a_ledger_that_was_lost(made: Ledgered) -> None:
    assert made.release().code == 0
    other = f"sqlite:///{made.folder}/other.db"
    open_account(LedgerUrl(other), account_of("1"))
    outcome = made.run("release", made.configure(lambda s: s.update(ledger=other)))
    refused(outcome, "contains a release that is not in sqlite:///", "is not counted there")


def test_a_release_of_another_data_set_exists(plain: Ledgered) -> None:
    assert plain.release().code == 0
    open_account(LedgerUrl(plain.url), account_of("1", dataset="trains"))
    outcome = plain.run("release", plain.configure(lambda s: s.update(dataset="trains")))
    refused(outcome, "contains a release of another specification")
    refused(plain.run("release", plain.configure()), "dataset: must be named")


def test_urls_that_are_none(plain: Ledgered) -> None:
    form = "ledger: must be sqlite:///FILE"
    for url, words in (
        (f"postgresql://me:{SECRET}@127.0.0.1/db", "ledger: must not hold a password: put it into"),
        (f"postgresql://me@127.0.0.1/db?password={SECRET}", "ledger: must not hold a password"),
        (f"mysql://me:{SECRET}@host/db", "must not hold a password"),
        ("sqlite:///", f"{form} or postgresql://USER@HOST/DATABASE"),
        ("sqlite://budget.db", form),
        ("sqlite:///:memory:", form),
        ("budget.db", form),
        ("postgresql://me@host:port/db", form),
        ("postgresql://me@host/", form),
        ("", "ledger: must"),
    ):
        path = plain.configure(lambda settings, url=url: settings.update(ledger=url))
        refused(plain.run("release", path), words)
        refused(plain.run("ledger", "show", url), words)
    assert not plain.output.exists()


def test_what_is_refused_spends_nothing(plain: Ledgered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(plain.folder)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"ledger": 1}, "ledger: must be a string"),
        ({"dataset": "a/b"}, "dataset: 'a/b' must be 1 to 100 letters"),
        ({"dataset": "trains"}, "holds no data set trains; it holds flights; add it with"),
        ({"privacy": {"rho": 1, "neighbors": "add_remove"}}, "privacy.rho: its data set counts"),
        ({"privacy": {"epsilon": 1, "neighbors": "substitute"}}, "privacy.neighbors: the ledger"),
        # Mistakes elsewhere.
        ({"input": {"format": "parquet", "path": "nowhere/*.parquet"}}, "input"),
        ({"key_file": "nowhere.key"}, "nowhere.key"),
        ({"output": "release.yaml"}, "release.yaml"),
    ]
    for change, words in changes:
        path = plain.configure(lambda settings, change=change: settings.update(change))
        refused(plain.run("release", path), words)
        assert plain.ledger.account("flights").spent.epsilon == 0
    assert not plain.output.exists()


def test_a_data_set_without_a_ledger(workspace: Workspace) -> None:
    outcome = workspace.release(lambda settings: settings.update(dataset="flights"))
    refused(outcome, "dataset: goes with ledger")


def test_data_sets_that_cannot_be(plain: Ledgered) -> None:
    for options, words in (
        ("--epsilon 1 --rho 1", "exactly one of --epsilon and --rho"),
        ("", "exactly one of --epsilon and --rho"),
        ("--epsilon 0", "--epsilon: 0 must be a number above 0"),
        ("--epsilon much", "--epsilon: 'much' must be a number"),
        ("--epsilon nan", "--epsilon: NaN must be a number above 0"),
        ("--epsilon 1e999999999", "--epsilon: 1E+999999999 must be from 1e-15 to 1e15"),
        ("--epsilon 1 --delta 1", "--delta: 1 must be a number above 0 and below 1"),
        ("--rho 1 --delta 0.1", "--delta: goes with --epsilon"),
        ("--epsilon 1 --unit a --unit a", "--unit: a column is named twice"),
        ("--epsilon 1 --neighbors friends", "invalid choice: 'friends'"),
        ("--epsilon 2", "--change-total changes it"),
    ):
        command = ("ledger", "init", plain.url, "--dataset", "flights", *options.split())
        outcome = plain.run(*command)
        assert outcome.code == 2 and words in outcome.err
    assert plain.ledger.account("flights").total.epsilon == 1


def test_init_makes_the_ledger_and_may_be_repeated(url: str, workspace: Workspace) -> None:
    command = ("ledger", "init", url, "--dataset", "people", "--rho", "0.5", "--unit", "person")
    for end in ("(opened)", "(it was there already, the same)"):
        outcome = workspace.succeed(*command, "--neighbors", "substitute")
        words = "data set people: a total of rho = 0.5 per person, neighbors substitute"
        assert outcome.out == f"{url}: {words} {end}\n"
    assert workspace.run("ledger", "upgrade", url).out == f"{url}: version 0001, before 0001\n"


def test_a_path_is_relative_to_the_working_directory(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.folder)
    url = "sqlite:///budget.db"
    assert workspace.run("ledger", "init", url, "--dataset", "d", "--epsilon", "1").code == 0
    assert (workspace.folder / "budget.db").exists()
    assert workspace.release(lambda settings: settings.update(ledger=url)).code == 0


def test_a_file_that_is_missing_stays_missing(workspace: Workspace) -> None:
    url = f"sqlite:///{workspace.folder}/nowhere.db"
    words = "if there was none before, make one with: dptrees ledger"
    for step in ("show", "history", "upgrade"):
        refused(workspace.run("ledger", step, url), words)
    refused(workspace.release(lambda s: s.update(ledger=url)), "holds no ledger")
    assert not (workspace.folder / "nowhere.db").exists()
    assert not workspace.output.exists()


def test_a_file_that_is_no_database(workspace: Workspace) -> None:
    path = workspace.folder / "notes.txt"
    path.write_text("kumquat\n" * 1000)
    refused(workspace.run("ledger", "show", f"sqlite:///{path}"), "cannot be used: file is not a")


def test_a_server_that_does_not_answer(workspace: Workspace) -> None:
    url = "postgresql://me@127.0.0.1:1/budgets"  # where nobody listens
    pytest.importorskip("psycopg")
    outcome = workspace.release(lambda settings: settings.update(ledger=url))
    refused(outcome, f"ledger: {url} cannot be used: ", code=75)
    assert not workspace.output.exists()


def test_a_driver_that_is_missing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    outcome = workspace.run("ledger", "show", "postgresql://me@127.0.0.1/budgets")
    refused(outcome, "needs the driver of PostgreSQL: install dptrees[postgresql]")


def test_a_ledger_that_is_gone_when_noise_would_be_drawn(
    made: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is drawn without it: the job stops at the record."""
    monkeypatch.setattr(
        "dptrees.pipelines.ledger.booking.Booking.witness",
        lambda self, entry: Gone(),
    )
    refused(made.release(), "cannot be used: gone")
    assert set(made.contents) == {"nonce.json", "plan.json"}
    monkeypatch.undo()
    assert made.run("release", made.configure()).code == 0
    made.check_once()


class Gone:
    """A ledger that cannot be reached from the worker."""

    def __call__(self, record: bytes) -> None:
        raise LedgerError("ledger: cannot be used: gone")


def test_a_ledger_that_is_busy(made: Ledgered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 1)
    settings = database._SETTINGS.replace("120s", "1s")
    monkeypatch.setattr(database, "_SETTINGS", settings)
    with made.ledger.transaction() as connection:
        locked_account(connection, "flights")
        refused(made.release(), "ledger: ", "cannot be used: ", code=75)
    assert not made.output.exists()
    assert made.ledger.account("flights").spent.epsilon == 0


def test_a_sum_that_was_edited_is_noticed(plain: Ledgered) -> None:
    assert plain.release().code == 0
    with sqlite3.connect(plain.folder.parent / "budget.db") as connection:
        connection.execute("UPDATE dptrees_datasets SET spent_epsilon = '0'")
    outcome = plain.run("ledger", "show", plain.url)
    refused(outcome, "epsilon 0 of 1 spent, which is not the sum over its releases")


def test_planning_imports_no_ledger(plain: Ledgered) -> None:
    program = (
        "import sys; from dptrees.pipelines.cli.command import main; code = main(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "plan", plain.configure()],
        env=os.environ | {"PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "dptrees.pipelines.sections.values" in loaded
    assert not {"sqlalchemy", "alembic", "psycopg", "apache_beam"} & loaded


def test_a_release_of_people(workspace: Workspace) -> None:
    """The ledger counts per unit; another release may bound the unit otherwise, not be per row."""
    url = f"sqlite:///{workspace.folder}/people.db"
    open_account(LedgerUrl(url), account_of("2", unit=("place",)))

    def people(settings: dict[str, Any]) -> None:
        settings.update(ledger=url)
        settings["privacy"].update(unit="place", max_rows=2)
        del settings["trees"][1:]

    def bounded_otherwise(settings: dict[str, Any]) -> None:
        people(settings)
        settings["privacy"].update(max_rows=3)
        settings.update(release="second", output=str(workspace.folder / "second"))

    refused(workspace.release(lambda s: s.update(ledger=url)), "with unit place, and this release")
    assert workspace.release(people).code == 0
    outcome = workspace.release(bounded_otherwise)
    assert "ledger: data set flights: epsilon 2 of 2 spent" in outcome.out.splitlines()
