"""What the ledger refuses: one sentence, on the launcher and on workers."""

from __future__ import annotations

from transforms.errors import ReleaseError


class LedgerError(ReleaseError):
    """The ledger refuses, or cannot be asked; nothing is released without it."""
