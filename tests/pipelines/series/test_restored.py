"""A volume that was restored whole from a backup: a period that was published is made again with
the same bytes (docs/operations-keys.md)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.pipelines.test_modes import Booked


class Noisy(Booked):
    """Its noise is seen: two draws differ."""

    @property
    def settings(self) -> dict[str, Any]:
        settings = super().settings
        return settings | {"privacy": settings["privacy"] | {"rho": 1}}


def test_a_lost_period_is_made_again_with_its_published_nonce(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    made = Noisy(tmp_path / "volume")
    made.open_ledger()
    made.released_periods(1)
    backup = tmp_path / "backup"
    shutil.copytree(made.folder, backup)
    made.write_period(2)
    assert made.period(2).code == 0
    published = made.snapshot(2)
    nonce = json.loads(published["nonce.json"])["nonce"]

    def restore() -> None:
        shutil.rmtree(made.folder)
        shutil.copytree(backup, made.folder)
        made.write_period(2)

    restore()
    outcome = made.period(2, "--nonce", nonce)
    assert outcome.code == 0, outcome.err
    assert made.snapshot(2) == published
    # Without it the rows get another draw, which the restored ledger cannot notice.
    restore()
    assert made.period(2).code == 0
    again = made.snapshot(2)
    assert again["nonce.json"] != published["nonce.json"]
    assert not {name for name in published if name.startswith("nodes/")} & set(again)
