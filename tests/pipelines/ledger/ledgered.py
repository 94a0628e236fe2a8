"""A workspace whose release counts in a ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dptrees.pipelines.ledger.accounts import State
from dptrees.pipelines.ledger.ledger import Ledger
from dptrees.transforms.folder.names import INPUT_LIST_NAMES
from tests.pipelines.conftest import Workspace
from tests.pipelines.ledger.asked import account_of, opened


class Ledgered(Workspace):
    """A workspace whose release counts in a ledger that admits one of it."""

    def __init__(self, folder: Path, url: str) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        self.url = url
        self.ledger: Ledger = opened(url, account_of("1"))

    @property
    def settings(self) -> dict[str, Any]:
        """The configuration of the small release, with a ledger."""
        return super().settings | {"ledger": self.url}

    @property
    def contents(self) -> dict[str, bytes]:
        """The files of the release, the page and what a killed run leaves aside."""
        found = (path for path in self.output.rglob("*") if path.is_file())
        return {
            path.relative_to(self.output).as_posix(): path.read_bytes()
            for path in found
            if path.name != "report.html" and not INPUT_LIST_NAMES.fullmatch(path.name)
        }

    def check_once(self) -> None:
        """Sees that the release is finished, and was paid for once."""
        entry = self.ledger.active_entry("flights", "small")
        assert entry is not None and entry.state is State.COMMITTED
        assert entry.record == json.loads(self.contents["record.json"])["record"]
        assert self.ledger.account("flights").spent.epsilon == 1
