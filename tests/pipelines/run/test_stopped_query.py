"""A run that is stopped while a driver executes its query, which may take hours."""

from __future__ import annotations

import signal
import sqlite3
import time
from typing import Any

import pytest

from tests.optional import table_library
from tests.pipelines.conftest import Workspace

# Minutes in one call of the driver, which cannot be cancelled.
QUERY = """
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t LIMIT 1000000000)
SELECT count(*) AS age FROM t
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_during_a_query(
    number: signal.Signals, code: int, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_library("adbc_driver_sqlite")
    sqlite3.connect(workspace.folder / "rows.db").close()
    (workspace.folder / "rows.db").touch()
    monkeypatch.setenv("VISITS", str(workspace.folder / "rows.db"))

    def change(settings: dict[str, Any]) -> None:
        settings["input"] = {
            "format": "adbc",
            "driver": "sqlite",
            "connection": "env:VISITS",
            "query": QUERY,
        }

    run = workspace.start("release", workspace.configure(change))
    time.sleep(4)
    assert run.poll() is None
    run.send_signal(number)
    begun = time.monotonic()
    try:
        _, err = run.communicate(timeout=20)
    finally:
        run.kill()
    assert (run.returncode, err) == (code, "dptrees: stopped\n")
    assert time.monotonic() - begun < 15
