"""What the ledger refuses: one sentence, on the launcher and on workers."""

from __future__ import annotations

from dptrees.transforms.errors import ReleaseError


class LedgerError(ReleaseError):
    """The ledger refuses a release, or cannot be reached; nothing is released without it."""
