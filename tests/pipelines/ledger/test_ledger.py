"""The ledger's rules on both databases: what adds up, what goes on, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dptrees.dpcore.privacy.unit import Neighbors
from dptrees.pipelines.ledger.accounts import Loss, State, entries, events
from dptrees.pipelines.ledger.database import LedgerError
from dptrees.pipelines.ledger.ledger import BudgetRequest, Ledger, open_account
from dptrees.pipelines.sections.values import LedgerUrl
from tests.pipelines.ledger.asked import account_of, asked, opened, plan_of
from tests.pipelines.refusals import not_refused
from tests.postgresql import Server

RECORD, OTHER = bytes(32), bytes(range(32))


def spent(ledger: Ledger) -> Loss:
    """What the data set has spent, which is to be the sum of its entries."""
    with ledger.transaction() as connection:
        rows = entries(connection, "flights")
    costs = [Loss.from_texts(row) for row in rows if row["state"] != State.WITHDRAWN.value]
    found = ledger.account("flights").spent
    assert sum(costs, start=Loss()) == found
    return found


def happened(ledger: Ledger) -> list[str]:
    """What happened, in order."""
    with ledger.transaction() as connection:
        return [event["event"] for event in events(connection)]


def test_a_release_from_reservation_to_commit(url: str) -> None:
    ledger = opened(url)
    entry = ledger.reserve(asked())
    assert entry.state is State.RESERVED and entry.record is None
    assert spent(ledger).epsilon == 1
    ledger.record(entry.number, RECORD)
    ledger.record(entry.number, RECORD)  # a retry
    ledger.commit(entry.number, entry.nonce, RECORD.hex())
    ledger.commit(entry.number, entry.nonce, RECORD.hex())
    found = ledger.active_entry("flights", "small")
    assert found is not None and found.state is State.COMMITTED
    assert found.record == RECORD.hex()
    assert spent(ledger).epsilon == 1
    assert happened(ledger) == ["opened", "reserved", "committed"]


def test_amounts_add_up_exactly(url: str) -> None:
    """Ten tenths are one, which ten floats of 0.1 are not; and a third stays one."""
    ledger = opened(url, account_of("1"))
    for number in range(10):
        ledger.reserve(asked("epsilon: 0.1", f"r{number}"))
    assert spent(ledger).epsilon == 1
    with pytest.raises(LedgerError, match="would be exceeded: epsilon 1 of 1 is spent"):
        ledger.reserve(asked("epsilon: 0.0001", "r10"))
    open_account(LedgerUrl(url), account_of("4/3"), change_total=True)
    assert ledger.account("flights").total.epsilon == Fraction(4, 3)


def test_a_total_that_would_be_passed(url: str) -> None:
    ledger = opened(url, account_of("1.5"))
    ledger.reserve(asked())
    before = happened(ledger)
    with pytest.raises(LedgerError, match=r"epsilon 1 of 1\.5 is spent, and this release costs"):
        ledger.reserve(asked(name="second"))
    assert spent(ledger).epsilon == 1 and happened(ledger) == before
    assert ledger.active_entry("flights", "second") is None


def test_a_delta_is_counted_too(url: str) -> None:
    ledger = opened(url, account_of("10", "1/1000000"))
    gaussian = "{name: all, domain: {column: x, lower: 0, upper: 9, cells: 9}, noise: gaussian}"
    plans = [plan_of("epsilon: 1, delta: 0.000001", name, tree=gaussian) for name in ("a", "b")]
    ledger.reserve(asked(plan=plans[0]))
    with pytest.raises(LedgerError, match="delta 1e-06 of 1e-06 is spent"):
        ledger.reserve(asked(plan=plans[1]))
    ledger.reserve(asked("epsilon: 1", "third"))  # spends none
    assert spent(ledger) == Loss(epsilon=Fraction(2), delta=Fraction(1, 10**6))


def test_what_was_begun_goes_on_at_no_cost(url: str) -> None:
    ledger = opened(url, account_of("1"))
    first = ledger.reserve(asked())
    again = ledger.reserve(asked(begun=True, nonce=first.nonce_bytes))
    assert again == first and spent(ledger).epsilon == 1
    ledger.record(first.number, RECORD)
    assert ledger.reserve(asked()).record == RECORD.hex()  # its folder is gone
    ledger.commit(first.number, first.nonce, RECORD.hex())
    assert ledger.reserve(asked()).number == first.number
    assert spent(ledger).epsilon == 1


OTHER_RELEASES = [
    ({"privacy": "epsilon: 2"}, "has another specification"),
    ({"folder": "/out/elsewhere"}, "has another output"),
    ({"key": 64 * "b"}, "has another key"),
    ({"nonce": bytes(16)}, "has another nonce"),
]


def test_what_differs_is_another_release(url: str) -> None:
    ledger = opened(url)
    entry = ledger.reserve(asked())
    ledger.record(entry.number, RECORD)
    for committed in (False, True):
        if committed:
            ledger.commit(entry.number, entry.nonce, RECORD.hex())
        for other, words in OTHER_RELEASES:
            with pytest.raises(LedgerError, match=words) as refused:
                ledger.reserve(asked(**other))  # type: ignore[arg-type]
            sentence = refused.value.sentence
            exists = "is made into" if committed else "is reserved for"
            assert f"release: small {exists} /out/small already" in sentence
            assert "making it again would spend its budget again; choose another id" in sentence
            may_discard = not committed and "folder" not in other
            assert ("delete the unfinished release with --discard" in sentence) is may_discard
            assert spent(ledger).epsilon == 1


def test_other_data_under_one_reservation(url: str) -> None:
    ledger = opened(url)
    entry = ledger.reserve(asked())
    ledger.record(entry.number, RECORD)
    with pytest.raises(LedgerError, match="small was made from other data before"):
        ledger.record(entry.number, OTHER)
    with pytest.raises(LedgerError, match="contains other noise"):
        ledger.commit(entry.number, entry.nonce, OTHER.hex())


def test_what_was_drawn_and_given_up_stays_spent(url: str) -> None:
    ledger = opened(url, account_of("2"))
    first = ledger.reserve(asked())
    ledger.record(first.number, RECORD)
    second = ledger.reserve(asked("epsilon: 0.5", anew=True, begun=True))
    assert second.number != first.number and second.nonce != first.nonce
    assert spent(ledger).epsilon == Fraction(3, 2)
    for job in (
        lambda: ledger.record(first.number, RECORD),
        lambda: ledger.commit(first.number, first.nonce, RECORD.hex()),
    ):
        with pytest.raises(LedgerError, match="was discarded \\(--discard\\) while this job ran"):
            job()
    ledger.record(second.number, OTHER)
    with pytest.raises(LedgerError, match="would be exceeded"):
        ledger.reserve(asked(anew=True, begun=True))
    kept = ledger.active_entry("flights", "small")  # a refusal gives nothing up
    assert kept is not None and kept.number == second.number
    assert happened(ledger) == ["opened", "reserved", "discarded", "reserved"]


def test_what_drew_nothing_is_withdrawn(url: str) -> None:
    """Whatever the job that reserved does later: it can draw no more."""
    ledger = opened(url, account_of("1"))
    first = ledger.reserve(asked())
    second = ledger.reserve(asked(anew=True))
    assert spent(ledger).epsilon == 1 and second.nonce != first.nonce
    with pytest.raises(LedgerError, match="was discarded"):
        ledger.record(first.number, RECORD)
    assert happened(ledger) == ["opened", "reserved", "withdrawn", "reserved"]


def test_a_folder_that_does_not_go_with_the_ledger(url: str) -> None:
    ledger = opened(url)
    with pytest.raises(LedgerError, match="contains the beginning of a release that is not in "):
        ledger.reserve(asked(begun=True))
    with pytest.raises(LedgerError, match="contains nothing that --discard could remove"):
        ledger.reserve(asked(anew=True))
    assert spent(ledger).epsilon == 0


def test_a_finished_release_is_not_given_up_nor_another_folders(url: str) -> None:
    ledger = opened(url)
    entry = ledger.reserve(asked())
    with pytest.raises(LedgerError, match="is reserved for /out/small; discard it there"):
        ledger.reserve(asked(folder="/elsewhere", anew=True, begun=True))
    ledger.commit(entry.number, entry.nonce, RECORD.hex())
    with pytest.raises(LedgerError, match="does not remove a finished release"):
        ledger.reserve(asked(anew=True, begun=True))


def test_data_sets_do_not_share(url: str) -> None:
    ledger = opened(url, account_of("1"))
    open_account(LedgerUrl(url), account_of("1", dataset="trains"))
    ledger.reserve(asked())
    ledger.reserve(asked(dataset="trains"))
    assert ledger.account("trains").spent.epsilon == 1
    with pytest.raises(LedgerError, match=r"must be named, .* holds 2 data sets \(flights, trains"):
        ledger.account(None)
    with pytest.raises(LedgerError, match="holds no data set boats; it holds flights, trains"):
        ledger.reserve(asked(dataset="boats"))


def test_another_relation_or_unit(url: str) -> None:
    ledger = opened(url)
    with pytest.raises(LedgerError, match=r"privacy\.neighbors: .* with neighbors add_remove, and"):
        ledger.reserve(asked(plan=plan_of(neighbors="substitute")))
    open_account(LedgerUrl(url), account_of(dataset="people", unit=("person",)))
    with pytest.raises(LedgerError, match=r"privacy\.unit: .* with unit person, and"):
        ledger.reserve(asked(dataset="people"))
    person = "epsilon: 1, unit: person, max_rows: {}".format
    ledger.reserve(asked(person(2), dataset="people"))
    ledger.reserve(asked(person(5), "other", dataset="people"))  # other bounds of the same unit
    assert ledger.account("people").spent.epsilon == 2


def test_a_unit_is_its_columns_in_any_order(url: str) -> None:
    ledger = opened(url, account_of(unit=("place", "person")))
    ledger.reserve(asked("epsilon: 1, unit: [person, place], max_rows: 2"))
    with pytest.raises(
        LedgerError, match="with unit person and place, and this release has person"
    ):
        ledger.reserve(asked("epsilon: 1, unit: person, max_rows: 2", "other"))


def test_a_data_set_that_is_there_stays(url: str) -> None:
    ledger = opened(url)
    rows: list[tuple[dict[str, Any], str]] = [
        ({"epsilon": "2"}, "already has a total of epsilon = 3; --change-total changes it"),
        ({"unit": ("person",)}, "already has unit row, not person, which never changes"),
        ({"neighbors": Neighbors.SUBSTITUTE}, "already has neighbors add_remove, not substitute"),
        ({"epsilon": None, "rho": "1"}, "already has measure epsilon, not rho"),
    ]

    def attempt(settings: dict[str, Any]) -> None:
        open_account(LedgerUrl(url), account_of(**settings))

    assert not not_refused(attempt, rows, LedgerError)
    assert open_account(LedgerUrl(url), account_of()) is None
    assert happened(ledger) == ["opened"]


def test_a_total_changes_where_that_is_requested(url: str) -> None:
    ledger = opened(url)
    ledger.reserve(asked())
    place = LedgerUrl(url)
    assert open_account(place, account_of("1"), change_total=True) == "total changed"
    with pytest.raises(
        LedgerError, match=r"0\.5 is below the spent budget of data set flights: eps"
    ):
        open_account(place, account_of("0.5"), change_total=True)
    with pytest.raises(LedgerError, match="holds no data set trains"):
        open_account(place, account_of(dataset="trains"), change_total=True)
    account = ledger.account("flights")
    assert account.total.epsilon == 1 and account.spent.epsilon == 1
    assert happened(ledger) == ["opened", "reserved", "total changed"]


def period_request(period: int) -> BudgetRequest:
    """The request of a run of a series of four periods."""
    plan = plan_of(name="days", series=f"{{periods: 4, period: {period}}}")
    return asked(plan=plan, name=f"period-{period:04d}")


def test_a_run_of_a_series_that_is_drawn_again_is_paid_again(url: str) -> None:
    """The first run pays for all of them, but each is drawn once for that."""
    ledger = opened(url)
    for period in (1, 2):
        entry = ledger.reserve(period_request(period))
        ledger.record(entry.number, RECORD)
        if period == 1:
            ledger.commit(entry.number, entry.nonce, RECORD.hex())
    assert spent(ledger).epsilon == 1
    again = replace(period_request(2), begun=True, anew=True)
    entry = ledger.reserve(again)
    assert spent(ledger).epsilon == 2
    ledger.reserve(again)  # nothing was drawn since, so nothing more is spent
    assert spent(ledger).epsilon == 2
    ledger.record(ledger.reserve(period_request(2)).number, OTHER)
    ledger.reserve(again)
    assert spent(ledger).epsilon == 3
    with pytest.raises(LedgerError, match="would be exceeded"):
        ledger.record(ledger.reserve(period_request(2)).number, RECORD)
        ledger.reserve(again)


def test_a_user_who_may_release_alone(server: Server) -> None:
    url = server.new_database()
    opened(url)
    user = url.rpartition("/")[2].replace("budgets", "releaser")
    server.execute(f"CREATE ROLE {user} LOGIN")
    ledger = Ledger(LedgerUrl(url.replace("tester@", f"{user}@")))
    with pytest.raises(LedgerError, match="permission denied"):
        ledger.reserve(asked())
    for granted in (
        f"SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {user}",
        f"USAGE ON ALL SEQUENCES IN SCHEMA public TO {user}",
    ):
        server.execute(f"GRANT {granted}", database=url)
    entry = ledger.reserve(asked())
    ledger.record(entry.number, bytes(32))
    ledger.commit(entry.number, entry.nonce, bytes(32).hex())
    assert ledger.account(None).spent.epsilon == 1
