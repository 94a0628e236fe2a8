"""What a user of PostgreSQL needs, as docs/ledger.md says: no more than releases do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dptrees.pipelines.ledger.database import LedgerError
from dptrees.pipelines.ledger.ledger import Ledger
from dptrees.pipelines.sections.values import LedgerUrl
from tests.pipelines.ledger.asked import asked, opened

if TYPE_CHECKING:
    from tests.postgresql import Server


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
