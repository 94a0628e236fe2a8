"""The ledger is asked by a worker before noise is drawn, wherever an engine runs it."""

from __future__ import annotations

import shutil

import pyarrow.parquet as pq
import pytest
import yaml

from dptrees.pipelines.ledger.accounts import State
from tests.engines.conftest import Workspace, release_files
from tests.pipelines.ledger.asked import account_of, opened

pytestmark = pytest.mark.engines


# One engine of each kind; those of this process are tested in tests/pipelines/ledger.
@pytest.mark.parametrize("running", ["prism", "flink_cluster", "spark"], indirect=True)
def test_one_draw_a_reservation(workspace: Workspace) -> None:
    url = f"sqlite:///{workspace.folder}/budget.db"
    ledger = opened(url, account_of("1"))
    settings = yaml.safe_load(workspace.configuration.read_text()) | {"ledger": url}
    workspace.configuration.write_text(yaml.safe_dump(settings))
    made = workspace.release()

    shutil.rmtree(workspace.output)
    assert workspace.release() == made  # from the ledger's nonce, at no cost
    first = workspace.folder / "rows" / "part-0.parquet"
    rows = pq.read_table(first)
    pq.write_table(rows.slice(1), first)
    shutil.rmtree(workspace.output)
    assert workspace.finish(workspace.start()) == 2
    assert "release engines was made from other data before" in workspace.log()
    assert set(release_files(workspace.output)) == {"nonce.json", "plan.json"}

    entry = ledger.active_entry("flights", "engines")
    assert entry is not None and entry.state is State.COMMITTED
    assert ledger.account("flights").spent.epsilon == 1
